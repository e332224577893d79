//===- Scheduling.h - an order of least peak --------------------*- C++ -*-===//
//
// Finds an order of a program's instructions with a small peak of live memory (related to register allocation, NP-hard:
// Sethi 1975). Small parts are solved exactly, over sets that are closed under predecessors.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_SCHEDULING_H
#define TCC_PLANNING_SCHEDULING_H

#include "compiler/planning/Program.h"

namespace tcc::planning {

/// How hard to try, in elementary visits (a few hundred million take a second).
constexpr uint64_t kSchedulingWork = 100'000'000;

struct SchedulingOptions {
  uint64_t work = kSchedulingWork;
  std::function<bool()> stop; ///< polled; true ends the search early, and the solution then depends on time
  /// The search also ends once the peak exceeds the lower bound by at most peak / closePart; 0: only once it meets the
  /// bound.
  Bytes closePart = 0;
};

struct SchedulingSolution {
  Sequence order;       ///< each instruction once
  Bytes peak = 0;       ///< peakOf(program, order)
  Bytes lowerBound = 0; ///< no order of these instructions has a smaller peak
  /// Further orders met during the search, smallest peak first, none much larger: they may pack better.
  std::vector<Sequence> others;
};

/// Never worse than the program's own order; the same program and work give the same solution. If the program's own
/// order overwrites state before all its readers (`after`), the solution's order does not.
SchedulingSolution schedule(const Program &program, const SchedulingOptions &options = {});

/// The order of a solution with the smallest packed arena, the first of equal ones; `work` is for each packing.
Sequence leastPacked(const Program &program, const SchedulingSolution &solution, uint64_t work = kPackingWork / 10);

} // namespace tcc::planning

#endif // TCC_PLANNING_SCHEDULING_H

//===- Scheduling.h - an order of least peak --------------------*- C++ -*-===//
//
// Which order of a program's instructions keeps the least memory live (register-allocation's cousin on graphs, NP-hard:
// Sethi 1975; exact by dynamic programming over sets that are closed under predecessors on small parts).
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
  std::function<bool()> stop; ///< ends the search early; a solution then depends on when it did
  /// The search also ends once the peak exceeds its lower bound by at most one part in so many; 0: only once it meets
  /// the bound.
  Bytes closePart = 0;
};

struct SchedulingSolution {
  Sequence order;       ///< each instruction once
  Bytes peak = 0;       ///< peakOf(program, order)
  Bytes lowerBound = 0; ///< no order of these instructions has a smaller peak
  /// Further orders that were met on the way, smallest peak first, none much larger: what they need may pack better.
  std::vector<Sequence> others;
};

/// Never worse than the program's own order; the same program and work give the same solution. The program's own order
/// may overwrite state before all have read it (`after`): then the solution's does not.
SchedulingSolution schedule(const Program &program, const SchedulingOptions &options = {});

/// Of a solution's orders the one whose packed arena is smallest, with `work` for each packing; the first where several
/// are.
Sequence leastPacked(const Program &program, const SchedulingSolution &solution, uint64_t work = kPackingWork / 10);

} // namespace tcc::planning

#endif // TCC_PLANNING_SCHEDULING_H

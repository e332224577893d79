//===- Overlap.h - memory-bound updates beside library calls ----*- C++ -*-===//
//
// One core nearly saturates the memory bandwidth: two cores that update parameters wait half of the time, and two that
// multiply leave memory idle. This lets memory-bound instructions run concurrently with later, independent library
// calls. It starts from a finished order and packing: instructions may be reordered, live ranges extended and buffers
// moved, but the arena does not grow.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_OVERLAP_H
#define TCC_PLANNING_OVERLAP_H

#include "compiler/planning/Packing.h"

#include <string>
#include <vector>

namespace tcc::planning {

/// An instruction's time and its memory accesses. Memory is named by number: the packing problem's buffers first, state
/// after them.
struct OverlapInstruction {
  uint64_t computeNs = 0;  ///< of a library call; others hide nothing
  uint64_t memoryNs = 0;   ///< of an instruction that may be hidden; else 0
  std::vector<int> reads;  ///< ascending
  std::vector<int> writes; ///< ascending, partial sums included
};

struct OverlapProblem {
  PackingProblem packing; ///< lives at positions of `instructions`; −1: at entry, their number: at exit
  std::vector<OverlapInstruction> instructions;
  std::vector<Bytes> offsets; ///< of the given packing
  Bytes capacity = 0;         ///< of its arena
};

struct OverlapSolution {
  std::vector<int> order;     ///< instructions in their new order
  std::vector<int> beside;    ///< n: the instruction at this position may still run while the next n do
  std::vector<Bytes> offsets; ///< one per buffer
  uint64_t hiddenNs = 0;      ///< memory time beside library calls
};

/// Visits the memory-bound instructions, longest first, and lets each run beside the library calls behind it. Its
/// readers move behind these calls; if too few calls follow, it moves before other calls, together with its
/// predecessors. A change that does not fit the arena is not made. An instruction with scratch is not overlapped, since
/// its scratch would alias that of the calls beside it. O(n) for each attempt, at most a dozen attempts for each
/// instruction.
OverlapSolution overlap(const OverlapProblem &problem);

/// The packing problem of a solution: live ranges in its order, extended to the end of the overlap.
PackingProblem packingOf(const OverlapProblem &problem, const OverlapSolution &solution);

/// Checks a solution pair by pair, independently of the search: two instructions of which one writes memory that the
/// other touches keep their order and do not overlap in time; buffers that live at once do not overlap in memory.
/// Returns the violation, or an empty string.
std::string validate(const OverlapProblem &problem, const OverlapSolution &solution);

} // namespace tcc::planning

#endif // TCC_PLANNING_OVERLAP_H

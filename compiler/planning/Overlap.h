//===- Overlap.h - what waits for memory beside what multiplies -*- C++ -*-===//
//
// One core can ask for nearly all that memory gives, so two cores that update parameters wait half of the time, and two
// that multiply leave memory idle. Here instructions bound by memory get leave to run while later, independent library
// calls do. An order and a packing stand already: instructions change places, lives grow and buffers move only as far
// as the arena does not.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_OVERLAP_H
#define TCC_PLANNING_OVERLAP_H

#include "compiler/planning/Packing.h"

#include <string>
#include <vector>

namespace tcc::planning {

/// An instruction as far as time is concerned. Memory is named by number: the packing problem's buffers first, state
/// after them.
struct OverlapInstruction {
  uint64_t computeNs = 0;  ///< of a library call; others hide nothing
  uint64_t memoryNs = 0;   ///< of what may be hidden; else 0
  std::vector<int> reads;  ///< ascending
  std::vector<int> writes; ///< ascending, scratch included
};

struct OverlapProblem {
  PackingProblem packing; ///< lives at positions of `instructions`; −1: at entry, their number: at exit
  std::vector<OverlapInstruction> instructions;
  std::vector<Bytes> offsets; ///< of the packing that stands
  Bytes capacity = 0;         ///< of its arena
};

struct OverlapSolution {
  std::vector<int> order;     ///< instructions in their new order
  std::vector<int> beside;    ///< n: the instruction at this position may still run while the next n do
  std::vector<Bytes> offsets; ///< one per buffer
  uint64_t hiddenNs = 0;      ///< memory time beside library calls
};

/// The longest first, each instruction bound by memory gets leave to run beside the library calls behind it. What waits
/// for it is brought behind them; where too little follows, it goes before calls, with what it waits for. A change that
/// does not fit the arena is not made. O(n) for each that is tried, a dozen for each instruction at most.
OverlapSolution overlap(const OverlapProblem &problem);

/// The packing problem of a solution: lives in its order, as long as its leave takes.
PackingProblem packingOf(const OverlapProblem &problem, const OverlapSolution &solution);

/// Checks by pairs, independently of how it was found: instructions of which one writes what the other touches stand in
/// the order they had, and not beside each other; buffers that live at once lie apart. Empty if so, else what is wrong.
std::string validate(const OverlapProblem &problem, const OverlapSolution &solution);

} // namespace tcc::planning

#endif // TCC_PLANNING_OVERLAP_H

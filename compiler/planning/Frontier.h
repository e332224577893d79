//===- Frontier.h - the time–memory frontier of a program -------*- C++ -*-===//
//
// Budgets are solved on a ladder that depends on the program alone: evenly spaced between what it takes without
// recomputation and the least that the solver reaches. Each rung is a real sequence, packed; those that another one
// dominates are left out. Whoever asks for a budget takes the cheapest rung that fits, so a smaller budget never gives
// a larger arena or a cheaper sequence.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_FRONTIER_H
#define TCC_PLANNING_FRONTIER_H

#include "compiler/planning/Program.h"

#include <optional>
#include <string>
#include <vector>

namespace tcc::planning {

/// A sequence, and what it takes.
struct FrontierPoint {
  Sequence sequence;
  Bytes bytes = 0;          ///< of the packed arena
  Bytes peak = 0;           ///< most live at once
  Cost cost = 0;            ///< of all executions
  PackingSolution packing;  ///< offsets of packingOf(blocksOf(sequence)): what a plan of this point is laid out by
  uint64_t packingWork = 0; ///< that it took
  Cost lowerBound = 0;      ///< no sequence costs less in these bytes
};

struct FrontierOptions {
  unsigned rungs = 16;                 ///< how many budgets are solved, evenly spaced; and some near the least
  uint64_t work = 200'000'000;         ///< of the recomputation solver, for all rungs together
  uint64_t packingWork = 12'000'000;   ///< for each rung that recomputes; the one that does not gets kPackingWork
  uint64_t refiningWork = 16'000'000;  ///< for each rung that better packing may make one to keep
  uint64_t schedulingWork = 5'000'000; ///< for each rung: other orders of what it executes
  uint64_t boundWork = 0;              ///< of the lower bounds, for all rungs together; 0: the plain sum of costs
  /// Points that cost more than this share above executing everything once are not looked for; none: all are.
  std::optional<double> extraTime = std::nullopt;
};

struct Frontier {
  /// Most memory first: bytes fall strictly, costs rise strictly. The first one executes everything once, in the
  /// program's order.
  std::vector<FrontierPoint> points;
  std::string error; ///< an internal error that was found by checking; empty: none
};

Frontier frontier(const Program &program, const FrontierOptions &options = {});

/// One for each program, several at a time; the same whatever the number of threads.
std::vector<Frontier> frontiers(const std::vector<const Program *> &programs, const FrontierOptions &options = {});

/// Checks points naively: each sequence, its memory and cost, its bound, and that none dominates another. Returns the
/// violation, or an empty string.
std::string validate(const Program &program, const std::vector<FrontierPoint> &points);

/// The recomputation problem of a program: one node for each value (inputs first), or for an instruction that makes
/// none. `nodeInstruction[n]` is what makes node n, −1 for inputs.
RematProblem rematProblemOf(const Program &program, std::vector<int> &nodeInstruction);

/// A problem that each sequence of a program solves with no more memory and cost than the sequence itself has: for
/// lower bounds. Results of one instruction share its cost, and each may take over an operand's memory.
RematProblem boundProblemOf(const Program &program);

/// The program with its instructions in another valid order: instruction i of the result is instruction `order[i]`.
Program inOrder(const Program &program, const Sequence &order);

/// The values and workspaces live at a sequence's peak, most bytes first.
std::vector<Block> liveAtPeak(const Program &program, const Sequence &sequence);

/// The sequence without executions whose results nobody reads before they are made again.
Sequence withoutDeadExecutions(const Program &program, const Sequence &sequence);

/// The sequence without repeats whose results may as well stay from the execution before, within the same peak: such as
/// those of one instruction that were made again one after another.
Sequence withoutNeedlessRepeats(const Program &program, Sequence sequence);

/// A program in which each execution of a sequence is an instruction of its own.
Program expand(const Program &program, const Sequence &sequence);

} // namespace tcc::planning

#endif // TCC_PLANNING_FRONTIER_H

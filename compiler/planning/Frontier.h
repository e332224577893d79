//===- Frontier.h - the time–memory frontier of a program -------*- C++ -*-===//
//
// Budgets are solved on a ladder that depends on the program alone: evenly spaced between the peak without
// recomputation and the least that the solver reaches. Each rung is a real sequence, packed; dominated rungs are left
// out. A budget gets the cheapest rung that fits, so a smaller budget never gives a larger arena or a cheaper sequence.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_FRONTIER_H
#define TCC_PLANNING_FRONTIER_H

#include "compiler/planning/Program.h"
#include "compiler/planning/Transfers.h"

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace tcc::planning {

/// A sequence with its memory and cost.
struct FrontierPoint {
  Sequence sequence;
  Bytes bytes = 0;          ///< of the packed arena
  Bytes peak = 0;           ///< most live at once
  Cost cost = 0;            ///< costOf(sequence)
  PackingSolution packing;  ///< of packingOf(blocksOf(sequence)): the offsets that a plan of this point uses
  PackingSolution host;     ///< of hostPackingOf(blocksOf(sequence))
  uint64_t packingWork = 0; ///< spent on the packing
  Cost lowerBound = 0;      ///< lower bound of the cost of every sequence within these bytes
};

struct FrontierOptions {
  unsigned rungs = 16;                 ///< number of budgets, evenly spaced; a few more are solved near the least
  uint64_t work = 200'000'000;         ///< of the recomputation solver, for all rungs together
  uint64_t packingWork = 12'000'000;   ///< for each rung that recomputes; the first rung gets kPackingWork
  uint64_t refiningWork = 16'000'000;  ///< for each dominated rung that a better packing may save
  uint64_t schedulingWork = 5'000'000; ///< for each rung: search for better orders of its executions
  uint64_t boundWork = 0;              ///< of the lower bounds, for all rungs together; 0: the plain sum of costs
  /// Largest extra cost of a point, as a share of the cost without recomputation; none: no limit.
  std::optional<double> extraTime = std::nullopt;
  /// Bytes that a channel to the host moves per unit of cost, where values may be kept there; 0: they may not.
  Bytes linkBytesPerCost = 0;
};

struct Frontier {
  /// Most memory first: bytes fall strictly, costs rise strictly. The first one executes everything once, in the
  /// program's order.
  std::vector<FrontierPoint> points;
  /// Points that keep values on the host, most memory of the device first. Sequences are of offerTransfers(program).
  /// Each is cheaper than every other point of no more bytes, on the device and on the host.
  std::vector<FrontierPoint> offloaded;
  std::string error; ///< an internal error that was found by checking; empty: none
};

Frontier frontier(const Program &program, const FrontierOptions &options = {});

/// Computes one frontier for each program, several at a time. The result does not depend on the number of threads.
std::vector<Frontier> frontiers(const std::vector<const Program *> &programs, const FrontierOptions &options = {});

/// Checks points naively: each sequence, its memory and cost, its bound, and that none dominates another. Returns the
/// violation, or an empty string.
std::string validate(const Program &program, const std::vector<FrontierPoint> &points);

/// The recomputation problem of a program: one node for each value (inputs first), or for an instruction without
/// results. `nodeInstruction[n]` is the instruction of node n, −1 for inputs; `nodeValue[n]` its value, −1 for none.
RematProblem rematProblemOf(const Program &program, std::vector<int> &nodeInstruction,
                            std::vector<int> *nodeValue = nullptr);

/// The sums of the costs of executing everything once, by channel: of the program's own work, of stores, of fetches. No
/// sequence takes less time than the largest of them.
std::array<Cost, 3> costsByChannel(const Program &program);

/// A relaxed problem for lower bounds: every sequence of the program is a schedule of it with no more memory or cost.
/// Results of one instruction share its cost, and each may take over an operand's memory.
RematProblem boundProblemOf(const Program &program);

/// The program with its instructions in another valid order: instruction i of the result is instruction `order[i]`.
Program inOrder(const Program &program, const Sequence &order);

/// The values and workspaces live at a sequence's peak, most bytes first.
std::vector<Block> liveAtPeak(const Program &program, const Sequence &sequence);

/// The sequence without executions whose results nobody reads before they are made again.
Sequence withoutDeadExecutions(const Program &program, const Sequence &sequence);

/// The sequence without repeats whose results can be kept from the previous execution within the same peak, such as
/// results of one instruction that were recomputed one by one.
Sequence withoutNeedlessRepeats(const Program &program, Sequence sequence);

/// A program in which each execution of a sequence is an instruction of its own.
Program expand(const Program &program, const Sequence &sequence);

} // namespace tcc::planning

#endif // TCC_PLANNING_FRONTIER_H

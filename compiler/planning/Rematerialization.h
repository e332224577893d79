//===- Rematerialization.h - schedules that recompute to fit a budget --*- C++ -*-===//
//
// A program of nodes in a valid order, each making one output. A schedule executes every node at least once, and some
// again, so that no more than a budget is live at any time; its cost is the sum over its executions. Least cost under a
// budget is NP-hard already for one recomputation of each node (Naumann 2008); the formulations here follow Checkmate
// (Jain et al. 2020) and Moccasin (Bartan et al. 2023), on general graphs.
//
// Definitions (they are those of the public instances): an output lives from an execution of its node up to its last
// use before the node's next execution; one never used lives only during its own step. What lives during a step
// includes the step's inputs and output.
//
// Where the device has a link to the memory of its host, an output need not be computed again: it is stored there once,
// right after the first execution of its node, and fetched as often as it pays. A fetch is an execution that reads no
// inputs and costs the transfer; the first one of each node costs the storing, too. Transfers take time as everything
// else does: nothing runs beside them.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_REMATERIALIZATION_H
#define TCC_PLANNING_REMATERIALIZATION_H

#include "compiler/planning/Packing.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace tcc::planning {

/// The cost of executing a node once, in any unit of work.
using Cost = uint64_t;

struct RematNode {
  std::string name;
  Cost cost = 0;
  Bytes bytes = 0;         ///< of the output
  Bytes workspace = 0;     ///< more that is live during its own steps alone
  bool repeatable = true;  ///< may be executed more than once
  bool liveAtExit = false; ///< the output of its last execution lives to the end
  int overwrites = -1;     ///< an input whose memory the output takes over where that input's life ends at this step
  /// Repetitions stand before the first execution of this node (it destroys what this one reads); −1: no limit.
  int repeatBefore = -1;
};

struct RematProblem {
  std::vector<RematNode> nodes;         ///< in a valid order of execution
  std::vector<std::vector<int>> inputs; ///< of each node, ascending, each once: nodes before it
  Bytes linkBytesPerCost = 0;           ///< what moves to the host or back in a unit of cost; 0: there is no link
};

/// Nodes in order of execution; one that stands here twice is recomputed, or fetched where it stands as `fetchOf`.
using RematSchedule = std::vector<int>;

constexpr int fetchOf(int node) { return ~node; }
constexpr bool isFetch(int entry) { return entry < 0; }
constexpr int nodeOfEntry(int entry) { return entry < 0 ? ~entry : entry; }

/// What one transfer of a node's output costs; the problem has a link.
Cost transferCost(const RematProblem &problem, size_t node);

struct RematMeasure {
  Cost cost = 0;
  Bytes peak = 0;
};

/// Cost and peak by the definitions above, O(executions · inputs). The schedule has to be valid.
RematMeasure measure(const RematProblem &problem, const RematSchedule &schedule);

/// Checks a schedule naively, independently of `measure`: every node executed, every input at hand, `repeatable` and
/// `repeatBefore` heeded, nothing fetched without a link or before it was made. Empty if valid, else what is wrong,
/// with the names of the nodes.
std::string validate(const RematProblem &problem, const RematSchedule &schedule);

/// How hard to try, in elementary visits (a few hundred million take a second).
constexpr uint64_t kRematWork = 1'000'000'000;

struct RematOptions {
  uint64_t work = kRematWork;
  /// May the first executions stand in another order than the nodes'?
  bool keepOrder = true;
  /// Where the order is kept and little memory is left: look for schedules that execute nodes again and again, too.
  /// They meet less than others do, at many times the cost. (Where the order is free, that is always looked for.)
  bool atAnyCost = false;
  /// Asked now and then; ends the search early. A solution then depends on when it did.
  std::function<bool()> stop;
};

struct RematSolution {
  bool feasible = false;
  RematSchedule schedule; ///< where feasible: within the budget
  Cost cost = 0;
  Bytes peak = 0;
};

/// A schedule within `budget` of little cost. The same problem, budget and work give the same solution. Not feasible:
/// none was found (see `leastMemory`).
RematSolution rematerialize(const RematProblem &problem, Bytes budget, const RematOptions &options = {});

/// A schedule within `budget` that costs at most what the given one does, which is valid and within the budget. With
/// `keepOrder` its first executions stay in the order in which they stand there.
RematSolution improve(const RematProblem &problem, Bytes budget, const RematSchedule &schedule,
                      const RematOptions &options = {});

/// A schedule within `budget` from one that exceeds it, in an instant; not feasible where that leads nowhere.
RematSolution repair(const RematProblem &problem, Bytes budget, const RematSchedule &schedule);

/// The schedule of least peak that the solver finds, whatever it costs: the least budget that it can meet.
RematSolution leastMemory(const RematProblem &problem, const RematOptions &options = {});

struct RematBound {
  Cost givenOrder = 0;     ///< no schedule within the budget whose first executions follow the nodes' order costs less
  Cost anyOrder = 0;       ///< no schedule within the budget costs less
  bool infeasible = false; ///< proved: no schedule whose first executions follow the nodes' order meets the budget
  /// Where `givenOrder` comes from: what one byte more during the first execution of each node would save, in cost per
  /// byte, by the relaxation's dual. Zeros where memory is not scarce; as long as the nodes.
  std::vector<double> memoryPrices;
};

/// Lower bounds of the cost of any schedule within `budget`.
RematBound boundCost(const RematProblem &problem, Bytes budget, const RematOptions &options = {});

/// A peak that no schedule stays below: the largest step (inputs, output and workspace), or more where that is proved.
Bytes boundPeak(const RematProblem &problem);

} // namespace tcc::planning

#endif // TCC_PLANNING_REMATERIALIZATION_H

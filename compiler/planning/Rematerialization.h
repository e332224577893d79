//===- Rematerialization.h - schedules that recompute to fit a budget --*- C++ -*-===//
//
// A program of nodes in a valid order, each making one output. A schedule executes every node at least once, and some
// again, so that the live bytes never exceed a budget; its cost is the sum over its executions. Minimising the cost
// under a budget is NP-hard already with one recomputation of each node (Naumann 2008); the formulations here follow
// Checkmate (Jain et al. 2020) and Moccasin (Bartan et al. 2023), on general graphs.
//
// Definitions (they are those of the public instances): an output lives from an execution of its node up to its last
// use before the node's next execution; one never used lives only during its own step. The live bytes of a step include
// its inputs and output.
//
// If the device has a link to the memory of its host, an output can be fetched instead of recomputed: it is stored
// there once, right after the first execution of its node, and may be fetched any number of times. A fetch is an
// execution that reads no inputs and costs the transfer; the first one of each node also costs the store. Transfers are
// not overlapped with other work.
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

/// The place in a vector of a node, or of another index that is an int, of which −1 stands for none.
inline size_t at(int index) { return static_cast<size_t>(index); }

struct RematNode {
  std::string name;
  Cost cost = 0;
  Bytes bytes = 0;         ///< of the output
  Bytes workspace = 0;     ///< further bytes that live only during its own steps
  bool repeatable = true;  ///< may be executed more than once
  bool liveAtExit = false; ///< the output of its last execution lives to the end
  int overwrites = -1;     ///< an input whose memory the output takes over where that input's life ends at this step
  /// Repetitions must precede the first execution of this node, which overwrites an input of theirs; −1: no limit.
  int repeatBefore = -1;
  Cost transferExtra = 0; ///< added to the cost of each transfer of its output
};

struct RematProblem {
  std::vector<RematNode> nodes;         ///< in a valid order of execution
  std::vector<std::vector<int>> inputs; ///< of each node, ascending, each once: nodes before it
  Bytes linkBytesPerCost = 0;           ///< bytes moved to the host or back per unit of cost; 0: there is no link
};

/// Nodes in order of execution. A node that repeats is recomputed; an entry `fetchOf(node)` fetches it instead.
using RematSchedule = std::vector<int>;

constexpr int fetchOf(int node) { return ~node; }
constexpr bool isFetch(int entry) { return entry < 0; }
constexpr int nodeOfEntry(int entry) { return entry < 0 ? ~entry : entry; }

/// The bytes over the link's rate, rounded up.
Cost transferCost(Bytes bytes, Bytes bytesPerCost);

/// What one transfer of a node's output costs; the problem has a link.
Cost transferCost(const RematProblem &problem, size_t node);

struct RematMeasure {
  Cost cost = 0;
  Bytes peak = 0;
};

/// Cost and peak by the definitions above, O(executions · inputs). The schedule has to be valid.
RematMeasure measure(const RematProblem &problem, const RematSchedule &schedule);

/// Checks a schedule naively, independently of `measure`: every node executed, every input available, `repeatable` and
/// `repeatBefore` respected, nothing fetched without a link or before it was made. Returns an empty string if it is
/// valid, else the violation with the names of the nodes.
std::string validate(const RematProblem &problem, const RematSchedule &schedule);

/// How hard to try, in elementary visits (a few hundred million take a second).
constexpr uint64_t kRematWork = 1'000'000'000;

struct RematOptions {
  uint64_t work = kRematWork;
  /// Whether first executions have to follow the nodes' order.
  bool keepOrder = true;
  /// With `keepOrder`: also look for schedules that repeat nodes many times. They meet smaller budgets, at many times
  /// the cost. (Without `keepOrder` the solver always looks for them.)
  bool atAnyCost = false;
  /// Polled; true ends the search early. The solution then depends on time.
  std::function<bool()> stop;
};

struct RematSolution {
  bool feasible = false;
  RematSchedule schedule; ///< where feasible: within the budget
  Cost cost = 0;
  Bytes peak = 0;
};

/// Finds a cheap schedule within `budget`. The same problem, budget and work give the same solution. The solution is
/// not feasible if no schedule was found (see `leastMemory`).
RematSolution rematerialize(const RematProblem &problem, Bytes budget, const RematOptions &options = {});

/// A schedule within `budget` that costs no more than the given one, which is valid and within the budget. With
/// `keepOrder` it keeps the given schedule's order of first executions.
RematSolution improve(const RematProblem &problem, Bytes budget, const RematSchedule &schedule,
                      const RematOptions &options = {});

/// Turns a schedule that exceeds `budget` into one within it, quickly and greedily; not feasible if that fails.
RematSolution repair(const RematProblem &problem, Bytes budget, const RematSchedule &schedule);

/// The schedule of least peak that the solver finds, whatever it costs: the least budget that it can meet.
RematSolution leastMemory(const RematProblem &problem, const RematOptions &options = {});

struct RematBound {
  Cost givenOrder = 0;     ///< no schedule within the budget whose first executions follow the nodes' order costs less
  Cost anyOrder = 0;       ///< no schedule within the budget costs less
  bool infeasible = false; ///< proved: no schedule whose first executions follow the nodes' order meets the budget
  /// For each node, the cost that one more byte during its first execution would save, by the dual of the relaxation
  /// behind `givenOrder`. Zero where memory is not scarce.
  std::vector<double> memoryPrices;
};

/// Lower bounds of the cost of any schedule within `budget`.
RematBound boundCost(const RematProblem &problem, Bytes budget, const RematOptions &options = {});

/// A lower bound of the peak of every schedule: the largest step (inputs, output and workspace), or more if proved.
Bytes boundPeak(const RematProblem &problem);

} // namespace tcc::planning

#endif // TCC_PLANNING_REMATERIALIZATION_H

//===- RematBoundModel.h - lower bounds of recomputation --------*- C++ -*-===//
//
// The integer program whose relaxation bounds the cost of recomputation from below; RematBoundModel.cpp says why every
// schedule is a solution of it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PLANNING_REMATBOUNDMODEL_H
#define TCC_PLANNING_REMATBOUNDMODEL_H

#include "compiler/planning/Rematerialization.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace tcc::planning {

/// Bytes that live during every execution of a node. An input whose memory the output takes over counts once.
Bytes bytesOfStep(const RematProblem &problem, size_t node);

/// `boundPeak` with at most that many visits.
Bytes boundPeak(const RematProblem &problem, uint64_t work);

/// The first executions of some nodes, the milestones 1 … stages, divide time: interval k ends at milestone k, interval
/// `stages` + 1 follows the last one, and interval 0 is the time before the budget can be exceeded. For output i and
/// interval k:
///   hold[k,i]  the output lives during milestone k
///   redo[k,i]  the node is executed again in interval k
/// minimise Σ cost · redo, with
///   hold[k−1,i] + redo[k,i] ≥ hold[k,i], or ≥ 1 where a first execution in interval k reads i
///   hold[k−1,i] + redo[k,i] ≥ redo[k,j]  for i input of j
///   Σ bytes · hold[k] ≤ capacity[k]
/// and, for spans (p, q] of more than one interval, span[p,q,i] (the node is executed again in one of them) with
///   span[p,q,i] ≤ Σ redo[k,i] over k in p+1 … q
///   the first two rows with hold[p], span[p,q] and hold[q] for hold[k−1], redo[k] and hold[k].
struct RematModel {
  int stages = 0;
  std::vector<int> milestones;  ///< node of each; [0] is −1
  std::vector<double> capacity; ///< bytes left beside the milestone's own output; [0] unused

  /// Variables of a value: intervals first … last, at `offset` of the arrays below. None: last ≤ first.
  struct Value {
    int first = 0, last = -1;
    size_t offset = 0;
    bool ownStep = false; ///< milestone `first` is the node itself: its output is available, and already counted
  };
  std::vector<Value> values;                ///< of each node
  std::vector<std::pair<int, int>> edges;   ///< (input, node) where the node has variables
  std::vector<double> bytes, cost;          ///< of each node
  std::vector<float> held, needed, mayRedo; ///< bounds: hold ≥ held; needed: read in the interval; redo ≤ mayRedo

  std::vector<std::pair<int, int>> spans; ///< (p, q), q ≥ p + 2

  size_t size() const { return held.size(); }
};

/// The model of schedules whose first executions follow the nodes' order. At most `maxStages` milestones (at least 1).
RematModel modelOfGivenOrder(const RematProblem &problem, Bytes budget, int maxStages);

/// The model of all schedules: its milestones are a path of the graph, whose first executions no order can swap.
RematModel modelOfAnyOrder(const RematProblem &problem, Bytes budget, int maxStages);

// Lower bounds of the program by multipliers of its rows (RematBoundDual.cpp).

struct RematDualBound {
  double extra = 0.0;         ///< no solution costs less; rounding errors are subtracted
  bool infeasible = false;    ///< there is none
  std::vector<double> prices; ///< of a byte at each milestone; [0] unused
};

/// Improves the multipliers for at most `work` visits. Once the bound reaches `enough`, it stops.
RematDualBound boundByDual(const RematModel &model, uint64_t work, double enough, const std::function<bool()> &stop);

/// Bounds of every prefix of the schedules in the given order: of the executions from the start up to some time
/// between the milestones m and m + 1.
struct RematPrefixBounds {
  struct Prefix {
    double least = 0.0;       ///< lower bound of the cost of its repetitions
    std::vector<double> rise; ///< increase of the bound for each output that has to be available at its end
  };
  std::vector<int> milestones;  ///< node of each; [0] is −1
  std::vector<Prefix> prefixes; ///< by m
};

/// Prefix bounds by good multipliers of a whole model in the given order. Spans are omitted, since one that reaches
/// beyond a prefix does not constrain it.
RematPrefixBounds boundPrefixes(RematModel model, uint64_t work, const std::function<bool()> &stop);

// Lower bounds by a best-first search (RematBoundSearch.cpp).

struct RematSearchBound {
  double extra = 0.0;      ///< no schedule in the given order spends less on repetitions
  bool optimal = false;    ///< some schedule spends exactly that
  bool infeasible = false; ///< no schedule meets the budget
};

/// Searches for at most `work` visits, and gives up early if it is unlikely to exceed `known`, a bound found otherwise.
RematSearchBound boundBySearch(const RematProblem &problem, Bytes budget, const RematPrefixBounds &bounds, double known,
                               uint64_t work, const std::function<bool()> &stop);

} // namespace tcc::planning

#endif // TCC_PLANNING_REMATBOUNDMODEL_H

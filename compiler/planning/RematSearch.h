//===- RematSearch.h - the search for schedules within a budget -*- C++ -*-===//
#ifndef TCC_PLANNING_REMATSEARCH_H
#define TCC_PLANNING_REMATSEARCH_H

#include "compiler/planning/RematTimeline.h"
#include "compiler/planning/Rematerialization.h"

namespace tcc::planning {

/// Edits that belong together, on one timeline.
class RematMoves {
public:
  RematMoves(const RematGraph &graph, RematTimeline &timeline) : graph(graph), timeline(timeline) {}

  /// The objective is cost plus this price for each byte and step beyond the limit.
  double price = 0;
  double objective() const { return double(timeline.cost()) + price * double(timeline.overflow()); }

  /// Recomputes `node` before `step`. Inputs that are dead by then are recomputed too if that lowers the objective, and
  /// their inputs in turn. If there is a link, each of them is fetched instead if that is better. Returns false and
  /// changes nothing if neither is allowed.
  bool recompute(int node, int step);
  /// Replaces a recomputation by a fetch, or a fetch by a recomputation: one execution that is not its node's first, or
  /// all of the node's. Returns false if one may not be recomputed; the caller then rolls back.
  bool otherWay(int execution, bool all);
  /// Removes a recomputation, and the recomputations that only it reads.
  void drop(int execution);

private:
  static constexpr int kMaxAttempts = 48;
  bool bringBack(int node, int step);
  bool recomputeWithInputs(int node, int step);

  const RematGraph &graph;
  RematTimeline &timeline;
  int attempts = 0; ///< inputs whose recomputation may still be tried
};

/// Adds recomputations, the best ratio of cost and bytes first, until the timeline is within its limit, nothing helps
/// or `work` visits are spent. Returns whether it is within.
bool repairGreedily(const RematGraph &graph, RematTimeline &timeline, uint64_t work);

/// Removes recomputations that a budget does not need, the most expensive first.
void takeBack(const RematProblem &problem, RematSchedule &schedule, Bytes budget);

/// Simulated annealing (RematAnneal.cpp) from `from`, whose limit is set. A schedule within the limit replaces `best`
/// if that is empty or costs more.
void anneal(const RematGraph &graph, const RematTimeline &from, const RematOptions &options, RematSchedule &best,
            Cost &bestCost);

/// Annealing towards less memory, with little weight on cost: to a peak of `target`, or as near as `options.work` gets.
RematSchedule descend(const RematGraph &graph, RematTimeline &timeline, Bytes target, const RematOptions &options);

// Schedules by prices of memory (RematPrices.cpp).

/// A schedule within `budget` whose first executions keep the nodes' order; empty if none was found. Takes some
/// milliseconds for a thousand nodes.
RematSchedule scheduleByPrices(const RematProblem &problem, Bytes budget);

/// Schedules by prices from the highest to 0, whatever their peak.
std::vector<RematSchedule> sweepPrices(const RematProblem &problem);

/// The schedule of least peak, the cheapest of equal ones; null if there is none.
const RematSchedule *leastOf(const RematProblem &problem, const std::vector<RematSchedule> &schedules);

/// `leastMemory` with an existing sweep of prices.
RematSolution leastMemory(const RematProblem &problem, const RematOptions &options,
                          const std::vector<RematSchedule> &sweep);

/// A schedule within `budget` by a search from the end (RematReverse.cpp) that keeps `width` states of each level;
/// empty if none was found with `work` visits. With `keepOrder` the first executions follow the nodes' order; without
/// it they may come in any order, and the answer is empty if some node's repetition is restricted. Adds its visits to
/// `visits`.
RematSchedule scheduleFromTheEnd(const RematProblem &problem, Bytes budget, size_t width, bool keepOrder, uint64_t work,
                                 uint64_t &visits);

} // namespace tcc::planning

#endif // TCC_PLANNING_REMATSEARCH_H

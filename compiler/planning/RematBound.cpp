//===- RematBound.cpp - lower bounds of recomputation -----------*- C++ -*-===//
//
// A lower bound of every schedule within a budget: the cost of executing all nodes once, plus a lower bound of the cost
// of repetitions from the relaxation or the search of RematBoundModel.h.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/RematBoundModel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

using namespace tcc;
using namespace tcc::planning;

/// Costs are integers, so that a bound may be rounded up.
static Cost roundedUp(double extra) { return extra > 0.0 && extra < 9e18 ? static_cast<Cost>(std::ceil(extra)) : 0; }

RematBound tcc::planning::boundCost(const RematProblem &problem, Bytes budget, const RematOptions &options) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  RematBound bound;
  Cost sum = 0;
  for (const RematNode &node : problem.nodes)
    sum += node.cost;
  bound.givenOrder = bound.anyOrder = sum;
  bound.memoryPrices.assign(problem.nodes.size(), 0.0);
  bound.infeasible = boundPeak(problem, options.work / 32) > budget;
  if (bound.infeasible)
    return bound;

  // More milestones give a tighter bound, but need more work; few come close to the best.
  auto improve = [&](auto modelOf, uint64_t work, auto keep) {
    for (auto [stages, share] : {std::pair{4, 16}, {12, 6}, {28, 3}, {60, 3}}) {
      // A few hundred iterations should be possible, of roughly a dozen visits for each node and milestone.
      uint64_t wanted = uint64_t{300 * 12} * problem.nodes.size() * static_cast<uint64_t>(stages);
      bool enough = work / static_cast<uint64_t>(share) >= wanted;
      if (!enough && stages > 4)
        return;
      RematModel model = modelOf(problem, budget, stages);
      RematDualBound found =
          boundByDual(model, enough ? work / static_cast<uint64_t>(share) : work, kNever, options.stop);
      bound.infeasible = bound.infeasible || found.infeasible;
      if (bound.infeasible)
        return;
      keep(model, found);
      if (!enough || model.stages < stages)
        return;
    }
  };
  // This needs the ancestors of every node first, which does not pay with little work.
  if (options.work / 64 >= problem.nodes.size() * problem.nodes.size())
    improve(modelOfAnyOrder, options.work / 4, [&](const RematModel &, const RematDualBound &found) {
      bound.anyOrder = std::max(bound.anyOrder, sum + roundedUp(found.extra));
    });
  bound.givenOrder = bound.anyOrder;
  if (bound.infeasible)
    return bound;
  double best = 0.0;
  improve(modelOfGivenOrder, options.work, [&](const RematModel &model, const RematDualBound &found) {
    if (found.extra <= best)
      return;
    best = found.extra;
    bound.givenOrder = std::max(bound.anyOrder, sum + roundedUp(best));
    std::fill(bound.memoryPrices.begin(), bound.memoryPrices.end(), 0.0);
    for (int k = 1; k <= model.stages; ++k)
      bound.memoryPrices[static_cast<size_t>(model.milestones[static_cast<size_t>(k)])] =
          found.prices[static_cast<size_t>(k)];
  });
  // The search also bounds the memory between first executions. It pays if it soon exceeds the relaxation's bound.
  const uint64_t wanted = uint64_t{300 * 12} * problem.nodes.size() * problem.nodes.size();
  // The search does not model fetches.
  if (best <= 0.0 || options.work / 8 < wanted || problem.linkBytesPerCost)
    return bound;
  RematPrefixBounds prefixes = boundPrefixes(modelOfGivenOrder(problem, budget, static_cast<int>(problem.nodes.size())),
                                             options.work / 8, options.stop);
  RematSearchBound searched = boundBySearch(problem, budget, prefixes, best, options.work / 8, options.stop);
  bound.infeasible = searched.infeasible;
  bound.givenOrder = std::max(bound.givenOrder, sum + roundedUp(searched.extra));
  return bound;
}

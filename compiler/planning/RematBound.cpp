//===- RematBound.cpp - lower bounds of recomputation -----------*- C++ -*-===//
//
// What no schedule within a budget goes below: the costs of all nodes once, and what the relaxation of
// RematBoundModel.h says that repetitions cost at least.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/RematBoundDual.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace tcc;
using namespace tcc::planning;

Bytes tcc::planning::boundPeak(const RematProblem &problem) {
  Bytes bound = 0, atExit = 0;
  for (size_t node = 0; node < problem.nodes.size(); ++node) {
    bound = std::max(bound, bytesOfStep(problem, node));
    if (problem.nodes[node].liveAtExit)
      atExit += problem.nodes[node].bytes; // all of them live during the last step
  }
  return std::max(bound, atExit);
}

/// Costs are integers, so that a bound may be rounded up.
static Cost roundedUp(double extra) { return extra > 0.0 && extra < 9e18 ? static_cast<Cost>(std::ceil(extra)) : 0; }

RematBound tcc::planning::boundCost(const RematProblem &problem, Bytes budget, const RematOptions &options) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  constexpr int kAllStages = 1 << 20;
  RematBound bound;
  Cost sum = 0;
  for (const RematNode &node : problem.nodes)
    sum += node.cost;
  bound.givenOrder = bound.anyOrder = sum;
  bound.memoryPrices.assign(problem.nodes.size(), 0.0);
  bound.infeasible = boundPeak(problem) > budget;
  if (bound.infeasible)
    return bound;

  RematModel any = modelOfAnyOrder(problem, budget, kAllStages);
  RematDualBound ofAny = boundByDual(any, options.work / 4, kNever, options.stop);
  bound.anyOrder += ofAny.infeasible ? 0 : roundedUp(ofAny.extra);
  bound.infeasible = ofAny.infeasible;

  RematModel given = modelOfGivenOrder(problem, budget, kAllStages);
  RematDualBound ofGiven = boundByDual(given, options.work - options.work / 4, kNever, options.stop);
  bound.infeasible |= ofGiven.infeasible;
  bound.givenOrder = std::max(bound.anyOrder, sum + (ofGiven.infeasible ? 0 : roundedUp(ofGiven.extra)));
  for (int k = 1; k <= given.stages; ++k)
    bound.memoryPrices[static_cast<size_t>(given.milestones[static_cast<size_t>(k)])] =
        ofGiven.prices[static_cast<size_t>(k)];
  return bound;
}

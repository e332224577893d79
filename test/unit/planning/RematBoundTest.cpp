//===- RematBoundTest.cpp - lower bounds of recomputation -----------------===//
#include "compiler/planning/RematBoundDual.h"
#include "test/unit/planning/RematBruteForce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace tcc::planning;

namespace {

/// A random problem of few nodes; every third one with all that a node may have.
RematProblem randomProblem(std::mt19937 &random, size_t n) {
  auto below = [&](size_t bound) { return static_cast<int>(random() % bound); };
  RematProblem problem;
  problem.nodes.resize(n);
  problem.inputs.resize(n);
  bool plain = below(3) != 0;
  int density = 1 + below(3), span = 2 + below(6);
  for (size_t node = 0; node < n; ++node) {
    RematNode &self = problem.nodes[node];
    self.cost = static_cast<Cost>(below(10));
    self.bytes = static_cast<Bytes>(below(8));
    for (size_t input = 0; input < node; ++input)
      if (below(5) < density && (node - input <= static_cast<size_t>(span) || below(4) == 0))
        problem.inputs[node].push_back(static_cast<int>(input));
    if (plain)
      continue;
    self.workspace = below(4) == 0 ? static_cast<Bytes>(below(4)) : 0;
    self.repeatable = below(5) != 0;
    self.liveAtExit = below(6) == 0;
    if (below(5) == 0 && node + 1 < n)
      self.repeatBefore = static_cast<int>(node) + 1 + below(n - node - 1);
    if (!problem.inputs[node].empty() && below(3) == 0)
      self.overwrites = problem.inputs[node][static_cast<size_t>(below(problem.inputs[node].size()))];
  }
  return problem;
}

} // namespace

TEST(RematBound, HoldsForSmallProblems) {
  std::mt19937 random(1);
  size_t tight = 0, cases = 0, extras = 0;
  double slack = 0.0;
  for (int round = 0; round < 700; ++round) {
    RematProblem problem = randomProblem(random, 3 + random() % 5);
    Bytes start = boundPeak(problem);
    Cost sum = 0;
    for (const RematNode &node : problem.nodes)
      sum += node.cost;
    for (Bytes budget = start; budget < start + 12; ++budget) {
      std::optional<Cost> given = leastCostByBruteForce(problem, budget, true);
      std::optional<Cost> any = leastCostByBruteForce(problem, budget, false);
      RematOptions options;
      options.work = 300'000;
      RematBound bound = boundCost(problem, budget, options);
      if (given) {
        ASSERT_FALSE(bound.infeasible) << "round " << round << " budget " << budget;
        ASSERT_LE(bound.givenOrder, *given) << "round " << round << " budget " << budget;
      }
      if (any) {
        ASSERT_LE(bound.anyOrder, *any) << "round " << round << " budget " << budget;
      }
      ASSERT_GE(bound.anyOrder, sum);
      ASSERT_GE(bound.givenOrder, bound.anyOrder);
      for (int stages : {1, 2, 3, 100}) {
        RematDualBound dual = boundByDual(modelOfGivenOrder(problem, budget, stages), 200'000, 1e300, {});
        if (given) {
          ASSERT_FALSE(dual.infeasible) << "round " << round << " budget " << budget << " stages " << stages;
          ASSERT_LE(dual.extra, static_cast<double>(*given - sum))
              << "round " << round << " budget " << budget << " stages " << stages;
        }
        dual = boundByDual(modelOfAnyOrder(problem, budget, stages), 200'000, 1e300, {});
        if (any) {
          ASSERT_FALSE(dual.infeasible) << "round " << round << " budget " << budget << " stages " << stages;
          ASSERT_LE(dual.extra, static_cast<double>(*any - sum))
              << "round " << round << " budget " << budget << " stages " << stages;
        }
      }
      if (given && *given > sum) {
        ++extras;
        tight += bound.givenOrder == *given;
        slack += static_cast<double>(*given - bound.givenOrder) / static_cast<double>(*given);
      }
      ++cases;
      if (given && any && *given == sum && *any == sum)
        break;
    }
    if (start > 0) {
      EXPECT_FALSE(leastCostByBruteForce(problem, start - 1, false)) << "round " << round;
    }
  }
  RecordProperty("cases", static_cast<int>(cases));
  std::printf("%zu cases, %zu with recomputation: bound met in %zu, below the optimum by %.2f %% on average\n", cases,
              extras, tight, 100.0 * slack / static_cast<double>(extras));
}

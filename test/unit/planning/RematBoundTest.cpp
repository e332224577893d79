//===- RematBoundTest.cpp - lower bounds of recomputation -----------------===//
#include "compiler/planning/RematBoundModel.h"
#include "test/unit/planning/FuzzRounds.h"
#include "test/unit/planning/RematBruteForce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>

using namespace tcc::planning;

namespace {

/// A random problem of few nodes; every third one is plain, the others use every feature of nodes.
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
  const unsigned seed = fuzzSeed(1);
  const int rounds = fuzzRounds(2000);
  std::mt19937 random(seed);
  size_t tight = 0, cases = 0, extras = 0;
  double slack = 0.0;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(fuzzTrace(round, seed));
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
        ASSERT_FALSE(bound.infeasible) << "budget " << budget;
        ASSERT_LE(bound.givenOrder, *given) << "budget " << budget;
      }
      if (any) {
        ASSERT_LE(bound.anyOrder, *any) << "budget " << budget;
      }
      ASSERT_GE(bound.anyOrder, sum);
      ASSERT_GE(bound.givenOrder, bound.anyOrder);
      for (int stages : {1, 2, 3, 100}) {
        RematDualBound dual = boundByDual(modelOfGivenOrder(problem, budget, stages), 200'000, 1e300, {});
        if (given) {
          ASSERT_FALSE(dual.infeasible) << "budget " << budget << " stages " << stages;
          ASSERT_LE(dual.extra, static_cast<double>(*given - sum)) << "budget " << budget << " stages " << stages;
        }
        dual = boundByDual(modelOfAnyOrder(problem, budget, stages), 200'000, 1e300, {});
        if (any) {
          ASSERT_FALSE(dual.infeasible) << "budget " << budget << " stages " << stages;
          ASSERT_LE(dual.extra, static_cast<double>(*any - sum)) << "budget " << budget << " stages " << stages;
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
      EXPECT_FALSE(leastCostByBruteForce(problem, start - 1, false));
    }
  }
  std::printf("%zu cases, %zu with recomputation: bound met in %zu, below the optimum by %.2f %% on average\n", cases,
              extras, tight, 100.0 * slack / static_cast<double>(extras));
  EXPECT_GT(extras, size_t(fuzzShare(1000, 2000, rounds)));
  EXPECT_LT(slack, 0.03 * static_cast<double>(extras)); // the bound is tight on average
}

TEST(RematBound, BoundsThePeak) {
  const unsigned seed = fuzzSeed(2);
  const int rounds = fuzzRounds(300);
  std::mt19937 random(seed);
  int above = 0, met = 0;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(fuzzTrace(round, seed));
    RematProblem problem = randomProblem(random, 4 + random() % 4);
    Bytes step = 0, bound = boundPeak(problem);
    for (size_t node = 0; node < problem.nodes.size(); ++node)
      step = std::max(step, bytesOfStep(problem, node));
    ASSERT_GE(bound, step);
    if (bound > 0) {
      ASSERT_FALSE(leastCostByBruteForce(problem, bound - 1, false));
    }
    above += bound > step;
    met += leastCostByBruteForce(problem, bound, false).has_value();
  }
  EXPECT_GT(above, rounds / 30);
  EXPECT_GT(met, rounds * 8 / 10);
}

/// A chain of forward nodes, whose outputs the backward nodes read in reverse order.
static RematProblem chain(size_t length, Bytes bytes) {
  RematProblem problem;
  for (size_t node = 0; node < length; ++node) {
    problem.nodes.push_back({.name = "f" + std::to_string(node), .cost = 10 + node % 3, .bytes = bytes});
    problem.inputs.push_back({});
    if (node > 0)
      problem.inputs.back().push_back(static_cast<int>(node) - 1);
  }
  for (size_t node = length; node-- > 0;) {
    problem.nodes.push_back({.name = "b" + std::to_string(node), .cost = 20, .bytes = bytes});
    problem.inputs.push_back({static_cast<int>(node), static_cast<int>(problem.nodes.size()) - 2});
    if (node + 1 == length)
      problem.inputs.back().pop_back();
  }
  return problem;
}

TEST(RematBound, GrowsAsTheBudgetShrinks) {
  RematProblem problem = chain(40, 100);
  Cost sum = 0, before = 0;
  for (const RematNode &node : problem.nodes)
    sum += node.cost;
  RematOptions options;
  options.work = 20'000'000;
  EXPECT_EQ(boundCost(problem, 4200, options).givenOrder, sum);
  for (Bytes budget : {3900u, 3000u, 2000u, 1500u, 1000u, 800u}) {
    RematBound bound = boundCost(problem, budget, options);
    EXPECT_FALSE(bound.infeasible);
    EXPECT_GT(bound.givenOrder, before);
    // The `missing` outputs that cannot be kept are repeated; the cheapest ones cost 10.
    Cost missing = (4000 - budget) / 100;
    EXPECT_GE(bound.givenOrder, sum + 10 * std::min<Cost>(missing, 13)) << budget;
    // The nodes form one path, so that every order is the given one.
    EXPECT_GE(static_cast<double>(bound.anyOrder), 0.98 * static_cast<double>(bound.givenOrder)) << budget;
    EXPECT_GT(*std::max_element(bound.memoryPrices.begin(), bound.memoryPrices.end()), 0.0);
    before = bound.givenOrder;
  }
  EXPECT_TRUE(boundCost(problem, 299, options).infeasible); // a backward step takes 300
}

TEST(RematBound, KnowsWhatMayNotBeRepeated) {
  RematProblem problem = chain(10, 100);
  for (RematNode &node : problem.nodes)
    node.repeatable = false;
  EXPECT_FALSE(boundCost(problem, 1100).infeasible);
  EXPECT_TRUE(boundCost(problem, 900).infeasible);
}

TEST(RematBound, LittleWorkIsStillValid) {
  RematProblem problem = chain(200, 100);
  Cost sum = 0;
  for (const RematNode &node : problem.nodes)
    sum += node.cost;
  RematOptions options;
  options.work = 0;
  EXPECT_EQ(boundCost(problem, 10'000, options).givenOrder, sum);
  Cost before = 0;
  for (uint64_t work : {1'000'000u, 10'000'000u, 100'000'000u}) {
    options.work = work;
    RematBound bound = boundCost(problem, 10'000, options);
    EXPECT_GE(bound.givenOrder, before);
    before = bound.givenOrder;
  }
  EXPECT_GT(before, sum + 1000);
}

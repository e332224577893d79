//===- RematerializationTest.cpp - less memory for more work --------------===//
#include "RematerializationProblems.h"
#include "compiler/planning/RematSearch.h"
#include "compiler/planning/RematTimeline.h"
#include "test/unit/planning/FuzzRounds.h"

#include <gtest/gtest.h>

using namespace tcc::planning;

namespace {

RematNode node(std::string name, Cost cost, Bytes bytes) {
  RematNode result;
  result.name = std::move(name);
  result.cost = cost;
  result.bytes = bytes;
  return result;
}

/// a → b → c → d, and a is read again by e, which also reads d. Peak: a, b, c = 4 + 1 + 6 while c is made.
RematProblem diamond() {
  RematProblem problem;
  problem.nodes = {node("a", 3, 4), node("b", 1, 1), node("c", 1, 6), node("d", 1, 1), node("e", 1, 1)};
  problem.inputs = {{}, {0}, {1}, {2}, {0, 3}};
  return problem;
}

TEST(Rematerialization, MeasuresByTheDefinitions) {
  RematProblem problem = diamond();
  RematMeasure once = measure(problem, {0, 1, 2, 3, 4});
  EXPECT_EQ(once.cost, 7u);
  EXPECT_EQ(once.peak, 11u); // a 4, b 1, c 6; then a 4, c 6, d 1
  RematMeasure again = measure(problem, {0, 1, 2, 3, 0, 4});
  EXPECT_EQ(again.cost, 10u);
  EXPECT_EQ(again.peak, 7u); // b 1, c 6
  EXPECT_EQ(measure(problem, {0, 0, 1, 2, 3, 4}).peak, 11u) << "never used: lives during its own step alone";
}

TEST(Rematerialization, HeedsOverwritingWorkspaceAndExit) {
  RematProblem problem = diamond();
  problem.nodes[3].overwrites = 2; // c dies at d
  EXPECT_EQ(measure(problem, {0, 1, 2, 3, 0, 4}).peak, 7u);
  EXPECT_EQ(measure(problem, {0, 1, 2, 3, 4}).peak, 11u) << "while c is made";
  problem.nodes[4].workspace = 9;
  EXPECT_EQ(measure(problem, {0, 1, 2, 3, 0, 4}).peak, 15u) << "a 4, d 1, e 1, workspace 9";
  problem.nodes[1].liveAtExit = true;
  EXPECT_EQ(measure(problem, {0, 1, 2, 3, 0, 4}).peak, 16u) << "b lives on";
  EXPECT_EQ(measure(problem, {0, 1, 2, 3, 0, 4, 1}).peak, 15u) << "b made again at the end";
}

TEST(Rematerialization, NamesWhatIsWrong) {
  RematProblem problem = diamond();
  EXPECT_EQ(validate(problem, {0, 1, 2, 3, 0, 4}), "");
  EXPECT_NE(validate(problem, {0, 2, 1, 3, 4}).find("executes c before its input b"), std::string::npos);
  EXPECT_EQ(validate(problem, {0, 1, 2, 3}), "e is never executed");
  EXPECT_NE(validate(problem, {0, 1, 2, 3, 7}), "");
  problem.nodes[0].repeatable = false;
  EXPECT_NE(validate(problem, {0, 1, 2, 3, 0, 4}).find("a is executed twice"), std::string::npos);
  problem.nodes[0].repeatable = true;
  problem.nodes[0].repeatBefore = 2;
  EXPECT_NE(validate(problem, {0, 1, 2, 3, 0, 4}).find("after c has destroyed"), std::string::npos);
}

TEST(Rematerialization, RecomputesWhatIsCheapest) {
  RematProblem problem = diamond();
  RematSolution free = rematerialize(problem, 11);
  EXPECT_EQ(free.cost, 7u) << "no recomputation without need";
  RematSolution tight = rematerialize(problem, 10);
  ASSERT_TRUE(tight.feasible);
  EXPECT_EQ(tight.schedule, (RematSchedule{0, 1, 2, 3, 0, 4}));
  EXPECT_FALSE(rematerialize(problem, 6).feasible) << "b and c alone are 7";
  EXPECT_EQ(leastMemory(problem).peak, 7u);
  problem.nodes[0].repeatable = false;
  EXPECT_FALSE(rematerialize(problem, 10).feasible);
  problem.nodes[0].repeatable = true;
  problem.nodes[0].repeatBefore = 2;
  EXPECT_FALSE(rematerialize(problem, 10).feasible);
}

TEST(Rematerialization, FreeOrderHelps) {
  // Two large sources, each with a small user: the order decides whether both sources are live at the same time.
  RematProblem problem;
  problem.nodes = {node("a", 5, 10), node("b", 5, 10), node("c", 1, 1), node("d", 1, 1)};
  problem.inputs = {{}, {}, {0}, {1}};
  RematOptions options;
  options.work = 1'000'000;
  RematSolution kept = rematerialize(problem, 12, options);
  ASSERT_TRUE(kept.feasible);
  EXPECT_EQ(kept.cost, 22u) << "both are made again";
  options.keepOrder = false;
  RematSolution moved = rematerialize(problem, 12, options);
  ASSERT_TRUE(moved.feasible);
  EXPECT_EQ(moved.cost, 12u);
}

TEST(Rematerialization, SmallProblemsAreSolvedAsExhaustiveSearchDoes) {
  int solved = 0, best = 0;
  for (int round = 0; round < fuzzRounds(2500); ++round) {
    const unsigned seed = fuzzSeed(0) + unsigned(round);
    SCOPED_TRACE(fuzzTrace(round, seed));
    std::mt19937 random{seed};
    RematProblem problem = randomProblem(random, 3 + int(seed % 4), 0.3, seed % 3 != 0);
    if (!validate(problem, inOrder(problem)).empty())
      continue;
    Bytes most = measure(problem, inOrder(problem)).peak;
    RematOptions options;
    options.work = 300'000;
    options.keepOrder = seed % 2 == 0;
    Bytes budget = most - std::min<Bytes>(most, random() % 12);
    RematSolution solution = rematerialize(problem, budget, options);
    std::optional<Cost> least = leastCost(problem, budget, options.keepOrder);
    if (!solution.feasible) {
      solved += least.has_value();
      continue;
    }
    ASSERT_EQ(validate(problem, solution.schedule), "");
    RematMeasure measured = measure(problem, solution.schedule);
    EXPECT_EQ(measured.cost, solution.cost);
    EXPECT_EQ(measured.peak, solution.peak);
    EXPECT_LE(measured.peak, budget);
    ASSERT_TRUE(least.has_value()) << "below what is possible";
    EXPECT_GE(solution.cost, *least);
    ++solved;
    best += solution.cost == *least;
  }
  // The search is limited, but its result is nearly always optimal.
  EXPECT_GE(best, solved - solved / 200 - 1) << "of " << solved;
}

TEST(Rematerialization, TakesBackNothingThatIsNeeded) {
  int recomputations = 0, needed = 0, plain = 0;
  for (int round = 0; round < fuzzRounds(400); ++round) {
    const unsigned seed = fuzzSeed(0) + unsigned(round);
    SCOPED_TRACE(fuzzTrace(round, seed));
    std::mt19937 random{seed};
    const RematProblem problem = randomProblem(random, 12, 0.3, true);
    const RematGraph graph(problem);
    RematTimeline timeline(graph);
    for (int edit = 0; edit < 12; ++edit) {
      const int node = int(random() % problem.nodes.size());
      if (int step = timeline.latestRepetition(node, int(random() % unsigned(timeline.length()))); step >= 0)
        timeline.insert(node, step);
    }
    timeline.setLimit(timeline.peak());
    const RematSchedule schedule = timeline.schedule();
    for (int execution : std::vector<int>(timeline.recomputations())) {
      const bool plainly = timeline.isNeeded(execution);
      timeline.forget();
      timeline.remove(execution);
      ASSERT_TRUE(!plainly || timeline.overflow() > 0);
      ++recomputations;
      needed += timeline.overflow() > 0;
      plain += plainly;
      timeline.rollback(0);
      ASSERT_EQ(timeline.schedule(), schedule);
    }
  }
  EXPECT_GT(needed, fuzzShare(50, 400, fuzzRounds(400)));
  EXPECT_GT(recomputations, needed);
  EXPECT_GT(plain, needed / 2); // otherwise the cheap test would save nothing
}

TEST(Rematerialization, LeastMemoryIsThatOfExhaustiveSearch) {
  int count = 0, best = 0;
  for (int round = 0; round < fuzzRounds(300); ++round) {
    const unsigned seed = fuzzSeed(0) + unsigned(round);
    SCOPED_TRACE(fuzzTrace(round, seed));
    std::mt19937 random{seed};
    RematProblem problem = randomProblem(random, 3 + int(seed % 3), 0.3, seed % 3 != 0);
    if (!validate(problem, inOrder(problem)).empty())
      continue;
    RematOptions options;
    options.work = 1'000'000;
    options.keepOrder = seed % 2 == 0;
    RematSolution solution = leastMemory(problem, options);
    ASSERT_EQ(validate(problem, solution.schedule), "");
    ASSERT_EQ(measure(problem, solution.schedule).peak, solution.peak);
    ASSERT_TRUE(leastCost(problem, solution.peak, options.keepOrder).has_value());
    ++count;
    best += !leastCost(problem, solution.peak - 1, options.keepOrder).has_value();
    RematSolution cheaper = improve(problem, solution.peak, solution.schedule, options);
    EXPECT_EQ(validate(problem, cheaper.schedule), "");
    EXPECT_LE(cheaper.peak, solution.peak);
    EXPECT_LE(cheaper.cost, solution.cost);
  }
  EXPECT_GE(best, count - count / 100 - 1) << "of " << count;
}

TEST(Rematerialization, LargerGraphsAreValidAndTheSameEachTime) {
  for (int round = 0; round < fuzzRoundsOfLarger(60); ++round) {
    const unsigned seed = fuzzSeed(0) + unsigned(round);
    SCOPED_TRACE(fuzzTrace(round, seed));
    std::mt19937 random{seed};
    RematProblem problem = seed % 2 ? randomProblem(random, 40 + int(seed % 50), 0.05, true)
                                    : trainingGraph(random, 20 + int(seed % 30), int(seed % 7));
    if (!validate(problem, inOrder(problem)).empty())
      continue;
    RematMeasure whole = measure(problem, inOrder(problem));
    RematOptions options;
    options.work = 600'000;
    options.keepOrder = seed % 4 < 2;
    for (Bytes percent : {85, 60, 35}) {
      RematSolution solution = rematerialize(problem, whole.peak * percent / 100, options);
      if (!solution.feasible)
        continue;
      ASSERT_EQ(validate(problem, solution.schedule), "");
      RematMeasure measured = measure(problem, solution.schedule);
      ASSERT_EQ(measured.cost, solution.cost);
      ASSERT_EQ(measured.peak, solution.peak);
      ASSERT_LE(measured.peak, whole.peak * percent / 100);
      EXPECT_EQ(rematerialize(problem, whole.peak * percent / 100, options).schedule, solution.schedule);
    }
  }
}

TEST(Rematerialization, ChainOfLayersTradesMemoryForWork) {
  std::mt19937 random{7};
  RematProblem problem = trainingGraph(random, 60, 0);
  RematMeasure whole = measure(problem, inOrder(problem));
  RematOptions options;
  options.work = 20'000'000;
  Cost before = whole.cost;
  for (Bytes percent : {80, 60, 40, 25}) {
    RematSolution solution = rematerialize(problem, whole.peak * percent / 100, options);
    ASSERT_TRUE(solution.feasible) << percent;
    EXPECT_GT(solution.cost, before) << percent;
    EXPECT_LT(solution.cost, whole.cost * 3 / 2) << "one more pass forward is a third of the work";
    before = solution.cost;
  }
}

TEST(Rematerialization, WhatPricesGiveIsValidAndTheLeastOfItIsFound) {
  const unsigned seed = fuzzSeed(59);
  std::mt19937 random(seed);
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(fuzzTrace(round, seed));
    const RematProblem problem = trainingGraph(random, 20 + round % 20, 3);
    const std::vector<RematSchedule> sweep = sweepPrices(problem);
    ASSERT_FALSE(sweep.empty());
    Bytes least = measure(problem, inOrder(problem)).peak;
    for (size_t i = 0; i < sweep.size(); ++i) {
      ASSERT_EQ(validate(problem, sweep[i]), "");
      ASSERT_TRUE(i == 0 || sweep[i] != sweep[i - 1]);
      least = std::min(least, measure(problem, sweep[i]).peak);
    }
    EXPECT_EQ(measure(problem, *leastOf(problem, sweep)).peak, least);
    RematOptions options;
    options.work = 1'000'000;
    EXPECT_EQ(leastMemory(problem, options, sweep).schedule, leastMemory(problem, options).schedule);
    // Prices always lead to a schedule within the budget.
    const Bytes most = measure(problem, inOrder(problem)).peak;
    const RematSchedule byPrices = scheduleByPrices(problem, most - (most - least) / 8);
    ASSERT_FALSE(byPrices.empty());
    EXPECT_EQ(validate(problem, byPrices), "");
    EXPECT_LE(measure(problem, byPrices).peak, most - (most - least) / 8);
  }
}

TEST(Rematerialization, EmptyProblem) {
  RematProblem problem;
  EXPECT_TRUE(rematerialize(problem, 0).feasible);
  EXPECT_EQ(leastMemory(problem).peak, 0u);
}

} // namespace

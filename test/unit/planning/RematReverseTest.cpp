//===- RematReverseTest.cpp - recomputation planned from the end ----------===//
#include "compiler/planning/RematSearch.h"
#include "test/unit/planning/FuzzRounds.h"
#include "test/unit/planning/RematBruteForce.h"
#include "test/unit/planning/RematerializationProblems.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace tcc::planning;

namespace {

constexpr uint64_t kPlenty = 1'000'000'000;

TEST(RematReverse, SmallProblemsAreSolvedAsExhaustiveSearchDoes) {
  int possible = 0, found = 0, best = 0, foundKept = 0, bestKept = 0;
  const int rounds = fuzzRounds(1500);
  for (int round = 0; round < rounds; ++round) {
    const unsigned seed = fuzzSeed(0) + unsigned(round);
    SCOPED_TRACE(fuzzTrace(round, seed));
    std::mt19937 random{seed};
    RematProblem problem = randomProblem(random, 3 + int(seed % 4), 0.4, true);
    const bool keepOrder = seed % 2;
    if (!keepOrder)
      for (RematNode &node : problem.nodes) {
        node.repeatable = true;
        node.repeatBefore = -1;
      }
    RematSchedule once;
    for (size_t v = 0; v < problem.nodes.size(); ++v)
      once.push_back(int(v));
    const Bytes most = measure(problem, once).peak, budget = most - std::min<Bytes>(most, random() % 12);
    uint64_t visits = 0;
    RematSchedule schedule = scheduleFromTheEnd(problem, budget, 500, keepOrder, kPlenty, visits);
    std::optional<Cost> least = leastCostByBruteForce(problem, budget, keepOrder);
    possible += least.has_value();
    if (schedule.empty())
      continue;
    ++found;
    ASSERT_TRUE(least.has_value()) << "below what is possible";
    ASSERT_EQ(validate(problem, schedule), "");
    if (keepOrder) {
      RematSchedule first;
      for (int v : schedule)
        if (std::find(first.begin(), first.end(), v) == first.end())
          first.push_back(v);
      ASSERT_EQ(first, once);
      bestKept += measure(problem, schedule).cost == *least;
      ++foundKept;
    }
    RematMeasure measured = measure(problem, schedule);
    ASSERT_LE(measured.peak, budget);
    ASSERT_GE(measured.cost, *least);
    best += measured.cost == *least;
  }
  EXPECT_GT(possible, fuzzShare(250, 1500, rounds));
  EXPECT_GE(found, possible - possible / 50);
  // Unread nodes keep their positions, which restricts the order of the others.
  EXPECT_GE(best, found * 4 / 5);
  EXPECT_GT(foundKept, found / 4);
  EXPECT_EQ(bestKept, foundKept);
}

TEST(RematReverse, FindsTheWayThroughANarrowPlace) {
  // A pyramid: each node reads two neighbours of the row below. r rows need r + 1 pebbles, with any number of
  // repetitions.
  constexpr int kRows = 7;
  RematProblem problem;
  for (int row = 0, below = 0; row < kRows; ++row) {
    const int first = int(problem.nodes.size());
    for (int i = 0; i < kRows - row; ++i) {
      RematNode node;
      node.name = std::to_string(row) + "." + std::to_string(i);
      node.cost = node.bytes = 1;
      problem.nodes.push_back(node);
      problem.inputs.push_back(row ? std::vector<int>{below + i, below + i + 1} : std::vector<int>{});
    }
    below = first;
  }
  uint64_t visits = 0;
  RematSchedule schedule = scheduleFromTheEnd(problem, kRows + 1, 200, false, kPlenty, visits);
  ASSERT_FALSE(schedule.empty());
  EXPECT_EQ(validate(problem, schedule), "");
  EXPECT_EQ(measure(problem, schedule).peak, Bytes(kRows + 1));
  EXPECT_TRUE(scheduleFromTheEnd(problem, kRows, 200, false, kPlenty, visits).empty());
}

TEST(RematReverse, WhatMayNotBeRepeatedIsLeftToOthers) {
  std::mt19937 random(1);
  RematProblem problem = randomProblem(random, 6, 0.4, true);
  problem.nodes[2].repeatable = false;
  uint64_t visits = 0;
  EXPECT_TRUE(scheduleFromTheEnd(problem, 1 << 20, 100, false, kPlenty, visits).empty());
}

} // namespace

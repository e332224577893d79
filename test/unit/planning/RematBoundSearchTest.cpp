//===- RematBoundSearchTest.cpp - bounds by best-first search -------------===//
#include "compiler/planning/RematBoundModel.h"
#include "test/unit/planning/FuzzRounds.h"
#include "test/unit/planning/RematBruteForce.h"
#include "test/unit/planning/RematerializationProblems.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

using namespace tcc::planning;

namespace {

constexpr uint64_t kPlenty = 100'000'000;
constexpr double kOutOfReach = std::numeric_limits<double>::infinity();

Cost costOfOnce(const RematProblem &problem) {
  Cost sum = 0;
  for (const RematNode &node : problem.nodes)
    sum += node.cost;
  return sum;
}

RematPrefixBounds prefixesOf(const RematProblem &problem, Bytes budget, int stages) {
  return boundPrefixes(modelOfGivenOrder(problem, budget, stages), 100'000, {});
}

TEST(RematBoundSearch, IsTheOptimumOfSmallProblems) {
  int costly = 0, impossible = 0, cut = 0;
  const int rounds = fuzzRounds(3000);
  for (int round = 0; round < rounds; ++round) {
    const unsigned seed = fuzzSeed(0) + unsigned(round);
    SCOPED_TRACE(fuzzTrace(round, seed));
    std::mt19937 random{seed};
    RematProblem problem = randomProblem(random, 3 + int(seed % 5), 0.4, seed % 3 == 0);
    RematSchedule once;
    for (size_t v = 0; v < problem.nodes.size(); ++v)
      once.push_back(int(v));
    const Bytes most = measure(problem, once).peak, budget = most - std::min<Bytes>(most, random() % 12);
    const std::optional<Cost> least = leastCostByBruteForce(problem, budget, true);
    const Cost sum = costOfOnce(problem);
    for (int stages : {2, 100}) {
      const RematPrefixBounds prefixes = prefixesOf(problem, budget, stages);
      RematSearchBound bound = boundBySearch(problem, budget, prefixes, 0, kPlenty, {});
      ASSERT_EQ(bound.infeasible, !least);
      if (!least)
        continue;
      ASSERT_TRUE(bound.optimal);
      ASSERT_EQ(std::ceil(bound.extra), double(*least - sum));
      // The result is a valid bound whenever the search is stopped.
      for (uint64_t work : {0, 300, 1000, 3000}) {
        bound = boundBySearch(problem, budget, prefixes, 0, work, {});
        ASSERT_FALSE(bound.infeasible);
        ASSERT_LE(bound.extra, double(*least - sum));
        cut += !bound.optimal;
      }
    }
    impossible += !least;
    costly += least && *least > sum;
  }
  EXPECT_GT(costly, fuzzShare(200, 3000, rounds));
  EXPECT_GT(impossible, fuzzShare(300, 3000, rounds));
  EXPECT_GT(cut, fuzzShare(500, 3000, rounds));
}

TEST(RematBoundSearch, SeesTheMemoryBetweenFirstExecutions) {
  // Beside `wide` only `held` fits. Repeating `last` is cheap, but takes 23 bytes beside the 6 of `held`, with a
  // budget of 26. So the expensive `held` must be repeated. The relaxation only sees the memory of first executions,
  // where repeating `last` seems the better choice.
  RematProblem problem;
  auto add = [&](Cost cost, Bytes bytes, std::vector<int> inputs) {
    problem.nodes.push_back({.name = "n" + std::to_string(problem.nodes.size()), .cost = cost, .bytes = bytes});
    problem.inputs.push_back(std::move(inputs));
    return int(problem.nodes.size()) - 1;
  };
  const int left = add(1, 11, {}), right = add(1, 11, {});
  const int last = add(1, 1, {left, right});
  const int held = add(1000, 6, {});
  const int wide = add(1, 20, {});
  const int read = add(1, 0, {wide});
  add(1, 1, {last, held, read});
  const Bytes budget = 26;
  const double known = boundByDual(modelOfGivenOrder(problem, budget, 100), kPlenty, kOutOfReach, {}).extra;
  const RematSearchBound bound = boundBySearch(problem, budget, prefixesOf(problem, budget, 100), 0, kPlenty, {});
  EXPECT_LE(known, 3);
  EXPECT_TRUE(bound.optimal);
  EXPECT_EQ(std::ceil(bound.extra), 1000);
}

TEST(RematBoundSearch, GivesUpWhereABetterBoundStaysOutOfReach) {
  std::mt19937 random{1};
  RematProblem problem = randomProblem(random, 60, 0.08, false);
  RematSchedule once;
  for (size_t v = 0; v < problem.nodes.size(); ++v)
    once.push_back(int(v));
  const Bytes budget = measure(problem, once).peak * 6 / 10;
  const RematPrefixBounds prefixes = prefixesOf(problem, budget, 100);
  auto asks = [&](double known) {
    int asked = 0;
    boundBySearch(problem, budget, prefixes, known, 3'000'000, [&] { return ++asked, false; });
    return asked;
  };
  EXPECT_GT(asks(0), 4 * asks(kOutOfReach));
}

} // namespace

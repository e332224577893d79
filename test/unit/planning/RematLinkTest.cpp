//===- RematLinkTest.cpp - outputs offloaded to the host ------------------===//
#include "test/unit/planning/FuzzRounds.h"
#include "test/unit/planning/RematBruteForce.h"
#include "test/unit/planning/RematerializationProblems.h"

#include "compiler/planning/RematTimeline.h"

#include <gtest/gtest.h>

using namespace tcc::planning;

namespace {

/// a (expensive) → b → c → d, and a is read again at the end. While c is made, a, b and c take 4 + 1 + 6 bytes.
RematProblem heldAcross() {
  RematProblem problem;
  for (auto [name, cost, bytes] :
       {std::tuple<const char *, Cost, Bytes>{"a", 30, 4}, {"b", 1, 1}, {"c", 1, 6}, {"d", 1, 1}, {"e", 1, 1}})
    problem.nodes.push_back({.name = name, .cost = cost, .bytes = bytes});
  problem.inputs = {{}, {0}, {1}, {2}, {0, 3}};
  return problem;
}

TEST(RematLink, FetchesWhatIsDearToComputeAgain) {
  RematProblem problem = heldAcross();
  const Cost once = 34;
  EXPECT_EQ(rematerialize(problem, 10).cost, once + 30) << "no link: a is computed again";
  problem.linkBytesPerCost = 1; // 4 to store, 4 to fetch
  RematSolution solution = rematerialize(problem, 10);
  EXPECT_EQ(solution.schedule, (RematSchedule{0, 1, 2, 3, fetchOf(0), 4}));
  EXPECT_EQ(solution.cost, once + 8);
  EXPECT_EQ(solution.peak, 7u);
  EXPECT_EQ(rematerialize(problem, 11).cost, once) << "nothing is fetched without need";
  problem.nodes[0].cost = 7; // cheaper than the 8 of storing and fetching
  EXPECT_EQ(rematerialize(problem, 10).schedule, (RematSchedule{0, 1, 2, 3, 0, 4}));
  problem.nodes[0].repeatable = false;
  EXPECT_EQ(rematerialize(problem, 10).schedule, (RematSchedule{0, 1, 2, 3, fetchOf(0), 4}));
  problem.nodes[0].repeatable = true;
  problem.nodes[0].repeatBefore = 2; // the operands of a are overwritten by then, but its output is on the host
  EXPECT_EQ(rematerialize(problem, 10).schedule, (RematSchedule{0, 1, 2, 3, fetchOf(0), 4}));
}

TEST(RematLink, StoringIsPaidOnce) {
  RematProblem problem = heldAcross();
  problem.linkBytesPerCost = 3; // a transfer of 4 bytes costs 2
  EXPECT_EQ(measure(problem, {0, 1, fetchOf(0), 2, 3, fetchOf(0), 4}).cost, 34u + 2 + 2 + 2);
  EXPECT_EQ(measure(problem, {0, 1, 2, 3, fetchOf(0), 4}).peak, 7u);
  problem.nodes[0].workspace = 100;
  EXPECT_EQ(measure(problem, {0, 1, 2, 3, 4}).peak, 104u) << "while a is made, not while it is fetched";
  problem.nodes[0].workspace = 0;
  // A fetch reads nothing: d dies while c is made.
  problem.nodes[3].workspace = 0;
  EXPECT_EQ(measure(problem, {0, 1, 2, 3, 0, fetchOf(3), 4}).peak, 7u);
}

TEST(RematLink, NamesWhatIsWrong) {
  RematProblem problem = heldAcross();
  EXPECT_NE(validate(problem, {0, 1, 2, 3, fetchOf(0), 4}).find("there is no link"), std::string::npos);
  problem.linkBytesPerCost = 1;
  EXPECT_EQ(validate(problem, {0, 1, 2, 3, fetchOf(0), 4}), "");
  EXPECT_NE(validate(problem, {0, fetchOf(1), 2, 3, 4}).find("fetches b before it was made"), std::string::npos);
  EXPECT_NE(validate(problem, {0, 1, fetchOf(7), 2, 3, 4}), "");
}

TEST(RematLink, TheTimelineCountsAsTheDefinitionsDo) {
  for (int round = 0; round < fuzzRounds(400); ++round) {
    const unsigned seed = fuzzSeed(0) + unsigned(round);
    SCOPED_TRACE(fuzzTrace(round, seed));
    std::mt19937 random{seed};
    RematProblem problem = randomProblem(random, 12, 0.3, true);
    problem.linkBytesPerCost = 1 + random() % 4;
    const RematGraph graph(problem);
    RematTimeline timeline(graph);
    for (int edit = 0; edit < 30; ++edit) {
      const int node = int(random() % problem.nodes.size()), at = int(random() % unsigned(timeline.length()));
      const size_t mark = timeline.mark();
      const RematSchedule before = timeline.schedule();
      if (random() % 3 == 0 && !timeline.recomputations().empty())
        timeline.remove(timeline.recomputations()[random() % timeline.recomputations().size()]);
      else if (random() % 2 && timeline.mayFetch(node, at))
        timeline.insert(node, at, true);
      else if (int step = timeline.latestRepetition(node, at); step >= 0)
        timeline.insert(node, step);
      if (random() % 4 == 0) {
        timeline.rollback(mark);
        ASSERT_EQ(timeline.schedule(), before);
      }
      const RematMeasure measured = measure(problem, timeline.schedule());
      ASSERT_EQ(timeline.cost(), measured.cost);
      ASSERT_EQ(timeline.peak(), measured.peak);
      RematTimeline again(graph, timeline.schedule());
      ASSERT_EQ(again.cost(), measured.cost);
      ASSERT_EQ(again.peak(), measured.peak);
    }
  }
}

TEST(RematLink, SmallProblemsAreSolvedAsExhaustiveSearchDoes) {
  const int rounds = fuzzRounds(800);
  int solved = 0, best = 0, fetching = 0, cheaper = 0, possible = 0, bounded = 0, extras = 0;
  for (int round = 0; round < rounds; ++round) {
    const unsigned seed = fuzzSeed(0) + unsigned(round);
    SCOPED_TRACE(fuzzTrace(round, seed));
    std::mt19937 random{seed};
    RematProblem problem = randomProblem(random, 4 + int(seed % 3), 0.4, seed / 2 % 2 == 0);
    if (!validate(problem, inOrder(problem)).empty())
      continue;
    const RematMeasure once = measure(problem, inOrder(problem));
    RematOptions options;
    options.work = 1'000'000;
    options.keepOrder = seed % 2 == 0;
    const Bytes budget = once.peak - std::min<Bytes>(once.peak, random() % 12);
    const std::optional<Cost> without = leastCostByBruteForce(problem, budget, options.keepOrder);
    problem.linkBytesPerCost = 1 + random() % 5;
    const std::optional<Cost> least = leastCostByBruteForce(problem, budget, options.keepOrder);
    possible += least.has_value();
    cheaper += least && (!without || *least < *without);
    const RematBound bound = boundCost(problem, budget, options);
    if (least) {
      ASSERT_LE(options.keepOrder ? bound.givenOrder : bound.anyOrder, *least);
      ASSERT_FALSE(bound.infeasible && options.keepOrder);
      ASSERT_LE(boundPeak(problem), budget);
      extras += *least > once.cost;
      bounded += *least > once.cost && bound.givenOrder > once.cost;
    }
    const RematSolution solution = rematerialize(problem, budget, options);
    if (!solution.feasible)
      continue;
    ASSERT_TRUE(least.has_value()) << "below what is possible";
    ASSERT_EQ(validate(problem, solution.schedule), "");
    const RematMeasure measured = measure(problem, solution.schedule);
    ASSERT_EQ(measured.cost, solution.cost);
    ASSERT_EQ(measured.peak, solution.peak);
    ASSERT_LE(measured.peak, budget);
    ASSERT_GE(solution.cost, *least);
    ++solved;
    best += solution.cost == *least;
    fetching += std::any_of(solution.schedule.begin(), solution.schedule.end(), isFetch);
  }
  EXPECT_GE(solved, possible - possible / 200 - 1) << "of " << possible;
  // The search is limited: sometimes another order would have been cheaper than a fetch.
  EXPECT_GE(best, solved - solved / 25 - 1) << "of " << solved;
  EXPECT_GT(fetching, fuzzShare(30, 800, rounds));
  EXPECT_GT(cheaper, fuzzShare(30, 800, rounds));
  EXPECT_GT(bounded, extras / 2) << "of " << extras;
}

TEST(RematLink, LeastMemoryIsTheLargestStep) {
  // Every unread output can be stored on the host, so that only first executions and outputs at exit determine the
  // minimum.
  const int rounds = fuzzRounds(200);
  int met = 0;
  for (int round = 0; round < rounds; ++round) {
    const unsigned seed = fuzzSeed(0) + unsigned(round);
    SCOPED_TRACE(fuzzTrace(round, seed));
    std::mt19937 random{seed};
    RematProblem problem = randomProblem(random, 4 + int(seed % 20), 0.3, false);
    problem.linkBytesPerCost = 3;
    RematOptions options;
    options.work = 1'000'000;
    met += leastMemory(problem, options).peak == boundPeak(problem);
  }
  EXPECT_GE(met, rounds - rounds / 100);
}

TEST(RematLink, ACloseHostIsCheaperThanAFarOne) {
  std::mt19937 random{7};
  RematProblem problem = trainingGraph(random, 60, 0);
  const Bytes budget = measure(problem, inOrder(problem)).peak * 4 / 10;
  RematOptions options;
  options.work = 20'000'000;
  const Cost none = rematerialize(problem, budget, options).cost;
  problem.linkBytesPerCost = 1; // dearer than computing
  const Cost far = rematerialize(problem, budget, options).cost;
  problem.linkBytesPerCost = 200;
  const RematSolution close = rematerialize(problem, budget, options);
  EXPECT_LE(far, none);
  EXPECT_LT(close.cost, far);
  EXPECT_TRUE(std::any_of(close.schedule.begin(), close.schedule.end(), isFetch));
  EXPECT_EQ(rematerialize(problem, budget, options).schedule, close.schedule);
}

} // namespace

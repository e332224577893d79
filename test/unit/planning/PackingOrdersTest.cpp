// Learned orders of best-fit packing, and their use to the budgets' ladder.
#include "compiler/planning/PackingSearch.h"

#include "compiler/planning/Frontier.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

using namespace tcc::planning;

namespace {

/// A problem like that of a long schedule: mostly short live ranges, every fourth long; sizes are a few powers of two.
PackingProblem scheduleLike(std::mt19937 &random) {
  PackingProblem problem;
  for (int at = 0; at < 400; ++at) {
    bool kept = random() % 4 == 0;
    Time length = kept ? 20 + Time(random() % 120) : 1 + Time(random() % 5);
    Bytes bytes = Bytes(64) << (random() % 6 + (kept ? 4 : 6));
    problem.buffers.push_back({"b" + std::to_string(at), bytes, at, at + length});
  }
  return problem;
}

TEST(PackingOrders, LearnWhatSticksOut) {
  std::mt19937 random(7);
  double greedy = 0, learned = 0;
  int better = 0;
  for (int round = 0; round < 8; ++round) {
    SCOPED_TRACE("round " + std::to_string(round) + ", seed 7");
    PackingProblem problem = scheduleLike(random);
    PackingSolution solution = packGreedily(problem);
    const Bytes first = solution.bytes;
    uint64_t work = 6'000'000;
    improveOrder(problem, solution, work, nullptr);
    EXPECT_EQ(validate(problem, solution), "");
    EXPECT_LE(solution.bytes, first);
    better += solution.bytes < first;
    greedy += double(first) / double(solution.lowerBound) - 1;
    learned += double(solution.bytes) / double(solution.lowerBound) - 1;
    // A second run gives the same packing.
    PackingSolution again = packGreedily(problem);
    uint64_t sameWork = 6'000'000;
    improveOrder(problem, again, sameWork, nullptr);
    EXPECT_EQ(again.offsets, solution.offsets);
    EXPECT_EQ(sameWork, work);
  }
  EXPECT_GE(better, 7);
  EXPECT_LT(learned, 0.6 * greedy); // both are the share of wasted bytes
}

TEST(PackingOrders, WorkLimitsThem) {
  std::mt19937 random(7);
  PackingProblem problem = scheduleLike(random);
  PackingSolution solution = packGreedily(problem);
  const Bytes first = solution.bytes;
  uint64_t none = 1000;
  improveOrder(problem, solution, none, nullptr);
  EXPECT_EQ(solution.bytes, first);
  uint64_t plenty = 1'000'000'000;
  improveOrder(problem, solution, plenty, [] { return true; });
  EXPECT_EQ(solution.bytes, first);
}

/// Forward f (reads state) → g small; an update by g right away; then p → q, as large as f; r reads f and q.
Program updatedEarly() {
  Program program;
  auto add = [&](const char *name, Bytes bytes, std::vector<int> reads) {
    int id = int(program.instructions.size());
    program.instructions.push_back({name, 1, std::move(reads), {}, 0, {}, {}, true, false, false});
    if (!bytes)
      return;
    program.instructions.back().writes = {int(program.values.size())};
    program.values.push_back({name, bytes, id, false});
  };
  add("f", 64000, {});
  add("g", 64, {0});
  add("update", 0, {1});
  program.instructions.back().after = {0};
  program.instructions.back().repeatable = false;
  program.instructions.back().writesState = true;
  add("p", 64000, {1});
  add("q", 64, {2});
  add("r", 64, {0, 3});
  program.values.back().atExit = true;
  return program;
}

TEST(PackingOrders, UpdatesBySmallValuesWait) {
  // In the program's order f cannot be repeated for r, since the update has overwritten its operand: f and p live
  // together.
  Program program = updatedEarly();
  FrontierOptions options;
  options.work = 2'000'000;
  std::vector<FrontierPoint> points = frontier(program, options).points;
  EXPECT_EQ(points.front().bytes, Bytes(64000 + 64 + 64000));
  EXPECT_LT(points.back().bytes, Bytes(64000 + 4 * 64));
  Sequence last = points.back().sequence;
  EXPECT_EQ(validate(program, last), "");
  EXPECT_EQ(std::count(last.begin(), last.end(), 0), 2); // f twice
}

} // namespace

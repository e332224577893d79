//===- FrontierTest.cpp - programs, what lives when, and the ladder -------===//
#include "compiler/planning/Frontier.h"
#include "compiler/planning/Scheduling.h"
#include "test/unit/planning/FuzzRounds.h"

#include "test/unit/planning/FrontierPrograms.h"

#include <gtest/gtest.h>

#include <set>

using namespace tcc::planning;
using namespace tcc::planning::frontiertest;

namespace {

TEST(Frontier, WhatLivesAgreesWithWalking) {
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    Program program = randomProgram(random, 3 + below(random, 12));
    Sequence sequence = randomSequence(random, program);
    ASSERT_EQ(validate(program, sequence), "");
    ASSERT_EQ(peakOf(program, sequence), naivePeak(program, sequence)) << "round " << round;
  }
}

TEST(Frontier, AnExpandedProgramIsTheSequence) {
  std::mt19937 random(2);
  for (int round = 0; round < 1000; ++round) {
    Program program = randomProgram(random, 3 + below(random, 12));
    Sequence sequence = randomSequence(random, program);
    Program expanded = expand(program, sequence);
    ASSERT_EQ(validate(expanded, once(expanded)), "");
    ASSERT_EQ(peakOf(expanded, once(expanded)), peakOf(program, sequence));
    ASSERT_EQ(costOf(expanded, once(expanded)), costOf(program, sequence));
  }
}

TEST(Frontier, DeadExecutionsLeave) {
  std::mt19937 random(3);
  for (int round = 0; round < 1000; ++round) {
    Program program = randomProgram(random, 3 + below(random, 12));
    Sequence sequence = randomSequence(random, program), kept = withoutDeadExecutions(program, sequence);
    ASSERT_EQ(validate(program, kept), "");
    ASSERT_LE(costOf(program, kept), costOf(program, sequence));
    ASSERT_EQ(withoutDeadExecutions(program, kept), kept);
  }
}

TEST(Frontier, NeedlessRepeatsLeave) {
  std::mt19937 random(17);
  size_t left = 0;
  for (int round = 0; round < 1000; ++round) {
    Program program = randomProgram(random, 3 + below(random, 12));
    Sequence sequence = withoutDeadExecutions(program, randomSequence(random, program));
    Sequence kept = withoutNeedlessRepeats(program, sequence);
    ASSERT_EQ(validate(program, kept), "");
    ASSERT_LE(costOf(program, kept), costOf(program, sequence));
    ASSERT_LE(peakOf(program, kept), peakOf(program, sequence));
    left += sequence.size() - kept.size();
  }
  EXPECT_GT(left, 100u);
}

TEST(Frontier, ResultsOfOneRepeatAreMadeTogether) {
  // Both results of an instruction are read long after the peak, one after the other: one repetition makes both.
  Program program;
  auto add = [&](std::vector<int> reads, std::vector<Bytes> bytes, bool repeatable = true) {
    const int id = int(program.instructions.size());
    std::vector<int> writes;
    for (Bytes one : bytes) {
      writes.push_back(int(program.values.size()));
      program.values.push_back({"v", one, id, false});
    }
    ProgramInstruction instruction;
    instruction.name = "i";
    instruction.cost = 10;
    instruction.reads = std::move(reads);
    instruction.writes = writes;
    instruction.repeatable = repeatable;
    program.instructions.push_back(std::move(instruction));
    return writes;
  };
  const int input = add({}, {64}, false)[0];
  const std::vector<int> both = add({input}, {640, 640});
  int last = add({both[0]}, {64}, false)[0];
  for (int i = 0; i < 4; ++i) // the peak
    last = add({add({last}, {1280}, false)[0]}, {64}, false)[0];
  for (int result : both)
    last = add({std::min(result, last), std::max(result, last)}, {64}, false)[0];
  program.values[size_t(last)].atExit = true;
  std::vector<FrontierPoint> points = frontier(program).points;
  ASSERT_GE(points.size(), 2u);
  EXPECT_EQ(points.back().cost, points.front().cost + 10);
  EXPECT_LT(points.back().bytes, points.front().bytes);
}

FrontierOptions quick() {
  FrontierOptions options;
  options.rungs = 8;
  options.work = 2'000'000;
  options.packingWork = 100'000;
  options.schedulingWork = 100'000;
  options.boundWork = 500'000;
  return options;
}

TEST(Frontier, PointsAreValidAndNoneDominatesAnother) {
  std::mt19937 random(4);
  int smaller = 0, bounded = 0;
  for (int round = 0; round < 400; ++round) {
    Program program = randomProgram(random, 8 + below(random, 30));
    Frontier ladder = frontier(program, quick());
    const std::vector<FrontierPoint> &points = ladder.points;
    ASSERT_EQ(ladder.error, "") << "round " << round;
    ASSERT_FALSE(points.empty());
    ASSERT_EQ(points.front().cost, costOf(program, once(program)));
    for (size_t i = 0; i < points.size(); ++i) {
      const FrontierPoint &point = points[i];
      ASSERT_EQ(validate(program, point.sequence), "");
      ASSERT_EQ(point.peak, naivePeak(program, point.sequence));
      ASSERT_EQ(point.cost, costOf(program, point.sequence));
      ASSERT_LE(point.peak, point.bytes);
      ASSERT_LE(point.lowerBound, point.cost) << "round " << round;
      bounded += point.lowerBound > points.front().cost;
      if (i) {
        ASSERT_LT(point.bytes, points[i - 1].bytes);
        ASSERT_GT(point.cost, points[i - 1].cost);
      }
    }
    smaller += points.size() > 1;
  }
  EXPECT_GT(smaller, 100) << "recomputation makes many programs smaller";
  EXPECT_GT(bounded, 10) << "some bounds say more than that everything is executed once";
}

/// With a limit on time the ladder ends early, nearly always with as little memory as the whole ladder needs at that
/// cost.
TEST(Frontier, WhatCostsTooMuchIsNotLookedFor) {
  std::mt19937 random(6);
  int shorter = 0, more = 0;
  double sum = 0, sumOfWhole = 0;
  for (int round = 0; round < 80; ++round) {
    const Program program = randomProgram(random, 8 + below(random, 30));
    FrontierOptions options = quick();
    const std::vector<FrontierPoint> whole = frontier(program, options).points;
    options.extraTime = 0.15;
    const Frontier limited = frontier(program, options);
    ASSERT_EQ(limited.error, "") << "round " << round;
    const double most = 1.15 * double(whole.front().cost);
    Bytes least = whole.front().bytes;
    for (const FrontierPoint &point : whole)
      if (double(point.cost) <= most)
        least = std::min(least, point.bytes);
    for (const FrontierPoint &point : limited.points)
      EXPECT_LE(double(point.cost), most) << "round " << round;
    sum += double(limited.points.back().bytes);
    sumOfWhole += double(least);
    more += limited.points.back().bytes > least;
    shorter += limited.points.size() < whole.size();
  }
  EXPECT_LE(more, 3);
  EXPECT_LE(sum, 1.005 * sumOfWhole);
  EXPECT_GT(shorter, 15);
}

TEST(Frontier, WhatIsWrongWithPointsIsSaid) {
  std::mt19937 random(5);
  Program program;
  std::vector<FrontierPoint> points;
  while (points.size() < 3) {
    program = randomProgram(random, 30);
    points = frontiers({&program, &program}, quick()).back().points;
    std::vector<FrontierPoint> alone = frontier(program, quick()).points;
    ASSERT_EQ(points.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(points[i].sequence, alone[i].sequence);
      EXPECT_EQ(points[i].bytes, alone[i].bytes);
    }
  }
  ASSERT_EQ(validate(program, points), "");
  auto wrong = [&](auto spoil) {
    std::vector<FrontierPoint> spoilt = points;
    spoil(spoilt);
    return validate(program, spoilt);
  };
  EXPECT_NE(wrong([](auto &list) { list[1].sequence.pop_back(); }).find("point 1"), std::string::npos);
  EXPECT_NE(wrong([](auto &list) { list[2].lowerBound = list[2].cost + 1; }).find("lower bound"), std::string::npos);
  EXPECT_NE(wrong([](auto &list) { ++list[1].cost; }).find("costs"), std::string::npos);
  EXPECT_NE(wrong([](auto &list) { list[1].bytes = list[1].peak - 1; }).find("live at once"), std::string::npos);
  EXPECT_NE(wrong([](auto &list) { std::swap(list[1], list[2]); }), "");
}

TEST(Frontier, ABoundProblemNeedsNoMoreThanTheProgram) {
  // Random sequences, translated to schedules in which each result is a node; results that are not read before they are
  // made again are left out.
  std::mt19937 random(6);
  for (int round = 0; round < 2000; ++round) {
    Program program = randomProgram(random, 3 + below(random, 12));
    Sequence sequence = withoutDeadExecutions(program, randomSequence(random, program));
    std::set<std::pair<int, std::string>> made; // position and value
    for (const Block &block : blocksOf(program, sequence))
      if (block.value >= 0)
        made.emplace(block.execution, program.values[size_t(block.value)].name);
    std::vector<int> nodeInstruction;
    rematProblemOf(program, nodeInstruction);
    const RematProblem problem = boundProblemOf(program);
    RematSchedule schedule;
    for (int at = -1; at < int(sequence.size()); ++at)
      for (size_t n = 0; n < nodeInstruction.size(); ++n)
        if (nodeInstruction[n] == (at < 0 ? -1 : sequence[size_t(at)]) &&
            (made.contains({at, problem.nodes[n].name}) ||
             (problem.nodes[n].bytes == 0 && std::find(schedule.begin(), schedule.end(), int(n)) == schedule.end())))
          schedule.push_back(int(n));
    ASSERT_EQ(validate(problem, schedule), "");
    ASSERT_LE(measure(problem, schedule).cost, costOf(program, sequence)) << "round " << round;
    ASSERT_LE(measure(problem, schedule).peak, peakOf(program, sequence)) << "round " << round;
  }
}

TEST(Frontier, AnExecutionForSomeResultsTakesWhatTheyNeed) {
  // One instruction makes a from u and p from v. Both are read at once, and a once more at the end. Repeating the
  // instruction for a alone reads only u and costs only a's share, so that v is free after the first execution.
  struct Half : PartialExecutions {
    Execution make(const std::vector<bool> &wanted) const override {
      if (wanted[0] && !wanted[1])
        return {3, {0}, {2}, 0, {}};
      return {5, {1}, {3}, 0, {}};
    }
    std::vector<Cost> shares() const override { return {3, 5}; }
  };
  Program program;
  program.values = {{"u", 64, 0, false}, {"v", 64, 0, false}, {"a", 64, 1, false},
                    {"p", 64, 1, false}, {"y", 64, 2, false}, {"z", 64, 3, true}};
  program.instructions = {
      {"i0", 1, {}, {0, 1}}, {"both", 7, {0, 1}, {2, 3}}, {"y", 1, {2, 3}, {4}}, {"z", 1, {2, 4}, {5}}};
  program.instructions[1].repeatable = program.instructions[1].omits = true;
  program.instructions[1].partial = std::make_shared<Half>();
  const Sequence again{0, 1, 2, 1, 3};
  EXPECT_EQ(validate(program, again), "");
  EXPECT_EQ(costOf(program, again), Cost(1 + 7 + 1 + 3 + 1));
  std::vector<Execution> executions = executionsOf(program, again);
  EXPECT_EQ(executions[1].writes, (std::vector{2, 3}));
  EXPECT_EQ(executions[3].reads, std::vector{0});
  EXPECT_EQ(executions[3].writes, std::vector{2});
  for (const Block &block : blocksOf(program, again))
    if (block.value == 0 || block.value == 1) {
      EXPECT_EQ(block.last, block.value == 0 ? 3 : 1) << "u waits for its second reader, v does not";
    }
  // The problem that the solver sees has a's own inputs and cost.
  std::vector<int> nodeInstruction;
  RematProblem problem = rematProblemOf(program, nodeInstruction);
  auto a =
      std::find_if(problem.nodes.begin(), problem.nodes.end(), [](const RematNode &node) { return node.name == "a"; });
  EXPECT_EQ(a->cost, 3u);
  EXPECT_EQ(problem.inputs[size_t(a - problem.nodes.begin())], std::vector{0});
}

TEST(Frontier, AProgramInAnotherOrder) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    Program program = randomProgram(random, 3 + below(random, 12));
    const Sequence order = schedule(program).order;
    ASSERT_EQ(validate(program, order), "");
    Program other = inOrder(program, order);
    ASSERT_EQ(validate(other, once(other)), "");
    ASSERT_EQ(peakOf(other, once(other)), peakOf(program, order));
  }
}

TEST(Frontier, AChainOfSavedValuesIsCutToOne) {
  // f0 → f1 → … → f7, then b7 … b0, where b_i reads f_i and b_{i+1}: without recomputation all eight are saved.
  constexpr int n = 8;
  Program program;
  for (int i = 0; i < n; ++i) {
    program.values.push_back({"f" + std::to_string(i), 640, i, false});
    program.instructions.push_back({"f" + std::to_string(i), 1, {}, {i}, 0, {}, {}, true, false, false});
    if (i)
      program.instructions.back().reads = {i - 1};
  }
  for (int i = n - 1; i >= 0; --i) {
    int id = int(program.values.size());
    program.values.push_back({"b" + std::to_string(i), 64, id, i == 0});
    program.instructions.push_back({"b" + std::to_string(i), 1, {i}, {id}, 0, {}, {}, false, false, false});
    if (i < n - 1)
      program.instructions.back().reads.push_back(id - 1);
    std::sort(program.instructions.back().reads.begin(), program.instructions.back().reads.end());
  }
  std::vector<FrontierPoint> points = frontier(program).points;
  EXPECT_EQ(points.front().bytes, Bytes(8 * 640 + 64));
  // At each recomputation at most two forward values, one saved value and one backward value are live.
  EXPECT_LE(points.back().bytes, Bytes(3 * 640 + 64));
  EXPECT_GT(points.size(), 3u);
}

TEST(Scheduling, EndsCloseToTheBoundWhereThatIsEnough) {
  const unsigned seed = fuzzSeed(43);
  std::mt19937 random(seed);
  int further = 0;
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(fuzzTrace(round, seed));
    Program program = randomProgram(random, 60);
    SchedulingOptions options;
    options.work = 2'000'000;
    const SchedulingSolution all = schedule(program, options);
    options.closePart = 20;
    const SchedulingSolution close = schedule(program, options);
    ASSERT_EQ(validate(program, close.order), "");
    ASSERT_LE(close.lowerBound, all.peak);
    // The search may only end early if the peak is within a twentieth of the bound.
    ASSERT_TRUE(close.peak - close.peak / 20 <= close.lowerBound || close.peak == all.peak);
    further += all.peak < close.peak;
  }
  EXPECT_GT(further, 0) << "the search does end earlier";
}

} // namespace

//===- FrontierTest.cpp - programs, what lives when, and the ladder -------===//
#include "compiler/planning/Frontier.h"
#include "compiler/planning/Scheduling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

using namespace tcc::planning;

namespace {

int below(std::mt19937 &random, int count) { return int(random() % uint32_t(count)); }

/// A random program: inputs, instructions of one or two results, in-place pairs, state that late instructions
/// overwrite.
Program randomProgram(std::mt19937 &random, int count) {
  Program program;
  auto addValue = [&](int producer) {
    program.values.push_back({"v" + std::to_string(program.values.size()), Bytes(64 * (1 + below(random, 8))), producer,
                              below(random, 8) == 0 && producer >= 0});
    return int(program.values.size()) - 1;
  };
  for (int i = below(random, 3); i >= 0; --i)
    addValue(-1);
  for (int i = 0; i < count; ++i) {
    ProgramInstruction instruction;
    instruction.name = "i" + std::to_string(i);
    instruction.cost = Cost(1 + below(random, 9));
    instruction.repeatable = below(random, 5) > 0;
    instruction.omits = below(random, 2);
    instruction.workspace = below(random, 4) ? 0 : Bytes(64 * below(random, 6));
    const int values = int(program.values.size());
    for (int r = below(random, 3); r >= 0; --r)
      instruction.reads.push_back(below(random, 3) ? std::max(0, values - 1 - below(random, 4))
                                                   : below(random, values));
    std::sort(instruction.reads.begin(), instruction.reads.end());
    instruction.reads.erase(std::unique(instruction.reads.begin(), instruction.reads.end()), instruction.reads.end());
    for (int w = 1 + (below(random, 4) == 0); w > 0; --w)
      instruction.writes.push_back(addValue(i));
    for (int read : instruction.reads)
      for (int written : instruction.writes)
        if (program.values[size_t(read)].producer >= 0 &&
            program.values[size_t(read)].bytes == program.values[size_t(written)].bytes)
          instruction.inPlace.push_back({read, written});
    if (i > 2 && below(random, 6) == 0) { // an update: it overwrites what an earlier instruction reads
      instruction.after.push_back(below(random, i));
      instruction.repeatable = false;
      instruction.writesState = true;
    }
    program.instructions.push_back(std::move(instruction));
  }
  return program;
}

Sequence once(const Program &program) {
  Sequence sequence(program.instructions.size());
  std::iota(sequence.begin(), sequence.end(), 0);
  return sequence;
}

/// The peak, told by walking: at each step, every copy that somebody still reads.
Bytes naivePeak(const Program &program, const Sequence &sequence) {
  auto isRead = [&](size_t at, int value) {
    const std::vector<int> &reads = program.instructions[size_t(sequence[at])].reads;
    return std::find(reads.begin(), reads.end(), value) != reads.end();
  };
  auto isMade = [&](size_t at, int value) {
    const std::vector<int> &writes = program.instructions[size_t(sequence[at])].writes;
    return std::find(writes.begin(), writes.end(), value) != writes.end();
  };
  auto lastUse = [&](int value, size_t from, size_t otherwise) {
    size_t last = otherwise;
    bool read = false, madeAgain = false;
    for (size_t at = from; at < sequence.size() && !madeAgain; ++at) {
      if (isRead(at, value)) {
        last = at;
        read = true;
      }
      madeAgain = isMade(at, value);
    }
    bool leaves = program.values[size_t(value)].atExit && !madeAgain;
    return std::tuple(leaves ? sequence.size() : last, read || leaves);
  };
  Bytes most = 0;
  // Copies of each step; index 0 stands for the entry, the last one for the exit.
  std::map<int, std::pair<size_t, bool>> current; // value → last step, taken
  std::vector<Bytes> bytesAt(sequence.size() + 2, 0);
  auto occupy = [&](Bytes bytes, size_t from, size_t to) {
    for (size_t at = from; at <= to; ++at)
      bytesAt[at] += bytes;
  };
  for (size_t v = 0; v < program.values.size(); ++v)
    if (program.values[v].producer < 0) {
      auto [last, read] = lastUse(int(v), 0, 0);
      occupy(program.values[v].bytes, 0, last + 1);
      current[int(v)] = {last, false};
    }
  for (size_t at = 0; at < sequence.size(); ++at) {
    const ProgramInstruction &instruction = program.instructions[size_t(sequence[at])];
    occupy((instruction.workspace + 63) / 64 * 64, at + 1, at + 1);
    std::map<int, std::pair<size_t, bool>> made;
    for (int v : instruction.writes) {
      auto [last, read] = lastUse(v, at + 1, at);
      if (instruction.omits && !read)
        continue;
      made[v] = {last, false};
      occupy(program.values[size_t(v)].bytes, at + 1, last + 1);
    }
    std::vector<int> placed;
    for (auto [read, written] : instruction.inPlace) {
      auto source = current.find(read);
      if (source == current.end() || !made.count(written) || source->second.first != at || source->second.second ||
          std::find(placed.begin(), placed.end(), written) != placed.end())
        continue;
      source->second.second = true;
      placed.push_back(written);
      bytesAt[at + 1] -= program.values[size_t(written)].bytes;
    }
    for (auto &[v, what] : made)
      current[v] = what;
  }
  for (Bytes bytes : bytesAt)
    most = std::max(most, bytes);
  return most;
}

/// A random valid sequence: the program's order with repetitions thrown in.
Sequence randomSequence(std::mt19937 &random, const Program &program) {
  Sequence sequence = once(program);
  for (int attempt = 0; attempt < 6; ++attempt) {
    int id = below(random, int(program.instructions.size()));
    Sequence longer = sequence;
    longer.insert(longer.begin() + below(random, int(sequence.size()) + 1), id);
    if (validate(program, longer).empty())
      sequence = longer;
  }
  return sequence;
}

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
  EXPECT_GT(bounded, 20) << "some bounds say more than that everything is executed once";
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
  // Sequences with their results made one by one, those left out that nobody reads before they are made again.
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
            (made.contains({at, problem.nodes[n].name}) || problem.nodes[n].bytes == 0))
          schedule.push_back(int(n));
    ASSERT_EQ(validate(problem, schedule), "");
    ASSERT_LE(measure(problem, schedule).cost, costOf(program, sequence)) << "round " << round;
    ASSERT_LE(measure(problem, schedule).peak, peakOf(program, sequence)) << "round " << round;
  }
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
  // Two forward values and one of the backward's are live whenever one is made from another.
  EXPECT_LE(points.back().bytes, Bytes(3 * 640 + 64));
  EXPECT_GT(points.size(), 3u);
}

} // namespace

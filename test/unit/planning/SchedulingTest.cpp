//===- SchedulingTest.cpp - orders against brute force and known answers --===//
#include "compiler/planning/Scheduling.h"
#include "compiler/planning/SchedulingSearch.h"
#include "test/unit/planning/FuzzRounds.h"
#include "test/unit/planning/RandomPrograms.h"

#include <gtest/gtest.h>

using namespace tcc::planning;

namespace {

bool isReady(const Program &program, uint32_t done, size_t i) {
  const ProgramInstruction &instruction = program.instructions[i];
  bool ready = true;
  for (int v : instruction.reads)
    if (int producer = program.values[size_t(v)].producer; producer >= 0)
      ready &= done >> producer & 1;
  for (int earlier : instruction.after)
    ready &= done >> earlier & 1;
  return ready;
}

/// The bytes live while instruction `i` runs after the set `done`, by the definitions of Program.h.
Bytes stepOf(const Program &program, uint32_t done, size_t i) {
  const ProgramInstruction &instruction = program.instructions[i];
  auto rounded = [](Bytes bytes) { return (std::max<Bytes>(bytes, 1) + 63) / 64 * 64; };
  auto isRead = [&](size_t v, uint32_t by) {
    for (size_t reader = 0; reader < program.instructions.size(); ++reader)
      if (by >> reader & 1 &&
          std::count(program.instructions[reader].reads.begin(), program.instructions[reader].reads.end(), int(v)))
        return true;
    return false;
  };
  const uint32_t all = (uint32_t(1) << program.instructions.size()) - 1, self = uint32_t(1) << i;
  Bytes bytes = instruction.workspace ? rounded(instruction.workspace) : 0;
  for (size_t v = 0; v < program.values.size(); ++v) {
    const ProgramValue &value = program.values[v];
    bool wanted = value.atExit || isRead(v, all & ~done);
    bool made = value.producer < 0 || done >> value.producer & 1;
    bool written = value.producer == int(i);
    if ((made && (wanted || (value.producer < 0 && done == 0))) || (written && (wanted || !instruction.omits)))
      bytes += rounded(value.bytes);
  }
  std::vector<int> taken;
  for (auto [read, written] : instruction.inPlace) {
    auto free = [&](int v) { return std::find(taken.begin(), taken.end(), v) == taken.end(); };
    bool dies = !program.values[size_t(read)].atExit && !isRead(size_t(read), all & ~done & ~self);
    bool exists = !instruction.omits || program.values[size_t(written)].atExit || isRead(size_t(written), all);
    if (!dies || !exists || !free(read) || !free(written))
      continue;
    taken.insert(taken.end(), {read, written});
    bytes -= rounded(program.values[size_t(written)].bytes);
  }
  return bytes;
}

/// The least peak of all orders, by dynamic programming over the sets of executed instructions.
Bytes leastPeak(const Program &program) {
  const size_t count = program.instructions.size();
  const Bytes none = ~Bytes(0), entry = peakOf(Program{program.values, {}}, {});
  std::vector<Bytes> least(size_t(1) << count, none);
  least[0] = entry;
  for (uint32_t done = 0; done < least.size(); ++done)
    for (size_t i = 0; i < count && least[done] != none; ++i)
      if (!(done >> i & 1) && isReady(program, done, i)) {
        Bytes &next = least[done | uint32_t(1) << i];
        next = std::min(next, std::max(least[done], stepOf(program, done, i)));
      }
  return least.back();
}

Sequence givenOrder(const Program &program) {
  Sequence order(program.instructions.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

TEST(Scheduling, IsTheBestOfAllOrdersOnSmallPrograms) {
  const unsigned seed = fuzzSeed(17);
  const int rounds = fuzzRounds(6000);
  std::mt19937 random(seed);
  int better = 0;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(fuzzTrace(round, seed));
    Program program = randomProgram(random, 1 + int(random() % 11));
    Bytes least = leastPeak(program), given = peakOf(program, givenOrder(program));
    SchedulingSolution solution = schedule(program);
    ASSERT_EQ(validate(program, solution.order), "");
    ASSERT_EQ(peakOf(program, solution.order), solution.peak);
    ASSERT_EQ(solution.peak, least);
    ASSERT_EQ(solution.lowerBound, least);
    better += least < given;
  }
  EXPECT_GT(better, fuzzShare(1000, 6000, rounds));
}

TEST(Scheduling, KeepsItsWordOnLargerPrograms) {
  const unsigned seed = fuzzSeed(23);
  std::mt19937 random(seed);
  for (int round = 0; round < fuzzRoundsOfLarger(150); ++round) {
    SCOPED_TRACE(fuzzTrace(round, seed));
    Program program =
        round % 2 ? randomProgram(random, 20 + int(random() % 200)) : trainingStep(random, 5 + round % 40);
    SchedulingOptions options;
    options.work = 2'000'000;
    SchedulingSolution solution = schedule(program, options);
    ASSERT_EQ(validate(program, solution.order), "");
    ASSERT_EQ(peakOf(program, solution.order), solution.peak);
    ASSERT_LE(solution.peak, peakOf(program, givenOrder(program)));
    ASSERT_LE(solution.lowerBound, solution.peak);
    ASSERT_EQ(schedule(program, options).order, solution.order);
    for (const Sequence &order : solution.others) {
      ASSERT_EQ(validate(program, order), "");
      ASSERT_GE(peakOf(program, order), solution.peak);
    }
  }
}

TEST(Scheduling, TheGraphCountsAsBlocksDo) {
  const unsigned seed = fuzzSeed(29);
  std::mt19937 random(seed);
  for (int round = 0; round < fuzzRounds(2000); ++round) {
    SCOPED_TRACE(fuzzTrace(round, seed));
    Program program = randomProgram(random, int(random() % 30));
    SchedulingGraph graph(program);
    Sequence given = givenOrder(program);
    for (const Sequence &order : {given, growLeast(graph), shrinkLeast(graph), allocateLate(graph, given),
                                  freeEarly(graph, given, measured(graph, given).peak)}) {
      ASSERT_EQ(validate(program, order), "");
      ASSERT_EQ(Bytes(measured(graph, order).peak), peakOf(program, order));
    }
    // freeEarly() does not raise the peak.
    ASSERT_LE(measured(graph, freeEarly(graph, given, measured(graph, given).peak)).peak, measured(graph, given).peak);
  }
}

TEST(Scheduling, ACutBoundsAStepInEveryOrder) {
  const unsigned seed = fuzzSeed(31);
  std::mt19937 random(seed);
  for (int round = 0; round < fuzzRounds(3000); ++round) {
    SCOPED_TRACE(fuzzTrace(round, seed));
    Program program = randomProgram(random, 1 + int(random() % 9));
    const size_t count = program.instructions.size();
    SchedulingGraph graph(program);
    MeasuredOrder given = measured(graph, givenOrder(program));
    std::vector<int64_t> bounds = stepBounds(graph, Precedence(graph));
    LeastSteps cuts(graph);
    cuts.setOrder(given.order, given.live);
    bool choice = false; // several operands could be overwritten in place; cuts are then too low
    for (const ProgramInstruction &instruction : program.instructions)
      choice |= instruction.inPlace.size() > 1;
    for (size_t i = 0; i < count; ++i) {
      uint64_t work = 0;
      int64_t cut = cuts.find({0, count}, i, round % 2, work), least = std::numeric_limits<int64_t>::max();
      uint32_t chosen = 0;
      for (size_t j = 0; j < count; ++j)
        chosen |= uint32_t(cuts.runsBefore(j)) << j;
      for (uint32_t done = 0; done < uint32_t(1) << count; ++done) {
        bool closed = !(done >> i & 1) && isReady(program, done, i);
        for (size_t j = 0; j < count && closed; ++j)
          closed = !(done >> j & 1) || isReady(program, done & ~(uint32_t(1) << j), j);
        if (closed && done) // unread inputs are also live during the first step
          least = std::min(least, int64_t(stepOf(program, done, i)));
        if (closed && done == 0)
          least = std::min(least, given.live[0] + int64_t(stepOf(program, 0, i)) - graph.entryBytes);
        ASSERT_TRUE(closed || done != chosen);
      }
      ASSERT_LE(cut, least);
      ASSERT_LE(bounds[i], least);
      if (!choice) {
        ASSERT_EQ(cut, least);
      }
    }
  }
}

TEST(Scheduling, UpdatesTakeGradientsAway) {
  // Two large gradients: each update runs before the next gradient is made, although the program has both updates last.
  Program program;
  int x = addValue(program, 64, -1);
  int g = addValue(program, 6400, addInstruction(program, {x}));
  int h = addValue(program, 6400, addInstruction(program, {x}));
  addInstruction(program, {g});
  addInstruction(program, {h});
  SchedulingSolution solution = schedule(program);
  EXPECT_EQ(solution.peak, 64u + 6400u);
  EXPECT_EQ(solution.lowerBound, solution.peak);
  // An update must not run before a reader of the old weight.
  program.instructions[2].after = {1};
  solution = schedule(program);
  EXPECT_EQ(solution.peak, 64u + 6400u);
  EXPECT_EQ(solution.order, (Sequence{1, 3, 0, 2}));
  // Nor before the other update, if it must follow it.
  program.instructions[2].after = {3};
  solution = schedule(program);
  EXPECT_EQ(validate(program, solution.order), "");
  EXPECT_EQ(solution.peak, 64u + 6400u);
}

TEST(Scheduling, AnUpdateTakesAlongWhatItWaitsFor) {
  // In every order the first instruction has the peak. Both updates read a learning rate, which is sliced from a table
  // after the backward pass. Running the slice early lets each update free an activation as soon as its gradient is
  // there.
  Program program;
  int table = addValue(program, 64, -1);
  int first = addValue(program, 6400, -1), second = addValue(program, 6400, -1);
  int big = addValue(program, 64000, addInstruction(program, {}));
  int g = addValue(program, 640, addInstruction(program, {big, second}));
  int h = addValue(program, 640, addInstruction(program, {g, first}));
  int rate = addValue(program, 64, addInstruction(program, {table}));
  addInstruction(program, {h, first, rate});
  addInstruction(program, {g, second, rate});
  SchedulingSolution solution = schedule(program);
  EXPECT_EQ(solution.peak, solution.lowerBound);
  auto place = [&](int id) {
    return std::find(solution.order.begin(), solution.order.end(), id) - solution.order.begin();
  };
  EXPECT_LT(place(5), place(2));
}

TEST(Scheduling, ACircleHasNoOrder) {
  Program program;
  int g = addValue(program, 64, addInstruction(program, {}));
  addInstruction(program, {g});
  program.instructions[0].after = {1};
  EXPECT_EQ(schedule(program).order, givenOrder(program));
  EXPECT_NE(validate(program, schedule(program).order), "");
}

TEST(Scheduling, ALargeGradientIsMadeWhenTheRestIsGone) {
  // As in a language model whose embedding is its output layer: the gradient of the table (16 KiB) reads the first
  // gradient (4 KiB), which everything else needs as well. Keeping the first gradient and making the table's last is
  // best.
  Program program;
  auto make = [&](std::vector<int> reads, Bytes bytes) {
    return addValue(program, bytes, addInstruction(program, reads));
  };
  std::vector<int> saved{make({}, 1024)};
  for (int layer = 0; layer < 12; ++layer)
    saved.push_back(make({saved.back()}, 1024));
  int first = make({saved.back()}, 4096), table = make({first, saved.back()}, 16384), gradient = first;
  for (int layer = 12; layer-- > 0;)
    gradient = make({gradient, saved[size_t(layer)]}, 1024);
  addInstruction(program, {table, gradient});
  // Given order: all saved values and both gradients. Best: the table's gradient, its two operands, and the last
  // gradient.
  EXPECT_EQ(peakOf(program, givenOrder(program)), 13u * 1024 + 4096 + 16384);
  SchedulingSolution solution = schedule(program);
  EXPECT_EQ(solution.peak, 16384u + 4096 + 1024 + 1024);
  EXPECT_EQ(solution.lowerBound, solution.peak);
}

TEST(Scheduling, BranchesInOrderOfWhatTheyLeave) {
  // Liu 1987: a join of branches with peaks p and residues r is cheapest in order of p − r.
  Program program;
  std::vector<int> residues;
  for (auto [peak, residue] :
       {std::pair<Bytes, Bytes>{640, 512}, {1280, 64}, {6400, 1024}, {3200, 3136}, {1920, 640}}) {
    int big = addValue(program, peak - residue, addInstruction(program, {}));
    residues.push_back(addValue(program, residue, addInstruction(program, {big})));
  }
  addInstruction(program, residues);
  SchedulingSolution solution = schedule(program);
  // p − r: 128, 1216, 5376, 64, 1280. So the third branch comes first, then the fifth, second, first and fourth.
  EXPECT_EQ(solution.peak, 6400u);
  EXPECT_EQ(leastPeak(program), 6400u);
}

TEST(Scheduling, ATrainingStepMeetsItsBound) {
  std::mt19937 random(37);
  int met = 0, better = 0;
  constexpr int kPrograms = 40;
  for (int round = 0; round < kPrograms; ++round) {
    Program program = trainingStep(random, 60);
    SchedulingSolution solution = schedule(program);
    met += solution.peak == solution.lowerBound;
    better += solution.peak < peakOf(program, givenOrder(program));
  }
  EXPECT_GE(met, kPrograms * 9 / 10);
  EXPECT_GE(better, kPrograms / 2);
}

TEST(Scheduling, TakesTheOrderThatPacksBest) {
  std::mt19937 random(43);
  int smaller = 0;
  for (int round = 0; round < 60; ++round) {
    Program program = randomProgram(random, 60);
    SchedulingOptions options;
    options.work = 500'000;
    SchedulingSolution solution = schedule(program, options);
    auto packed = [&](const Sequence &order) {
      std::vector<int> bufferOf;
      return pack(packingOf(blocksOf(program, order), bufferOf), 100'000).bytes;
    };
    Sequence best = leastPacked(program, solution, 100'000);
    ASSERT_EQ(validate(program, best), "");
    ASSERT_LE(packed(best), packed(solution.order));
    smaller += packed(best) < packed(solution.order);
  }
  EXPECT_GT(smaller, 0);
}

TEST(Scheduling, WithoutWorkTheGivenOrderStands) {
  std::mt19937 random(41);
  Program program = trainingStep(random, 200);
  SchedulingOptions options;
  options.work = 0;
  SchedulingSolution solution = schedule(program, options);
  EXPECT_EQ(validate(program, solution.order), "");
  EXPECT_LE(solution.peak, peakOf(program, givenOrder(program)));
  int asked = 0;
  SchedulingOptions stopped;
  stopped.stop = [&] { return ++asked > 3; };
  EXPECT_EQ(validate(program, schedule(program, stopped).order), "");
  EXPECT_EQ(schedule(Program{}).peak, 0u);
}

/// A greedy order: of all ready instructions, the one after which the fewest bytes are live; of equal ones the one that
/// takes the fewest during its step, then the first.
Sequence growByComparingAll(const SchedulingGraph &graph) {
  LiveBytes memory(graph);
  Sequence result;
  while (result.size() < graph.size()) {
    int best = -1;
    for (int id = 0; id < int(graph.size()); ++id)
      if (!memory.done(id) && memory.ready(id) &&
          (best < 0 || std::pair(memory.afterwards(id), memory.during(id)) <
                           std::pair(memory.afterwards(best), memory.during(best))))
        best = id;
    memory.run(best);
    result.push_back(best);
  }
  return result;
}

/// The same from the end: by the bytes live before the instruction, then by those during it; of equal ones the last.
Sequence shrinkByComparingAll(const SchedulingGraph &graph) {
  LiveBytes memory(graph);
  for (int id : graph.given)
    memory.run(id);
  Sequence result;
  while (result.size() < graph.size()) {
    int best = -1;
    std::pair<int64_t, int64_t> least;
    for (int id = int(graph.size()) - 1; id >= 0; --id) {
      const std::vector<int> &after = graph.nodes[size_t(id)].after;
      if (!memory.done(id) || std::any_of(after.begin(), after.end(), [&](int later) { return memory.done(later); }))
        continue;
      memory.takeBack(id);
      // Unread inputs are live during the first step only, for which there is no choice.
      const std::pair<int64_t, int64_t> bytes{memory.live(), memory.during(id)};
      memory.run(id);
      if (best < 0 || bytes < least) {
        best = id;
        least = bytes;
      }
    }
    memory.takeBack(best);
    result.push_back(best);
  }
  std::reverse(result.begin(), result.end());
  return result;
}

TEST(Scheduling, FirstOrdersTakeTheBestOfAllThatAreReady) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE("round " + std::to_string(round) + ", seed 11");
    const SchedulingGraph graph(randomProgram(random, 5 + round / 4));
    if (graph.given.size() < graph.size())
      continue;
    EXPECT_EQ(growLeast(graph), growByComparingAll(graph));
    EXPECT_EQ(shrinkLeast(graph), shrinkByComparingAll(graph));
  }
}

/// Forward and back along a chain of `length`, an update for each gradient, and an end that waits for all updates.
Program chainThatTrains(int length) {
  Program program;
  std::vector<int> activations{addValue(program, 6400, -1)}, updates;
  for (int i = 0; i < length; ++i)
    activations.push_back(addValue(program, 6400, addInstruction(program, {activations.back()})));
  int gradient = activations.back();
  for (int i = length; i-- > 0;) {
    const int step = addInstruction(program, {gradient, activations[size_t(i)]});
    gradient = addValue(program, 6400, step);
    const int weight = addValue(program, 640, step);
    updates.push_back(addInstruction(program, {weight}));
  }
  addInstruction(program, {gradient});
  program.instructions.back().after = updates;
  return program;
}

/// An algorithm that scans the whole chain, or all updates, for each instruction does not finish this test in time.
TEST(Scheduling, OrdersLongChains) {
  const Program program = chainThatTrains(60'000);
  const SchedulingSolution solution = schedule(program);
  EXPECT_EQ(validate(program, solution.order), "");
  EXPECT_EQ(solution.peak, peakOf(program, solution.order));
  EXPECT_LE(solution.peak, peakOf(program, givenOrder(program)));
}

} // namespace

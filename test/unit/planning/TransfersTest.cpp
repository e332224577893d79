//===- TransfersTest.cpp - values on the host, and the time of two channels --===//
#include "compiler/planning/Frontier.h"
#include "test/unit/planning/FuzzRounds.h"
#include "test/unit/planning/RandomPrograms.h"

#include <gtest/gtest.h>

using namespace tcc::planning;

namespace {

constexpr Bytes kMiB = 1 << 20;

/// `layers` values of 1 MiB, each read by the next layer and by a step of the backward pass, whose gradient is 1 MiB
/// too. A layer costs `cost`, a step back twice as much.
Program chain(int layers, Cost cost) {
  Program program;
  std::vector<int> saved;
  int value = addValue(program, kMiB, -1);
  for (int i = 0; i < layers; ++i) {
    const int id = addInstruction(program, {value});
    program.instructions[size_t(id)].cost = cost;
    program.instructions[size_t(id)].repeatable = true;
    saved.push_back(value = addValue(program, kMiB, id));
  }
  for (int i = layers; i-- > 0;) {
    const int id = addInstruction(program, {value, saved[size_t(i)]});
    program.instructions[size_t(id)].cost = 2 * cost;
    value = addValue(program, kMiB, id);
  }
  program.values[size_t(value)].atExit = true;
  return program;
}

/// State of `count` updates, each with a fetch, a kernel in place and a store.
Program updates(int count, Cost cost, Cost transfer) {
  Program program;
  for (int i = 0; i < count; ++i) {
    const int fetch = addInstruction(program, {});
    program.instructions[size_t(fetch)].transfer = Transfer::Fetch;
    program.instructions[size_t(fetch)].cost = transfer;
    const int state = addValue(program, kMiB, fetch), kernel = addInstruction(program, {state});
    program.instructions[size_t(kernel)].cost = cost;
    const int next = addValue(program, kMiB, kernel);
    program.instructions[size_t(kernel)].inPlace = {{state, next}};
    const int store = addInstruction(program, {next});
    program.instructions[size_t(store)].transfer = Transfer::Store;
    program.instructions[size_t(store)].cost = transfer;
    program.instructions[size_t(store)].writesState = true;
    program.instructions[size_t(store)].after = {fetch};
  }
  return program;
}

Sequence once(const Program &program) {
  Sequence sequence(program.instructions.size());
  std::iota(sequence.begin(), sequence.end(), 0);
  return sequence;
}

/// The time of a sequence, instruction by instruction, as a device with three streams and events would take it: what
/// each piece of work waits for is listed first, and then each begins when all of that is done.
Cost simulated(const Program &program, const Sequence &sequence) {
  struct Work {
    Cost cost;
    std::vector<size_t> after;
  };
  const std::vector<Execution> executions = executionsOf(program, sequence);
  std::vector<Work> works(sequence.size());
  std::vector<size_t> maker(program.values.size(), SIZE_MAX), waits; // what the main stream has yet to wait for
  size_t main = SIZE_MAX, fetch = SIZE_MAX;
  std::vector<std::pair<size_t, size_t>> stores; // maker of the source, store
  for (size_t at = 0; at < sequence.size(); ++at) {
    works[at].cost = executions[at].cost;
    auto wait = [&](size_t other) {
      if (other != SIZE_MAX)
        works[at].after.push_back(other);
    };
    for (int v : executions[at].reads)
      wait(maker[size_t(v)]);
    switch (program.instructions[size_t(sequence[at])].transfer) {
    case Transfer::None:
      wait(main);
      for (size_t other : waits)
        wait(other);
      waits.clear();
      main = at;
      break;
    case Transfer::Fetch:
      wait(main);
      for (size_t other : waits)
        wait(other);
      wait(fetch);
      fetch = at;
      break;
    case Transfer::Store:
      stores.push_back({maker[size_t(executions[at].reads.front())], at});
      waits.push_back(at);
      break;
    }
    for (int v : executions[at].writes)
      maker[size_t(v)] = at;
  }
  std::sort(stores.begin(), stores.end());
  for (size_t i = 1; i < stores.size(); ++i)
    works[stores[i].second].after.push_back(stores[i - 1].second);
  std::vector<Cost> ends(works.size(), 0);
  // Longest paths: the graph has no order that is known beforehand, so repeat until nothing changes.
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t at = 0; at < works.size(); ++at) {
      Cost begin = 0;
      for (size_t other : works[at].after)
        begin = std::max(begin, ends[other]);
      if (begin + works[at].cost != ends[at]) {
        ends[at] = begin + works[at].cost;
        changed = true;
      }
    }
  }
  return works.empty() ? 0 : *std::max_element(ends.begin(), ends.end());
}

TEST(Transfers, OnlyWhatWaitsForThemTakesLonger) {
  Program program = updates(1, 10, 4);
  EXPECT_EQ(costOf(program, {0, 1, 2}), 18u);
  // A kernel between the fetch and its reader, and one between the update and the end of its store.
  const int other = addInstruction(program, {}), last = addInstruction(program, {});
  program.instructions[size_t(other)].cost = 3;
  program.instructions[size_t(last)].cost = 5;
  EXPECT_EQ(costOf(program, {0, other, 1, 2, last}), 4u + 10 + 4 + 5);
  EXPECT_EQ(costOf(program, {0, other, 1, last, 2}), 4u + 10 + 5);
  EXPECT_EQ(costOf(program, {other, 0, 1, last, 2}), 3u + 4 + 10 + 5);
}

TEST(Transfers, TimeIsThatOfThreeStreams) {
  std::mt19937 random(5);
  size_t moved = 0;
  Cost before = 0, after = 0;
  for (int round = 0; round < fuzzRounds(2000); ++round) {
    Program program = chain(2 + int(random() % 6), 1 + random() % 20);
    const Offer offer = offerTransfers(program, kMiB / (1 + random() % 20));
    ASSERT_FALSE(offer.values.empty());
    // Every value may be stored, at a random place, and fetched before each use behind it, at a random place.
    Sequence sequence = once(program);
    for (size_t k = 0; k < offer.values.size(); ++k) {
      if (random() % 3 == 0)
        continue;
      const int v = offer.values[k];
      auto at = [&](int id) { return size_t(std::find(sequence.begin(), sequence.end(), id) - sequence.begin()); };
      const size_t made = at(program.values[size_t(v)].producer);
      std::vector<size_t> readers;
      for (size_t i = made + 1; i < sequence.size(); ++i)
        if (sequence[i] < int(offer.first) && std::count(program.instructions[size_t(sequence[i])].reads.begin(),
                                                         program.instructions[size_t(sequence[i])].reads.end(), v))
          readers.push_back(i);
      if (readers.size() < 2)
        continue;
      const size_t from = readers[readers.size() - 2] + 1, to = readers.back();
      const size_t fetched = from + random() % (to - from + 1), stored = made + 1 + random() % (fetched - made);
      sequence.insert(sequence.begin() + long(fetched), offer.fetchOf(k));
      sequence.insert(sequence.begin() + long(stored), offer.storeOf(k));
      ++moved;
    }
    ASSERT_EQ(validate(offer.program, sequence), "");
    ASSERT_EQ(costOf(offer.program, sequence), simulated(offer.program, sequence)) << "round " << round;
    for (std::optional<Bytes> staging :
         {std::optional<Bytes>(kMiB), std::optional<Bytes>(3 * kMiB), std::optional<Bytes>()}) {
      const Sequence apart = spread(offer.program, sequence, staging);
      ASSERT_EQ(validate(offer.program, apart), "");
      ASSERT_EQ(apart.size(), sequence.size());
      ASSERT_EQ(costOf(offer.program, apart), simulated(offer.program, apart));
      if (!staging) {
        before += costOf(offer.program, sequence);
        after += costOf(offer.program, apart);
      }
    }
  }
  EXPECT_GT(moved, 1000u);
  EXPECT_LE(after, before);
}

TEST(Transfers, StateStreamsThroughAFewBuffers) {
  const Program program = updates(20, 1, 10);
  const Sequence tight = once(program);
  EXPECT_EQ(costOf(program, tight), 20u * 21);
  EXPECT_EQ(peakOf(program, tight), kMiB);
  // Two channels of 200 each run side by side, but for the first fetch and the last store.
  EXPECT_EQ(costOf(program, spread(program, tight, std::nullopt)), 211u);
  const Sequence three = spread(program, tight, 3 * kMiB);
  EXPECT_LE(costOf(program, three), 225u);
  EXPECT_LE(peakOf(program, three), 3 * kMiB);
  EXPECT_EQ(peakOf(program, spread(program, tight, kMiB)), kMiB);
  const Frontier found = frontier(program);
  EXPECT_EQ(found.error, "");
  EXPECT_EQ(found.points.front().cost, 211u);
  EXPECT_EQ(found.points.back().bytes, kMiB);
}

// An update may be computed while the backward pass still has to read the state that its store overwrites.
TEST(Transfers, AStoreWaitsForReadersOfWhatItOverwrites) {
  Program program = updates(1, 1, 10);
  const int store = 2;
  std::vector<int> readers;
  int value = addValue(program, kMiB, -1);
  for (int i = 0; i < 4; ++i) {
    const int fetch = addInstruction(program, {});
    program.instructions[size_t(fetch)].transfer = Transfer::Fetch;
    program.instructions[size_t(fetch)].cost = 10;
    const int state = addValue(program, kMiB, fetch), reader = addInstruction(program, {value, state});
    program.instructions[size_t(reader)].cost = 100;
    value = addValue(program, kMiB, reader);
    readers.insert(readers.end(), {fetch, reader});
  }
  program.values[size_t(value)].atExit = true;
  program.instructions[size_t(store)].after.insert(program.instructions[size_t(store)].after.end(), readers.begin(),
                                                   readers.end());
  Sequence sequence = {0, 1};
  sequence.insert(sequence.end(), readers.begin(), readers.end());
  sequence.push_back(store);
  ASSERT_EQ(validate(program, sequence), "");
  for (std::optional<Bytes> staging :
       {std::optional<Bytes>(kMiB), std::optional<Bytes>(3 * kMiB), std::optional<Bytes>()})
    EXPECT_EQ(validate(program, spread(program, sequence, staging)), "");
}

TEST(Transfers, ALinkMakesBudgetsCheaper) {
  const Program program = chain(24, 100);
  FrontierOptions options;
  options.boundWork = 20'000'000;
  const Frontier without = frontier(program, options);
  ASSERT_EQ(without.error, "");
  EXPECT_TRUE(without.offloaded.empty());
  for (Cost transfer : {50, 100, 400}) {
    options.linkBytesPerCost = kMiB / transfer;
    const Frontier with = frontier(program, options);
    ASSERT_EQ(with.error, "");
    ASSERT_EQ(with.points.size(), without.points.size());
    ASSERT_FALSE(with.offloaded.empty()) << transfer;
    // A third of the memory without recomputation.
    auto cheapest = [&](const std::vector<FrontierPoint> &points) {
      Cost cost = std::numeric_limits<Cost>::max();
      for (const FrontierPoint &point : points)
        if (point.bytes <= without.points.front().bytes / 3)
          cost = std::min(cost, point.cost);
      return cost;
    };
    EXPECT_LT(cheapest(with.offloaded), cheapest(without.points)) << transfer;
    if (transfer == 50) {
      EXPECT_EQ(cheapest(with.offloaded), costOf(program, once(program))) << "all transfers have time beside the work";
    }
    for (const FrontierPoint &point : with.offloaded) {
      EXPECT_GE(point.cost, point.lowerBound);
      EXPECT_GT(point.host.bytes, 0u);
    }
  }
}

TEST(Transfers, PointsOnTheHostHold) {
  std::mt19937 random(7);
  size_t found = 0;
  for (int round = 0; round < fuzzRounds(40); ++round) {
    Program program = randomProgram(random, 6 + int(random() % 14));
    for (ProgramValue &value : program.values)
      value.bytes *= 1024;
    for (ProgramInstruction &instruction : program.instructions)
      instruction.cost = 1 + random() % 50;
    FrontierOptions options;
    options.rungs = 4;
    options.work = 4'000'000;
    options.boundWork = 1'000'000;
    options.linkBytesPerCost = 5000 + random() % 80'000;
    const Frontier made = frontier(program, options);
    ASSERT_EQ(made.error, "") << "round " << round; // checks every point naively
    found += made.offloaded.size();
  }
  EXPECT_GT(found, 2u);
}

} // namespace

// Repairing a packing after small changes of live ranges.
#include "compiler/planning/PackingSearch.h"

#include <gtest/gtest.h>
#include <random>

using namespace tcc::planning;

TEST(PackingRepair, WhatClashesMovesIntoTheGapThatFitsItBest) {
  // b reuses the memory of a, which now lives longer. There are gaps of 256 and of 128 bytes; b must take the smaller
  // one.
  PackingProblem before{{{"a", 128, 0, 1}, {"low", 64, 0, 9}, {"b", 128, 2, 3}, {"mid", 64, 0, 9}, {"top", 64, 0, 9}}};
  std::vector<Bytes> offsets{0, 128, 0, 448, 640};
  PackingProblem now = before;
  now.buffers[0].last = 2;
  ASSERT_EQ(validate(before, {offsets, 704, 0}), "");
  PackingRepair repaired = repairPacking(now, before, offsets, 704);
  EXPECT_TRUE(repaired.homeless.empty());
  EXPECT_EQ(validate(now, {repaired.offsets, 704, 0}), "");
  EXPECT_EQ(repaired.offsets, (std::vector<Bytes>{0, 128, 512, 448, 640}));
}

TEST(PackingRepair, OthersLeaveForALargerOne) {
  // l now begins while m still occupies its place. There are 64 free bytes on either side of a, so that a must move.
  PackingProblem before{{{"m", 128, 0, 2}, {"a", 64, 0, 4}, {"l", 128, 3, 4}}};
  std::vector<Bytes> offsets{192, 64, 192};
  ASSERT_EQ(validate(before, {offsets, 320, 0}), "");
  PackingProblem now = before;
  now.buffers[2].first = 2;
  PackingRepair repaired = repairPacking(now, before, offsets, 320);
  EXPECT_TRUE(repaired.homeless.empty());
  EXPECT_EQ(repaired.offsets[1], 128u);
  EXPECT_EQ(validate(now, {repaired.offsets, 320, 0}), "");
}

TEST(PackingRepair, NamesWhatFitsNowhere) {
  PackingProblem before{{{"a", 128, 0, 1}, {"b", 128, 2, 3}}};
  PackingProblem now = before;
  now.buffers[0].last = 2;
  PackingRepair repaired = repairPacking(now, before, {0, 0}, 192);
  EXPECT_EQ(repaired.homeless.size(), 1u);
}

TEST(PackingRepair, RandomChanges) {
  std::mt19937 random(11);
  int good = 0, moved = 0;
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE("round " + std::to_string(round) + ", seed 11");
    PackingProblem before;
    int count = 5 + int(random() % 40);
    for (int i = 0; i < count; ++i) {
      Time first = Time(random() % 30);
      before.buffers.push_back({"b" + std::to_string(i), 1 + random() % 4000, first, first + Time(random() % 8)});
    }
    PackingSolution packed = packGreedily(before);
    PackingProblem now = before;
    for (int change = 0; change < 3; ++change) {
      PackingBuffer &buffer = now.buffers[random() % now.buffers.size()];
      buffer.last += Time(random() % 4);
      buffer.first -= Time(random() % 2);
    }
    Bytes capacity = packed.bytes + packed.bytes / 8 * (random() % 2);
    PackingRepair repaired = repairPacking(now, before, packed.offsets, capacity);
    if (!repaired.homeless.empty())
      continue;
    ++good;
    moved += repaired.offsets != packed.offsets;
    EXPECT_EQ(validate(now, {repaired.offsets, capacity, 0}), "");
  }
  EXPECT_GT(good, 1000);
  EXPECT_GT(moved, 300);
}

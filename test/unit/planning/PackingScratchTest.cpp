//===- PackingScratchTest.cpp - scratch above live buffers ----------------===//
#include "compiler/planning/Overlap.h"
#include "compiler/planning/PackingSearch.h"

#include <gtest/gtest.h>

#include <random>

using namespace tcc::planning;

namespace {

Bytes aligned(Bytes bytes, Bytes alignment) { return (bytes + alignment - 1) / alignment * alignment; }

/// The arena's bytes with these offsets and `workers` slots of scratch, computed pair by pair; 0 if buffers clash.
Bytes naiveArena(const PackingProblem &problem, const std::vector<Bytes> &offsets, Bytes workers) {
  Bytes most = 0;
  auto endOf = [&](size_t i) { return offsets[i] + aligned(problem.buffers[i].bytes, problem.alignment); };
  for (size_t i = 0; i < offsets.size(); ++i) {
    most = std::max(most, endOf(i));
    for (size_t j = 0; j < i; ++j)
      if (problem.buffers[i].first <= problem.buffers[j].last && problem.buffers[j].first <= problem.buffers[i].last &&
          offsets[i] < endOf(j) && offsets[j] < endOf(i))
        return 0;
  }
  for (const PackingScratch &scratch : problem.scratch) {
    Bytes start = 0;
    for (size_t i = 0; i < offsets.size(); ++i)
      if (problem.buffers[i].first <= scratch.at && scratch.at <= problem.buffers[i].last)
        start = std::max(start, endOf(i));
    most = std::max(most, start + workers * aligned(scratch.bytes, problem.alignment));
  }
  return most;
}

PackingProblem randomProblem(std::mt19937 &random, int count, int length) {
  auto below = [&](int limit) { return int(random() % unsigned(limit)); };
  PackingProblem problem;
  for (int i = 0; i < count; ++i) {
    Time first = below(length);
    problem.buffers.push_back({"b" + std::to_string(i), Bytes(64 * (1 + below(20))), first,
                               std::min<Time>(length - 1, first + below(length / 2))});
  }
  for (Time at = 0; at < length; ++at)
    if (below(3) == 0)
      problem.scratch.push_back({at, Bytes(1 + below(64 * 30))});
  return problem;
}

/// Tries every arrangement: in every order, each buffer begins at 0 or at the end of another.
Bytes leastByForce(const PackingProblem &problem, std::vector<Bytes> &offsets, std::vector<bool> &placed, Bytes best) {
  bool all = true;
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (placed[i])
      continue;
    all = false;
    std::vector<Bytes> starts{0};
    for (size_t j = 0; j < offsets.size(); ++j)
      if (placed[j])
        starts.push_back(offsets[j] + aligned(problem.buffers[j].bytes, problem.alignment));
    for (Bytes start : starts) {
      offsets[i] = start;
      bool clashes = false;
      for (size_t j = 0; j < offsets.size(); ++j)
        clashes |= placed[j] && overlapInTime(problem.buffers[i], problem.buffers[j]) &&
                   start < offsets[j] + aligned(problem.buffers[j].bytes, problem.alignment) &&
                   offsets[j] < start + aligned(problem.buffers[i].bytes, problem.alignment);
      if (clashes)
        continue;
      placed[i] = true;
      best = leastByForce(problem, offsets, placed, best);
      placed[i] = false;
    }
  }
  return all ? std::min(best, arenaBytes(problem, offsets)) : best;
}

TEST(PackingScratch, BuffersPlacedAsTheyAreBornLieApart) {
  std::mt19937 random(13);
  double bytes = 0, bound = 0;
  for (int round = 0; round < 100; ++round) {
    PackingProblem problem = randomProblem(random, 5 + round, 4 + round / 2);
    PackingSolution solution = placeByBirth(problem);
    EXPECT_EQ(validate(problem, solution), "") << round;
    EXPECT_EQ(naiveArena(problem, solution.offsets, 1), solution.bytes) << round;
    bytes += double(solution.bytes);
    bound += double(leastArena(problem));
  }
  EXPECT_LT(bytes, 1.4 * bound);
}

TEST(PackingScratch, TheValidatorFindsWhatComparingAllPairsFinds) {
  std::mt19937 random(17);
  int wrong = 0, right = 0;
  for (int round = 0; round < 2000; ++round) {
    PackingProblem problem = randomProblem(random, 4 + round % 20, 4 + round % 12);
    PackingSolution solution = packGreedily(problem);
    solution.offsets[random() % solution.offsets.size()] = Bytes(64 * (random() % 20));
    const Bytes needed = naiveArena(problem, solution.offsets, 1); // 0: a clash
    // Scratch need not end at a multiple of the alignment.
    solution.bytes = aligned(solution.bytes, 64);
    const bool fits = needed > 0 && needed <= solution.bytes;
    EXPECT_EQ(validate(problem, solution).empty(), fits) << "round " << round << ", seed 17";
    (fits ? right : wrong) += 1;
  }
  EXPECT_GT(wrong, 100);
  EXPECT_GT(right, 100);
}

/// A forward and a backward pass of 40,000 buffers, each with scratch at its birth.
TEST(PackingScratch, ManyBuffersArePackedClosely) {
  constexpr Time kBuffers = 40'000;
  PackingProblem problem;
  for (Time i = 0; i < kBuffers; ++i) {
    problem.buffers.push_back({"b" + std::to_string(i), Bytes(64 * (1 + i % 7)), i, 2 * kBuffers - i});
    problem.scratch.push_back({i, 640});
  }
  const PackingSolution solution = pack(problem, 1'000'000);
  EXPECT_EQ(validate(problem, solution), "");
  EXPECT_LE(solution.bytes, solution.lowerBound + 640);
}

} // namespace

//   b is live with the scratch, a is not: b must be at the bottom, or the scratch would be above both.
//
//   64 ─ 192   a ── .
//    0 ─ 64    b ── b
//              .    scratch 100 → 128, from 64
TEST(PackingScratch, LiesOnWhatLivesWithItAlone) {
  PackingProblem problem{{{"a", 128, 0, 0}, {"b", 64, 0, 1}}, 64, {{1, 100}}};
  PackingSolution solution = pack(problem);
  EXPECT_EQ(solution.offsets, (std::vector<Bytes>{64, 0}));
  EXPECT_EQ(solution.bytes, 192u);
  EXPECT_EQ(scratchOffsets(problem, solution.offsets), std::vector<Bytes>{64});
  EXPECT_EQ(validate(problem, solution), "");
  solution.offsets = {0, 128};
  EXPECT_EQ(validate(problem, solution), "b leaves no room for the scratch above it at time 1");
  EXPECT_EQ(arenaBytes(problem, solution.offsets), 128u + 64 + 128);
}

TEST(PackingScratch, AloneItIsTheArena) {
  PackingProblem problem{{{"a", 64, 0, 0}}, 64, {{3, 1000}}};
  PackingSolution solution = pack(problem);
  EXPECT_EQ(solution.bytes, 1024u);
  EXPECT_EQ(scratchOffsets(problem, solution.offsets), std::vector<Bytes>{0});
}

/// At time 0, a, b and scratch of 64 bytes are live. But a has scratch of 256 above it before, and b after: the upper
/// one of them needs 256 bytes above it.
TEST(PackingScratch, TheBoundKnowsThatTheHighestBufferHasScratchAboveIt) {
  PackingProblem problem{{{"a", 512, -1, 0}, {"b", 512, 0, 1}}, 64, {{-1, 256}, {0, 64}, {1, 256}}};
  EXPECT_EQ(mostLive(problem), 512u + 512 + 64);
  EXPECT_EQ(leastArena(problem), 512u + 512 + 256);
  EXPECT_EQ(pack(problem).bytes, 512u + 512 + 256);
}

TEST(PackingScratch, RandomProblemsAreValidAndAboveTheirBounds) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    PackingProblem problem = randomProblem(random, 5 + round, 4 + round / 2);
    PackingSolution solution = pack(problem, 1'000'000);
    ASSERT_EQ(validate(problem, solution), "") << round;
    EXPECT_EQ(naiveArena(problem, solution.offsets, 1), solution.bytes) << round;
    EXPECT_GE(solution.bytes, solution.lowerBound) << round;
    EXPECT_GE(solution.lowerBound, leastArena(problem)) << round;
    EXPECT_LE(solution.bytes, packGreedily(problem).bytes) << round;
    // The same offsets hold for more workers: only the end of the arena moves.
    const std::vector<Bytes> starts = scratchOffsets(problem, solution.offsets);
    for (Bytes workers : {2, 3, 64}) {
      Bytes end = 0;
      for (size_t i = 0; i < problem.buffers.size(); ++i)
        end = std::max(end, solution.offsets[i] + aligned(problem.buffers[i].bytes, 64));
      for (size_t s = 0; s < starts.size(); ++s)
        end = std::max(end, starts[s] + workers * aligned(problem.scratch[s].bytes, 64));
      EXPECT_EQ(naiveArena(problem, solution.offsets, workers), end) << round;
    }
  }
}

TEST(PackingScratch, SmallProblemsArePackedAsWellAsByForce) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    PackingProblem problem = randomProblem(random, 4, 6);
    std::vector<Bytes> offsets(4, 0);
    std::vector<bool> placed(4, false);
    const Bytes least = leastByForce(problem, offsets, placed, ~Bytes(0));
    EXPECT_GE(least, leastArena(problem)) << round;
    SearchAnswer fits = packWithin(problem, least, 10'000'000);
    ASSERT_EQ(fits.result, SearchResult::Found) << round;
    EXPECT_LE(naiveArena(problem, fits.offsets, 1), least) << round;
    EXPECT_EQ(packWithin(problem, least - 64, 10'000'000).result, SearchResult::Infeasible) << round;
    // Packing may stop when it is within a 512th of the bound.
    EXPECT_LE(pack(problem, 10'000'000).bytes, least + least / 512) << round;
  }
}

/// The scratch moves from time 1 to time 0, when a is above b.
TEST(PackingScratch, RepairMovesWhatIsBelowMoreScratch) {
  PackingProblem before{{{"a", 128, 0, 0}, {"b", 64, 0, 1}}, 64, {{1, 128}}}, after = before;
  after.scratch[0].at = 0;
  PackingRepair repaired = repairPacking(after, before, {64, 0}, 320);
  EXPECT_TRUE(repaired.homeless.empty());
  EXPECT_EQ(arenaBytes(after, repaired.offsets), 320u);
  EXPECT_FALSE(repairPacking(after, before, {64, 0}, 256).homeless.empty());
}

/// A memory-bound instruction and the product after it run concurrently, unless the first has scratch.
TEST(PackingScratch, WhatHasScratchRunsBesideNothing) {
  OverlapProblem problem;
  problem.packing.buffers = {{"a", 64, 0, 0}, {"b", 64, 1, 1}};
  problem.instructions = {{0, 1000, {}, {0}}, {2000, 0, {}, {1}}};
  problem.offsets = {0, 64};
  problem.capacity = 256;
  EXPECT_EQ(overlap(problem).beside, (std::vector<int>{1, 0}));
  problem.packing.scratch = {{1, 64}};
  EXPECT_EQ(overlap(problem).beside, (std::vector<int>{1, 0})) << "scratch of the one that multiplies";
  problem.packing.scratch = {{0, 64}};
  EXPECT_EQ(overlap(problem).beside, (std::vector<int>{0, 0}));
  OverlapSolution wrong{{0, 1}, {1, 0}, problem.offsets, 1000};
  EXPECT_NE(validate(problem, wrong).find("has scratch and runs beside others"), std::string::npos);
}

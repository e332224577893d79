//===- PackingSearchTest.cpp - the exact search against brute force -------===//
#include "compiler/planning/PackingSearch.h"
#include "test/unit/planning/FuzzRounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

using namespace tcc::planning;

namespace {

constexpr uint64_t kPlenty = 1'000'000'000;

/// Random buffers, added as long as no more than `capacity` bytes are live at any time: so full that some problems do
/// not pack into `capacity`.
PackingProblem fullProblem(std::mt19937 &random, size_t count, Bytes capacity, Time duration) {
  PackingProblem problem;
  problem.alignment = 1;
  std::vector<Bytes> live(size_t(duration), 0);
  for (int attempt = 0; attempt < 200 && problem.buffers.size() < count; ++attempt) {
    Time first = Time(random() % uint32_t(duration)), last = std::min(duration - 1, first + Time(random() % 4));
    Bytes bytes = 1 + random() % uint32_t(capacity / 2);
    if (std::any_of(&live[size_t(first)], &live[size_t(last)] + 1, [&](Bytes l) { return l + bytes > capacity; }))
      continue;
    for (Time time = first; time <= last; ++time)
      live[size_t(time)] += bytes;
    problem.buffers.push_back({"b" + std::to_string(problem.buffers.size()), bytes, first, last});
  }
  return problem;
}

bool overlap(const PackingBuffer &a, const PackingBuffer &b) { return a.first <= b.last && b.first <= a.last; }

/// The least capacity. In an optimal packing every buffer can be pushed down; the result is the same as placing the
/// buffers in order of their offsets, each as low as possible above the earlier ones. So all orders are tried, as far
/// as they can still be better.
void tryOrders(const PackingProblem &problem, std::vector<Bytes> &ends, Bytes most, size_t placed, Bytes &least) {
  if (most >= least)
    return;
  if (placed == ends.size())
    least = most;
  for (size_t k = 0; k < ends.size(); ++k) {
    if (ends[k])
      continue;
    Bytes start = 0;
    for (size_t j = 0; j < ends.size(); ++j)
      if (ends[j] && overlap(problem.buffers[j], problem.buffers[k]))
        start = std::max(start, ends[j]);
    ends[k] = start + problem.buffers[k].bytes;
    tryOrders(problem, ends, std::max(most, ends[k]), placed + 1, least);
    ends[k] = 0;
  }
}

Bytes leastCapacity(const PackingProblem &problem) {
  std::vector<Bytes> ends(problem.buffers.size(), 0);
  Bytes least = packGreedily(problem).bytes + 1;
  tryOrders(problem, ends, 0, 0, least);
  return least;
}

std::string check(const PackingProblem &problem, const SearchAnswer &answer, Bytes capacity) {
  PackingSolution solution;
  solution.offsets = answer.offsets;
  solution.bytes = capacity;
  return validate(problem, solution);
}

TEST(PackingSearch, FindsTheLeastCapacityAndProvesIt) {
  const unsigned seed = fuzzSeed(7);
  std::mt19937 random(seed);
  int aboveLive = 0;
  for (int round = 0; round < fuzzRounds(60000); ++round) {
    SCOPED_TRACE(fuzzTrace(round, seed));
    PackingProblem problem = fullProblem(random, 4 + random() % 6, 4 + random() % 6, 4 + random() % 6);
    // Most problems are solved by the greedy packing: only every 400th of them is tested.
    PackingSolution greedy = packGreedily(problem);
    if (greedy.bytes == greedy.lowerBound && round % 400)
      continue;
    Bytes least = leastCapacity(problem);
    aboveLive += least > greedy.lowerBound;
    SearchAnswer found = packWithin(problem, least, kPlenty);
    ASSERT_EQ(found.result, SearchResult::Found);
    ASSERT_EQ(check(problem, found, least), "");
    ASSERT_EQ(packWithin(problem, least - 1, kPlenty).result, SearchResult::Infeasible);
    PackingSolution packed = pack(problem);
    ASSERT_EQ(packed.bytes, least);
    ASSERT_EQ(packed.lowerBound, least);
  }
  // Some problems need more than the largest live sum, which the search must prove.
  EXPECT_GT(aboveLive, 0);
}

/// A rectangle of `capacity` × `duration` cut into pieces: packs without a gap, and every moment is full.
PackingProblem cutRectangle(std::mt19937 &random, Bytes capacity, Time duration, size_t pieces) {
  struct Piece {
    Bytes bytes;
    Time first, last;
  };
  std::vector<Piece> cut{{capacity, 0, duration - 1}};
  while (cut.size() < pieces) {
    size_t i = random() % cut.size();
    Piece &piece = cut[i];
    if (random() % 2 && piece.bytes > 1) {
      Bytes part = 1 + random() % uint32_t(piece.bytes - 1);
      cut.push_back({part, piece.first, piece.last});
      cut[i].bytes -= part;
    } else if (piece.last > piece.first) {
      Time at = piece.first + Time(random() % uint32_t(piece.last - piece.first));
      cut.push_back({piece.bytes, at + 1, piece.last});
      cut[i].last = at;
    }
  }
  PackingProblem problem;
  problem.alignment = 1;
  for (const Piece &piece : cut)
    problem.buffers.push_back({"b" + std::to_string(problem.buffers.size()), piece.bytes, piece.first, piece.last});
  std::shuffle(problem.buffers.begin(), problem.buffers.end(), random);
  return problem;
}

TEST(PackingSearch, SeesThatTheLargestSumIsOutOfReach) {
  // At most 4 bytes are live, and yet 4 bytes do not suffice.
  PackingProblem problem;
  problem.alignment = 1;
  for (auto [bytes, first, last] :
       {std::tuple<Bytes, Time, Time>{2, 1, 1}, {2, 0, 3}, {1, 2, 5}, {2, 5, 7}, {1, 2, 4}, {1, 4, 6}, {2, 7, 7}})
    problem.buffers.push_back({"b" + std::to_string(problem.buffers.size()), bytes, first, last});
  EXPECT_EQ(packGreedily(problem).lowerBound, 4u);
  EXPECT_EQ(packWithin(problem, 4, kPlenty).result, SearchResult::Infeasible);
  PackingSolution packed = pack(problem);
  EXPECT_EQ(packed.bytes, 5u);
  EXPECT_EQ(packed.lowerBound, 5u);
}

TEST(PackingSearch, FillsARectangleWithoutAGap) {
  const unsigned seed = fuzzSeed(11);
  std::mt19937 random(seed);
  for (int round = 0; round < fuzzRoundsOfLarger(30); ++round) {
    SCOPED_TRACE(fuzzTrace(round, seed));
    PackingProblem problem = cutRectangle(random, 1000, 60, 60);
    SearchAnswer answer = packWithin(problem, 1000, kPlenty);
    ASSERT_EQ(answer.result, SearchResult::Found);
    EXPECT_EQ(check(problem, answer, 1000), "");
    EXPECT_EQ(packWithin(problem, 999, kPlenty).result, SearchResult::Infeasible);
  }
}

TEST(PackingSearch, WorkLimitsIt) {
  std::mt19937 random(5);
  PackingProblem problem = cutRectangle(random, 100000, 400, 300);
  SearchAnswer little = packWithin(problem, 100000, 50'000);
  EXPECT_EQ(little.result, SearchResult::Exhausted);
  EXPECT_TRUE(little.offsets.empty());
  EXPECT_EQ(little.work, 0u); // not enough work for one descent, so that the search does not begin
  SearchAnswer some = packWithin(problem, 100000, 8'000'000);
  EXPECT_LT(some.work, 10'000'000u);
  int asked = 0;
  SearchAnswer stopped = packWithin(problem, 100000, kPlenty, [&] { return ++asked == 2; });
  EXPECT_TRUE(stopped.result == SearchResult::Found || asked == 2);
}

TEST(PackingSearch, TheSameProblemGivesTheSameAnswer) {
  std::mt19937 random(3);
  PackingProblem problem = cutRectangle(random, 5000, 80, 90);
  EXPECT_EQ(packWithin(problem, 5000, kPlenty).offsets, packWithin(problem, 5000, kPlenty).offsets);
}

TEST(PackingSearch, NothingToPlace) {
  PackingProblem none;
  EXPECT_EQ(packWithin(none, 0, kPlenty).result, SearchResult::Found);
  PackingProblem empty{{{"a", 0, 0, 3}, {"b", 64, 1, 2}}, 64};
  EXPECT_EQ(packWithin(empty, 64, kPlenty).result, SearchResult::Found);
  EXPECT_EQ(packWithin(empty, 63, kPlenty).result, SearchResult::Infeasible);
}

} // namespace

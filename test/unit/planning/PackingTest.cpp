//===- PackingTest.cpp - offsets for buffers of known lifetime ------------===//
//
// Pictures: time runs to the right, addresses upwards; a row is one unit (64 bytes unless said otherwise).
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/Packing.h"
#include "test/unit/planning/FuzzRounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

using namespace tcc::planning;

namespace {

constexpr Bytes kUnit = 64;

PackingProblem problemOf(std::vector<PackingBuffer> buffers, Bytes alignment = 64) {
  return {std::move(buffers), alignment};
}

/// The most bytes live at any time, by brute force.
Bytes busiest(const PackingProblem &problem) {
  Bytes most = 0;
  for (const PackingBuffer &at : problem.buffers) {
    Bytes live = 0;
    for (const PackingBuffer &buffer : problem.buffers)
      if (buffer.first <= at.first && at.first <= buffer.last)
        live += (buffer.bytes + problem.alignment - 1) / problem.alignment * problem.alignment;
    most = std::max(most, live);
  }
  return most;
}

/// The arena as a picture: the letter of the buffer (its name) that holds an address at a time, '.' where none does.
std::string picture(const PackingProblem &problem, const PackingSolution &solution, Time duration) {
  std::string text;
  for (Bytes row = solution.bytes / kUnit; row-- > 0;) {
    for (Time time = 0; time < duration; ++time) {
      char letter = '.';
      for (size_t i = 0; i < problem.buffers.size(); ++i) {
        const PackingBuffer &buffer = problem.buffers[i];
        if (buffer.first <= time && time <= buffer.last && solution.offsets[i] <= row * kUnit &&
            row * kUnit < solution.offsets[i] + buffer.bytes)
          letter = buffer.name[0];
      }
      text += letter;
    }
    text += "\n";
  }
  return text;
}

void expectSound(const PackingProblem &problem, const PackingSolution &solution) {
  EXPECT_EQ(validate(problem, solution), "");
  EXPECT_GE(solution.lowerBound, busiest(problem));
  EXPECT_GE(solution.bytes, solution.lowerBound);
}

} // namespace

TEST(Packing, NothingTakesNothing) {
  PackingSolution solution = pack(problemOf({}));
  EXPECT_EQ(solution.bytes, 0u);
  EXPECT_EQ(solution.lowerBound, 0u);
  EXPECT_EQ(validate(problemOf({}), solution), "");
}

TEST(Packing, BuffersThatNeverMeetShareAPlace) {
  PackingProblem problem = problemOf({{"a", kUnit, 0, 1}, {"b", kUnit, 2, 3}, {"c", kUnit, 4, 4}});
  PackingSolution solution = pack(problem);
  EXPECT_EQ(picture(problem, solution, 5), "aabbc\n");
  expectSound(problem, solution);
}

TEST(Packing, BothEndsOfALifeCount) {
  // b begins at the instruction that reads a for the last time.
  PackingProblem problem = problemOf({{"a", kUnit, 0, 1}, {"b", kUnit, 1, 2}});
  PackingSolution solution = pack(problem);
  EXPECT_EQ(solution.bytes, 2 * kUnit);
  expectSound(problem, solution);
}

TEST(Packing, SavedForTheBackwardPass) {
  // The shape of training: what is saved first is freed last.
  PackingProblem problem =
      problemOf({{"a", kUnit, 0, 5}, {"b", kUnit, 1, 4}, {"c", kUnit, 2, 3}, {"x", kUnit, 4, 5}, {"y", kUnit, 5, 5}});
  PackingSolution solution = pack(problem);
  EXPECT_EQ(solution.bytes, 3 * kUnit);
  expectSound(problem, solution);
}

TEST(Packing, ASmallOneUsesTheGapThatFitsItBest) {
  // The long buffers K and L are packed first, e between them; s then fits into the two units that e leaves.
  //   LLLL
  //   eess
  //   ee..
  //   KKKK
  PackingProblem problem =
      problemOf({{"K", kUnit, 0, 3}, {"e", 2 * kUnit, 0, 1}, {"L", kUnit, 0, 3}, {"s", kUnit, 2, 3}});
  PackingSolution solution = pack(problem);
  EXPECT_EQ(solution.bytes, 4 * kUnit);
  expectSound(problem, solution);
}

TEST(Packing, SizesAreRoundedUpToTheAlignment) {
  PackingProblem problem = problemOf({{"a", 1, 0, 0}, {"b", 65, 0, 0}, {"c", 64, 0, 0}});
  PackingSolution solution = pack(problem);
  EXPECT_EQ(solution.bytes, 64u + 128 + 64);
  expectSound(problem, solution);
  problem.alignment = 256;
  EXPECT_EQ(pack(problem).bytes, 3u * 256);
  for (Bytes offset : pack(problem).offsets)
    EXPECT_EQ(offset % 256, 0u);
}

TEST(Packing, TheSameProblemGivesTheSameSolution) {
  std::mt19937_64 random(7);
  PackingProblem problem;
  for (int i = 0; i < 60; ++i) {
    Time first = Time(random() % 40);
    problem.buffers.push_back({"b" + std::to_string(i), 1 + random() % 5000, first, first + Time(random() % 20)});
  }
  EXPECT_EQ(pack(problem).offsets, pack(problem).offsets);
}

TEST(Packing, RandomProblemsAreSolvedSoundly) {
  for (int round = 0; round < fuzzRounds(200); ++round) {
    const unsigned seed = fuzzSeed(0) + unsigned(round);
    SCOPED_TRACE(fuzzTrace(round, seed));
    std::mt19937_64 random(seed);
    PackingProblem problem;
    problem.alignment = Bytes(1) << random() % 9;
    size_t count = random() % 80;
    for (size_t i = 0; i < count; ++i) {
      Time first = Time(random() % 50) - 1;
      problem.buffers.push_back({"b" + std::to_string(i), 1 + random() % 3000, first, first + Time(random() % 30)});
    }
    PackingSolution solution = pack(problem);
    expectSound(problem, solution);
    Bytes sum = 0;
    for (const PackingBuffer &buffer : problem.buffers)
      sum += (buffer.bytes + problem.alignment - 1) / problem.alignment * problem.alignment;
    EXPECT_LE(solution.bytes, sum); // never worse than no sharing
  }
}

namespace validation {

/// a and b live together, c after both.
PackingProblem problem() { return problemOf({{"a", 100, 0, 2}, {"b", 100, 1, 3}, {"c", 100, 4, 5}}); }

TEST(PackingValidator, AcceptsWhatIsRight) {
  EXPECT_EQ(validate(problem(), {{0, 128, 64}, 256, 0}), ""); // c may lie across both
}

TEST(PackingValidator, NamesTheTwoThatOverlap) {
  std::string clash = validate(problem(), {{0, 64, 0}, 256, 0}); // a ends at 100
  EXPECT_NE(clash.find("a and b"), std::string::npos) << clash;
}

TEST(PackingValidator, SeesAnOverlapOfOneInstruction) {
  PackingProblem touching = problemOf({{"a", 64, 0, 1}, {"b", 64, 1, 2}});
  EXPECT_NE(validate(touching, {{0, 0}, 64, 0}), "");
  touching.buffers[1].first = 2;
  EXPECT_EQ(validate(touching, {{0, 0}, 64, 0}), "");
}

TEST(PackingValidator, SeesWhatEndsBeyondTheArena) {
  std::string clash = validate(problem(), {{0, 128, 0}, 227, 0}); // b ends at 228
  EXPECT_NE(clash.find("b ends beyond"), std::string::npos) << clash;
}

TEST(PackingValidator, SeesAWrongAlignment) {
  std::string clash = validate(problem(), {{0, 132, 0}, 256, 0});
  EXPECT_NE(clash.find("b is not aligned"), std::string::npos) << clash;
}

TEST(PackingValidator, SeesAMissingOffset) { EXPECT_NE(validate(problem(), {{0, 128}, 256, 0}), ""); }

TEST(PackingValidator, FindsEveryPlantedOverlap) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 100; ++round) {
    PackingProblem random_problem;
    for (int i = 0; i < 20; ++i)
      random_problem.buffers.push_back({"b" + std::to_string(i), 64 + random() % 1000, 0, 10}); // all live together
    PackingSolution solution = pack(random_problem);
    ASSERT_EQ(validate(random_problem, solution), "");
    size_t moved = random() % 20, onto = (moved + 1 + random() % 19) % 20;
    solution.offsets[moved] = solution.offsets[onto];
    solution.bytes += 4096; // so that the only violation is the overlap
    std::string clash = validate(random_problem, solution);
    EXPECT_NE(clash.find("overlap"), std::string::npos) << "b" << moved << " on b" << onto << ": " << clash;
  }
}

} // namespace validation

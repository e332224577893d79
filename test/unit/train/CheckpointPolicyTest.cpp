//===- CheckpointPolicyTest.cpp - when checkpoints are due, and which stay ===//
#include "runtime/train/Checkpointer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace tcc::runtime;
using testing::ElementsAre;
using testing::IsEmpty;

/// The rules of a run without settings.
static const CheckpointRules kUsual = {.everyMinutes = 15, .keep = 3, .keepBest = true};

TEST(CheckpointPolicy, IsDueByTheClockAloneByDefault) {
  CheckpointPolicy policy(kUsual, 100);
  EXPECT_FALSE(policy.isDue(1, 100));
  EXPECT_FALSE(policy.isDue(5000, 100 + 15 * 60 - 1));
  EXPECT_TRUE(policy.isDue(5000, 100 + 15 * 60));
  policy.begun(2000);
  policy.written();
  EXPECT_FALSE(policy.isDue(5001, 2001)) << "the clock starts anew with each checkpoint, whatever asked for it";
  EXPECT_TRUE(policy.isDue(9000, 2000 + 15 * 60));
}

TEST(CheckpointPolicy, IsDueByUpdatesBesidesTheClock) {
  CheckpointPolicy policy({.everyMinutes = 1, .everySteps = 10}, 0);
  EXPECT_FALSE(policy.isDue(9, 59));
  EXPECT_TRUE(policy.isDue(10, 1));
  EXPECT_TRUE(policy.isDue(11, 60));
  CheckpointPolicy never({.everyMinutes = 0}, 0);
  EXPECT_FALSE(never.isDue(1000000, 1e9));
}

TEST(CheckpointPolicy, TriesAgainAMinuteAfterAFailure) {
  CheckpointPolicy policy({.everyMinutes = 15}, 0);
  policy.failed(900);
  EXPECT_FALSE(policy.isDue(7, 901)) << "the clock is over, but the disk was full a second ago";
  EXPECT_TRUE(policy.isDue(7, 960));
  policy.begun(960);
  policy.written();
  EXPECT_FALSE(policy.isDue(8, 1100));
  CheckpointPolicy bySteps({.everyMinutes = 0, .everySteps = 100}, 0);
  bySteps.failed(10);
  EXPECT_TRUE(bySteps.isDue(101, 70)) << "a checkpoint that was missed does not wait for its next turn";
}

TEST(CheckpointPolicy, KeepsTheNewestAndTheBest) {
  CheckpointPolicy policy(kUsual, 0);
  EXPECT_THAT(policy.expired({10, 20, 30}, 30, std::nullopt), IsEmpty());
  EXPECT_THAT(policy.expired({40, 10, 30, 20, 50}, 50, std::nullopt), ElementsAre(10, 20));
  EXPECT_THAT(policy.expired({10, 20, 30, 40, 50}, 50, 10), ElementsAre(20));
  EXPECT_THAT(policy.expired({10, 20, 30, 40, 50}, 50, 40), ElementsAre(10, 20)) << "the best is among the newest";
  EXPECT_THAT(CheckpointPolicy({.keep = 3}, 0).expired({10, 20, 30, 40}, 40, 10), ElementsAre(10));
  EXPECT_THAT(CheckpointPolicy({.keep = 0, .keepBest = true}, 0).expired({1, 2, 3, 4, 5, 6}, 6, std::nullopt), IsEmpty());
  EXPECT_THAT(CheckpointPolicy({.keep = 1, .keepBest = true}, 0).expired({1, 2}, 2, 1), IsEmpty());
  EXPECT_THAT(CheckpointPolicy({.keep = 1, .keepBest = true}, 0).expired({1, 2}, 2, std::nullopt), ElementsAre(1));
}

/// A run resumes from step 20 while 30 and 40 exist: its own new checkpoint must not be the one that is removed.
TEST(CheckpointPolicy, LeavesLaterCheckpointsOfAnotherBranchAlone) {
  CheckpointPolicy policy({.keep = 2, .keepBest = true}, 0);
  EXPECT_THAT(policy.expired({10, 20, 21, 30, 40}, 21, std::nullopt), ElementsAre(10));
  EXPECT_THAT(policy.expired({10, 20, 21, 30, 40}, 21, 40), ElementsAre(10));
}

//===- ProcessTest.cpp - what trun's process does with signals and ranks ---===//
#include "tools/trun/OnRanks.h"
#include "tools/trun/Signals.h"

#include <csignal>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

using namespace tcc::runtime;
using namespace tcc::tools;

namespace {
void later(int number) {
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  raise(number);
}
} // namespace

TEST(Signals, TheFirstAsksForTheEnd) {
  for (auto [number, name] : {std::pair(SIGINT, "SIGINT"), std::pair(SIGTERM, "SIGTERM"), std::pair(SIGHUP, "SIGHUP"),
                              std::pair(SIGXCPU, "SIGXCPU"), std::pair(SIGPWR, "SIGPWR")}) {
    RunControl run;
    SignalWatch watch(run, -1);
    EXPECT_EQ(run.stoppedBy(), nullptr);
    raise(number);
    EXPECT_STREQ(run.stoppedBy(), name);
    // timeout(1) and closing terminals send the signal twice at once, which counts as one request.
    raise(number);
    EXPECT_STREQ(run.stoppedBy(), name);
  }
}

TEST(Signals, OthersAskForACheckpointOrBecomeErrors) {
  RunControl run;
  SignalWatch watch(run, -1);
  EXPECT_FALSE(run.takeCheckpointRequest());
  raise(SIGUSR1);
  EXPECT_TRUE(run.takeCheckpointRequest());
  EXPECT_FALSE(run.takeCheckpointRequest());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  EXPECT_EQ(write(ends[1], "x", 1), -1);
  close(ends[1]);
  EXPECT_EQ(run.stoppedBy(), nullptr);
}

TEST(Signals, WhatWasIgnoredStaysIgnored) {
  auto *before = std::signal(SIGHUP, SIG_IGN);
  {
    RunControl run;
    SignalWatch watch(run, -1);
    raise(SIGHUP);
    EXPECT_EQ(run.stoppedBy(), nullptr);
  }
  EXPECT_EQ(std::signal(SIGHUP, before), SIG_IGN) << "the caller's handlers come back";
}

TEST(SignalsDeathTest, TheSecondEndsAtOnceAndNamesTheLastCheckpoint) {
  auto twice = [] {
    RunControl run;
    SignalWatch watch(run, STDERR_FILENO);
    run.setLastCheckpoint("run/checkpoints/step-3");
    run.setLastCheckpoint("run/checkpoints/step-7");
    raise(SIGINT);
    later(SIGINT);
    _exit(0);
  };
  EXPECT_EXIT(twice(), testing::KilledBySignal(SIGINT), "second signal; the last checkpoint is run/checkpoints/step-7");
}

TEST(SignalsDeathTest, TheSecondWaitsForWhatIsBeingWritten) {
  auto twice = [] {
    RunControl run;
    SignalWatch watch(run, STDERR_FILENO);
    raise(SIGTERM);
    {
      RunControl::Writing writing(run);
      later(SIGTERM);
      (void)!write(STDERR_FILENO, "written\n", 8);
    }
    _exit(0);
  };
  EXPECT_EXIT(twice(), testing::KilledBySignal(SIGTERM),
              "complete\nwritten\n\ntrun: stopped at once by a second signal; no checkpoint had been written");
}

/// The kernel repeats SIGXCPU every second, and a closing session SIGHUP: they never end the process.
TEST(SignalsDeathTest, RepeatedLimitsDoNotEndTheProcess) {
  auto twice = [] {
    RunControl run;
    SignalWatch watch(run, -1);
    raise(SIGXCPU);
    later(SIGXCPU);
    raise(SIGHUP);
    _exit(std::string("SIGXCPU") == run.stoppedBy() ? 7 : 8);
  };
  EXPECT_EXIT(twice(), testing::ExitedWithCode(7), "");
}

TEST(RankProcesses, ProcessorsAreDividedWithoutARest) {
  const std::vector<int> eight{0, 1, 2, 3, 8, 9, 10, 11};
  EXPECT_EQ(shareOf(eight, 0, 3), (std::vector<int>{0, 1}));
  EXPECT_EQ(shareOf(eight, 1, 3), (std::vector<int>{2, 3, 8}));
  EXPECT_EQ(shareOf(eight, 2, 3), (std::vector<int>{9, 10, 11}));
  EXPECT_EQ(shareOf({4, 5}, 2, 3), std::vector<int>{4}) << "more ranks than processors take turns";
}

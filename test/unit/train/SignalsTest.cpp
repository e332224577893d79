//===- SignalsTest.cpp - the first signal asks, the second ends -----------===//
#include "runtime/train/Signals.h"

#include <csignal>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

using namespace tcc::runtime;

namespace {
void later(int number) {
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  raise(number);
}
} // namespace

TEST(Signals, TheFirstAsksForTheEnd) {
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGXCPU, SIGPWR}) {
    SignalWatch watch(-1);
    EXPECT_EQ(watch.received(), 0);
    raise(number);
    EXPECT_EQ(watch.received(), number);
    // timeout(1) and closing terminals send the signal twice at once, which counts as one request.
    raise(number);
    EXPECT_EQ(watch.received(), number);
  }
  EXPECT_EQ(signalName(SIGTERM), "SIGTERM");
}

TEST(Signals, OthersAskForACheckpointOrBecomeErrors) {
  SignalWatch watch(-1);
  EXPECT_FALSE(watch.takeRequest());
  raise(SIGUSR1);
  EXPECT_TRUE(watch.takeRequest());
  EXPECT_FALSE(watch.takeRequest());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  EXPECT_EQ(write(ends[1], "x", 1), -1);
  close(ends[1]);
  EXPECT_EQ(watch.received(), 0);
}

TEST(Signals, WhatWasIgnoredStaysIgnored) {
  auto *before = std::signal(SIGHUP, SIG_IGN);
  {
    SignalWatch watch(-1);
    raise(SIGHUP);
    EXPECT_EQ(watch.received(), 0);
  }
  EXPECT_EQ(std::signal(SIGHUP, before), SIG_IGN) << "the caller's handlers come back";
}

TEST(SignalsDeathTest, TheSecondEndsAtOnceWithTheLastWords) {
  auto twice = [] {
    SignalWatch watch(STDERR_FILENO);
    watch.setLastWords("the last checkpoint is run/checkpoints/step-7");
    raise(SIGINT);
    later(SIGINT);
    _exit(0);
  };
  EXPECT_EXIT(twice(), testing::KilledBySignal(SIGINT), "second signal; the last checkpoint is run/checkpoints/step-7");
}

TEST(SignalsDeathTest, TheSecondWaitsForWhatIsBeingWritten) {
  auto twice = [] {
    SignalWatch watch(STDERR_FILENO);
    raise(SIGTERM);
    {
      SignalWatch::Uninterrupted writing;
      later(SIGTERM);
      (void)!write(STDERR_FILENO, "written\n", 8);
    }
    _exit(0);
  };
  EXPECT_EXIT(twice(), testing::KilledBySignal(SIGTERM), "complete\nwritten\n\ntrun: stopped at once");
}

/// The kernel repeats SIGXCPU every second, and a closing session SIGHUP: they never end the process.
TEST(SignalsDeathTest, RepeatedLimitsDoNotEndTheProcess) {
  auto twice = [] {
    SignalWatch watch(-1);
    raise(SIGXCPU);
    later(SIGXCPU);
    raise(SIGHUP);
    _exit(watch.received() == SIGXCPU ? 7 : 8);
  };
  EXPECT_EXIT(twice(), testing::ExitedWithCode(7), "");
}

//===- LevelGuard.cpp - tests of a machine level that is not there --------===//
//
// A test program that runs at the level of TCC_TEST_LEVEL would end with an illegal instruction on a machine without it:
// all its tests are skipped there, and the reason is what CTest looks for.
//
//===----------------------------------------------------------------------===//
#include "test/support/Choose.h"

#include <gtest/gtest.h>

namespace {
class LevelGuard : public testing::Environment {
public:
  void SetUp() override {
    std::string name = tcc::test::testLevel();
    auto level = tcc::runtime::levelFromName(name);
    ASSERT_TRUE(level.ok()) << level.message();
    if (!tcc::runtime::runsLevel(tcc::runtime::cpuFeatures(), *level))
      GTEST_SKIP() << "this machine lacks the instructions of " << name;
  }
};

[[maybe_unused]] const auto *const guard = testing::AddGlobalTestEnvironment(new LevelGuard);
} // namespace

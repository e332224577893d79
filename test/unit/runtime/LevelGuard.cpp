//===- LevelGuard.cpp - skip tests of a level that the machine lacks ------===//
//
// A test program that runs at the level of TCC_TEST_LEVEL would end with an illegal instruction on a machine without
// that level. There all its tests are skipped, with a reason that CTest recognises.
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

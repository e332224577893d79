//===- RanksTest.cpp - where the ranks of a job are ------------------------===//
#include "runtime/train/Ranks.h"

#include <gtest/gtest.h>

using namespace tcc::runtime;

namespace {
TEST(Ranks, ANodeOnSeveralMachinesIsNamed) {
  EXPECT_EQ(dividedNode({"a", "a", "b", "b"}, 2), "");
  EXPECT_EQ(dividedNode({"a", "a", "a", "a"}, 2), "") << "two nodes of one machine";
  const std::string told = dividedNode({"a", "a", "a", "b"}, 2);
  EXPECT_NE(told.find("of such a node rank 2 is on a, rank 3 on b"), std::string::npos) << told;
  EXPECT_NE(dividedNode({"a", "b"}, 2), "");
}
} // namespace

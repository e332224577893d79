//===- DimensionsTest.cpp - symbolic dimensions and sums of them ----------===//
#include "frontend/Dimensions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace tcc::frontend;
using testing::ElementsAre;

namespace {

const std::map<std::string, int64_t> kNames = {{"batch", 6}, {"s0", 7}, {"odd name!", 3}, {"a.b", 2}};

TEST(Dimensions, Values) {
  const std::map<std::string, int64_t> expected = {
      {"batch", 6},          {"12", 12},          {"2*batch + 1", 13}, {"s0 - batch", 1},     {"s0//2", 3},
      {"batch/2", 3},        {"s0 % 4", 3},       {"(s0 + 1)*2", 16},  {"2**3*batch", 48},    {"Max(s0, batch)", 7},
      {"Min(1, s0, 3)", 1},  {"floor(s0/2)", 3},  {"odd name!", 3},    {"-batch + 10", 4},    {"a.b*a.b", 4},
      {"2*(batch//4) + 1", 3}};
  for (const auto &[text, value] : expected)
    EXPECT_EQ(dimensionValue(text, kNames), value) << text;
}

TEST(Dimensions, WhatHasNoValue) {
  for (const char *text : {"", "other", "2*other", "batch +", "(batch", "batch batch", "s0/2", "batch//0", "batch % 0", "2**99",
                           "99999999999999999999*9", "?"})
    EXPECT_EQ(dimensionValue(text, kNames), std::nullopt) << text;
  EXPECT_EQ(dimensionValue(std::string(5000, '('), kNames), std::nullopt);
  EXPECT_EQ(dimensionValue(std::string(5000, '-') + "1", kNames), std::nullopt);
}

TEST(Dimensions, Names) {
  EXPECT_THAT(dimensionNames("2*batch + Max(s0, 4)"), ElementsAre("batch", "s0"));
  EXPECT_THAT(dimensionNames("odd name!"), ElementsAre("odd name!"));
  EXPECT_THAT(dimensionNames("batch"), ElementsAre("batch"));
}

} // namespace

//===- CpuLevelTest.cpp - levels follow from CPUID alone -----------------===//
#include "runtime/cpu/calls/CpuLevel.h"

#include <gtest/gtest.h>

using namespace tcc;
using runtime::CpuFeatures, runtime::CpuLevel;

namespace {
CpuFeatures features(bool avx512, bool bf16, bool amx, bool isAmd) {
  CpuFeatures f;
  f.avx2 = true;
  f.avx512 = avx512;
  f.bf16 = bf16;
  f.amx = amx;
  f.isAmd = isAmd;
  return f;
}

std::string level(const CpuFeatures &f, bool bf16) {
  auto found = runtime::defaultLevel(f, bf16);
  return found ? runtime::levelName(*found) : found.message();
}
} // namespace

TEST(CpuLevel, TheDefaultOfEachMachine) {
  CpuFeatures haswell = features(false, false, false, false), zen4 = features(true, true, false, true),
              sapphireRapids = features(true, true, true, false), hiddenTiles = features(true, true, false, false);
  EXPECT_EQ(level(haswell, true), "cpu:v3");
  EXPECT_EQ(level(zen4, false), "cpu:v4");
  EXPECT_EQ(level(zen4, true), "cpu:v4-bf16");
  EXPECT_EQ(level(sapphireRapids, false), "cpu:v4");
  EXPECT_EQ(level(sapphireRapids, true), "cpu:amx");
  EXPECT_EQ(level(hiddenTiles, true), "cpu:v4"); // this processor's bf16 dot products are slower than f32 arithmetic
  EXPECT_NE(level(CpuFeatures(), false).find("below x86-64-v3"), std::string::npos);
}

TEST(CpuLevel, FeaturesOfATestReplaceTheMachines) {
  CpuFeatures real = runtime::cpuFeatures();
  {
    runtime::ScopedFeatures scope(features(false, false, false, false));
    EXPECT_TRUE(runtime::runsLevel(runtime::cpuFeatures(), CpuLevel::V3));
    EXPECT_FALSE(runtime::runsLevel(runtime::cpuFeatures(), CpuLevel::V4));
  }
  EXPECT_EQ(runtime::cpuFeatures().avx512, real.avx512);
}

TEST(CpuLevel, NamesAndBack) {
  for (const char *name : {"cpu:v3", "cpu:v4", "cpu:v4-bf16", "cpu:amx"}) {
    auto found = runtime::levelFromName(name);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(runtime::levelName(*found), name);
  }
  EXPECT_NE(runtime::levelFromName("cpu:v9").message().find("cpu:v4-bf16"), std::string::npos);
}

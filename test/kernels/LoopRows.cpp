//===- LoopRows.cpp - along which dimensions loops are cut ----------------===//
//
// Kernels.cpp shows that a loop's tiles compute what the whole loop does. Here: that there are as many as its body allows.
//
//===----------------------------------------------------------------------===//
#include "test/support/Cases.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace tcc;

namespace {

int64_t tilesOf(const std::string &name) {
  for (const test::Case &c : test::allCases())
    if (c.name == name) {
      OwningOpRef<ModuleOp> module = test::parseCase(c, "f32");
      int64_t tiles = 0;
      module->walk([&](train::LoopKernel loop) { tiles = loop.getTileCount(); });
      return tiles;
    }
  ADD_FAILURE() << "no case " << name;
  return 0;
}

TEST(LoopRows, SamplesAndHeadsAreCut) { EXPECT_EQ(tilesOf("loop_heads_of_16"), 2 * 3); }

/// Sixteen channels of sixteen numbers are a tile.
TEST(LoopRows, ChannelsAreCutIntoTilesOfSomeVectors) { EXPECT_EQ(tilesOf("loop_channels_of_16"), 2 * 64 / 16); }

TEST(LoopRows, WhatProductsMixIsNotCut) { EXPECT_EQ(tilesOf("loop_mixed"), 1); }

/// Both dimensions of an outer product of a vector with itself run along the same numbers.
TEST(LoopRows, WhatRunsAlongTwoDimensionsIsNotCut) { EXPECT_EQ(tilesOf("loop_outer"), 1); }

TEST(LoopRows, LittleIsNotCut) { EXPECT_EQ(tilesOf("loop_cell"), 1); }

} // namespace

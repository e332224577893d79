//===- LoopRows.cpp - along which dimensions loops are cut ----------------===//
//
// Tests that a loop is cut into as many tiles as its body allows. (Kernels.cpp tests that the tiles compute the whole
// loop.)
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

/// A tile has sixteen channels.
TEST(LoopRows, ChannelsAreCutIntoTilesOfSomeVectors) { EXPECT_EQ(tilesOf("loop_channels_of_16"), 2 * 64 / 16); }

TEST(LoopRows, WhatProductsMixIsNotCut) { EXPECT_EQ(tilesOf("loop_mixed"), 1); }

/// In the outer product of a vector with itself both dimensions run along the same state, so that neither can be cut.
TEST(LoopRows, WhatRunsAlongTwoDimensionsIsNotCut) { EXPECT_EQ(tilesOf("loop_outer"), 1); }

TEST(LoopRows, LittleIsNotCut) { EXPECT_EQ(tilesOf("loop_cell"), 1); }

} // namespace

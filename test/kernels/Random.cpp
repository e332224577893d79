//===- Random.cpp - the generator's known answers and its numbers' moments ----===//
#include "compiler/dialect/Philox.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace tcc::train;

namespace {

using Words = std::array<uint32_t, 4>;

// Random123's kat_vectors, philox4x32 10.
TEST(Philox, GivesThePublishedWords) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, BitsAreSet) {
  // Each bit of the first word is set in half of 4096 counters: 2048 ± 6 standard deviations of 32.
  for (int bit = 0; bit < 32; ++bit) {
    int set = 0;
    for (uint32_t i = 0; i < 4096; ++i)
      set += philox({i, 0, 0, 0}, {7, 0})[0] >> bit & 1;
    EXPECT_NEAR(set, 2048, 192) << "bit " << bit;
  }
}

TEST(RandomId, IsStable) {
  // Frozen, since the results of runs depend on it.
  EXPECT_EQ(uint64_t(randomId("", 0)), 0x88201fb960ff6465u);
  EXPECT_EQ(uint64_t(randomId("/block.0/Dropout", 0)), uint64_t(randomId("/block.0/Dropout", 0)));
}

TEST(RandomId, TellsNodesOrdinalsAndSeedsApart) {
  EXPECT_NE(randomId("a", 0), randomId("b", 0));
  EXPECT_NE(randomId("a", 0), randomId("a", 1));
  EXPECT_NE(randomId("a", 0), randomId("a", 0, 1));
  EXPECT_NE(randomId("a", 1), randomId("a", 0, 1));
}

} // namespace

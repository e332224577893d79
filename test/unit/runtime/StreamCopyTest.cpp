//===- StreamCopyTest.cpp - copies past the caches move every byte --------===//
#include "support/StreamCopy.h"

#include <gtest/gtest.h>
#include <numeric>
#include <vector>

TEST(StreamCopy, CopiesAnyLengthAtAnyAlignmentAndNothingElse) {
  std::vector<unsigned char> from(512);
  std::iota(from.begin(), from.end(), 0);
  for (size_t length = 0; length < 300; length += length < 80 ? 1 : 37)
    for (size_t source = 0; source < 3; ++source)
      for (size_t target = 0; target < 17; ++target) {
        std::vector<unsigned char> to(512, 0xee), expected = to;
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(source), length,
                    expected.begin() + static_cast<std::ptrdiff_t>(target));
        tcc::copyPastCaches(to.data() + target, from.data() + source, length);
        ASSERT_EQ(to, expected) << length << " bytes from " << source << " to " << target;
      }
}

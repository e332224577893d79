//===- DynamicMapTest.cpp - codes of 8 bits as bitsandbytes has them -------===//
#include "runtime/plan/DynamicMap.h"

#include <bit>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <string>

using namespace tcc;
using plan::DynamicKind;

/// dynamic_map.py has the numbers and codes from bitsandbytes: each threshold, which belongs to the lower code, and its
/// neighbours.
TEST(DynamicMap, NumbersAndCodesAreThoseOfBitsandbytes) {
  std::ifstream file(TCC_DYNAMIC_MAP);
  size_t lists = 0, codes = 0;
  for (std::string line; std::getline(file, line); ++lists) {
    std::istringstream words(line);
    std::string name, what, bits;
    words >> name >> what;
    const DynamicKind kind = name == "signed" ? DynamicKind::Signed : DynamicKind::Unsigned;
    auto next = [&] { return std::bit_cast<float>(static_cast<uint32_t>(std::stoul(bits, nullptr, 16))); };
    if (what == "numbers") {
      for (float number : plan::dynamicNumbers(kind)) {
        words >> bits;
        EXPECT_EQ(std::bit_cast<uint32_t>(number), std::bit_cast<uint32_t>(next())) << name;
      }
    } else {
      for (unsigned code = 0; words >> bits >> code; ++codes)
        EXPECT_EQ(plan::dynamicCode(kind, next()), code) << name << " " << bits;
    }
  }
  EXPECT_EQ(lists, 4U);
  EXPECT_EQ(codes, 2U * 3U * 255U);
}

TEST(DynamicMap, NumbersKeepTheirCodes) {
  for (DynamicKind kind : {DynamicKind::Signed, DynamicKind::Unsigned})
    for (unsigned code = 0; code < 256; ++code)
      EXPECT_EQ(plan::dynamicCode(kind, plan::dynamicNumbers(kind)[code]), code);
  EXPECT_EQ(plan::dynamicNumbers(DynamicKind::Signed)[127], 0);
  EXPECT_EQ(plan::dynamicNumbers(DynamicKind::Unsigned)[0], 0);
}

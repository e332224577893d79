//===- Int8Test.cpp - numbers as bytes and scales --------------------------===//
#include "runtime/plan/Int8.h"
#include "runtime/plan/DType.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

using namespace tcc;

namespace {
plan::TensorType typeOf(plan::DType dtype, std::initializer_list<int64_t> dims) {
  plan::TensorType type;
  type.set_dtype(dtype);
  for (int64_t dim : dims)
    type.add_dims(dim);
  return type;
}
std::span<const std::byte> bytesOf(const std::vector<float> &values) { return std::as_bytes(std::span(values)); }
} // namespace

/// Four rows: ties; zeros; numbers so small that the scale would underflow; w and −w.
TEST(Int8, RoundsEachChannelToEven) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const std::vector<float> values = {127, 0.5F, 1.5F, -2.5F, 0, 0, 0, 0, tiny, -tiny, 0, 0, 3, -3, 1, -1};
  const auto type = typeOf(plan::F32, {4, 4}), scales = typeOf(plan::F32, {4, 1});
  auto rounded = plan::roundToInt8(bytesOf(values), type, scales);
  ASSERT_TRUE(rounded);
  EXPECT_EQ(rounded->values, (std::vector<int8_t>{127, 0, 2, -2, 0, 0, 0, 0, 0, 0, 0, 0, 127, -127, 42, -42}));
  EXPECT_EQ(rounded->scales[0], 1);
  EXPECT_EQ(rounded->scales[1], std::numeric_limits<float>::min());
  EXPECT_EQ(rounded->scales[3], 3.0F / 127.0F);
  const auto wide = plan::widenInt8(std::as_bytes(std::span(rounded->values)), typeOf(plan::I8, {4, 4}),
                                    bytesOf(rounded->scales), scales, plan::F32);
  EXPECT_EQ(plan::floatElement(wide.data(), plan::F32, 3), -2);
  EXPECT_EQ(plan::floatElement(wide.data(), plan::F32, 14), 42 * (3.0F / 127.0F));
}

/// One scale for each index of the last dimension, of the outer two dimensions, or for the whole tensor.
TEST(Int8, ScalesBroadcast) {
  std::vector<float> values;
  for (int i = 0; i < 24; ++i)
    values.push_back(float(i + 1) * (i % 2 ? -1.0F : 1.0F));
  const auto type = typeOf(plan::F32, {2, 3, 4});
  auto greatest = [&](std::initializer_list<int64_t> dims) {
    std::vector<int> found;
    const auto rounded = plan::roundToInt8(bytesOf(values), type, typeOf(plan::F32, dims));
    for (float scale : rounded ? rounded->scales : std::vector<float>())
      found.push_back(int(std::lround(scale * 127)));
    return found;
  };
  EXPECT_EQ(greatest({1, 1, 4}), (std::vector<int>{21, 22, 23, 24}));
  EXPECT_EQ(greatest({2, 3, 1}), (std::vector<int>{4, 8, 12, 16, 20, 24}));
  EXPECT_EQ(greatest({2, 1, 1}), (std::vector<int>{12, 24}));
  EXPECT_EQ(greatest({1, 1, 1}), (std::vector<int>{24}));
  EXPECT_FALSE(plan::scaleStrides(type, typeOf(plan::F32, {3, 1, 1})));
  EXPECT_FALSE(plan::scaleStrides(type, typeOf(plan::F32, {2, 3})));
  EXPECT_FALSE(plan::roundToInt8(bytesOf(values), type, typeOf(plan::F32, {4})));
}

TEST(Int8, RefusesWhatIsNotFinite) {
  for (float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const std::vector<float> values = {1, bad};
    EXPECT_FALSE(plan::roundToInt8(bytesOf(values), typeOf(plan::F32, {1, 2}), typeOf(plan::F32, {1, 1})));
  }
}

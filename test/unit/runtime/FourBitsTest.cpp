//===- FourBitsTest.cpp - numbers as codes of 4 bits and scales ------------===//
#include "runtime/plan/FourBits.h"
#include "runtime/plan/DType.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <random>

using namespace tcc;
using plan::FourBits;

namespace {
FourBits layoutOf(FourBits::Code code, int64_t block, std::vector<int64_t> dims, std::vector<char> inRow) {
  const std::unique_ptr<bool[]> row(new bool[inRow.size()]);
  std::copy(inRow.begin(), inRow.end(), row.get());
  return plan::fourBitsOf(code, block, dims, {row.get(), inRow.size()});
}
std::vector<int64_t> stridesOf(const FourBits &layout) { return {layout.strides().begin(), layout.strides().end()}; }
std::span<const std::byte> bytesOf(const std::vector<float> &values) { return std::as_bytes(std::span(values)); }

std::vector<float> widened(const plan::PackedTensor &packed, const FourBits &layout) {
  const auto wide = plan::widenFourBits(std::as_bytes(std::span(packed.bytes)), packed.scaleBytes(), layout, plan::F32,
                                        bytesOf(packed.nested.numbers));
  std::vector<float> values;
  for (size_t i = 0; i < wide.size() / 4; ++i)
    values.push_back(static_cast<float>(plan::floatElement(wide.data(), plan::F32, i)));
  return values;
}
} // namespace

/// The first element is in the upper half of a byte; a number between two codes goes to the upper one above the
/// threshold only.
TEST(FourBits, Nf4IsThatOfBitsandbytes) {
  std::vector<float> values(32, 0.0F);
  values[0] = -1;
  values[1] = 1;
  values[2] = 0.03979014977812767F;
  values[3] = std::nextafter(values[2], 1.0F);
  const FourBits layout = layoutOf(FourBits::NF4, 32, {4, 8}, {0, 1});
  auto packed = plan::roundToFourBits(bytesOf(values), plan::F32, layout);
  ASSERT_TRUE(packed);
  EXPECT_EQ(packed->bytes[0], 0x0f);
  EXPECT_EQ(packed->bytes[1], 0x78);
  EXPECT_EQ(packed->bytes[2], 0x77);
  EXPECT_EQ(packed->scales, std::vector<float>{1});
  EXPECT_EQ(widened(*packed, layout)[3], plan::kNf4Numbers[8]);
  // Numbers of the code book times a scale keep their value.
  for (size_t i = 0; i < 16; ++i)
    values[i] = plan::kNf4Numbers[i] * 3;
  packed = plan::roundToFourBits(bytesOf(values), plan::F32, layout);
  EXPECT_EQ(widened(*packed, layout), values);
  for (size_t i = 0; i < plan::kNf4Thresholds.size(); ++i)
    EXPECT_FLOAT_EQ(plan::kNf4Thresholds[i], (plan::kNf4Numbers[i] + plan::kNf4Numbers[i + 1]) / 2);
  // Behind an odd number of elements, the last byte has the code of a 0.
  packed = plan::roundToFourBits(bytesOf({-1}), plan::F32, layoutOf(FourBits::NF4, 32, {1, 1}, {0, 1}));
  EXPECT_EQ(packed->bytes, std::vector<uint8_t>{0x07});
  // Zeros stay zeros, alone and beside numbers whose reciprocal is infinite.
  for (float other : {0.0F, std::numeric_limits<float>::denorm_min()}) {
    values.assign(32, 0.0F);
    values[3] = other;
    packed = plan::roundToFourBits(bytesOf(values), plan::F32, layout);
    EXPECT_EQ(packed->bytes[7], 0x77);
    EXPECT_FALSE(std::signbit(widened(*packed, layout)[7]));
  }
}

/// Bytes, codes and numbers of scales, and values are those of bitsandbytes 0.50.2: quantize_4bit of a matrix [90, 100]
/// in blocks of 32 with compress_statistics, and dequantize_4bit.
TEST(FourBits, NestedScalesAreThoseOfBitsandbytes) {
  std::vector<float> values;
  for (int i = 0; i < 9000; ++i)
    values.push_back(static_cast<float>(i * 7919 % 2003 - 1001) / 1024 * static_cast<float>(1 + i / 32 % 13));
  FourBits layout = layoutOf(FourBits::NF4, 32, {90, 100}, {0, 1});
  layout.set_nested(true);
  const auto packed = plan::roundToFourBits(bytesOf(values), plan::F32, layout);
  ASSERT_TRUE(packed);
  EXPECT_TRUE(packed->scales.empty());
  EXPECT_EQ(plan::scalesType(layout).dtype(), plan::U8);
  EXPECT_EQ(plan::nestedType(layout).dims(0), 3);
  EXPECT_EQ(std::vector<uint8_t>(packed->bytes.begin(), packed->bytes.begin() + 6),
            (std::vector<uint8_t>{15, 238, 221, 203, 169, 135}));
  EXPECT_EQ(packed->nested.numbers, (std::vector<float>{0x1.a9e94p+2F, 0x1.8296cp+2F, 0x1.8366cp+2F}));
  ASSERT_EQ(packed->nested.codes.size(), 282U);
  EXPECT_EQ(std::vector<uint8_t>(packed->nested.codes.begin(), packed->nested.codes.begin() + 14),
            (std::vector<uint8_t>{4, 15, 26, 37, 49, 59, 160, 196, 209, 215, 231, 241, 252, 4}));
  EXPECT_EQ(std::vector<uint8_t>(packed->nested.codes.end() - 8, packed->nested.codes.end()),
            (std::vector<uint8_t>{15, 27, 38, 50, 59, 162, 195, 60}));
  EXPECT_EQ(std::accumulate(packed->nested.codes.begin(), packed->nested.codes.end(), 0), 35998);
  const std::vector<float> scales = plan::widenScales(packed->scaleBytes(), bytesOf(packed->nested.numbers)),
                           wide = widened(*packed, layout);
  for (auto [i, scale] : {std::pair<size_t, float>{0, 0x1.fe49fp-1F}, {1, 0x1.ee58ap+0F}, {2, 0x1.6ec626p+1F},
                          {255, 0x1.126acap+3F}, {256, 0x1.333bbap+3F}, {281, 0x1.701a84p+2F}})
    EXPECT_EQ(scales[i], scale) << i;
  for (auto [i, value] : {std::pair<size_t, float>{0, -0x1.fe49fp-1F}, {1, 0x1.fe49fp-1F}, {31, 0x1.487bc8p-3F},
                          {32, 0.0F}, {4000, -0x1.be5ec2p+1F}, {8999, -0x1.701a84p+2F}})
    EXPECT_EQ(wide[i], value) << i;
  // Equal scales have no magnitude, and keep their value.
  const auto equal = plan::nestScales(std::vector<float>{0.25F, 0.25F});
  EXPECT_EQ(equal.numbers, (std::vector<float>{0.25F, 0}));
  EXPECT_EQ(plan::widenScales(std::as_bytes(std::span(equal.codes)), bytesOf(equal.numbers)),
            (std::vector<float>{0.25F, 0.25F}));
  for (auto change :
       {+[](FourBits &bad) { bad.set_code(FourBits::INT4); }, +[](FourBits &bad) { bad.mutable_grid(); }}) {
    FourBits bad = layout;
    change(bad);
    EXPECT_FALSE(plan::isWellFormed(bad)) << bad.ShortDebugString();
  }
}

/// A code is the number of thresholds that a number exceeds, beside each threshold and anywhere else.
TEST(FourBits, Nf4CountsThresholds) {
  std::vector<float> numbers = {-1, 1};
  for (float threshold : plan::kNf4Thresholds)
    for (float number : {std::nextafter(threshold, -1.0F), threshold, std::nextafter(threshold, 1.0F)})
      numbers.push_back(number);
  for (int i = -4096; i <= 4096; ++i)
    for (float number : {static_cast<float>(i) / 4096, std::nextafter(static_cast<float>(i) / 4096, 0.0F)})
      numbers.push_back(number);
  numbers.resize((numbers.size() + 31) / 32 * 32 + 32, 1.0F);
  std::vector<float> values;
  for (size_t i = 0; i < numbers.size(); ++i) { // each block of 32 has an element of magnitude 1
    if (values.size() % 32 == 0)
      values.push_back(1);
    values.push_back(numbers[i]);
  }
  values.resize(values.size() / 32 * 32);
  const FourBits layout = layoutOf(FourBits::NF4, 32, {1, static_cast<int64_t>(values.size())}, {0, 1});
  const auto packed = plan::roundToFourBits(bytesOf(values), plan::F32, layout);
  ASSERT_TRUE(packed);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto expected = std::count_if(plan::kNf4Thresholds.begin(), plan::kNf4Thresholds.end(),
                                        [&](float threshold) { return values[i] > threshold; });
    ASSERT_EQ(packed->bytes[i / 2] >> plan::bitOfCode(FourBits::NF4, i) & 15, expected) << values[i];
  }
  EXPECT_FALSE(plan::roundToFourBits(bytesOf(values), plan::F32, layoutOf(FourBits::NF4, 48, {1, 32}, {0, 1})));
}

/// The element of largest magnitude is −8 steps, whatever its sign; the first element is in the lower half of a byte.
TEST(FourBits, Int4RoundsToEven) {
  std::vector<float> values(32, 0.0F);
  values[0] = 8;
  values[1] = -8;
  values[2] = 2.5F;
  values[3] = 3.5F;
  const FourBits layout = layoutOf(FourBits::INT4, 32, {1, 32}, {0, 1});
  auto packed = plan::roundToFourBits(bytesOf(values), plan::F32, layout);
  ASSERT_TRUE(packed);
  EXPECT_EQ(packed->scales, std::vector<float>{1});
  EXPECT_EQ(packed->bytes[0], 0x0f); // 8 is clamped to 7
  EXPECT_EQ(packed->bytes[1], 0xca);
  EXPECT_EQ(packed->bytes[2], 0x88);
  values[1] = 0;
  packed = plan::roundToFourBits(bytesOf(values), plan::F32, layout);
  EXPECT_EQ(packed->scales, std::vector<float>{-1});
  EXPECT_EQ(widened(*packed, layout)[0], 8);
  packed = plan::roundToFourBits(bytesOf(std::vector<float>(32, 0.0F)), plan::F32, layout);
  EXPECT_EQ(packed->bytes[5], 0x88);
  EXPECT_FALSE(std::signbit(widened(*packed, layout)[5]));
}

/// Blocks of NF4 run through the whole matrix, those of INT4 start anew with each row; a matrix that is stored
/// transposed has the same bytes.
TEST(FourBits, BlocksRunAlongRows) {
  EXPECT_EQ(stridesOf(layoutOf(FourBits::NF4, 64, {5, 7}, {0, 1})), (std::vector<int64_t>{7, 1}));
  EXPECT_EQ(stridesOf(layoutOf(FourBits::NF4, 64, {7, 5}, {1, 0})), (std::vector<int64_t>{1, 7}));
  EXPECT_EQ(stridesOf(layoutOf(FourBits::INT4, 32, {5, 33}, {0, 1})), (std::vector<int64_t>{64, 1}));
  EXPECT_EQ(stridesOf(layoutOf(FourBits::INT4, 32, {4, 3, 2, 2}, {0, 1, 1, 1})), (std::vector<int64_t>{32, 4, 2, 1}));
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (auto code : {FourBits::NF4, FourBits::INT4})
    for (auto [rows, columns] : {std::pair<int64_t, int64_t>{5, 7}, {3, 65}, {64, 64}, {1, 1}, {37, 129}}) {
      std::vector<float> values, turned(static_cast<size_t>(rows * columns));
      for (int64_t i = 0; i < rows * columns; ++i)
        values.push_back(normal(random));
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
          turned[static_cast<size_t>(j * rows + i)] = values[static_cast<size_t>(i * columns + j)];
      const FourBits layout = layoutOf(code, 32, {rows, columns}, {0, 1});
      const auto packed = plan::roundToFourBits(bytesOf(values), plan::F32, layout),
                 other = plan::roundToFourBits(bytesOf(turned), plan::F32, layoutOf(code, 32, {columns, rows}, {1, 0}));
      ASSERT_TRUE(packed && other);
      EXPECT_EQ(packed->bytes, other->bytes);
      EXPECT_EQ(packed->scales, other->scales);
      // Rounding what was rounded changes nothing.
      const auto again = plan::roundToFourBits(bytesOf(widened(*packed, layout)), plan::F32, layout);
      if (code == FourBits::NF4) {
        EXPECT_EQ(again->bytes, packed->bytes);
      }
    }
}

/// A matrix [3, 5] with blocks of two columns: scales and zero points are those of a grid [3, 3], and codes count from
/// −8, from 0 or in two's complement.
TEST(FourBits, GridsHaveZeroPoints) {
  FourBits layout;
  layout.mutable_dims()->Add(3);
  layout.mutable_dims()->Add(5);
  for (int64_t stride : {6, 1})
    layout.add_strides(stride);
  plan::BlockGrid &grid = *layout.mutable_grid();
  for (int64_t value : {1, 2})
    grid.add_blocks(value);
  for (int64_t stride : {3, 1})
    grid.add_scale_strides(stride);
  const std::vector<uint8_t> bytes = {0x21, 0x43, 0x95, 0xfe, 0x07, 0x88, 0x10, 0x32, 0x54};
  const std::vector<float> scales = {1, 2, 3, -1, 0.5F, 4, 10, 20, 30};
  auto read = [&](std::span<const std::byte> zeros) {
    EXPECT_TRUE(plan::isWellFormed(layout));
    const auto wide = plan::widenFourBits(std::as_bytes(std::span(bytes)), bytesOf(scales), layout, plan::F32, zeros);
    std::vector<float> values;
    for (size_t i = 0; i < 15; ++i)
      values.push_back(static_cast<float>(plan::floatElement(wide.data(), plan::F32, i)));
    return values;
  };
  layout.set_code(FourBits::UINT4);
  EXPECT_EQ(read({}), (std::vector<float>{1, 2, 6, 8, 15, -14, -15, 3.5F, 0, 32, 0, 10, 40, 60, 120}));
  layout.set_code(FourBits::INT4);
  EXPECT_EQ(read({})[4], (5 - 8) * 3);
  layout.set_code(FourBits::SINT4);
  EXPECT_EQ(read({})[5], 2);
  // Zero points in codes, of which each row begins a byte, and in numbers.
  grid.set_zeros(plan::BlockGrid::CODES);
  EXPECT_FALSE(plan::isWellFormed(layout));
  for (int64_t stride : {4, 1})
    grid.add_zero_strides(stride);
  layout.set_code(FourBits::UINT4);
  EXPECT_EQ(plan::zeroCount(layout), 11U);
  const std::vector<uint8_t> zeros = {0x21, 0x03, 0x54, 0x06, 0x87, 0x09};
  EXPECT_EQ(read(std::as_bytes(std::span(zeros))),
            (std::vector<float>{0, 1, 2, 4, 6, -10, -11, 1, -2.5F, 8, -70, -60, -120, -100, -150}));
  EXPECT_EQ(read({}), std::vector<float>(15, 0.0F)) << "zero points are missing";
  grid.set_zeros(plan::BlockGrid::NUMBERS);
  grid.set_zero_strides(0, 3);
  EXPECT_EQ(read(bytesOf({0.5F, 0, 0, 0, 0, 0, 0, 0, 1}))[0], 0.5F);
  for (auto change :
       {+[](FourBits &bad) { bad.mutable_grid()->set_blocks(1, 0); },
        +[](FourBits &bad) { bad.mutable_grid()->add_blocks(1); },
        +[](FourBits &bad) { bad.mutable_grid()->set_scale_strides(0, -1); },
        +[](FourBits &bad) { bad.mutable_grid()->clear_zero_strides(); }, +[](FourBits &bad) { bad.set_block(32); },
        +[](FourBits &bad) { bad.set_code(FourBits::NF4); },
        +[](FourBits &bad) { bad.mutable_grid()->set_scale_strides(0, std::numeric_limits<int64_t>::max()); }}) {
    FourBits bad = layout;
    change(bad);
    EXPECT_FALSE(plan::isWellFormed(bad)) << bad.ShortDebugString();
  }
}

TEST(FourBits, RefusesWhatIsNotFiniteAndBadLayouts) {
  FourBits layout = layoutOf(FourBits::NF4, 32, {1, 2}, {0, 1});
  for (float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")})
    EXPECT_FALSE(plan::roundToFourBits(bytesOf({1, bad}), plan::F32, layout));
  EXPECT_FALSE(plan::roundToFourBits(bytesOf({1, 2, 3}), plan::F32, layout));
  layout.set_dims(0, std::numeric_limits<int64_t>::max());
  layout.set_strides(0, std::numeric_limits<int64_t>::max());
  EXPECT_FALSE(plan::codeCount(layout));
  layout.mutable_strides()->Clear();
  EXPECT_FALSE(plan::codeCount(layout));
}

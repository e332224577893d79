//===- FourBitGrids.h - random matrices in 4 and 8 bits with grids of scales -*- C++ -*-===//
#ifndef TCC_TEST_SUPPORT_FOURBITGRIDS_H
#define TCC_TEST_SUPPORT_FOURBITGRIDS_H

#include "runtime/plan/DType.h"
#include "runtime/plan/FourBits.h"

#include <random>
#include <vector>

namespace tcc::test {

/// A matrix [k, n] in 4 or 8 bits with a grid of blocks, and its bytes, scales and zero points.
struct GridMatrix {
  plan::FourBits layout;
  std::vector<uint8_t> bytes, zeroCodes;
  std::vector<float> scales, zeroNumbers;

  bool hasZeros() const { return layout.grid().zeros() != plan::BlockGrid::NONE; }
  const void *zeros() const {
    return zeroCodes.empty() ? static_cast<const void *>(zeroNumbers.data()) : zeroCodes.data();
  }
  std::vector<std::byte> widened() const {
    return plan::widenFourBits(std::as_bytes(std::span(bytes)), std::as_bytes(std::span(scales)), layout, plan::F32,
                               zeroCodes.empty() ? std::as_bytes(std::span(zeroNumbers))
                                                 : std::as_bytes(std::span(zeroCodes)));
  }
};

/// Draws codes along K (MatMulNBits) or along N (DequantizeLinear), blocks along either, one scale for each row, column
/// or matrix, and each kind of zero points; or bytes, which have rows without padding, no zero points, and blocks of
/// one index or all.
inline GridMatrix randomGrid(std::mt19937 &random, int64_t k, int64_t n) {
  auto draw = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  GridMatrix matrix;
  plan::FourBits &layout = matrix.layout;
  plan::BlockGrid &grid = *layout.mutable_grid();
  layout.set_code(static_cast<plan::FourBits::Code>(draw(plan::FourBits::INT4, plan::FourBits::INT8)));
  const bool alongK = draw(0, 1) != 0, bytes = layout.code() == plan::FourBits::INT8;
  const int64_t block = int64_t(1) << draw(2, 7), row = ((alongK ? k : n) + block - 1) / block * block;
  for (int64_t extent : {k, n})
    layout.add_dims(extent);
  const bool padded = !bytes && draw(0, 1) != 0;
  for (int64_t stride : {alongK ? int64_t(1) : padded ? row : n, !alongK ? int64_t(1) : bytes ? k : row})
    layout.add_strides(stride);
  const int64_t choice = draw(0, 4);
  const int64_t blocks[][2] = {{block, 1}, {block, 1}, {1, block}, {k, 1}, {k, n}};
  const int64_t whole[][2] = {{1, n}, {1, n}, {1, 1}, {k, 1}, {k, n}};
  for (int64_t extent : bytes ? whole[choice] : blocks[choice])
    grid.add_blocks(extent);
  const int64_t counts[] = {(k - 1) / grid.blocks(0) + 1, (n - 1) / grid.blocks(1) + 1};
  auto place = [&](auto *strides, bool even) {
    const bool turned = draw(0, 1) != 0; // K is the inner dimension
    const int64_t inner = counts[turned ? 0 : 1], pitch = even ? (inner + 1) / 2 * 2 : inner;
    strides->Add(counts[0] == 1 ? 0 : turned ? 1 : pitch);
    strides->Add(counts[1] == 1 ? 0 : turned ? pitch : 1);
  };
  place(grid.mutable_scale_strides(), false);
  if (!bytes)
    grid.set_zeros(static_cast<plan::BlockGrid::Zeros>(draw(plan::BlockGrid::NONE, plan::BlockGrid::NUMBERS)));
  if (matrix.hasZeros())
    place(grid.mutable_zero_strides(), draw(0, 1) != 0);
  auto fill = [&](auto &values, int64_t count, auto make) {
    for (int64_t i = 0; i < count; ++i)
      values.push_back(make());
  };
  auto byte = [&] { return static_cast<uint8_t>(draw(0, 255)); };
  auto number = [&] { return std::uniform_real_distribution<float>(-2, 2)(random); };
  fill(matrix.bytes, plan::bytesType(layout).dims(0), byte);
  fill(matrix.scales, plan::scalesType(layout).dims(0), number);
  if (grid.zeros() == plan::BlockGrid::CODES)
    fill(matrix.zeroCodes, plan::zerosType(layout).dims(0), byte);
  if (grid.zeros() == plan::BlockGrid::NUMBERS)
    fill(matrix.zeroNumbers, plan::zerosType(layout).dims(0), number);
  return matrix;
}

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_FOURBITGRIDS_H

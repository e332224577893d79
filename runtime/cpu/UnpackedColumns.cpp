//===- UnpackedColumns.cpp - panels of a matrix in 4 bits -----------------===//
//
// A run of codes along a row of the stored matrix is unpacked a register at a time: the numbers that codes stand for
// are a table in registers. Runs that begin in the middle of a byte, or end inside a register or a block, go code by
// code.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/UnpackedColumns.h"

#include "runtime/cpu/Vectors.h"

namespace tcc::runtime::packed::TCC_LEVEL {

namespace {
TCC_INLINE float numberAt(const CodeLayout &layout, const uint8_t *codes, int64_t at) {
  const unsigned bits = (at % 2 == 0) == layout.upperFirst ? 4 : 0;
  return layout.numbers[codes[at / 2] >> bits & 15];
}

/// Up to kLanes elements from code `number` on; other lanes are zero.
TCC_INLINE Words unpackRun(const CodeSource &source, int64_t number, int64_t count) {
  const CodeLayout &layout = source.layout;
  const int64_t block = number >> layout.blockBits;
  if (count >= kLanes && number % 2 == 0 && (number + kLanes - 1) >> layout.blockBits == block)
    return unpackCodes(source.bytes + number / 2, layout.upperFirst, layout.numbers, source.scales[block]);
  alignas(64) float few[kLanes] = {};
  for (int64_t i = 0; i < std::min(count, kLanes); ++i)
    few[i] = numberAt(layout, source.bytes, number + i) * source.scales[(number + i) >> layout.blockBits];
  return load(few);
}

/// One element of a matrix whose scales are those of a grid.
TCC_INLINE float elementAt(const CodeSource &source, const CodeGrid &grid, int64_t k, int64_t column) {
  const CodeLayout &layout = source.layout;
  const int64_t kBlock = k / grid.kBlock, columnBlock = column / grid.columnBlock,
                zero = kBlock * grid.kZero + columnBlock * grid.columnZero;
  float number = numberAt(layout, source.bytes, k * layout.kStride + column * layout.columnStride);
  if (grid.zeros == CodeGrid::Zeros::Codes)
    number -= numberAt(layout, static_cast<const uint8_t *>(source.zeros), zero);
  else if (grid.zeros == CodeGrid::Zeros::Numbers)
    number -= static_cast<const float *>(source.zeros)[zero];
  return number * source.scales[kBlock * grid.kScale + columnBlock * grid.columnScale];
}

/// The same word in all lanes.
TCC_INLINE Floats all(float value) { return broadcastFloat(&value); }

/// Up to kLanes elements of one column (alongK) or of one index of K, whose codes are adjacent; other lanes are zero.
template <bool alongK>
TCC_INLINE Words unpackRun(const CodeSource &source, const CodeGrid &grid, int64_t k, int64_t column, int64_t count) {
  const CodeLayout &layout = source.layout;
  const int64_t number = k * layout.kStride + column * layout.columnStride;
  const int64_t at = alongK ? k : column, block = alongK ? grid.kBlock : grid.columnBlock, first = at / block;
  const bool together = at - first * block + kLanes <= block; // one scale for all lanes
  const bool apart = block == 1 && (alongK ? grid.kScale : grid.columnScale) == 1 &&
                     (grid.zeros == CodeGrid::Zeros::None || (alongK ? grid.kZero : grid.columnZero) == 1); // one each
  if (count >= kLanes && number % 2 == 0 && (together || apart)) {
    const int64_t kBlock = k / grid.kBlock, columnBlock = column / grid.columnBlock,
                  scale = kBlock * grid.kScale + columnBlock * grid.columnScale,
                  zero = kBlock * grid.kZero + columnBlock * grid.columnZero;
    const auto *codes = static_cast<const uint8_t *>(source.zeros);
    const auto *numbers = static_cast<const float *>(source.zeros);
    Floats found = asFloats(unpackCodes(source.bytes + number / 2, layout.upperFirst, layout.numbers, 1.0F));
    if (grid.zeros == CodeGrid::Zeros::Numbers)
      found = found - (together ? all(numbers[zero]) : asFloats(load(numbers + zero)));
    else if (grid.zeros == CodeGrid::Zeros::Codes && together)
      found = found - all(numberAt(layout, codes, zero));
    else if (grid.zeros == CodeGrid::Zeros::Codes && zero % 2 == 0)
      found = found - asFloats(unpackCodes(codes + zero / 2, layout.upperFirst, layout.numbers, 1.0F));
    else if (grid.zeros == CodeGrid::Zeros::Codes) {
      alignas(64) float few[kLanes];
      for (int64_t i = 0; i < kLanes; ++i)
        few[i] = numberAt(layout, codes, zero + i);
      found = found - asFloats(load(few));
    }
    return asWords(found * (together ? all(source.scales[scale]) : asFloats(load(source.scales + scale))));
  }
  alignas(64) float few[kLanes] = {};
  for (int64_t i = 0; i < std::min(count, kLanes); ++i)
    few[i] = elementAt(source, grid, alongK ? k + i : k, alongK ? column : column + i);
  return load(few);
}

/// Packs columns by run(k, column, count), which gives the words of a row of the stored matrix.
template <typename Run>
TCC_INLINE void unpackRuns(uint32_t *to, const CodeSource &source, int64_t columns, int64_t k, const Run &run) {
  const int64_t stride = (columns + kVector - 1) / kVector * kVector;
  if (source.layout.columnStride == 1) {
    for (int64_t w = 0; w < k; ++w, to += stride)
      for (int64_t lane = 0; lane < stride; lane += kLanes)
        store(to + lane, run(source.k + w, source.column + lane, columns - lane));
    return;
  }
  for (int64_t lane = 0; lane < stride; lane += kLanes)
    for (int64_t w = 0; w < k; w += kLanes) {
      Words row[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i)
        row[i] = lane + i < columns ? run(source.k + w, source.column + lane + i, k - w) : zeroWords();
      storeTurned<false>(row, to + w * stride + lane, stride, k - w);
    }
}

void unpackColumns(uint32_t *to, const CodeSource &source, int64_t columns, int64_t k) {
  const CodeLayout &layout = source.layout;
  if (!layout.grid)
    return unpackRuns(
        to, source, columns, k, [&](int64_t at, int64_t column, int64_t count) __attribute__((always_inline)) {
          return unpackRun(source, at * layout.kStride + column * layout.columnStride, count);
        });
  const CodeGrid grid = *layout.grid;
  if (layout.columnStride == 1)
    return unpackRuns(
        to, source, columns, k, [&](int64_t at, int64_t column, int64_t count) __attribute__((always_inline)) {
          return unpackRun<false>(source, grid, at, column, count);
        });
  unpackRuns(
      to, source, columns, k, [&](int64_t at, int64_t column, int64_t count) __attribute__((always_inline)) {
        return unpackRun<true>(source, grid, at, column, count);
      });
}
} // namespace

const UnpackKernels kUnpack = {unpackColumns};

} // namespace tcc::runtime::packed::TCC_LEVEL

TCC_LEVEL_END

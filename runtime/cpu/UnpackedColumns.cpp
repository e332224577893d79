//===- UnpackedColumns.cpp - panels of a matrix in 4 or 8 bits ------------===//
//
// A run of codes along a row of the stored matrix is unpacked a register at a time: the numbers that codes stand for
// are a table in registers. Pairs of bf16 along a row look up a table of the block's sixteen values, rounded already;
// of a matrix whose blocks are a grid, they are rounded after they are unpacked. Runs that begin in the middle of a
// byte, or end inside a register or a block, go code by code.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/UnpackedColumns.h"

#include "runtime/cpu/Vectors.h"
#include "runtime/plan/DynamicMap.h"

namespace tcc::runtime::packed::TCC_LEVEL {

namespace {
TCC_INLINE float numberAt(const CodeLayout &layout, const uint8_t *codes, int64_t at) {
  const unsigned bits = (at % 2 == 0) == layout.upperFirst ? 4 : 0;
  return layout.numbers[codes[at / 2] >> bits & 15];
}

/// The same word in all lanes.
TCC_INLINE Floats all(float value) { return broadcastFloat(&value); }

/// Values of a matrix whose blocks are runs of codes.
template <bool Nested> struct RunsOfBlocks {
  const CodeSource &source;

  TCC_INLINE float scaleOf(int64_t block) const {
    if constexpr (Nested) {
      const auto *numbers = static_cast<const float *>(source.rest);
      const float number = source.layout.scaleNumbers[static_cast<const uint8_t *>(source.scales)[block]];
      return number * numbers[1 + block / plan::kDynamicBlock] + numbers[0];
    }
    return static_cast<const float *>(source.scales)[block];
  }
  TCC_INLINE int64_t numberOf(int64_t k, int64_t column) const {
    return k * source.layout.kStride + column * source.layout.columnStride;
  }
  /// True if `wanted` codes from code `number` on begin with a byte and share a scale.
  TCC_INLINE bool isRun(int64_t number, int64_t wanted) const {
    const int blockBits = source.layout.blockBits;
    return number % 2 == 0 && (number + wanted - 1) >> blockBits == number >> blockBits;
  }

  /// Up to kLanes values, whose codes are adjacent, as f32; other lanes are zero.
  TCC_INLINE Words run(int64_t k, int64_t column, int64_t count) const {
    const CodeLayout &layout = source.layout;
    const int64_t number = numberOf(k, column);
    if (count >= kLanes && isRun(number, kLanes))
      return unpackCodes(source.bytes + number / 2, layout.upperFirst, layout.numbers,
                         scaleOf(number >> layout.blockBits));
    alignas(64) float few[kLanes] = {};
    for (int64_t i = 0; i < std::min(count, kLanes); ++i)
      few[i] = numberAt(layout, source.bytes, number + i) * scaleOf((number + i) >> layout.blockBits);
    return load(few);
  }

  /// Up to kLanes pairs along K, of `count` elements.
  template <Elements E> TCC_INLINE Words pairs(int64_t k, int64_t column, int64_t count) const {
    const CodeLayout &layout = source.layout;
    const int64_t number = numberOf(k, column);
    if (count >= 2 * kLanes && isRun(number, 2 * kLanes))
      return unpackPairs<E>(source.bytes + number / 2, layout.upperFirst, layout.numbers,
                            scaleOf(number >> layout.blockBits));
    return pairsAlong<E>(run(k, column, count), run(k + kLanes, column, count - kLanes));
  }
};

/// Values of a matrix whose blocks are a grid, and whose codes are adjacent along K or along the columns.
template <bool alongK> struct RunsOfGrid {
  const CodeSource &source;
  const CodeGrid &grid;
  const float *scales = static_cast<const float *>(source.scales);

  TCC_INLINE float elementAt(int64_t k, int64_t column) const {
    const CodeLayout &layout = source.layout;
    const int64_t kBlock = k / grid.kBlock, columnBlock = column / grid.columnBlock,
                  zero = kBlock * grid.kZero + columnBlock * grid.columnZero;
    float number = numberAt(layout, source.bytes, k * layout.kStride + column * layout.columnStride);
    if (grid.zeros == CodeGrid::Zeros::Codes)
      number -= numberAt(layout, static_cast<const uint8_t *>(source.rest), zero);
    else if (grid.zeros == CodeGrid::Zeros::Numbers)
      number -= static_cast<const float *>(source.rest)[zero];
    return number * scales[kBlock * grid.kScale + columnBlock * grid.columnScale];
  }

  /// As RunsOfBlocks::run.
  TCC_INLINE Words run(int64_t k, int64_t column, int64_t count) const {
    const CodeLayout &layout = source.layout;
    const int64_t number = k * layout.kStride + column * layout.columnStride;
    const int64_t at = alongK ? k : column, block = alongK ? grid.kBlock : grid.columnBlock, first = at / block;
    const bool together = at - first * block + kLanes <= block; // one scale for all lanes
    const bool apart =
        block == 1 && (alongK ? grid.kScale : grid.columnScale) == 1 &&
        (grid.zeros == CodeGrid::Zeros::None || (alongK ? grid.kZero : grid.columnZero) == 1); // one each
    if (count >= kLanes && number % 2 == 0 && (together || apart)) {
      const int64_t kBlock = k / grid.kBlock, columnBlock = column / grid.columnBlock,
                    scale = kBlock * grid.kScale + columnBlock * grid.columnScale,
                    zero = kBlock * grid.kZero + columnBlock * grid.columnZero;
      const auto *codes = static_cast<const uint8_t *>(source.rest);
      const auto *numbers = static_cast<const float *>(source.rest);
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
      return asWords(found * (together ? all(scales[scale]) : asFloats(load(scales + scale))));
    }
    alignas(64) float few[kLanes] = {};
    for (int64_t i = 0; i < std::min(count, kLanes); ++i)
      few[i] = elementAt(alongK ? k + i : k, alongK ? column : column + i);
    return load(few);
  }

  /// As RunsOfBlocks::pairs.
  template <Elements E> TCC_INLINE Words pairs(int64_t k, int64_t column, int64_t count) const {
    return pairsAlong<E>(run(k, column, count), run(k + kLanes, column, count - kLanes));
  }
};

/// Values of a matrix in 8 bits, whose elements are adjacent along K or along the columns. Each index along a dimension
/// has its own scale, or all share one.
template <bool alongK> struct RunsOfBytes {
  const CodeSource &source;
  const CodeGrid &grid;

  /// As RunsOfBlocks::run.
  TCC_INLINE Words run(int64_t k, int64_t column, int64_t count) const {
    const auto *bytes = reinterpret_cast<const int8_t *>(source.bytes) + k * source.layout.kStride +
                        column * source.layout.columnStride;
    const float *scales =
        static_cast<const float *>(source.scales) + k * grid.kScale + column * grid.columnScale;
    const int64_t apart = alongK ? grid.kScale : grid.columnScale;
    if (count >= kLanes && apart <= 1)
      return asWords(widenBytes(bytes) * (apart == 0 ? all(*scales) : asFloats(load(scales))));
    alignas(64) float few[kLanes] = {};
    for (int64_t i = 0; i < std::min(count, kLanes); ++i)
      few[i] = static_cast<float>(bytes[i]) * scales[i * apart];
    return load(few);
  }

  /// As RunsOfBlocks::pairs.
  template <Elements E> TCC_INLINE Words pairs(int64_t k, int64_t column, int64_t count) const {
    return pairsAlong<E>(run(k, column, count), run(k + kLanes, column, count - kLanes));
  }
};

/// The words of `lanes` adjacent columns; `left` elements of K are left.
template <Elements E, typename Runs>
TCC_INLINE Words unpackAcross(const Runs &runs, int64_t k, int64_t column, int64_t lanes, int64_t left) {
  const Words values = runs.run(k, column, lanes);
  if constexpr (isDotted(E))
    return pairsOf<E>(values, left < 2 ? zeroWords() : runs.run(k + 1, column, lanes));
  else
    return E == Elements::WideRounded ? roundedWide(asFloats(values)) : values;
}

/// Up to kLanes words along K; `left` elements are left.
template <Elements E, typename Runs>
TCC_INLINE Words unpackAlong(const Runs &runs, int64_t k, int64_t column, int64_t left) {
  if constexpr (isDotted(E)) {
    return runs.template pairs<E>(k, column, left);
  } else {
    const Words values = runs.run(k, column, left);
    return E == Elements::WideRounded ? roundedWide(asFloats(values)) : values;
  }
}

template <Elements E, typename Runs>
TCC_INLINE void unpackRuns(uint32_t *to, const CodeSource &source, const Runs &runs, int64_t columns, int64_t k) {
  constexpr int64_t perWord = elementsOfWord(E);
  const int64_t stride = (columns + kVector - 1) / kVector * kVector, words = wordsOf(k, E);
  if (source.layout.columnStride == 1) {
    for (int64_t w = 0; w < words; ++w, to += stride)
      for (int64_t lane = 0; lane < stride; lane += kLanes)
        store(to + lane,
              unpackAcross<E>(runs, source.k + w * perWord, source.column + lane, columns - lane, k - w * perWord));
    return;
  }
  for (int64_t lane = 0; lane < stride; lane += kLanes)
    for (int64_t w = 0; w < words; w += kLanes) {
      Words row[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i)
        row[i] = lane + i < columns
                     ? unpackAlong<E>(runs, source.k + w * perWord, source.column + lane + i, k - w * perWord)
                     : zeroWords();
      storeTurned<false>(row, to + w * stride + lane, stride, words - w);
    }
}

template <Elements E> void unpackColumnsAs(uint32_t *to, const CodeSource &source, int64_t columns, int64_t k) {
  const CodeLayout &layout = source.layout;
  if (!layout.grid && layout.scaleNumbers)
    return unpackRuns<E>(to, source, RunsOfBlocks<true>{source}, columns, k);
  if (!layout.grid)
    return unpackRuns<E>(to, source, RunsOfBlocks<false>{source}, columns, k);
  const CodeGrid grid = *layout.grid;
  if (!layout.numbers && layout.columnStride == 1)
    unpackRuns<E>(to, source, RunsOfBytes<false>{source, grid}, columns, k);
  else if (!layout.numbers)
    unpackRuns<E>(to, source, RunsOfBytes<true>{source, grid}, columns, k);
  else if (layout.columnStride == 1)
    unpackRuns<E>(to, source, RunsOfGrid<false>{source, grid}, columns, k);
  else
    unpackRuns<E>(to, source, RunsOfGrid<true>{source, grid}, columns, k);
}

void unpackColumns(uint32_t *to, const CodeSource &source, Elements elements, int64_t columns, int64_t k) {
  switch (elements) {
  case Elements::F32:
    return unpackColumnsAs<Elements::F32>(to, source, columns, k);
  case Elements::WideRounded:
    return unpackColumnsAs<Elements::WideRounded>(to, source, columns, k);
  case Elements::Rounded:
    if constexpr (kHasDots)
      return unpackColumnsAs<(kHasDots ? Elements::Rounded : Elements::F32)>(to, source, columns, k);
    break;
  case Elements::Bf16:
  case Elements::WideBf16:
    break;
  }
  __builtin_unreachable(); // an unpacked value is f32 before it is rounded
}
} // namespace

const UnpackKernels kUnpack = {unpackColumns};

} // namespace tcc::runtime::packed::TCC_LEVEL

TCC_LEVEL_END

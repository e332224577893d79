//===- PixelProduct.cpp - the gradient of few weights from pixels in place ===//
#include "runtime/cpu/PixelProduct.h"

#include <array>
#include <utility>

#include "runtime/cpu/Vectors.h"

namespace tcc::runtime::packed::TCC_LEVEL {

namespace {
/// Rows times vectors of columns.
template <int Rows, int Vectors, bool Narrow>
void multiplyBlock(const PixelBlock &block, int64_t row0, int64_t column, int64_t columns) {
  constexpr int64_t size = Narrow ? 2 : 4;
  Floats sums[Rows][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j)
      sums[i][j] = zero();
  const Lanes last = firstLanes(columns - column - (Vectors - 1) * kLanes);
  for (const PixelLine *line = block.lines; line < block.lines + block.lineCount; ++line) {
    const char *gradient = block.gradient + line->gradient + column * size, *row[Rows];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
      row[i] = block.source + line->source + block.sourceAt[row0 + i];
    for (int64_t pixel = 0, at = 0; pixel < line->count;
         ++pixel, gradient += block.gradientPitch, at += block.sourcePitch) {
      Floats right[Vectors];
#pragma GCC unroll 3
      for (int j = 0; j < Vectors; ++j) {
        const Lanes lanes = j + 1 < Vectors ? allLanes() : last;
        if constexpr (Narrow)
          right[j] = asFloats(loadWide(gradient + j * kLanes * size, lanes));
        else
          right[j] = asFloats(load(gradient + j * kLanes * size, lanes));
      }
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) {
        const Floats left = broadcastFloat(row[i] + at);
#pragma GCC unroll 3
        for (int j = 0; j < Vectors; ++j)
          sums[i][j] = multiplyAdd(sums[i][j], left, right[j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j)
      storeSums(block.sums + (row0 + i) * block.sumsPitch + column + j * kLanes, j + 1 < Vectors ? allLanes() : last,
                sums[i][j], block.adds ? Store::Add : Store::Overwrite);
}

using MultiplyBlock = void (*)(const PixelBlock &, int64_t, int64_t, int64_t);
template <int Rows, int Vectors, bool Narrow> constexpr MultiplyBlock blockOf() {
  if constexpr (Rows > kMostRows[Vectors - 1])
    return nullptr;
  else
    return multiplyBlock<Rows, Vectors, Narrow>;
}
using Table = std::array<MultiplyBlock, kRows * kBlockVectors>;
template <bool Narrow, int... I> constexpr Table tableOf(std::integer_sequence<int, I...>) {
  return {blockOf<I / kBlockVectors + 1, I % kBlockVectors + 1, Narrow>()...};
}
constexpr auto kIndices = std::make_integer_sequence<int, kRows * kBlockVectors>();
constexpr Table kTables[2] = {tableOf<false>(kIndices), tableOf<true>(kIndices)};

void multiplyPixels(int64_t rows, int64_t columns, const PixelBlock &block) {
  const int64_t vectors = (columns + kLanes - 1) / kLanes;
  for (int64_t vector = 0, group = 0; vector < vectors; vector += group) {
    group = std::min<int64_t>(vectors - vector, kBlockVectors);
    for (int64_t row = 0, count = 0; row < rows; row += count) {
      count = firstPart(rows - row, kMostRows[group - 1]);
      kTables[block.narrow ? 1 : 0][static_cast<size_t>((count - 1) * kBlockVectors + group - 1)](
          block, row, vector * kLanes, columns);
    }
  }
}
} // namespace

const PixelKernels kPixel = {multiplyPixels};

} // namespace tcc::runtime::packed::TCC_LEVEL

TCC_LEVEL_END

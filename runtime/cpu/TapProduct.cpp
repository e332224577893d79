//===- TapProduct.cpp - rows at any address times a panel of weights -----===//
//
// Like the product of panels in PackedProduct.cpp, but each row of the left operand has its own address.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/TapProduct.h"

#include <array>
#include <utility>

#include "runtime/cpu/Vectors.h"

namespace tcc::runtime::packed::TCC_LEVEL {

namespace {
/// Prefetches the lines of a result: stores leave the core in order, so those of a block would wait for their lines one
/// after another. (always_inline, because GCC considers a function that only prefetches to have no effect.)
TCC_INLINE void fetchResult(const TapBlock &block, int64_t rows, int64_t columns) {
  const int64_t size = block.store == Store::Round ? 2 : 4;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t at = 0; at < columns * size; at += 64)
      __builtin_prefetch(static_cast<const char *>(block.result) + block.resultAt[i] * size + at, 1);
}

/// Rows times vectors of a panel whose words of K are `apart` words of 32 bits apart.
template <int Rows, int Vectors, bool Dots>
void multiplyBlock(int64_t row0, int64_t column, int64_t columns, int64_t apart, const TapBlock &block) {
  Floats sums[Rows][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j)
      sums[i][j] = zero();
  const int64_t bStep = kBlockIsPanel ? Vectors * kLanes : apart;
  const uint32_t *b = block.panel + column;
  for (int64_t piece = 0; piece < block.pieceCount; ++piece) {
    const char *source = block.source + block.pieces[piece].at * block.elementBytes;
    const uint32_t *row[Rows];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
      row[i] = reinterpret_cast<const uint32_t *>(source + block.sourceAt[row0 + i]);
    for (int64_t word = 0, words = block.pieces[piece].words; word < words; ++word, b += bStep) {
      Factors right[Vectors];
#pragma GCC unroll 3
      for (int j = 0; j < Vectors; ++j)
        right[j] = loadFactors(b + j * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) {
        const Factors left = broadcast(row[i] + word);
#pragma GCC unroll 3
        for (int j = 0; j < Vectors; ++j)
          sums[i][j] = multiplyFactors<Dots>(sums[i][j], left, right[j]);
      }
    }
  }
  const Lanes last = firstLanes(columns - column - (Vectors - 1) * kLanes);
  const int64_t size = block.store == Store::Round ? 2 : 4;
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j) {
      const int64_t at = column + j * kLanes;
      const Lanes lanes = j + 1 < Vectors ? allLanes() : last;
      Floats sum = sums[i][j];
      if (block.before)
        sum = add(asFloats(load(block.before + block.beforeAt[row0 + i] + at, lanes)), sum);
      storeSums(static_cast<char *>(block.result) + (block.resultAt[row0 + i] + at) * size, lanes, sum, block.store);
    }
}

using MultiplyBlock = void (*)(int64_t, int64_t, int64_t, int64_t, const TapBlock &);
template <int Rows, int Vectors, bool Dots> constexpr MultiplyBlock blockOf() {
  if constexpr (Rows > kMostRows[Vectors - 1] || (Dots && !kHasDots))
    return nullptr;
  else
    return multiplyBlock<Rows, Vectors, Dots>;
}
using Table = std::array<MultiplyBlock, kRows * kBlockVectors>;
template <bool Dots, int... I> constexpr Table tableOf(std::integer_sequence<int, I...>) {
  return {blockOf<I / kBlockVectors + 1, I % kBlockVectors + 1, Dots>()...};
}
constexpr auto kIndices = std::make_integer_sequence<int, kRows * kBlockVectors>();
constexpr Table kTables[2] = {tableOf<false>(kIndices), tableOf<true>(kIndices)};

void multiplyTaps(bool dots, int64_t rows, int64_t columns, const TapBlock &block) {
  if (kBlockIsPanel && block.isCold) // smaller blocks have fewer lines to wait for
    fetchResult(block, rows, columns);
  const int64_t apart = (columns + kVector - 1) / kVector * kVector, vectors = (columns + kLanes - 1) / kLanes;
  for (int64_t vector = 0, group = 0; vector < vectors; vector += group) {
    group = std::min<int64_t>(vectors - vector, kBlockVectors);
    for (int64_t row = 0, count = 0; row < rows; row += count) {
      count = firstPart(rows - row, kMostRows[group - 1]);
      kTables[dots ? 1 : 0][static_cast<size_t>((count - 1) * kBlockVectors + group - 1)](row, vector * kLanes, columns,
                                                                                         apart, block);
    }
  }
}
} // namespace

const TapKernels kTap = {multiplyTaps};

} // namespace tcc::runtime::packed::TCC_LEVEL

TCC_LEVEL_END

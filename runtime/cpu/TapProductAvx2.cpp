//===- TapProductAvx2.cpp - the same with AVX2 ---------------------------===//
#include "runtime/cpu/TapProduct.h"

#include "runtime/cpu/PackedWordsAvx2.h"

#include <algorithm>

namespace tcc::runtime::packed::avx2 {

namespace {
/// Rows times vectors of 8 words, of a panel whose words of K lie `apart`.
template <int Rows, int Vectors>
TCC_AVX2 void multiplyBlock(int64_t row0, int64_t column, int64_t columns, int64_t apart, const TapBlock &block) {
  __m256 sums[Rows][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j)
      sums[i][j] = _mm256_setzero_ps();
  const uint32_t *b = block.panel + column;
  for (int64_t piece = 0; piece < block.pieceCount; ++piece) {
    const char *source = block.source + block.pieces[piece].at * block.elementBytes;
    const float *row[Rows];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
      row[i] = reinterpret_cast<const float *>(source + block.sourceAt[row0 + i]);
    for (int64_t word = 0, words = block.pieces[piece].words; word < words; ++word, b += apart) {
      __m256 right[Vectors];
#pragma GCC unroll 3
      for (int j = 0; j < Vectors; ++j)
        right[j] = _mm256_loadu_ps(reinterpret_cast<const float *>(b) + j * kEight);
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) {
        __m256 left = _mm256_broadcast_ss(row[i] + word);
#pragma GCC unroll 3
        for (int j = 0; j < Vectors; ++j)
          sums[i][j] = _mm256_fmadd_ps(left, right[j], sums[i][j]);
      }
    }
  }
  const int64_t size = block.store == Store::Round ? 2 : 4;
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j) {
      const int64_t at = column + j * kEight, count = columns - at;
      __m256 sum = sums[i][j];
      if (block.before) {
        const float *before = block.before + block.beforeAt[row0 + i] + at;
        sum = _mm256_add_ps(count >= kEight ? _mm256_loadu_ps(before) : _mm256_maskload_ps(before, firstLanes(count)), sum);
      }
      storeSums(static_cast<char *>(block.result) + (block.resultAt[row0 + i] + at) * size, count, sum, block.store);
    }
}

using MultiplyBlock = void (*)(int64_t, int64_t, int64_t, int64_t, const TapBlock &);
constexpr MultiplyBlock kTable[kRows][kBlockVectors] = {
    {multiplyBlock<1, 1>, multiplyBlock<1, 2>, multiplyBlock<1, 3>},
    {multiplyBlock<2, 1>, multiplyBlock<2, 2>, multiplyBlock<2, 3>},
    {multiplyBlock<3, 1>, multiplyBlock<3, 2>, multiplyBlock<3, 3>},
    {multiplyBlock<4, 1>, multiplyBlock<4, 2>, multiplyBlock<4, 3>},
    {multiplyBlock<5, 1>, multiplyBlock<5, 2>, nullptr},
    {multiplyBlock<6, 1>, multiplyBlock<6, 2>, nullptr},
    {multiplyBlock<7, 1>, nullptr, nullptr},
    {multiplyBlock<8, 1>, nullptr, nullptr}};
} // namespace

void multiplyTaps(int64_t rows, int64_t columns, const TapBlock &block) {
  const int64_t apart = (columns + kVector - 1) / kVector * kVector, vectors = (columns + kEight - 1) / kEight;
  for (int64_t vector = 0, group = 0; vector < vectors; vector += group) {
    group = std::min(vectors - vector, kBlockVectors);
    const int64_t mostRows = group == 3 ? kBlockRows : group == 2 ? 6 : kRows;
    for (int64_t row = 0, count = 0; row < rows; row += count) {
      count = firstPart(rows - row, mostRows);
      kTable[count - 1][group - 1](row, vector * kEight, columns, apart, block);
    }
  }
}

} // namespace tcc::runtime::packed::avx2

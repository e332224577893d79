//===- PixelProductAvx2.cpp - the same with AVX2 -------------------------===//
#include "runtime/cpu/PixelProduct.h"

#include "runtime/cpu/PackedWordsAvx2.h"

#include <algorithm>

namespace tcc::runtime::packed::avx2 {

namespace {
/// Up to 8 elements as f32.
template <bool Narrow> TCC_AVX2 inline __m256 load(const char *from, int64_t count, __m256i lanes) {
  if constexpr (!Narrow)
    return count >= kEight ? _mm256_loadu_ps(reinterpret_cast<const float *>(from))
                           : _mm256_maskload_ps(reinterpret_cast<const float *>(from), lanes);
  alignas(16) uint16_t some[kEight] = {};
  if (count < kEight)
    std::memcpy(some, from, static_cast<size_t>(count) * 2);
  __m128i narrow = count >= kEight ? _mm_loadu_si128(reinterpret_cast<const __m128i *>(from))
                                   : _mm_load_si128(reinterpret_cast<const __m128i *>(some));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(narrow), 16));
}

/// Rows times vectors of 8 columns.
template <int Rows, int Vectors, bool Narrow>
TCC_AVX2 void multiplyBlock(const PixelBlock &block, int64_t row0, int64_t column, int64_t columns) {
  constexpr int64_t size = Narrow ? 2 : 4;
  __m256 sums[Rows][Vectors];
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j)
      sums[i][j] = _mm256_setzero_ps();
  const int64_t rest = columns - column - (Vectors - 1) * kEight;
  const __m256i last = firstLanes(rest);
  for (const PixelLine *line = block.lines; line < block.lines + block.lineCount; ++line) {
    const char *gradient = block.gradient + line->gradient + column * size, *row[Rows];
#pragma GCC unroll 6
    for (int i = 0; i < Rows; ++i)
      row[i] = block.source + line->source + block.sourceAt[row0 + i];
    for (int64_t pixel = 0, at = 0; pixel < line->count; ++pixel, gradient += block.gradientPitch, at += block.sourcePitch) {
      __m256 right[Vectors];
#pragma GCC unroll 3
      for (int j = 0; j < Vectors; ++j)
        right[j] = load<Narrow>(gradient + j * kEight * size, j + 1 < Vectors ? kEight : rest, last);
#pragma GCC unroll 6
      for (int i = 0; i < Rows; ++i) {
        const __m256 left = _mm256_broadcast_ss(reinterpret_cast<const float *>(row[i] + at));
#pragma GCC unroll 3
        for (int j = 0; j < Vectors; ++j)
          sums[i][j] = _mm256_fmadd_ps(left, right[j], sums[i][j]);
      }
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j) {
      const int64_t at = column + j * kEight;
      storeSums(reinterpret_cast<char *>(block.sums + (row0 + i) * block.sumsPitch + at), columns - at, sums[i][j],
                block.adds ? Store::Add : Store::Overwrite);
    }
}

using MultiplyBlock = void (*)(const PixelBlock &, int64_t, int64_t, int64_t);
constexpr int64_t kMostRows[kBlockVectors] = {8, 6, kBlockRows};
template <bool Narrow>
constexpr MultiplyBlock kTable[kRows][kBlockVectors] = {
    {multiplyBlock<1, 1, Narrow>, multiplyBlock<1, 2, Narrow>, multiplyBlock<1, 3, Narrow>},
    {multiplyBlock<2, 1, Narrow>, multiplyBlock<2, 2, Narrow>, multiplyBlock<2, 3, Narrow>},
    {multiplyBlock<3, 1, Narrow>, multiplyBlock<3, 2, Narrow>, multiplyBlock<3, 3, Narrow>},
    {multiplyBlock<4, 1, Narrow>, multiplyBlock<4, 2, Narrow>, multiplyBlock<4, 3, Narrow>},
    {multiplyBlock<5, 1, Narrow>, multiplyBlock<5, 2, Narrow>, nullptr},
    {multiplyBlock<6, 1, Narrow>, multiplyBlock<6, 2, Narrow>, nullptr},
    {multiplyBlock<7, 1, Narrow>, nullptr, nullptr},
    {multiplyBlock<8, 1, Narrow>, nullptr, nullptr}};
} // namespace

void multiplyPixels(int64_t rows, int64_t columns, const PixelBlock &block) {
  const int64_t vectors = (columns + kEight - 1) / kEight;
  for (int64_t vector = 0, group = 0; vector < vectors; vector += group) {
    group = std::min(vectors - vector, kBlockVectors);
    for (int64_t row = 0, count = 0; row < rows; row += count) {
      count = firstPart(rows - row, kMostRows[group - 1]);
      (block.narrow ? kTable<true> : kTable<false>)[count - 1][group - 1](block, row, vector * kEight, columns);
    }
  }
}

} // namespace tcc::runtime::packed::avx2

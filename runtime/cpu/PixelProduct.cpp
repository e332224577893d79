//===- PixelProduct.cpp - the gradient of few weights from pixels in place ===//
//
// With AVX-512; the same sums in the same order with AVX2 (PixelProductAvx2.cpp).
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/PixelProduct.h"

#include "runtime/cpu/PackedWords.h"
#include "runtime/cpu/calls/CpuLevel.h"

#include <array>
#include <utility>

namespace tcc::runtime::packed {

namespace {
template <int Rows, int Vectors, bool Narrow> TCC_AVX512 void multiply(int64_t columns, const PixelBlock &block) {
  __m512 sums[Rows][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j)
      sums[i][j] = _mm512_setzero_ps();
  const __mmask16 last = firstLanes(columns - (Vectors - 1) * kVector);
  for (const PixelLine *line = block.lines; line < block.lines + block.lineCount; ++line) {
    const char *gradient = block.gradient + line->gradient, *row[Rows];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
      row[i] = block.source + line->source + block.sourceAt[i];
    for (int64_t pixel = 0, at = 0; pixel < line->count; ++pixel, gradient += block.gradientPitch, at += block.sourcePitch) {
      __m512 right[Vectors];
#pragma GCC unroll 3
      for (int j = 0; j < Vectors; ++j) {
        const __mmask16 lanes = j + 1 < Vectors ? __mmask16(0xffff) : last;
        if constexpr (Narrow)
          right[j] = _mm512_castsi512_ps(wordsOfBf16(lanes, gradient + j * kVector * 2));
        else
          right[j] = _mm512_maskz_loadu_ps(lanes, gradient + j * kVector * 4);
      }
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) {
        const __m512 left = _mm512_set1_ps(*reinterpret_cast<const float *>(row[i] + at));
#pragma GCC unroll 3
        for (int j = 0; j < Vectors; ++j)
          sums[i][j] = _mm512_fmadd_ps(left, right[j], sums[i][j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j) {
      const __mmask16 lanes = j + 1 < Vectors ? __mmask16(0xffff) : last;
      float *to = block.sums + i * block.sumsPitch + j * kVector;
      _mm512_mask_storeu_ps(to, lanes,
                            block.adds ? _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, to), sums[i][j]) : sums[i][j]);
    }
}

using Multiply = void (*)(int64_t, const PixelBlock &);
using Table = std::array<Multiply, kRows * kVectors>;
template <int... I> constexpr std::array<Table, 2> tables(std::integer_sequence<int, I...>) {
  return {{{multiply<I / kVectors + 1, I % kVectors + 1, false>...}, {multiply<I / kVectors + 1, I % kVectors + 1, true>...}}};
}
constexpr auto kMultiply = tables(std::make_integer_sequence<int, kRows * kVectors>());
} // namespace

void multiplyPixels(int64_t rows, int64_t columns, const PixelBlock &block) {
  if (!cpuFeatures().avx512)
    return avx2::multiplyPixels(rows, columns, block);
  const int64_t vectors = (columns + kVector - 1) / kVector;
  kMultiply[block.narrow ? 1 : 0][static_cast<size_t>((rows - 1) * kVectors + vectors - 1)](columns, block);
}

} // namespace tcc::runtime::packed

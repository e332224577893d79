//===- TapProduct.cpp - rows at any address times a panel of weights -----===//
//
// Like the product of panels in PackedProduct.cpp, but each row of the left operand has its own address. With AVX-512;
// the same sums in the same order with AVX2 (TapProductAvx2.cpp).
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/TapProduct.h"

#include "runtime/cpu/PackedWords.h"
#include "runtime/cpu/calls/CpuLevel.h"

#include <array>
#include <utility>

#define TCC_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,prfchw,avx512bf16")))

namespace tcc::runtime::packed {

namespace {
template <int Rows, int Vectors>
TCC_AVX512 inline __attribute__((always_inline)) void finish(__m512 (&sums)[Rows][Vectors], int64_t columns,
                                                             const TapBlock &block) {
  __mmask16 last = firstLanes(columns - (Vectors - 1) * kVector);
  const int64_t size = block.store == Store::Round ? 2 : 4;
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j) {
      __mmask16 lanes = j + 1 < Vectors ? __mmask16(0xffff) : last;
      __m512 sum = sums[i][j];
      if (block.before)
        sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, block.before + block.beforeAt[i] + j * kVector), sum);
      storeSums(static_cast<char *>(block.result) + (block.resultAt[i] + j * kVector) * size, lanes, sum, block.store);
    }
}

/// Prefetches the lines of a result: stores leave the core in order, so those of a block would wait for their lines one
/// after another. (always_inline, because GCC considers a function that only prefetches to have no effect.)
TCC_AVX512 inline __attribute__((always_inline)) void fetchResult(const TapBlock &block, int64_t rows, int64_t columns) {
  const int64_t size = block.store == Store::Round ? 2 : 4;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t at = 0; at < columns * size; at += 64)
      __builtin_prefetch(static_cast<const char *>(block.result) + block.resultAt[i] * size + at, 1);
}

// One source, compiled for two instruction sets.
#define TCC_MULTIPLY_TAPS(NAME, TARGET, STEP)                                                                          \
  template <int Rows, int Vectors> TARGET void NAME(int64_t columns, const TapBlock &block) {                          \
    __m512 sums[Rows][Vectors];                                                                                        \
    _Pragma("GCC unroll 8") for (int i = 0; i < Rows; ++i) _Pragma("GCC unroll 3") for (int j = 0; j < Vectors; ++j)   \
        sums[i][j] = _mm512_setzero_ps();                                                                              \
    if (block.isCold)                                                                                                  \
      fetchResult(block, Rows, columns);                                                                               \
    const uint32_t *b = block.panel;                                                                                   \
    for (int64_t piece = 0; piece < block.pieceCount; ++piece) {                                                       \
      const char *source = block.source + block.pieces[piece].at * block.elementBytes;                                 \
      const uint32_t *row[Rows];                                                                                       \
      _Pragma("GCC unroll 8") for (int i = 0; i < Rows; ++i) row[i] =                                                  \
          reinterpret_cast<const uint32_t *>(source + block.sourceAt[i]);                                              \
      for (int64_t word = 0, words = block.pieces[piece].words; word < words; ++word) {                                \
        Words right[Vectors];                                                                                          \
        _Pragma("GCC unroll 3") for (int j = 0; j < Vectors; ++j) right[j] = _mm512_load_si512(b + j * kVector);       \
        _Pragma("GCC unroll 8") for (int i = 0; i < Rows; ++i) {                                                       \
          Words left = _mm512_set1_epi32(static_cast<int>(row[i][word]));                                              \
          _Pragma("GCC unroll 3") for (int j = 0; j < Vectors; ++j) sums[i][j] = STEP(sums[i][j], left, right[j]);     \
        }                                                                                                              \
        b += Vectors * kVector;                                                                                        \
      }                                                                                                                \
    }                                                                                                                  \
    finish<Rows, Vectors>(sums, columns, block);                                                                       \
  }
#define TCC_FMA(SUM, LEFT, RIGHT) _mm512_fmadd_ps(_mm512_castsi512_ps(LEFT), _mm512_castsi512_ps(RIGHT), SUM)
#define TCC_DOT(SUM, LEFT, RIGHT) _mm512_dpbf16_ps(SUM, (__m512bh)(LEFT), (__m512bh)(RIGHT))
TCC_MULTIPLY_TAPS(multiplyF32, TCC_AVX512, TCC_FMA)
TCC_MULTIPLY_TAPS(multiplyDots, TCC_AVX512_BF16, TCC_DOT)

using Multiply = void (*)(int64_t, const TapBlock &);
using Table = std::array<Multiply, kRows * kVectors>;
template <int... I> constexpr std::array<Table, 2> tables(std::integer_sequence<int, I...>) {
  return {{{multiplyF32<I / kVectors + 1, I % kVectors + 1>...}, {multiplyDots<I / kVectors + 1, I % kVectors + 1>...}}};
}
constexpr auto kMultiply = tables(std::make_integer_sequence<int, kRows * kVectors>());
} // namespace

void multiplyTaps(bool dots, int64_t rows, int64_t columns, const TapBlock &block) {
  if (!cpuFeatures().avx512)
    return avx2::multiplyTaps(rows, columns, block);
  int64_t vectors = (columns + kVector - 1) / kVector;
  kMultiply[dots ? 1 : 0][static_cast<size_t>((rows - 1) * kVectors + vectors - 1)](columns, block);
}

} // namespace tcc::runtime::packed

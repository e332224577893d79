//===- PlaneProduct.cpp - pixels of planes times few channels ------------===//
//
// With AVX-512; the same sums in the same order with AVX2 (PlaneProductAvx2.cpp).
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/PlaneProduct.h"

#include "runtime/cpu/PackedWords.h"
#include "runtime/cpu/calls/CpuLevel.h"

#include <algorithm>
#include <array>
#include <utility>

#define TCC_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,prfchw,avx512bf16")))

namespace tcc::runtime::packed {

namespace {
/// Registers of pixels for a number of channels: at most 24 sums; with few channels more pixels, to hide latency.
constexpr int mostVectors(int channels) { return channels <= 4 ? 6 : kVectors; }

/// The sum of 16 lanes: adds the two halves, then the halves of the result, and so on.
TCC_AVX512 inline float sumOfLanes(__m512 sums) {
  __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(sums), _mm512_extractf32x8_ps(sums, 1));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// One source, compiled for two instruction sets.
#define TCC_MULTIPLY_PLANES(NAME, TARGET, STEP)                                                                        \
  template <int Channels, int Vectors> TARGET void NAME(const PlaneBlock &block, int64_t first) {                      \
    __m512 sums[Channels][Vectors];                                                                                    \
    _Pragma("GCC unroll 8") for (int c = 0; c < Channels; ++c) _Pragma("GCC unroll 6") for (int j = 0; j < Vectors;    \
                                                                                            ++j) sums[c][j] =          \
        _mm512_setzero_ps();                                                                                           \
    const __mmask16 last = firstLanes(block.pixels - first - (Vectors - 1) * kVector);                                 \
    const uint32_t *weights = block.weights;                                                                           \
    for (int64_t word = 0; word < block.words; ++word, weights += block.weightPitch) {                                 \
      auto *from = reinterpret_cast<const uint32_t *>(block.source + block.places[word]) + first;                      \
      Words pixels[Vectors];                                                                                           \
      _Pragma("GCC unroll 6") for (int j = 0; j + 1 < Vectors; ++j) pixels[j] = _mm512_loadu_si512(from + j * kVector); \
      pixels[Vectors - 1] = _mm512_maskz_loadu_epi32(last, from + (Vectors - 1) * kVector);                            \
      _Pragma("GCC unroll 8") for (int c = 0; c < Channels; ++c) {                                                     \
        Words weight = _mm512_set1_epi32(static_cast<int>(weights[c]));                                                \
        _Pragma("GCC unroll 6") for (int j = 0; j < Vectors; ++j) sums[c][j] = STEP(sums[c][j], pixels[j], weight);    \
      }                                                                                                                \
    }                                                                                                                  \
    _Pragma("GCC unroll 8") for (int c = 0; c < Channels; ++c) _Pragma("GCC unroll 6") for (int j = 0; j < Vectors;    \
                                                                                            ++j) {                     \
      float *to = block.sums + c * block.sumsPitch + first + j * kVector;                                              \
      _mm512_storeu_ps(to, block.adds ? _mm512_add_ps(_mm512_loadu_ps(to), sums[c][j]) : sums[c][j]);                  \
    }                                                                                                                  \
  }                                                                                                                    \
  template <int Rows, int Columns> TARGET void NAME##Gradient(const PlaneGradient &block) {                            \
    __m512 sums[Rows][Columns];                                                                                        \
    _Pragma("GCC unroll 8") for (int i = 0; i < Rows; ++i) _Pragma("GCC unroll 3") for (int j = 0; j < Columns; ++j)   \
        sums[i][j] = _mm512_setzero_ps();                                                                              \
    const char *from[Columns];                                                                                         \
    _Pragma("GCC unroll 3") for (int j = 0; j < Columns; ++j) from[j] = block.source + block.places[j];                \
    for (int64_t word = 0; word < block.words; word += kVector) {                                                      \
      const Words valid = _mm512_load_si512(block.valid + word);                                                       \
      Words pixels[Columns];                                                                                           \
      _Pragma("GCC unroll 3") for (int j = 0; j < Columns; ++j) pixels[j] =                                            \
          _mm512_and_si512(valid, _mm512_loadu_si512(from[j] + word * 4));                                             \
      _Pragma("GCC unroll 8") for (int i = 0; i < Rows; ++i) {                                                         \
        Words gradient = _mm512_load_si512(block.gradient + i * block.gradientPitch + word);                           \
        _Pragma("GCC unroll 3") for (int j = 0; j < Columns; ++j) sums[i][j] = STEP(sums[i][j], pixels[j], gradient);  \
      }                                                                                                                \
    }                                                                                                                  \
    for (int i = 0; i < Rows; ++i)                                                                                     \
      for (int j = 0; j < Columns; ++j) {                                                                              \
        float *to = block.sums + i * block.sumsPitch + j, sum = sumOfLanes(sums[i][j]);                                \
        *to = block.adds ? *to + sum : sum;                                                                            \
      }                                                                                                                \
  }
#define TCC_FMA(SUM, LEFT, RIGHT) _mm512_fmadd_ps(_mm512_castsi512_ps(LEFT), _mm512_castsi512_ps(RIGHT), SUM)
#define TCC_DOT(SUM, LEFT, RIGHT) _mm512_dpbf16_ps(SUM, (__m512bh)(LEFT), (__m512bh)(RIGHT))
TCC_MULTIPLY_PLANES(planesF32, TCC_AVX512, TCC_FMA)
TCC_MULTIPLY_PLANES(planesDots, TCC_AVX512_BF16, TCC_DOT)

constexpr int kMostVectors = mostVectors(1);
using Multiply = void (*)(const PlaneBlock &, int64_t);
using Table = std::array<Multiply, kPlaneChannels * kMostVectors>;
template <int Channels, int Vectors> constexpr Multiply kernelOf(bool dots) {
  if constexpr (Vectors > mostVectors(Channels))
    return nullptr;
  else
    return dots ? planesDots<Channels, Vectors> : planesF32<Channels, Vectors>;
}
template <int... I> constexpr std::array<Table, 2> tables(std::integer_sequence<int, I...>) {
  return {{{kernelOf<I / kMostVectors + 1, I % kMostVectors + 1>(false)...},
           {kernelOf<I / kMostVectors + 1, I % kMostVectors + 1>(true)...}}};
}
constexpr auto kMultiply = tables(std::make_integer_sequence<int, kPlaneChannels * kMostVectors>());

using Gradient = void (*)(const PlaneGradient &);
using GradientTable = std::array<Gradient, kPlaneChannels * kPlaneColumns>;
template <int... I> constexpr std::array<GradientTable, 2> gradientTables(std::integer_sequence<int, I...>) {
  return {{{planesF32Gradient<I / kPlaneColumns + 1, I % kPlaneColumns + 1>...},
           {planesDotsGradient<I / kPlaneColumns + 1, I % kPlaneColumns + 1>...}}};
}
constexpr auto kGradient = gradientTables(std::make_integer_sequence<int, kPlaneChannels * kPlaneColumns>());

TCC_AVX512 void storePixels512(const float *sums, int64_t pitch, int64_t pixels, int64_t channels, char *to,
                               int64_t strideBytes, Store store) {
  const __mmask16 lanes = firstLanes(channels);
  for (int64_t i = 0; i < pixels; ++i)
    storeSums(to + i * strideBytes, lanes, _mm512_loadu_ps(sums + i * pitch), store);
}

TCC_AVX512 void copyLines512(const char *from, int64_t fromPitch, int64_t lines, int64_t bytes, char *to,
                             int64_t toPitch) {
  constexpr int64_t whole = 64;
  const int64_t most = (bytes - 1) / whole * whole; // the rest: at least an element
  const auto last = static_cast<__mmask32>(~uint64_t(0) >> (64 - (bytes - most) / 2));
  for (int64_t line = 0; line < lines; ++line, from += fromPitch, to += toPitch) {
    for (int64_t at = 0; at < most; at += whole)
      _mm512_storeu_si512(to + at, _mm512_loadu_si512(from + at));
    _mm512_mask_storeu_epi16(to + most, last, _mm512_maskz_loadu_epi16(last, from + most));
  }
}
} // namespace

void copyLines(const char *from, int64_t fromPitch, int64_t lines, int64_t bytes, char *to, int64_t toPitch) {
  if (!cpuFeatures().avx512)
    return avx2::copyLines(from, fromPitch, lines, bytes, to, toPitch);
  copyLines512(from, fromPitch, lines, bytes, to, toPitch);
}

void multiplyPlanes(bool dots, int64_t channels, const PlaneBlock &block) {
  if (!cpuFeatures().avx512)
    return avx2::multiplyPlanes(channels, block);
  const Multiply *kernels = kMultiply[dots ? 1 : 0].data() + (channels - 1) * kMostVectors;
  const int64_t most = mostVectors(static_cast<int>(channels)), vectors = (block.pixels + kVector - 1) / kVector;
  for (int64_t vector = 0, count = 0; vector < vectors; vector += count) {
    count = std::min(most, vectors - vector);
    kernels[count - 1](block, vector * kVector);
  }
}

void multiplyPlaneGradient(bool dots, int64_t rows, int64_t columns, const PlaneGradient &block) {
  if (!cpuFeatures().avx512)
    return avx2::multiplyPlaneGradient(rows, columns, block);
  kGradient[dots ? 1 : 0][static_cast<size_t>((rows - 1) * kPlaneColumns + columns - 1)](block);
}

void storePixels(const float *sums, int64_t pitch, int64_t pixels, int64_t channels, char *to, int64_t strideBytes,
                 Store store) {
  if (!cpuFeatures().avx512)
    return avx2::storePixels(sums, pitch, pixels, channels, to, strideBytes, store);
  storePixels512(sums, pitch, pixels, channels, to, strideBytes, store);
}

} // namespace tcc::runtime::packed

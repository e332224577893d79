//===- PlaneProductAvx2.cpp - the same with AVX2 -------------------------===//
#include "runtime/cpu/PlaneProduct.h"

#include "runtime/cpu/PackedWordsAvx2.h"

#include <algorithm>

namespace tcc::runtime::packed::avx2 {

namespace {
/// Channels times vectors of 8 pixels.
template <int Channels, int Vectors> TCC_AVX2 void multiplyBlock(const PlaneBlock &block, int64_t channel, int64_t first) {
  __m256 sums[Channels][Vectors];
#pragma GCC unroll 4
  for (int c = 0; c < Channels; ++c)
#pragma GCC unroll 6
    for (int j = 0; j < Vectors; ++j)
      sums[c][j] = _mm256_setzero_ps();
  const int64_t rest = block.pixels - first - (Vectors - 1) * kEight; // pixels of the last vector
  const __m256i last = firstLanes(rest);
  auto *weights = reinterpret_cast<const float *>(block.weights) + channel;
  for (int64_t word = 0; word < block.words; ++word, weights += block.weightPitch) {
    auto *from = reinterpret_cast<const float *>(block.source + block.places[word]) + first;
    __m256 pixels[Vectors];
#pragma GCC unroll 6
    for (int j = 0; j + 1 < Vectors; ++j)
      pixels[j] = _mm256_loadu_ps(from + j * kEight);
    const float *end = from + (Vectors - 1) * kEight;
    pixels[Vectors - 1] = rest >= kEight ? _mm256_loadu_ps(end) : _mm256_maskload_ps(end, last);
#pragma GCC unroll 4
    for (int c = 0; c < Channels; ++c) {
      __m256 weight = _mm256_broadcast_ss(weights + c);
#pragma GCC unroll 6
      for (int j = 0; j < Vectors; ++j)
        sums[c][j] = _mm256_fmadd_ps(pixels[j], weight, sums[c][j]);
    }
  }
#pragma GCC unroll 4
  for (int c = 0; c < Channels; ++c)
#pragma GCC unroll 6
    for (int j = 0; j < Vectors; ++j) {
      float *to = block.sums + (channel + c) * block.sumsPitch + first + j * kEight;
      _mm256_storeu_ps(to, block.adds ? _mm256_add_ps(_mm256_loadu_ps(to), sums[c][j]) : sums[c][j]);
    }
}

using MultiplyBlock = void (*)(const PlaneBlock &, int64_t, int64_t);
constexpr int64_t kChannels = 4;
constexpr MultiplyBlock kTable[kChannels][6] = {
    {multiplyBlock<1, 1>, multiplyBlock<1, 2>, multiplyBlock<1, 3>, multiplyBlock<1, 4>, multiplyBlock<1, 5>,
     multiplyBlock<1, 6>},
    {multiplyBlock<2, 1>, multiplyBlock<2, 2>, multiplyBlock<2, 3>, multiplyBlock<2, 4>, multiplyBlock<2, 5>},
    {multiplyBlock<3, 1>, multiplyBlock<3, 2>, multiplyBlock<3, 3>, multiplyBlock<3, 4>},
    {multiplyBlock<4, 1>, multiplyBlock<4, 2>, multiplyBlock<4, 3>}};
constexpr int64_t kMostVectors[kChannels] = {6, 5, 4, 3};

/// Lanes 0 to 7 and 8 to 15 of a sum of 16 lanes.
template <int Rows, int Columns>
TCC_AVX2 void gradientBlock(const PlaneGradient &block, int64_t row, int64_t column) {
  __m256 sums[Rows][Columns][2];
#pragma GCC unroll 2
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < Columns; ++j)
      sums[i][j][0] = sums[i][j][1] = _mm256_setzero_ps();
  auto *gradient = reinterpret_cast<const float *>(block.gradient) + row * block.gradientPitch;
  for (int64_t word = 0; word < block.words; word += kVector)
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const int64_t at = word + half * kEight;
      const __m256 valid = _mm256_load_ps(reinterpret_cast<const float *>(block.valid) + at);
      __m256 pixels[Columns];
#pragma GCC unroll 3
      for (int j = 0; j < Columns; ++j)
        pixels[j] = _mm256_and_ps(
            valid, _mm256_loadu_ps(reinterpret_cast<const float *>(block.source + block.places[column + j]) + at));
#pragma GCC unroll 2
      for (int i = 0; i < Rows; ++i) {
        __m256 right = _mm256_load_ps(gradient + i * block.gradientPitch + at);
#pragma GCC unroll 3
        for (int j = 0; j < Columns; ++j)
          sums[i][j][half] = _mm256_fmadd_ps(pixels[j], right, sums[i][j][half]);
      }
    }
  for (int i = 0; i < Rows; ++i)
    for (int j = 0; j < Columns; ++j) {
      __m256 eight = _mm256_add_ps(sums[i][j][0], sums[i][j][1]);
      __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
      __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
      float sum = _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
      float *to = block.sums + (row + i) * block.sumsPitch + column + j;
      *to = block.adds ? *to + sum : sum;
    }
}

using GradientBlock = void (*)(const PlaneGradient &, int64_t, int64_t);
constexpr int64_t kGradientRows = 2;
constexpr GradientBlock kGradientTable[kGradientRows][kPlaneColumns] = {
    {gradientBlock<1, 1>, gradientBlock<1, 2>, gradientBlock<1, 3>},
    {gradientBlock<2, 1>, gradientBlock<2, 2>, gradientBlock<2, 3>}};
} // namespace

void multiplyPlanes(int64_t channels, const PlaneBlock &block) {
  const int64_t vectors = (block.pixels + kEight - 1) / kEight;
  for (int64_t channel = 0, some = 0; channel < channels; channel += some) {
    some = firstPart(channels - channel, kChannels);
    for (int64_t vector = 0, count = 0; vector < vectors; vector += count) {
      count = std::min(kMostVectors[some - 1], vectors - vector);
      kTable[some - 1][count - 1](block, channel, vector * kEight);
    }
  }
}

void multiplyPlaneGradient(int64_t rows, int64_t columns, const PlaneGradient &block) {
  for (int64_t row = 0, count = 0; row < rows; row += count) {
    count = std::min(kGradientRows, rows - row);
    kGradientTable[count - 1][columns - 1](block, row, 0);
  }
}

TCC_AVX2 void copyLines(const char *from, int64_t fromPitch, int64_t lines, int64_t bytes, char *to, int64_t toPitch) {
  constexpr int64_t whole = 32;
  const int64_t most = bytes / whole * whole;
  for (int64_t line = 0; line < lines; ++line, from += fromPitch, to += toPitch) {
    for (int64_t at = 0; at < most; at += whole)
      _mm256_storeu_si256(reinterpret_cast<__m256i *>(to + at),
                          _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from + at)));
    for (int64_t at = most; at < bytes; at += 2)
      __builtin_memcpy(to + at, from + at, 2);
  }
}

TCC_AVX2 void storePixels(const float *sums, int64_t pitch, int64_t pixels, int64_t channels, char *to,
                          int64_t strideBytes, Store store) {
  const int64_t size = store == Store::Round ? 2 : 4;
  for (int64_t i = 0; i < pixels; ++i)
    for (int64_t c = 0; c < channels; c += kEight)
      storeSums(to + i * strideBytes + c * size, channels - c, _mm256_loadu_ps(sums + i * pitch + c), store);
}

} // namespace tcc::runtime::packed::avx2

//===- PlaneProduct.cpp - pixels of planes times few channels ------------===//
#include "runtime/cpu/PlaneProduct.h"

#include <array>
#include <cstring>
#include <utility>

#include "runtime/cpu/Vectors.h"

namespace tcc::runtime::packed::TCC_LEVEL {

namespace {
/// Channels times vectors of pixels.
template <int Channels, int Vectors, bool Dots>
void multiplyBlock(const PlaneBlock &block, int64_t channel, int64_t first) {
  Floats sums[Channels][Vectors];
#pragma GCC unroll 8
  for (int c = 0; c < Channels; ++c)
#pragma GCC unroll 6
    for (int j = 0; j < Vectors; ++j)
      sums[c][j] = zero();
  const Lanes last = firstLanes(block.pixels - first - (Vectors - 1) * kLanes);
  const uint32_t *weights = block.weights + channel;
  for (int64_t word = 0; word < block.words; ++word, weights += block.weightPitch) {
    auto *from = reinterpret_cast<const uint32_t *>(block.source + block.places[word]) + first;
    Factors pixels[Vectors];
#pragma GCC unroll 6
    for (int j = 0; j + 1 < Vectors; ++j)
      pixels[j] = asFactors(load(from + j * kLanes));
    pixels[Vectors - 1] = asFactors(load(from + (Vectors - 1) * kLanes, last));
#pragma GCC unroll 8
    for (int c = 0; c < Channels; ++c) {
      const Factors weight = broadcast(weights + c);
#pragma GCC unroll 6
      for (int j = 0; j < Vectors; ++j)
        sums[c][j] = multiplyFactors<Dots>(sums[c][j], pixels[j], weight);
    }
  }
#pragma GCC unroll 8
  for (int c = 0; c < Channels; ++c)
#pragma GCC unroll 6
    for (int j = 0; j < Vectors; ++j) {
      float *to = block.sums + (channel + c) * block.sumsPitch + first + j * kLanes;
      store(to, asWords(block.adds ? add(asFloats(load(to)), sums[c][j]) : sums[c][j]));
    }
}

constexpr int kMostVectors = kMostPixels[0];
using MultiplyBlock = void (*)(const PlaneBlock &, int64_t, int64_t);
template <int Channels, int Vectors, bool Dots> constexpr MultiplyBlock blockOf() {
  if constexpr (Vectors > kMostPixels[Channels - 1] || (Dots && !kHasDots))
    return nullptr;
  else
    return multiplyBlock<Channels, Vectors, Dots>;
}
using Table = std::array<MultiplyBlock, kBlockChannels * kMostVectors>;
template <bool Dots, int... I> constexpr Table tableOf(std::integer_sequence<int, I...>) {
  return {blockOf<I / kMostVectors + 1, I % kMostVectors + 1, Dots>()...};
}
constexpr auto kIndices = std::make_integer_sequence<int, kBlockChannels * kMostVectors>();
constexpr Table kTables[2] = {tableOf<false>(kIndices), tableOf<true>(kIndices)};

void multiplyPlanes(bool dots, int64_t channels, const PlaneBlock &block) {
  const int64_t vectors = (block.pixels + kLanes - 1) / kLanes;
  for (int64_t channel = 0, some = 0; channel < channels; channel += some) {
    some = firstPart(channels - channel, kBlockChannels);
    for (int64_t vector = 0, count = 0; vector < vectors; vector += count) {
      count = std::min<int64_t>(kMostPixels[some - 1], vectors - vector);
      kTables[dots ? 1 : 0][static_cast<size_t>((some - 1) * kMostVectors + count - 1)](block, channel,
                                                                                        vector * kLanes);
    }
  }
}

constexpr int kParts = kVector / kLanes; ///< registers of 16 lanes

/// Rows times columns, in 16 sums each.
template <int Rows, int Columns, bool Dots> void gradientBlock(const PlaneGradient &block, int64_t row) {
  Floats sums[Rows][Columns][kParts];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < Columns; ++j)
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part)
        sums[i][j][part] = zero();
  const char *from[Columns];
#pragma GCC unroll 3
  for (int j = 0; j < Columns; ++j)
    from[j] = block.source + block.places[j];
  const uint32_t *gradient = block.gradient + row * block.gradientPitch;
  for (int64_t word = 0; word < block.words; word += kVector)
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
      const int64_t at = word + part * kLanes;
      const Factors valid = loadFactors(block.valid + at);
      Factors pixels[Columns];
#pragma GCC unroll 3
      for (int j = 0; j < Columns; ++j)
        pixels[j] = masked(asFactors(load(from[j] + at * 4)), valid);
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) {
        const Factors right = loadFactors(gradient + i * block.gradientPitch + at);
#pragma GCC unroll 3
        for (int j = 0; j < Columns; ++j)
          sums[i][j][part] = multiplyFactors<Dots>(sums[i][j][part], pixels[j], right);
      }
    }
  for (int i = 0; i < Rows; ++i)
    for (int j = 0; j < Columns; ++j) {
      // The 16 sums are added in halves: registers first, then lanes.
#pragma GCC unroll 2
      for (int half = kParts / 2; half > 0; half /= 2)
#pragma GCC unroll 2
        for (int part = 0; part < half; ++part)
          sums[i][j][part] = add(sums[i][j][part], sums[i][j][half + part]);
      float *to = block.sums + (row + i) * block.sumsPitch + j, sum = sumOfLanes(sums[i][j][0]);
      *to = block.adds ? *to + sum : sum;
    }
}

using GradientBlock = void (*)(const PlaneGradient &, int64_t);
template <int Rows, int Columns, bool Dots> constexpr GradientBlock gradientBlockOf() {
  if constexpr (Dots && !kHasDots)
    return nullptr;
  else
    return gradientBlock<Rows, Columns, Dots>;
}
using GradientTable = std::array<GradientBlock, kGradientRows * kPlaneColumns>;
template <bool Dots, int... I> constexpr GradientTable gradientTableOf(std::integer_sequence<int, I...>) {
  return {gradientBlockOf<I / kPlaneColumns + 1, I % kPlaneColumns + 1, Dots>()...};
}
constexpr auto kGradientIndices = std::make_integer_sequence<int, kGradientRows * kPlaneColumns>();
constexpr GradientTable kGradientTables[2] = {gradientTableOf<false>(kGradientIndices),
                                              gradientTableOf<true>(kGradientIndices)};

void multiplyPlaneGradient(bool dots, int64_t rows, int64_t columns, const PlaneGradient &block) {
  for (int64_t row = 0, count = 0; row < rows; row += count) {
    count = std::min<int64_t>(kGradientRows, rows - row);
    kGradientTables[dots ? 1 : 0][static_cast<size_t>((count - 1) * kPlaneColumns + columns - 1)](block, row);
  }
}

void copyLines(const char *from, int64_t fromPitch, int64_t lines, int64_t bytes, char *to, int64_t toPitch) {
  constexpr int64_t whole = kLanes * 4;
  const int64_t most = bytes / whole * whole;
  const Rest rest = restOf(bytes - most);
  for (int64_t line = 0; line < lines; ++line, from += fromPitch, to += toPitch) {
    for (int64_t at = 0; at < most; at += whole)
      store(to + at, load(from + at));
    copyRest(to + most, from + most, rest);
  }
}

void storePixels(const float *sums, int64_t pitch, int64_t pixels, int64_t channels, char *to, int64_t strideBytes,
                 Store how) {
  const int64_t size = how == Store::Round ? 2 : 4;
  Lanes lanes[kParts];
  for (int part = 0; part < kParts; ++part)
    lanes[part] = firstLanes(channels - part * kLanes);
  for (int64_t i = 0; i < pixels; ++i)
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part)
      if (part * kLanes < channels)
        storeSums(to + i * strideBytes + part * kLanes * size, lanes[part],
                  asFloats(load(sums + i * pitch + part * kLanes)), how);
}
} // namespace

const PlaneKernels kPlane = {multiplyPlanes, multiplyPlaneGradient, storePixels, copyLines};

} // namespace tcc::runtime::packed::TCC_LEVEL

TCC_LEVEL_END

//===- VectorsBaseline.h - registers of 4 floats, in C++ --------*- C++ -*-===//
//
// One of the three texts that Vectors.h includes, for any processor: GCC's and clang's vectors of 128 bits, which every
// 64-bit processor has. A fused multiply-add is the standard library's, lane by lane: one instruction for all lanes
// where the compiler may use one (-march=native, Arm), else a call. So the bits are those of the other levels.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_VECTORSBASELINE_H
#define TCC_RUNTIME_CPU_VECTORSBASELINE_H

#include "runtime/cpu/PackedProduct.h"

#include <algorithm>
#include <cstring>

#define TCC_LEVEL_END

namespace tcc::runtime::packed {
namespace {

typedef float Floats __attribute__((vector_size(16)));
typedef uint32_t Words __attribute__((vector_size(16)));
using Factors = Floats; ///< what is multiplied: words as f32
constexpr int64_t kLanes = 4;
/// Vectors of the largest block of a product, and rows of blocks of 1, 2 and 3 vectors, for 16 registers.
constexpr int kBlockVectors = 3;
constexpr int64_t kMostRows[kBlockVectors] = {8, 6, 4};
/// Channels of the largest block of a product of planes, and its registers of pixels for 1, 2 … channels.
constexpr int kBlockChannels = 4;
constexpr int kMostPixels[kBlockChannels] = {6, 5, 4, 3};
constexpr int kGradientRows = 1; ///< of the largest block of a gradient of planes
constexpr int kUnrolled = 1;      ///< words of K
constexpr bool kHasDots = false;  ///< dot products of pairs of bf16
constexpr bool kHasMasks = false; ///< loads and stores of some lanes are as fast as those of all

/// The first lanes of a register.
struct Lanes {
  int64_t count;
};
TCC_INLINE Lanes allLanes() { return {kLanes}; }
TCC_INLINE Lanes firstLanes(int64_t count) { return {std::clamp<int64_t>(count, 0, kLanes)}; }

TCC_INLINE Floats zero() { return Floats{}; }
TCC_INLINE Words zeroWords() { return Words{}; }
TCC_INLINE Floats asFloats(Words words) { return (Floats)words; }
TCC_INLINE Words asWords(Floats floats) { return (Words)floats; }

TCC_INLINE Words load(const void *from) {
  Words words;
  std::memcpy(&words, from, sizeof words);
  return words;
}
TCC_INLINE Factors loadFactors(const void *from) { return asFloats(load(from)); }

/// Other lanes are zero, and their memory is not read.
TCC_INLINE Words load(const void *from, Lanes lanes) {
  if (lanes.count == kLanes)
    return load(from);
  Words words{};
  std::memcpy(&words, from, static_cast<size_t>(lanes.count) * 4);
  return words;
}

/// bf16 as f32.
TCC_INLINE Words loadWide(const void *from, Lanes lanes) {
  uint16_t few[kLanes] = {};
  std::memcpy(few, from, static_cast<size_t>(lanes.count) * 2);
  return Words{few[0], few[1], few[2], few[3]} << 16;
}
TCC_INLINE Words loadWide(const void *from) { return loadWide(from, allLanes()); }

/// kLanes numbers times `scale`, by codes of 4 bits.
TCC_INLINE Words unpackCodes(const uint8_t *codes, bool upperFirst, const float *numbers, float scale) {
  const int first = upperFirst ? 4 : 0, second = 4 - first;
  const Floats found = {numbers[codes[0] >> first & 15], numbers[codes[0] >> second & 15],
                        numbers[codes[1] >> first & 15], numbers[codes[1] >> second & 15]};
  return asWords(found * Floats{scale, scale, scale, scale});
}

/// kLanes signed bytes as f32.
TCC_INLINE Floats widenBytes(const int8_t *bytes) {
  return Floats{static_cast<float>(bytes[0]), static_cast<float>(bytes[1]), static_cast<float>(bytes[2]),
                static_cast<float>(bytes[3])};
}

TCC_INLINE Factors asFactors(Words words) { return asFloats(words); }

/// A word in all lanes.
TCC_INLINE Factors broadcast(const void *from) {
  float word;
  std::memcpy(&word, from, sizeof word);
  return Floats{word, word, word, word};
}
TCC_INLINE Floats broadcastFloat(const void *from) { return broadcast(from); }

TCC_INLINE void store(void *to, Words words) { std::memcpy(to, &words, sizeof words); }
TCC_INLINE void store(void *to, Lanes lanes, Floats value) {
  if (lanes.count == kLanes)
    return store(to, asWords(value));
  std::memcpy(to, &value, static_cast<size_t>(lanes.count) * 4);
}

TCC_INLINE Floats add(Floats a, Floats b) { return a + b; }
TCC_INLINE Factors masked(Factors a, Factors mask) { return asFloats(asWords(a) & asWords(mask)); }

/// sum + left · right, rounded once.
TCC_INLINE Floats multiplyAdd(Floats sum, Floats a, Floats b) {
  return Floats{__builtin_fmaf(a[0], b[0], sum[0]), __builtin_fmaf(a[1], b[1], sum[1]),
                __builtin_fmaf(a[2], b[2], sum[2]), __builtin_fmaf(a[3], b[3], sum[3])};
}
template <bool Dots> TCC_INLINE Floats multiplyFactors(Floats sum, Factors left, Factors right) {
  static_assert(!Dots);
  return multiplyAdd(sum, left, right);
}

/// Rounds to nearest even, with the result in the upper half of each word; a NaN stays one.
TCC_INLINE Words roundToBf16(Floats value) {
  const Words bits = asWords(value), isNan = (Words)(value != value);
  const Words nearest = bits + (bits >> 16 & 1u) + 0x7fffu;
  return ((isNan & (bits | 0x400000u)) | (~isNan & nearest)) & 0xffff0000u;
}

TCC_INLINE Words roundedWide(Floats value) { return roundToBf16(value); }

// Pairs of bf16, which this level does not multiply.
template <Elements E> TCC_INLINE Words pairsOf(Words first, Words /*second*/) {
  static_assert(!isDotted(E));
  return first;
}
template <Elements E> TCC_INLINE Words pairsAlong(Words first, Words /*second*/) {
  static_assert(!isDotted(E));
  return first;
}
template <Elements E>
TCC_INLINE Words unpackPairs(const uint8_t * /*codes*/, bool /*upperFirst*/, const float * /*numbers*/,
                             float /*scale*/) {
  static_assert(!isDotted(E));
  return zeroWords();
}

TCC_INLINE void storeRounded(void *to, Lanes lanes, Floats value) {
  const Words words = roundToBf16(value) >> 16;
  const uint16_t narrow[kLanes] = {static_cast<uint16_t>(words[0]), static_cast<uint16_t>(words[1]),
                                   static_cast<uint16_t>(words[2]), static_cast<uint16_t>(words[3])};
  std::memcpy(to, narrow, static_cast<size_t>(lanes.count) * 2);
}

/// Bytes at the end of a line, fewer than those of a register.
using Rest = int64_t;
TCC_INLINE Rest restOf(int64_t bytes) { return bytes; }
TCC_INLINE void copyRest(char *to, const char *from, Rest rest) { std::memcpy(to, from, static_cast<size_t>(rest)); }

/// A word of K for adjacent lanes; `k` elements are left.
template <Elements E> TCC_INLINE Words loadAcross(const char *from, int64_t /*stride*/, Lanes lanes, int64_t /*k*/) {
  if constexpr (E == Elements::WideBf16)
    return loadWide(from, lanes);
  Words words = load(from, lanes);
  return E == Elements::WideRounded ? roundToBf16(asFloats(words)) : words;
}

/// Up to kLanes words along K of one lane; `k` elements are left.
template <Elements E> TCC_INLINE Words loadAlong(const char *from, int64_t k) {
  return loadAcross<E>(from, 0, firstLanes(k), k);
}
template <Elements E> TCC_INLINE Words loadAlong(const char *from) {
  return loadAcross<E>(from, 0, allLanes(), kLanes);
}

/// Stores word w of all rows at `to` + w * `stride`, for `words` words: a whole register of them, or fewer.
template <bool Whole> TCC_INLINE void storeTurned(Words (&rows)[4], uint32_t *to, int64_t stride, int64_t words) {
  const int64_t count = Whole ? kLanes : std::min(words, kLanes);
  for (int64_t w = 0; w < count; ++w)
    store(to + w * stride, Words{rows[0][w], rows[1][w], rows[2][w], rows[3][w]});
}

/// Stores up to kLanes words of rows, which begin with half a panel's rows.
TCC_INLINE void storeRows(uint32_t *to, int64_t /*apart*/, Words words, int64_t /*rows*/) { store(to, words); }

/// The sum of all lanes: adds the two halves, then the halves of the result.
TCC_INLINE float sumOfLanes(Floats four) { return (four[0] + four[2]) + (four[1] + four[3]); }

} // namespace
} // namespace tcc::runtime::packed

#endif // TCC_RUNTIME_CPU_VECTORSBASELINE_H

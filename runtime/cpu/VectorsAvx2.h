//===- VectorsAvx2.h - registers of 8 floats, with AVX2 and FMA -*- C++ -*-===//
//
// One of the three texts that Vectors.h includes. AVX2 has masked loads and stores of words only, slower than
// whole ones: whole registers take another path.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_VECTORSAVX2_H
#define TCC_RUNTIME_CPU_VECTORSAVX2_H

#include "runtime/cpu/PackedProduct.h"

#include <algorithm>
#include <cstring>
#include <immintrin.h>

#ifdef __clang__ // clang does not have GCC's pragma for that
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#define TCC_LEVEL_END _Pragma("clang attribute pop")
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define TCC_LEVEL_END _Pragma("GCC pop_options")
#endif

namespace tcc::runtime::packed {
namespace {

using Floats = __m256;
using Words = __m256i;
using Factors = Floats; ///< what is multiplied: words as f32
constexpr int64_t kLanes = 8;
/// Vectors of the largest block of a product, and rows of blocks of 1, 2 and 3 vectors: 12 sums fit into the 16
/// registers together with a word of A and three vectors of B.
constexpr int kBlockVectors = 3;
constexpr int64_t kMostRows[kBlockVectors] = {8, 6, 4};
/// Channels of the largest block of a product of planes, and its registers of pixels for 1, 2 … channels.
constexpr int kBlockChannels = 4;
constexpr int kMostPixels[kBlockChannels] = {6, 5, 4, 3};
constexpr int kGradientRows = 2; ///< of the largest block of a gradient of planes
constexpr int kUnrolled = 4;       ///< words of K
constexpr bool kHasDots = false;   ///< dot products of pairs of bf16
constexpr bool kHasMasks = false;  ///< loads and stores of some lanes are as fast as those of all

/// The first lanes of a register.
struct Lanes {
  int64_t count;
  __m256i bits; ///< all bits of each of these lanes
};

TCC_INLINE Lanes allLanes() { return {kLanes, _mm256_set1_epi32(-1)}; }

TCC_INLINE Lanes firstLanes(int64_t count) {
  alignas(64) static constexpr int32_t lanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return {count, _mm256_loadu_si256(
                     reinterpret_cast<const __m256i *>(lanes + kLanes - std::clamp<int64_t>(count, 0, kLanes)))};
}

TCC_INLINE Floats zero() { return _mm256_setzero_ps(); }
TCC_INLINE Words zeroWords() { return _mm256_setzero_si256(); }
TCC_INLINE Floats asFloats(Words words) { return _mm256_castsi256_ps(words); }
TCC_INLINE Words asWords(Floats floats) { return _mm256_castps_si256(floats); }

TCC_INLINE Words load(const void *from) { return asWords(_mm256_loadu_ps(static_cast<const float *>(from))); }
TCC_INLINE Factors loadFactors(const void *from) { return _mm256_loadu_ps(static_cast<const float *>(from)); }

/// Other lanes are zero, and their memory is not read.
TCC_INLINE Words load(const void *from, Lanes lanes) {
  return lanes.count >= kLanes ? load(from) : asWords(_mm256_maskload_ps(static_cast<const float *>(from), lanes.bits));
}

/// bf16 as f32.
TCC_INLINE Words loadWide(const void *from) {
  return _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i *>(from))), 16);
}
TCC_INLINE Words loadWide(const void *from, Lanes lanes) {
  if (lanes.count >= kLanes)
    return loadWide(from);
  alignas(16) uint16_t few[kLanes] = {};
  std::memcpy(few, from, static_cast<size_t>(std::max<int64_t>(lanes.count, 0)) * 2);
  return loadWide(few);
}

/// kLanes numbers times `scale`, by codes of 4 bits.
TCC_INLINE Words unpackCodes(const uint8_t *codes, bool upperFirst, const float *numbers, float scale) {
  int32_t four;
  std::memcpy(&four, codes, sizeof four);
  const __m128i bytes = _mm_cvtepu8_epi16(_mm_cvtsi32_si128(four));
  const __m128i lower = _mm_and_si128(bytes, _mm_set1_epi16(15)), upper = _mm_srli_epi16(bytes, 4);
  const __m256i ordered = _mm256_cvtepu8_epi32(upperFirst ? _mm_or_si128(upper, _mm_slli_epi16(lower, 8))
                                                          : _mm_or_si128(lower, _mm_slli_epi16(upper, 8)));
  // A permutation looks at three bits of an index; the fourth chooses between two.
  const Floats first = _mm256_permutevar8x32_ps(_mm256_loadu_ps(numbers), ordered),
               second = _mm256_permutevar8x32_ps(_mm256_loadu_ps(numbers + 8), ordered),
               found = _mm256_blendv_ps(first, second, asFloats(_mm256_slli_epi32(ordered, 28)));
  return asWords(_mm256_mul_ps(found, _mm256_set1_ps(scale)));
}

/// kLanes signed bytes as f32.
TCC_INLINE Floats widenBytes(const int8_t *bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(bytes))));
}

TCC_INLINE Factors asFactors(Words words) { return asFloats(words); }

/// A word in all lanes.
TCC_INLINE Factors broadcast(const void *from) { return _mm256_broadcast_ss(static_cast<const float *>(from)); }
TCC_INLINE Floats broadcastFloat(const void *from) { return broadcast(from); }

TCC_INLINE void store(void *to, Words words) { _mm256_storeu_ps(static_cast<float *>(to), asFloats(words)); }

TCC_INLINE Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
TCC_INLINE Factors masked(Factors a, Factors mask) { return _mm256_and_ps(mask, a); }

/// sum + left · right, rounded once.
TCC_INLINE Floats multiplyAdd(Floats sum, Floats left, Floats right) { return _mm256_fmadd_ps(left, right, sum); }
template <bool Dots> TCC_INLINE Floats multiplyFactors(Floats sum, Factors left, Factors right) {
  static_assert(!Dots);
  return multiplyAdd(sum, left, right);
}

/// Rounds to nearest even, with the result in the upper half of each word; a NaN stays one.
TCC_INLINE Words roundToBf16(Floats value) {
  __m256i bits = _mm256_castps_si256(value);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  rounded = _mm256_blendv_epi8(rounded, _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), nan);
  return _mm256_and_si256(rounded, _mm256_set1_epi32(static_cast<int>(0xffff0000)));
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
  __m256i words = _mm256_srli_epi32(roundToBf16(value), 16);
  words = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
  alignas(16) uint16_t narrow[kLanes];
  _mm_store_si128(reinterpret_cast<__m128i *>(narrow), _mm256_castsi256_si128(words));
  std::memcpy(to, narrow, static_cast<size_t>(std::min(lanes.count, kLanes)) * 2);
}

TCC_INLINE void store(void *to, Lanes lanes, Floats value) {
  if (lanes.count >= kLanes)
    return _mm256_storeu_ps(static_cast<float *>(to), value);
  _mm256_maskstore_ps(static_cast<float *>(to), lanes.bits, value);
}

/// Bytes at the end of a line, fewer than those of a register.
using Rest = int64_t;
TCC_INLINE Rest restOf(int64_t bytes) { return bytes; }
TCC_INLINE void copyRest(char *to, const char *from, Rest rest) {
  for (int64_t at = 0; at < rest; at += 2)
    std::memcpy(to + at, from + at, 2);
}

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
template <bool Whole> TCC_INLINE void storeTurned(Words (&rows)[8], uint32_t *to, int64_t stride, int64_t words) {
  __m256i pairs[8], quads[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    quads[i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
    quads[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
    quads[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    quads[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm256_permute2x128_si256(quads[i], quads[4 + i], 0x20);
    rows[4 + i] = _mm256_permute2x128_si256(quads[i], quads[4 + i], 0x31);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    if (Whole || i < words)
      store(to + i * stride, rows[i]);
}

/// Stores up to kLanes words of rows, which begin with a panel's row.
TCC_INLINE void storeRows(uint32_t *to, int64_t /*apart*/, Words words, int64_t /*rows*/) { store(to, words); }

/// The sum of all lanes: adds the two halves, then the halves of the result, and so on.
TCC_INLINE float sumOfLanes(Floats eight) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

} // namespace
} // namespace tcc::runtime::packed

#endif // TCC_RUNTIME_CPU_VECTORSAVX2_H

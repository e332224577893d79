//===- VectorsAvx512.h - registers of 16 floats, with AVX-512 ---*- C++ -*-===//
//
// One of the three texts that Vectors.h includes. Dot products of pairs of bf16 are enabled for the whole text, since
// the compiler uses these instructions for nothing else; only kernels of pairs contain them, which run on machines that
// have them.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_VECTORSAVX512_H
#define TCC_RUNTIME_CPU_VECTORSAVX512_H

#include "runtime/cpu/PackedProduct.h"

#include <algorithm>
#include <immintrin.h>

#ifdef __clang__ // clang does not have GCC's pragma for that
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,prfchw"))),         \
                             apply_to = function)
#define TCC_LEVEL_END _Pragma("clang attribute pop")
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,prfchw")
#define TCC_LEVEL_END _Pragma("GCC pop_options")
#endif

namespace tcc::runtime::packed {
namespace {

using Floats = __m512;
using Words = __m512i;
using Factors = Words; ///< what is multiplied: words as f32, or pairs
constexpr int64_t kLanes = 16;
/// Vectors of the largest block of a product, and rows of blocks of 1, 2 and 3 vectors.
constexpr int kBlockVectors = 3;
constexpr int64_t kMostRows[kBlockVectors] = {8, 8, 8};
/// Channels of the largest block of a product of planes, and its registers of pixels for 1, 2 … channels: at most 24
/// sums; with few channels more pixels, to hide latency.
constexpr int kBlockChannels = 8;
constexpr int kMostPixels[kBlockChannels] = {6, 6, 6, 6, 3, 3, 3, 3};
constexpr int kGradientRows = 8; ///< of the largest block of a gradient of planes
constexpr int kUnrolled = 1;     ///< words of K
constexpr bool kHasDots = true;  ///< dot products of pairs of bf16
constexpr bool kHasMasks = true; ///< loads and stores of some lanes are as fast as those of all
#define TCC_PACKS_AHEAD          ///< stores packed words while it multiplies

/// The first lanes of a register.
using Lanes = __mmask16;
TCC_INLINE Lanes allLanes() { return 0xffff; }
TCC_INLINE Lanes firstLanes(int64_t count) {
  return static_cast<Lanes>(count >= kLanes ? 0xffff : (1u << std::max<int64_t>(count, 0)) - 1);
}

TCC_INLINE Floats zero() { return _mm512_setzero_ps(); }
TCC_INLINE Words zeroWords() { return _mm512_setzero_si512(); }
TCC_INLINE Floats asFloats(Words words) { return _mm512_castsi512_ps(words); }
TCC_INLINE Words asWords(Floats floats) { return _mm512_castps_si512(floats); }

TCC_INLINE Words load(const void *from) { return _mm512_loadu_si512(from); }
TCC_INLINE Factors loadFactors(const void *from) { return _mm512_load_si512(from); }

/// Other lanes are zero, and their memory is not read.
TCC_INLINE Words load(const void *from, Lanes lanes) { return _mm512_maskz_loadu_epi32(lanes, from); }

/// bf16 in the lower half of each word.
TCC_INLINE Words loadHalves(const void *from, Lanes lanes) {
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, from));
}

/// bf16 as f32.
TCC_INLINE Words loadWide(const void *from) {
  return _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i *>(from))), 16);
}
TCC_INLINE Words loadWide(const void *from, Lanes lanes) { return _mm512_slli_epi32(loadHalves(from, lanes), 16); }

/// kLanes numbers times `scale`, by codes of 4 bits.
TCC_INLINE Words unpackCodes(const uint8_t *codes, bool upperFirst, const float *numbers, float scale) {
  const __m128i bytes = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(codes)));
  const __m128i lower = _mm_and_si128(bytes, _mm_set1_epi16(15)), upper = _mm_srli_epi16(bytes, 4);
  const __m128i ordered =
      upperFirst ? _mm_or_si128(upper, _mm_slli_epi16(lower, 8)) : _mm_or_si128(lower, _mm_slli_epi16(upper, 8));
  const Floats found = _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(ordered), _mm512_loadu_ps(numbers));
  return asWords(_mm512_mul_ps(found, _mm512_set1_ps(scale)));
}

/// kLanes signed bytes as f32.
TCC_INLINE Floats widenBytes(const int8_t *bytes) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(bytes))));
}

TCC_INLINE Factors asFactors(Words words) { return words; }

/// A word in all lanes.
TCC_INLINE Factors broadcast(const void *from) { return _mm512_set1_epi32(*static_cast<const int *>(from)); }

/// The same as f32: the compiler makes it an operand of a multiplication, which it does not with words.
TCC_INLINE Floats broadcastFloat(const void *from) { return _mm512_set1_ps(*static_cast<const float *>(from)); }

TCC_INLINE void store(void *to, Words words) { _mm512_storeu_si512(to, words); }
TCC_INLINE void storeAligned(void *to, Words words) { _mm512_store_si512(to, words); }
TCC_INLINE void store(void *to, Lanes lanes, Floats value) { _mm512_mask_storeu_ps(to, lanes, value); }

TCC_INLINE Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
TCC_INLINE Factors masked(Factors a, Factors mask) { return _mm512_and_si512(mask, a); }

/// sum + left · right, rounded once.
TCC_INLINE Floats multiplyAdd(Floats sum, Floats left, Floats right) { return _mm512_fmadd_ps(left, right, sum); }
/// The same of words; `Dots`: sum + both products of the pairs.
template <bool Dots> TCC_INLINE Floats multiplyFactors(Floats sum, Factors left, Factors right) {
  if constexpr (Dots)
    return _mm512_dpbf16_ps(sum, (__m512bh)left, (__m512bh)right);
  else
    return multiplyAdd(sum, asFloats(left), asFloats(right));
}

/// To nearest even; a NaN stays one.
TCC_INLINE __m256i roundToBf16(Floats value) {
  Words bits = _mm512_castps_si512(value);
  Words odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  Words rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

TCC_INLINE void storeRounded(void *to, Lanes lanes, Floats value) {
  _mm256_mask_storeu_epi16(to, lanes, roundToBf16(value));
}

/// Bytes at the end of a line, fewer than those of a register: an even number.
using Rest = __mmask32;
TCC_INLINE Rest restOf(int64_t bytes) { return (__mmask32(1) << bytes / 2) - 1; }
TCC_INLINE void copyRest(char *to, const char *from, Rest rest) {
  _mm512_mask_storeu_epi16(to, rest, _mm512_maskz_loadu_epi16(rest, from));
}

/// 32 elements rounded to bf16, to nearest even; subnormals become zero, as the dot product instructions treat them.
/// (Inline assembly, because GCC's intrinsic takes its operands as a type of their own.)
TCC_INLINE Words rounded(Floats low, Floats high) {
  Words both;
  __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(both) : "v"(low), "v"(high));
  return both;
}

/// Words of the elements i and 16 + i.
TCC_INLINE Words halvesPaired(Words halves) {
  const Words order = _mm512_set_epi32(0x1f000f, 0x1e000e, 0x1d000d, 0x1c000c, 0x1b000b, 0x1a000a, 0x190009, 0x180008,
                                       0x170007, 0x160006, 0x150005, 0x140004, 0x130003, 0x120002, 0x110001, 0x100000);
  return _mm512_permutexvar_epi16(order, halves);
}

/// Pairs of f32, rounded as above.
template <Elements E> TCC_INLINE Words pairsOf(Words first, Words second) {
  static_assert(isDotted(E));
  return halvesPaired(rounded(asFloats(first), asFloats(second)));
}
/// The same of adjacent elements: those of `first`, then those of `second`.
template <Elements E> TCC_INLINE Words pairsAlong(Words first, Words second) {
  static_assert(isDotted(E));
  return rounded(asFloats(first), asFloats(second));
}

/// Rounded to bf16, to nearest even, and widened again.
TCC_INLINE Words roundedWide(Floats values) {
  return _mm512_slli_epi32(_mm512_cvtepu16_epi32(roundToBf16(values)), 16);
}

/// kLanes pairs of numbers times `scale`, rounded to bf16, by codes of 4 bits: a lookup among the 16 values that a
/// scale allows, which the table holds twice, since an index has five bits.
template <Elements E>
TCC_INLINE Words unpackPairs(const uint8_t *codes, bool upperFirst, const float *numbers, float scale) {
  static_assert(isDotted(E));
  const Floats values = _mm512_mul_ps(_mm512_loadu_ps(numbers), _mm512_set1_ps(scale));
  const Words bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(codes))),
              upper = _mm512_srli_epi32(bytes, 4);
  const Words order = upperFirst ? _mm512_or_si512(upper, _mm512_slli_epi32(bytes, 16))
                                 : _mm512_or_si512(bytes, _mm512_slli_epi32(upper, 16));
  return _mm512_permutexvar_epi16(order, rounded(values, values));
}

/// A word of K for adjacent lanes, whose next element is `stride` elements away; `k` elements are left.
template <Elements E> TCC_INLINE Words loadAcross(const char *from, int64_t stride, Lanes lanes, int64_t k) {
  if constexpr (E == Elements::F32)
    return load(from, lanes);
  if constexpr (E == Elements::WideBf16)
    return loadWide(from, lanes);
  if constexpr (E == Elements::WideRounded)
    return roundedWide(_mm512_maskz_loadu_ps(lanes, from));
  if constexpr (E == Elements::Rounded) {
    Floats next = k < 2 ? zero() : _mm512_maskz_loadu_ps(lanes, from + stride * bytesOf(E));
    return halvesPaired(rounded(_mm512_maskz_loadu_ps(lanes, from), next));
  }
  Words low = loadHalves(from, lanes);
  return k < 2 ? low : _mm512_or_si512(low, _mm512_slli_epi32(loadHalves(from + stride * bytesOf(E), lanes), 16));
}

/// Up to kLanes words along K of one lane; `k` elements are left.
template <Elements E> TCC_INLINE Words loadAlong(const char *from, int64_t k) {
  if constexpr (!isDotted(E))
    return loadAcross<E>(from, 0, firstLanes(k), k);
  if constexpr (E == Elements::Rounded)
    return rounded(_mm512_maskz_loadu_ps(firstLanes(k), from),
                   _mm512_maskz_loadu_ps(firstLanes(k - kLanes), from + kLanes * bytesOf(E)));
  return _mm512_maskz_loadu_epi16(k >= 32 ? ~__mmask32(0) : (__mmask32(1) << k) - 1, from);
}
template <Elements E> TCC_INLINE Words loadAlong(const char *from) {
  return loadAlong<E>(from, kLanes * elementsOfWord(E));
}

/// Transposes within groups of four rows: 128-bit part L of row 4i + q gets the words 4L + q of rows 4i to 4i + 3.
template <int Count> TCC_INLINE void transposeQuarters(Words (&rows)[Count]) {
  Words half[Count];
#pragma GCC unroll 8
  for (int i = 0; i < Count; i += 2) {
    half[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    half[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < Count; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(half[i], half[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(half[i], half[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(half[i + 1], half[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(half[i + 1], half[i + 3]);
  }
}

/// Transposes four registers as a matrix of 128-bit parts.
TCC_INLINE void transposeParts(Words a, Words b, Words c, Words d, Words (&to)[4]) {
  Words even0 = _mm512_shuffle_i32x4(a, b, 0x88), odd0 = _mm512_shuffle_i32x4(a, b, 0xdd);
  Words even1 = _mm512_shuffle_i32x4(c, d, 0x88), odd1 = _mm512_shuffle_i32x4(c, d, 0xdd);
  to[0] = _mm512_shuffle_i32x4(even0, even1, 0x88);
  to[1] = _mm512_shuffle_i32x4(odd0, odd1, 0x88);
  to[2] = _mm512_shuffle_i32x4(even0, even1, 0xdd);
  to[3] = _mm512_shuffle_i32x4(odd0, odd1, 0xdd);
}

/// Stores word w of all rows at `to` + w * `stride`, for `words` words: a whole register of them, or fewer.
template <bool Whole> TCC_INLINE void storeTurned(Words (&row)[16], uint32_t *to, int64_t stride, int64_t words) {
  transposeQuarters(row);
#pragma GCC unroll 4
  for (int q = 0; q < 4; ++q) {
    Words across[4];
    transposeParts(row[q], row[4 + q], row[8 + q], row[12 + q], across);
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part)
      if (Whole || 4 * part + q < words)
        storeAligned(to + (4 * part + q) * stride, across[part]);
  }
}

/// The same for eight rows with a stride of 8: two words of all rows per store.
template <bool Whole> TCC_INLINE void storeTurned(Words (&row)[8], uint32_t *to, int64_t /*stride*/, int64_t words) {
  transposeQuarters(row);
#pragma GCC unroll 2
  for (int q = 0; q < 4; q += 2) {
    Words pair[4];
    transposeParts(row[q], row[4 + q], row[q + 1], row[5 + q], pair);
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) {
      const int at = 4 * part + q;
      if (Whole)
        store(to + at * kRows, pair[part]);
      else if (at < words)
        _mm512_mask_storeu_epi32(to + at * kRows, at + 1 < words ? 0xffff : 0xff, pair[part]);
    }
  }
}

/// Stores up to kLanes words of rows, which begin with a panel's row; panels are `apart` words apart.
TCC_INLINE void storeRows(uint32_t *to, int64_t apart, Words words, int64_t rows) {
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), _mm512_castsi512_si256(words));
  if (kRows < rows)
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(to + apart), _mm512_extracti64x4_epi64(words, 1));
}

/// The sum of all lanes: adds the two halves, then the halves of the result, and so on.
TCC_INLINE float sumOfLanes(Floats sums) {
  __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(sums), _mm512_extractf32x8_ps(sums, 1));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

} // namespace
} // namespace tcc::runtime::packed

#endif // TCC_RUNTIME_CPU_VECTORSAVX512_H

//===- PackedWords.h - words of K in registers ---------------------------===//
//
// Converts elements in memory to the words that products multiply: 16 words of 32 bits per register, each one f32, or
// two bf16 that are adjacent along K. Missing elements are zero.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_PACKEDWORDS_H
#define TCC_RUNTIME_CPU_PACKEDWORDS_H

#include "runtime/cpu/PackedProduct.h"

#include <algorithm>
#include <immintrin.h>

#define TCC_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,prfchw")))

namespace tcc::runtime::packed {

using Words = __m512i;

inline __mmask16 firstLanes(int64_t count) {
  return static_cast<__mmask16>(count >= kVector ? 0xffff : (1u << std::max<int64_t>(count, 0)) - 1);
}

TCC_AVX512 inline Words widened(__mmask16 lanes, const uint16_t *from) {
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, from));
}

/// As f32.
TCC_AVX512 inline Words wordsOfBf16(__mmask16 lanes, const void *from) {
  return _mm512_slli_epi32(widened(lanes, static_cast<const uint16_t *>(from)), 16);
}

/// To nearest even; a NaN stays one.
TCC_AVX512 inline __m256i roundToBf16(__m512 value) {
  Words bits = _mm512_castps_si512(value);
  Words odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  Words rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

/// 32 elements rounded to bf16, to nearest even; subnormals become zero, as the dot product instructions treat them.
/// The instruction is inline assembly, so that the same source also compiles for machines without it.
TCC_AVX512 inline Words rounded(__m512 low, __m512 high) {
  Words both;
  __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(both) : "v"(low), "v"(high));
  return both;
}

/// Words of the elements i and 16 + i.
TCC_AVX512 inline Words halvesPaired(Words halves) {
  const Words order = _mm512_set_epi32(0x1f000f, 0x1e000e, 0x1d000d, 0x1c000c, 0x1b000b, 0x1a000a, 0x190009, 0x180008,
                                       0x170007, 0x160006, 0x150005, 0x140004, 0x130003, 0x120002, 0x110001, 0x100000);
  return _mm512_permutexvar_epi16(order, halves);
}

/// Loads a word of K for adjacent lanes; `k` elements are left.
template <Elements E> TCC_AVX512 inline Words loadAcross(const char *from, int64_t stride, __mmask16 lanes, int64_t k) {
  if constexpr (E == Elements::F32)
    return _mm512_maskz_loadu_epi32(lanes, from);
  if constexpr (E == Elements::WideBf16)
    return wordsOfBf16(lanes, from);
  if constexpr (E == Elements::WideRounded)
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(roundToBf16(_mm512_maskz_loadu_ps(lanes, from))), 16);
  if constexpr (E == Elements::Rounded) {
    __m512 next = k < 2 ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(lanes, from + stride * bytesOf(E));
    return halvesPaired(rounded(_mm512_maskz_loadu_ps(lanes, from), next));
  }
  auto *first = reinterpret_cast<const uint16_t *>(from);
  Words low = widened(lanes, first);
  return k < 2 ? low : _mm512_or_si512(low, _mm512_slli_epi32(widened(lanes, first + stride), 16));
}

/// Loads up to 16 words along K of one lane; `k` elements are left.
template <Elements E> TCC_AVX512 inline Words loadAlong(const char *from, int64_t k) {
  if constexpr (!isDotted(E))
    return loadAcross<E>(from, 0, firstLanes(k), k);
  if constexpr (E == Elements::Rounded)
    return rounded(_mm512_maskz_loadu_ps(firstLanes(k), from),
                   _mm512_maskz_loadu_ps(firstLanes(k - kVector), from + kVector * bytesOf(E)));
  return _mm512_maskz_loadu_epi16(k >= 32 ? ~__mmask32(0) : (__mmask32(1) << k) - 1, from);
}

/// Stores up to 16 sums of a row of C at `to`.
TCC_AVX512 inline void storeSums(void *to, __mmask16 lanes, __m512 sum, Store store) {
  if (store == Store::Round) {
    _mm256_mask_storeu_epi16(to, lanes, roundToBf16(sum));
    return;
  }
  if (store == Store::Add)
    sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, to), sum);
  _mm512_mask_storeu_ps(to, lanes, sum);
}

} // namespace tcc::runtime::packed

#endif // TCC_RUNTIME_CPU_PACKEDWORDS_H

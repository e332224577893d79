//===- PackedWordsAvx2.h - words of K in registers of AVX2 ---------------===//
//
// Shared by the AVX2 versions of products: registers of 8 words, masks, rounding and stores.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_PACKEDWORDSAVX2_H
#define TCC_RUNTIME_CPU_PACKEDWORDSAVX2_H

#include "runtime/cpu/PackedProduct.h"

#include <algorithm>
#include <cstring>
#include <immintrin.h>

#define TCC_AVX2 __attribute__((target("avx2,fma")))

namespace tcc::runtime::packed::avx2 {

inline constexpr int64_t kEight = 8; ///< words of a register
inline constexpr int64_t kBlockRows = 4, kBlockVectors = 3;
static_assert(kRows == kEight && kVector % kEight == 0 && kVectors * kVector / kEight <= 2 * kBlockVectors);

/// All bits of the first `count` lanes.
TCC_AVX2 inline __m256i firstLanes(int64_t count) {
  alignas(64) static constexpr int32_t lanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(lanes + kEight - std::clamp<int64_t>(count, 0, kEight)));
}

/// Rounds to nearest even, with the result in the upper half of each word; a NaN stays one.
TCC_AVX2 inline __m256i roundToBf16(__m256 value) {
  __m256i bits = _mm256_castps_si256(value);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  rounded = _mm256_blendv_epi8(rounded, _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), nan);
  return _mm256_and_si256(rounded, _mm256_set1_epi32(static_cast<int>(0xffff0000)));
}

/// Stores up to 8 sums of a row of C.
TCC_AVX2 inline void storeSums(char *to, int64_t count, __m256 sum, Store how) {
  if (how == Store::Round) {
    __m256i words = _mm256_srli_epi32(roundToBf16(sum), 16);
    words = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
    alignas(16) uint16_t narrow[kEight];
    _mm_store_si128(reinterpret_cast<__m128i *>(narrow), _mm256_castsi256_si128(words));
    std::memcpy(to, narrow, static_cast<size_t>(std::min(count, kEight)) * 2);
    return;
  }
  auto *floats = reinterpret_cast<float *>(to);
  if (count >= kEight) {
    if (how == Store::Add)
      sum = _mm256_add_ps(_mm256_loadu_ps(floats), sum);
    return _mm256_storeu_ps(floats, sum);
  }
  __m256i lanes = firstLanes(count);
  if (how == Store::Add)
    sum = _mm256_add_ps(_mm256_maskload_ps(floats, lanes), sum);
  _mm256_maskstore_ps(floats, lanes, sum);
}

/// Size of the first part when `whole` is cut into as few parts of at most `most` as possible, whose sizes differ by at
/// most one.
inline constexpr int64_t firstPart(int64_t whole, int64_t most) {
  if (whole <= most)
    return whole;
  int64_t parts = (whole + most - 1) / most;
  return (whole + parts - 1) / parts;
}

} // namespace tcc::runtime::packed::avx2

#endif // TCC_RUNTIME_CPU_PACKEDWORDSAVX2_H

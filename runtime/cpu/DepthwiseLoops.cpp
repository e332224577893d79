//===- DepthwiseLoops.cpp - 16 channels at a time, AVX-512 ---------------===//
#include "runtime/cpu/DepthwiseLoops.h"

#include "runtime/cpu/LibraryPrimitive.h"
#include "runtime/cpu/calls/CpuLevel.h"

#include <algorithm>
#include <cstring>
#include <immintrin.h>
#include <utility>

namespace tcc::runtime::depthwise {

void correlateAvx2(const Line &line);
void addProductsAvx2(const GradientLine &line);

static uint16_t rounded(float value) { return roundToBf16(value); }
static float widened(uint16_t value) {
  uint32_t bits = static_cast<uint32_t>(value) << 16;
  float wide;
  std::memcpy(&wide, &bits, 4);
  return wide;
}

#ifdef __clang__ // clang does not have GCC's pragma for that
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")
#endif
namespace {
constexpr int64_t kLanes = 16;
using Lanes = __m512;
inline Lanes zero() { return _mm512_setzero_ps(); }
inline Lanes load(const float *from) { return _mm512_loadu_ps(from); }
inline Lanes loadNarrow(const uint16_t *from) {
  __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
inline void store(float *to, Lanes value) { _mm512_storeu_ps(to, value); }
inline void storeNarrow(uint16_t *to, Lanes value) {
  __m512i bits = _mm512_castps_si512(value);
  __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i nearest = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  nearest = _mm512_mask_or_epi32(nearest, nan, bits, _mm512_set1_epi32(0x400000));
  _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), _mm512_cvtepi32_epi16(_mm512_srli_epi32(nearest, 16)));
}
inline Lanes multiplyAdd(Lanes a, Lanes b, Lanes sum) { return _mm512_fmadd_ps(a, b, sum); }
} // namespace
#include "runtime/cpu/DepthwiseText.h"
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

void correlate(const Line &line) { cpuFeatures().avx512 ? correlateLine(line) : correlateAvx2(line); }
void addProducts(const GradientLine &line) { cpuFeatures().avx512 ? addProductsOfLine(line) : addProductsAvx2(line); }

} // namespace tcc::runtime::depthwise

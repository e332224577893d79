//===- DepthwiseLoopsAvx2.cpp - the same with AVX2 -----------------------===//
#include "runtime/cpu/DepthwiseLoops.h"

#include "runtime/cpu/LibraryPrimitive.h"

#include <algorithm>
#include <cstring>
#include <immintrin.h>
#include <utility>

namespace tcc::runtime::depthwise {

static uint16_t rounded(float value) { return roundToBf16(value); }
static float widened(uint16_t value) {
  uint32_t bits = static_cast<uint32_t>(value) << 16;
  float wide;
  std::memcpy(&wide, &bits, 4);
  return wide;
}

#ifdef __clang__ // clang does not have GCC's pragma for that
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
namespace {
constexpr int64_t kLanes = 16;
struct Lanes {
  __m256 low, high;
};
inline Lanes zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Lanes load(const float *from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
inline __m256 widenEight(const uint16_t *from) {
  __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
inline Lanes loadNarrow(const uint16_t *from) { return {widenEight(from), widenEight(from + 8)}; }
inline void store(float *to, Lanes value) {
  _mm256_storeu_ps(to, value.low);
  _mm256_storeu_ps(to + 8, value.high);
}
inline void storeNarrow(uint16_t *to, Lanes value) {
  alignas(32) float values[kLanes];
  store(values, value);
  for (int64_t i = 0; i < kLanes; ++i)
    to[i] = rounded(values[i]);
}
inline Lanes multiplyAdd(Lanes a, Lanes b, Lanes sum) {
  return {_mm256_fmadd_ps(a.low, b.low, sum.low), _mm256_fmadd_ps(a.high, b.high, sum.high)};
}
} // namespace
#include "runtime/cpu/DepthwiseText.h"
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

void correlateAvx2(const Line &line) { correlateLine(line); }
void addProductsAvx2(const GradientLine &line) { addProductsOfLine(line); }

} // namespace tcc::runtime::depthwise

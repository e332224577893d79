//===- Sums.cpp - sums over ranks in a fixed order -----------------------===//
#include "runtime/parallel/Sums.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace tcc::runtime {

namespace {
float widenBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

uint16_t narrowBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return static_cast<uint16_t>(bits >> 16 | 0x40); // a NaN stays one
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float widenF16(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31)
    return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
  if (exponent == 0) {
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t narrowF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), sign = bits >> 16 & 0x8000;
  const uint32_t size = bits & 0x7fffffff;
  if (size > 0x7f800000)
    return static_cast<uint16_t>(sign | 0x7e00 | (size >> 13 & 0x1ff));
  if (size >= 0x477ff000) // 65520 and above round to infinity
    return static_cast<uint16_t>(sign | 0x7c00);
  if (size < 0x38800000) { // below 2^-14: subnormal; the addition rounds to a multiple of 2^-24
    const float rounded = std::bit_cast<float>(size) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3f000000));
  }
  return static_cast<uint16_t>(sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13));
}

template <typename T> void addTo(T *into, const T *from, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i)
    into[i] += from[i];
}

/// Calls add(i, i + s) along the tree.
template <typename Add> void walkTree(size_t parts, Add &&add) {
  for (size_t step = 1; step < parts; step *= 2)
    for (size_t i = 0; i + step < parts; i += 2 * step)
      add(i, i + step);
}

template <typename T> void sumWide(std::span<std::byte *const> parts, uint64_t count) {
  walkTree(parts.size(), [&](size_t into, size_t from) {
    addTo(reinterpret_cast<T *>(parts[into]), reinterpret_cast<const T *>(parts[from]), count);
  });
}

template <float (*widen)(uint16_t), uint16_t (*narrow)(float)>
void sumNarrow(std::span<std::byte *const> parts, uint64_t count) {
  constexpr uint64_t kBlock = 1024;
  std::vector<float> wide(parts.size() * kBlock);
  for (uint64_t begin = 0; begin < count; begin += kBlock) {
    const uint64_t size = std::min(kBlock, count - begin);
    for (size_t part = 0; part < parts.size(); ++part)
      for (uint64_t i = 0; i < size; ++i)
        wide[part * kBlock + i] = widen(reinterpret_cast<const uint16_t *>(parts[part])[begin + i]);
    walkTree(parts.size(), [&](size_t into, size_t from) { addTo(&wide[into * kBlock], &wide[from * kBlock], size); });
    for (uint64_t i = 0; i < size; ++i)
      reinterpret_cast<uint16_t *>(parts[0])[begin + i] = narrow(wide[i]);
  }
}
} // namespace

bool canSum(plan::DType dtype) { return plan::isFloatingPoint(dtype); }

void sumParts(std::span<std::byte *const> parts, plan::DType dtype, uint64_t count) {
  if (parts.size() < 2)
    return;
  switch (dtype) {
  case plan::F64:
    return sumWide<double>(parts, count);
  case plan::F32:
    return sumWide<float>(parts, count);
  case plan::BF16:
    return sumNarrow<widenBf16, narrowBf16>(parts, count);
  case plan::F16:
    return sumNarrow<widenF16, narrowF16>(parts, count);
  default:
    return;
  }
}

} // namespace tcc::runtime

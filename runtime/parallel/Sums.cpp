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

/// Elements of every part that are summed together, small enough for the first-level cache.
constexpr uint64_t kBlock = 512;

/// Element by element; `into` may be one of the operands.
template <typename T> void add(T *into, const T *left, const T *right, uint64_t count) {
#pragma GCC ivdep
  for (uint64_t i = 0; i < count; ++i)
    into[i] = left[i] + right[i];
}

/// The sum of `rows`, each kBlock elements apart, to `into`; overwrites them.
template <typename T> void addRows(T *into, T *rows, size_t count, uint64_t size) {
  size_t step = 1;
  for (; 2 * step < count; step *= 2)
    for (size_t i = 0; i + step < count; i += 2 * step)
      add(&rows[i * kBlock], &rows[i * kBlock], &rows[(i + step) * kBlock], size);
  if (count == 1)
    std::memmove(into, rows, size * sizeof(T));
  else
    add(into, rows, &rows[step * kBlock], size);
}

template <typename T> void sumWide(T *into, std::span<const std::byte *const> parts, uint64_t count) {
  auto part = [&](size_t i) { return reinterpret_cast<const T *>(parts[i]); };
  if (parts.size() == 2)
    return add(into, part(0), part(1), count);
  // The first level of the tree adds pairs of parts; addRows does the other levels.
  std::vector<T> rows((parts.size() + 1) / 2 * kBlock);
  for (uint64_t begin = 0; begin < count; begin += kBlock) {
    const uint64_t size = std::min(kBlock, count - begin);
    for (size_t i = 0; i < parts.size(); i += 2)
      if (i + 1 < parts.size())
        add(&rows[i / 2 * kBlock], part(i) + begin, part(i + 1) + begin, size);
      else
        std::memcpy(&rows[i / 2 * kBlock], part(i) + begin, size * sizeof(T));
    addRows(into + begin, rows.data(), (parts.size() + 1) / 2, size);
  }
}

template <float (*widen)(uint16_t), uint16_t (*narrow)(float)>
void sumNarrow(uint16_t *into, std::span<const std::byte *const> parts, uint64_t count) {
  std::vector<float> rows(parts.size() * kBlock);
  for (uint64_t begin = 0; begin < count; begin += kBlock) {
    const uint64_t size = std::min(kBlock, count - begin);
    for (size_t part = 0; part < parts.size(); ++part)
      for (uint64_t i = 0; i < size; ++i)
        rows[part * kBlock + i] = widen(reinterpret_cast<const uint16_t *>(parts[part])[begin + i]);
    addRows(rows.data(), rows.data(), parts.size(), size);
    for (uint64_t i = 0; i < size; ++i)
      into[begin + i] = narrow(rows[i]);
  }
}
} // namespace

bool canSum(plan::DType dtype) { return plan::isFloatingPoint(dtype); }

void sumParts(std::byte *into, std::span<const std::byte *const> parts, plan::DType dtype, uint64_t count) {
  if (parts.empty())
    return;
  switch (dtype) {
  case plan::F64:
    return sumWide(reinterpret_cast<double *>(into), parts, count);
  case plan::F32:
    return sumWide(reinterpret_cast<float *>(into), parts, count);
  case plan::BF16:
    return sumNarrow<widenBf16, narrowBf16>(reinterpret_cast<uint16_t *>(into), parts, count);
  case plan::F16:
    return sumNarrow<widenF16, narrowF16>(reinterpret_cast<uint16_t *>(into), parts, count);
  default:
    return;
  }
}

} // namespace tcc::runtime

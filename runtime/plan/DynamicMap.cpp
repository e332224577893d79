//===- DynamicMap.cpp - numbers in [−1, 1] as codes of 8 bits --------------===//
#include "runtime/plan/DynamicMap.h"

#include <algorithm>
#include <cmath>

namespace tcc::plan {

namespace {

/// Point `index` of torch.linspace(0.1, 1, count) in f32, which counts from the nearer end, with one rounding: so torch
/// computes it on processors with AVX2.
float pointOf(int index, int count) {
  const float begin = 0.1F, end = 1, step = (end - begin) / static_cast<float>(count - 1);
  return index < count / 2 ? std::fma(step, static_cast<float>(index), begin)
                           : std::fma(-step, static_cast<float>(count - 1 - index), end);
}

std::array<float, 256> makeNumbers(DynamicKind kind) {
  constexpr std::array<float, 7> decades = {1e-6F, 1e-5F, 1e-4F, 1e-3F, 1e-2F, 1e-1F, 1};
  std::array<float, 256> numbers = {0, 1};
  size_t made = 2;
  for (size_t decade = 0; decade < decades.size(); ++decade) {
    const int count = 1 << (kind == DynamicKind::Signed ? decade : decade + 1);
    for (int i = 0; i < count; ++i) {
      const float middle = (pointOf(i, count + 1) + pointOf(i + 1, count + 1)) / 2;
      numbers[made++] = decades[decade] * middle;
      if (kind == DynamicKind::Signed)
        numbers[made++] = -decades[decade] * middle;
    }
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::array<float, 255> makeThresholds(DynamicKind kind) {
  std::array<float, 255> thresholds = {};
  const std::array<float, 256> &numbers = dynamicNumbers(kind);
  for (size_t code = 0; code < thresholds.size(); ++code)
    thresholds[code] = (numbers[code] + numbers[code + 1]) / 2;
  return thresholds;
}

} // namespace

const std::array<float, 256> &dynamicNumbers(DynamicKind kind) {
  static const std::array<float, 256> isSigned = makeNumbers(DynamicKind::Signed);
  static const std::array<float, 256> isUnsigned = makeNumbers(DynamicKind::Unsigned);
  return kind == DynamicKind::Signed ? isSigned : isUnsigned;
}

const std::array<float, 255> &dynamicThresholds(DynamicKind kind) {
  static const std::array<float, 255> isSigned = makeThresholds(DynamicKind::Signed);
  static const std::array<float, 255> isUnsigned = makeThresholds(DynamicKind::Unsigned);
  return kind == DynamicKind::Signed ? isSigned : isUnsigned;
}

float dynamicRounding(DynamicKind kind) {
  const std::array<float, 256> &numbers = dynamicNumbers(kind);
  float most = 0;
  for (size_t code = 0; code + 1 < numbers.size(); ++code)
    most = std::max(most, (numbers[code + 1] - numbers[code]) / 2);
  return most;
}

uint8_t dynamicCode(DynamicKind kind, float number) {
  const std::array<float, 255> &thresholds = dynamicThresholds(kind);
  return static_cast<uint8_t>(std::lower_bound(thresholds.begin(), thresholds.end(), number) - thresholds.begin());
}

} // namespace tcc::plan

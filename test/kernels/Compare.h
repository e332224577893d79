//===- Compare.h - what may differ between a kernel and its reference -*- C++ -*-===//
#ifndef TCC_TEST_KERNELS_COMPARE_H
#define TCC_TEST_KERNELS_COMPARE_H

#include "test/support/Cases.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstring>

namespace tcc::test {

/// Four units in the last place for f32 and f64. For 16-bit types one unit, since results are rounded once more than
/// the reference.
inline double toleranceOf(mlir::Type element) {
  if (element.isF64())
    return 0x1p-50;
  if (element.isF32())
    return 0x1p-21;
  return element.isF16() ? 0x1p-10 : 0x1p-7;
}

/// The largest number of a floating-point type.
inline double largestOf(mlir::Type element) {
  return element.isF64() ? DBL_MAX : element.isF32() ? double(FLT_MAX) : element.isF16() ? 65504 : 0x1.FEp127;
}

/// The smallest number above 0.
inline double smallestOf(mlir::Type element) {
  return element.isF64() ? 0x1p-1074 : element.isF32() ? 0x1p-149 : element.isF16() ? 0x1p-24 : 0x1p-133;
}

/// Expects equal integers, floats that differ by no more than rounding explains, and infinities and NaN in the same
/// elements. An element may also be infinite or NaN if `reach` is so there.
inline void expectEqual(const train::HostTensor &actual, const train::HostTensor &expected, const Case &c,
                        const train::HostTensor *reach = nullptr) {
  ASSERT_EQ(actual.type(), expected.type());
  if (!expected.isFloat()) {
    for (int64_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(actual.getInt(i), expected.getInt(i)) << "element " << i;
    return;
  }
  // Sums cancel, so that their error is measured relative to the largest element.
  double scale = 1;
  if (c.slack > 1)
    for (int64_t i = 0; i < expected.size(); ++i)
      if (std::isfinite(expected.getDouble(i)))
        scale = std::max(scale, std::fabs(expected.getDouble(i)));
  for (int64_t i = 0; i < expected.size(); ++i) {
    double x = expected.getDouble(i), y = actual.getDouble(i);
    if (reach && !std::isfinite(reach->getDouble(i)) && !std::isfinite(y))
      continue;
    if (std::isnan(x) || std::isinf(x)) {
      ASSERT_TRUE(std::isnan(x) ? std::isnan(y) : x == y) << "element " << i << ": " << y << ", not " << x;
      continue;
    }
    ASSERT_NEAR(y, x, c.slack * toleranceOf(expected.elementType()) * std::max(scale, std::fabs(x))) << "element " << i;
  }
}

/// Expects the same bits; all NaNs count as equal.
inline void expectSameBits(const train::HostTensor &actual, const train::HostTensor &expected) {
  ASSERT_EQ(actual.type(), expected.type());
  if (std::memcmp(actual.data(), expected.data(), expected.sizeBytes()) == 0)
    return;
  for (int64_t i = 0; i < expected.size(); ++i) {
    if (!expected.isFloat()) {
      ASSERT_EQ(actual.getInt(i), expected.getInt(i)) << "element " << i;
      continue;
    }
    double x = expected.getDouble(i), y = actual.getDouble(i);
    ASSERT_TRUE(std::isnan(x) ? std::isnan(y) : x == y && std::signbit(x) == std::signbit(y))
        << "element " << i << ": " << y << ", not " << x;
  }
}

} // namespace tcc::test

#endif // TCC_TEST_KERNELS_COMPARE_H

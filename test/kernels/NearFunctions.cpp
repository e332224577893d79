//===- NearFunctions.cpp - functions for results of 16 bits -----*- C++ -*-===//
//
// Every bf16 and f16, against the C library in long double, with the machine's approximations at both ends of their
// bounds. Errors are counted in halves of the distance between neighbours of the 16-bit type at the exact result: an
// error of 1 could turn every rounding. Arguments of kernels are f32, such as a product and its bias: every 10007th f32
// meets the same bounds.
//
//===----------------------------------------------------------------------===//
#include "test/support/NearFunctionTable.h"

#include <gtest/gtest.h>

using namespace tcc;
using tcc::test::HostLane;
using tcc::test::NarrowType;

namespace {

class NearFunctions : public testing::TestWithParam<test::NearFunction> {
protected:
  void TearDown() override { HostLane::powerUlps = HostLane::reciprocalUlps = 0; }

  static double nearAt(double x) { return GetParam().near(HostLane::single(float(x))).f; }

  /// The error of the near form at x, in halves of a step.
  static double errorAt(const NarrowType &type, double x) {
    long double exact = GetParam().exact(x);
    double near = nearAt(x);
    if (!std::isfinite(exact))
      return 0;           // compared with the usual form
    if (std::isinf(test::roundedTo(type, exact)) && std::isinf(test::roundedTo(type, near)))
      return 0;
    if (GetParam().hasZero && x > -1 && x < -0.5)
      return double(std::fabs(near - exact) / test::halfStepAt(type, std::max(std::fabs(exact), 0.0625L)));
    return double(std::fabs(near - exact) / test::halfStepAt(type, exact));
  }

  static void expectBound(const NarrowType &type, double bound) {
    double worst = 0, at = 0;
    int differ = 0, results = 0;
    auto measure = [&](double x) {
      if (double error = errorAt(type, x); error > worst)
        worst = error, at = x;
    };
    for (int power : {-2, 0, 2})
      for (int reciprocal : {-1, 0, 1}) {
        HostLane::powerUlps = power, HostLane::reciprocalUlps = reciprocal;
        for (uint32_t bits = 0; bits < 65536; ++bits) {
          const double x = test::widened(type, bits);
          measure(x);
          if (long double exact = GetParam().exact(x); std::isfinite(exact))
            ++results, differ += test::roundedTo(type, exact) != test::roundedTo(type, nearAt(x));
        }
      }
    for (uint64_t bits = 0; bits <= 0xffffffff; bits += 10007)
      if (float x = std::bit_cast<float>(uint32_t(bits)); std::fabs(GetParam().exact(x)) < ldexpl(1, type.most + 1))
        measure(x);
    EXPECT_LE(worst, bound) << "at " << at;
    // As many differ as lie that close to a tie, or fewer.
    EXPECT_LE(differ, bound * results);
    RecordProperty("error", std::to_string(worst));
    RecordProperty("differ", std::to_string(differ) + " of " + std::to_string(results));
  }
};

TEST_P(NearFunctions, RoundToTheExactBf16ExceptNearTies) { expectBound(test::kBf16, 1. / 200); }
TEST_P(NearFunctions, RoundToTheExactF16ExceptNearTies) { expectBound(test::kF16, 1. / 100); }

TEST_P(NearFunctions, SpecialValuesAreThoseOfTheUsualForm) {
  for (float x : {0.0f, -0.0f, HUGE_VALF, -HUGE_VALF, NAN, 3e38f, -3e38f, 1e-45f, -1e-45f, 0x1p-126f, -0x1p-126f}) {
    const double near = nearAt(x), usual = GetParam().usual(HostLane::single(x)).f;
    EXPECT_EQ(std::isnan(near), std::isnan(usual)) << x;
    if (std::isnan(usual))
      continue;
    EXPECT_EQ(std::isinf(near), std::isinf(usual)) << x;
    EXPECT_NEAR(std::isinf(near) ? 0 : near, std::isinf(usual) ? 0 : usual,
                std::max(std::fabs(usual) * 0x1p-16, 0x1p-149))
        << x;
    EXPECT_EQ(std::signbit(near), std::signbit(usual)) << x;
  }
}

INSTANTIATE_TEST_SUITE_P(All, NearFunctions, testing::ValuesIn(test::nearFunctions()),
                         [](const testing::TestParamInfo<test::NearFunction> &info) { return info.param.name(); });

// Models without an op for gelu compute x·(1 + erf(x/√2))/2: the sum must lose no more digits than its rounding costs.
TEST(NearErf, KeepsTheDigitsOfItsComplement) {
  for (float x = -4; x < -0.6f; x += 1e-4f)
    EXPECT_NEAR(1 + train::scalar::near::erf(HostLane::single(x)).f, double(erfcl(-x)), erfcl(-x) * 0x1p-19 + 0x1p-24)
        << x;
}

} // namespace

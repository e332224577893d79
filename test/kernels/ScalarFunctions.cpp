//===- ScalarFunctions.cpp - accuracy of our own functions ------*- C++ -*-===//
//
// Every 1021st f32 (all binades, subnormals too) and many f64, against the C library in long double. Errors are counted in
// units in the last place of the result, those of subnormal results in the smallest subnormal.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/ScalarFunctions.h"
#include "test/support/ScalarFunctionTable.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <vector>

using namespace tcc;
using tcc::test::HostLane;

namespace {

template <typename T> double ulps(T actual, long double expected) {
  T rounded = T(expected);
  if (std::isnan(rounded) || std::isnan(actual))
    return std::isnan(rounded) && std::isnan(actual) ? 0 : HUGE_VAL;
  if (std::isinf(rounded) || std::isinf(actual)) // the last number before ∞ is within an ulp of overflow
    return actual == rounded || std::fabs(std::nextafter(actual, rounded)) == std::fabs(rounded) ? 0 : HUGE_VAL;
  T magnitude = std::max(std::fabs(rounded), std::numeric_limits<T>::min());
  return double(std::fabs((long double)actual - expected) / (std::nextafter(magnitude, T(INFINITY)) - magnitude));
}

using Case = test::ScalarFunction;

class ScalarFunctions : public testing::TestWithParam<Case> {};

TEST_P(ScalarFunctions, SingleIsWithinTwoUlp) {
  double worst = 0;
  float at = 0;
  for (uint64_t bits = 0; bits <= 0xffffffff; bits += 1021) {
    float x = std::bit_cast<float>(uint32_t(bits));
    if (std::isfinite(x) && std::fabs(x) > GetParam().largestSingle)
      continue;
    double error = ulps(float(GetParam().program(HostLane::single(x)).f), GetParam().exact(x));
    if (error > worst) {
      worst = error;
      at = x;
    }
  }
  EXPECT_LE(worst, 2.0) << "at " << at;
  RecordProperty("ulp", std::to_string(worst));
}

TEST_P(ScalarFunctions, DoubleIsWithinFourUlp) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> ordinary(0, 4);
  std::vector<double> arguments = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1, -1, 5e-324, -5e-324, 1e-310, 709.7, 709.8, -745, -746, 710};
  for (int i = 0; i < 100000; ++i) {
    arguments.push_back(ordinary(random));
    arguments.push_back(std::bit_cast<double>(random()));
    arguments.push_back(ordinary(random) * 100);
    arguments.push_back(std::tanh(ordinary(random) / 4)); // the whole domain of asin, acos and atanh
    arguments.push_back(1 + std::exp(2 * ordinary(random)));
  }
  double worst = 0, at = 0;
  for (double x : arguments) {
    if (std::isfinite(x) && std::fabs(x) > GetParam().largestDouble)
      continue;
    double error = ulps(GetParam().program(HostLane::dbl(x)).f, GetParam().exact(x));
    if (error > worst) {
      worst = error;
      at = x;
    }
  }
  EXPECT_LE(worst, 4.0) << "at " << at;
  RecordProperty("ulp", std::to_string(worst));
}

TEST_P(ScalarFunctions, ZeroKeepsItsSign) {
  for (double zero : {0.0, -0.0})
    if (GetParam().exact(zero) == 0) {
      EXPECT_EQ(std::signbit(GetParam().program(HostLane::dbl(zero)).f), std::signbit(zero));
      EXPECT_EQ(std::signbit(GetParam().program(HostLane::single(float(zero))).f), std::signbit(zero));
    }
}

INSTANTIATE_TEST_SUITE_P(All, ScalarFunctions, testing::ValuesIn(test::scalarFunctions()),
                         [](const testing::TestParamInfo<Case> &info) { return std::string(info.param.name); });

TEST(Gelu, IsWithinTwoToTheMinus22) {
  auto sigma = [](double x) { return 1 / (1 + std::exp(-x)); };
  auto v = [](double x) { return 2 * 0.7978845608028654 * (x + 0.044715 * x * x * x); };
  auto slope = [](double x) { return 2 * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x); };
  auto cumulative = [](double x) { return 0.5 * std::erfc(-x * 0.7071067811865476); };
  auto density = [](double x) { return 0.3989422804014327 * std::exp(-0.5 * x * x); };
  for (uint64_t bits = 0; bits <= 0xffffffff; bits += 1021) {
    float x = std::bit_cast<float>(uint32_t(bits));
    if (!(std::fabs(x) < 1e3))
      continue;
    HostLane lane = HostLane::single(x);
    double bound = 0x1p-22 * std::fabs(x) + 0x1p-149, s = sigma(v(x));
    ASSERT_NEAR(train::scalar::gelu(lane, false).f, x * cumulative(x), bound) << x;
    ASSERT_NEAR(train::scalar::gelu(lane, true).f, x * s, bound) << x;
    ASSERT_NEAR(train::scalar::geluDerivative(lane, false).f, cumulative(x) + x * density(x), 0x1p-22) << x;
    ASSERT_NEAR(train::scalar::geluDerivative(lane, true).f, s + x * slope(x) * s * sigma(-v(x)), 0x1p-22) << x;
  }
  for (bool tanh : {false, true})
    for (float large : {50.0f, 1e20f, 3e38f}) {
      EXPECT_EQ(train::scalar::gelu(HostLane::single(large), tanh).f, large);
      EXPECT_EQ(train::scalar::gelu(HostLane::single(-large), tanh).f, 0);
      EXPECT_EQ(train::scalar::geluDerivative(HostLane::single(large), tanh).f, 1);
      EXPECT_EQ(train::scalar::geluDerivative(HostLane::single(-large), tanh).f, 0);
    }
}

TEST(Pow, IsAccurate) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> exponents(0, 30), logs(0, 4);
  double worstSingle = 0, worstDouble = 0;
  for (int i = 0; i < 400000; ++i) {
    double x = std::exp(logs(random)), y = exponents(random);
    if (i % 4 == 0)
      x = 1 + 1e-3 * logs(random), y *= 1000;
    if (i % 4 == 1)
      y = std::round(y), x = -x;
    worstDouble = std::max(worstDouble, ulps(train::scalar::pow(HostLane::dbl(x), HostLane::dbl(y)).f, powl(x, y)));
    float xs = float(x), ys = float(y);
    worstSingle = std::max(worstSingle, ulps(float(train::scalar::pow(HostLane::single(xs), HostLane::single(ys)).f), powl(xs, ys)));
  }
  EXPECT_LE(worstSingle, 2);
  EXPECT_LE(worstDouble, 4);
  RecordProperty("ulp", std::to_string(worstDouble));
}

TEST(Pow, SpecialCasesAreC) {
  const double values[] = {0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 1e300, -1e300, 5e-324, -5e-324, INFINITY, -INFINITY, NAN, 1e17, -1e17 + 16};
  for (double x : values)
    for (double y : values) {
      double expected = std::pow(x, y), actual = train::scalar::pow(HostLane::dbl(x), HostLane::dbl(y)).f;
      EXPECT_LE(ulps(actual, expected), 4) << x << "^" << y << " = " << actual << ", not " << expected;
      EXPECT_EQ(std::signbit(actual) && !std::isnan(actual), std::signbit(expected) && !std::isnan(expected)) << x << "^" << y;
    }
}

TEST(RoundToOdd, AvoidsDoubleRounding) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 100000; ++i) {
    // Just above the middle of two bf16: rounding to f32 first would land on the middle.
    uint64_t bits = (random() & 0xffffe00000000000) | 0x0000100000000000 | (random() & 0x3ff);
    double x = std::bit_cast<double>((bits & 0x000fffffffffffff) | 0x3ff0000000000000);
    float odd = float(train::scalar::roundToOdd(HostLane::dbl(x)).f);
    float below = std::bit_cast<float>(std::bit_cast<uint32_t>(float(x)) & 0xffff0000);
    uint32_t raw = std::bit_cast<uint32_t>(odd);
    float rounded = std::bit_cast<float>((raw + 0x7fff + ((raw >> 16) & 1)) & 0xffff0000);
    bool above = x - below > (std::bit_cast<float>((std::bit_cast<uint32_t>(below) + 0x10000)) - x);
    if (x != double(float(x))) {
      EXPECT_EQ(rounded > below, above) << x;
    }
  }
}

} // namespace

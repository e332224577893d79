//===- GradientCheckTest.cpp - right gradients pass, wrong ones do not ----===//
#include "tools/tcc/GradientCheck.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace tcc;
using namespace tcc::gradcheck;

namespace {

/// A Parameter::set that assigns to `values`, which the loss reads.
std::function<Status(std::span<const double>)> setterOf(std::vector<double> &values) {
  return [&values](std::span<const double> given) {
    values.assign(given.begin(), given.end());
    return Status();
  };
}

/// loss = Σ sin(i + wᵢ)² with its gradient; 40 elements.
struct Waves {
  std::vector<double> w = std::vector<double>(40, 0.3);

  double value() const {
    double sum = 0;
    for (size_t i = 0; i < w.size(); ++i)
      sum += std::sin(double(i) + w[i]) * std::sin(double(i) + w[i]);
    return sum;
  }
  Parameter parameter() {
    Parameter p{"w", "node_w", {8, 5}, w, {}, setterOf(w)};
    for (size_t i = 0; i < w.size(); ++i)
      p.gradient.push_back(std::sin(2 * (double(i) + w[i])));
    return p;
  }
  ParameterResult check(const Parameter &p, Settings settings = {}) {
    auto result = checkParameter(
        p, [&] { return Expected<double>(value()); }, value(), settings);
    EXPECT_TRUE(result.ok()) << result.message();
    return *result;
  }
};

} // namespace

TEST(GradientCheck, ARightGradientAgrees) {
  Waves waves;
  ParameterResult result = waves.check(waves.parameter());
  EXPECT_TRUE(result.agrees);
  EXPECT_LT(result.worst.error, 1e-7);
  EXPECT_EQ(result.comparisons, 1 + 3 + 3);
  EXPECT_EQ(result.elements, 40u);
  EXPECT_EQ(waves.w, std::vector<double>(40, 0.3)) << "the parameter is put back";
}

TEST(GradientCheck, OneWrongElementIsFound) {
  // Changes every element of the gradient in turn, by a thousandth of its typical size.
  for (size_t i = 0; i < 40; ++i) {
    Waves waves;
    Parameter p = waves.parameter();
    p.gradient[i] += 1e-3;
    ParameterResult result = waves.check(p);
    EXPECT_FALSE(result.agrees) << "element " << i;
  }
}

TEST(GradientCheck, AWrongFactorIsFound) {
  Waves waves;
  Parameter p = waves.parameter();
  for (double &value : p.gradient)
    value *= 1 + 1e-5;
  ParameterResult result = waves.check(p);
  EXPECT_FALSE(result.agrees);
  EXPECT_GT(result.worst.error, 1e-6);
  EXPECT_NEAR(result.worst.claimed / result.worst.measured, 1 + 1e-5, 1e-7);
  EXPECT_NE(resultsText({result}).find("WRONG"), std::string::npos);
  EXPECT_NE(resultsText({result}).find("node_w"), std::string::npos);
}

TEST(GradientCheck, AGradientThatIsZeroByMistakeIsFound) {
  Waves waves;
  Parameter p = waves.parameter();
  std::fill(p.gradient.begin(), p.gradient.end(), 0);
  EXPECT_FALSE(waves.check(p).agrees);
}

TEST(GradientCheck, AGradientThatIsReallyZeroAgrees) {
  std::vector<double> w(10, 1.0);
  Parameter p{"w", "", {10}, w, std::vector<double>(10, 0.0), setterOf(w)};
  auto result = checkParameter(p, [] { return Expected<double>(3.25); }, 3.25, {});
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->agrees);
}

TEST(GradientCheck, AKinkNearbyIsSteppedOver) {
  // |w| with w a little off its kink: the first step crosses it, smaller ones do not.
  std::vector<double> w{2e-6, 1.0};
  auto value = [&] { return Expected<double>(std::abs(w[0]) + std::abs(w[1])); };
  Parameter p{"w", "", {2}, w, {1, 1}, setterOf(w)};
  auto result = checkParameter(p, value, *value(), {});
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->agrees) << result->worst.error << " along " << result->worst.where;
  p.gradient[0] = -1; // the slope on the other side of the kink
  EXPECT_FALSE(checkParameter(p, value, *value(), {})->agrees);
}

TEST(GradientCheck, TheSeedDecidesTheDirections) {
  Waves waves;
  Parameter p = waves.parameter();
  for (double &value : p.gradient)
    value += 0.01;
  Settings first, other;
  first.directions = other.directions = 1;
  first.elements = other.elements = 0;
  other.seed = 5;
  EXPECT_EQ(waves.check(p, first).worst.measured, waves.check(p, first).worst.measured);
  EXPECT_NE(waves.check(p, first).worst.error, waves.check(p, other).worst.error);
}

TEST(GradientCheck, ErrorsOfTheLossAreHandedOn) {
  std::vector<double> w{1};
  Parameter p{"w", "", {1}, w, {1}, setterOf(w)};
  auto result = checkParameter(p, [] { return Expected<double>(error("no such kernel")); }, 1, {});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.message(), "no such kernel");
  p.gradient[0] = NAN;
  EXPECT_NE(checkParameter(p, [] { return Expected<double>(1.0); }, 1, {}).message().find("not finite"),
            std::string::npos);
}

//===- SpecialNumbersTest.cpp - NaN, infinities and subnormals in the library's calls -===//
//
// Products and convolutions have NaN and ∞ exactly where the sum in f64 has them, with any tiles, panels and chunks: a
// NaN reaches its row or column and no other, ∞·0 is NaN, tails and padding add nothing. Subnormals are not flushed.
//
//===----------------------------------------------------------------------===//
#include "LibraryFixture.h"

#include <cmath>
#include <gtest/gtest.h>
#include <set>

using namespace tcc;
using namespace tcc::test;

namespace {
/// Expects NaN for NaN, and ∞ for ∞ of the same sign; otherwise an error of at most `bound` relative to `size`, the sum
/// of the products' magnitudes.
void expectSum(double got, double sum, double size, double bound, const std::string &what) {
  if (std::isfinite(sum)) {
    ASSERT_NEAR(got, sum, bound * size + 0x1p-148) << what;
  } else {
    ASSERT_TRUE(std::isnan(sum) ? std::isnan(got) : got == sum) << what << ": " << got << ", not " << sum;
  }
}

struct Product {
  int64_t batch, m, n, k;
  bool transA, transB;
  int64_t at(int64_t p, int64_t row, int64_t q) const { return p * m * k + (transA ? q * m + row : row * k + q); }
  int64_t bt(int64_t p, int64_t q, int64_t column) const {
    return p * k * n + (transB ? column * k + q : q * n + column);
  }

  /// `kernels`: receives the name of the implementation.
  void check(const Floats &a, const Floats &b, std::set<std::string> *kernels = nullptr) const {
    Floats c(static_cast<size_t>(batch * m * n));
    plan::MatmulCall filled;
    ASSERT_EQ(runCall(matmulCall(batch, m, n, k, transA, transB), a, b, c, 3, &filled), "");
    if (kernels)
      kernels->insert(runtime::implementationName(filled));
    for (int64_t p = 0; p < batch; ++p)
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0, size = 0;
          for (int64_t q = 0; q < k; ++q) {
            double product = double(a[at(p, i, q)]) * double(b[bt(p, q, j)]);
            sum += product;
            size += std::fabs(product);
          }
          expectSum(c[p * m * n + i * n + j], sum, size, (std::sqrt(double(k)) + 2) * 0x1p-23,
                    filled.ShortDebugString() + fmt::format(" at {}, {}, {}", p, i, j));
          if (testing::Test::HasFatalFailure())
            return;
        }
  }
};

/// Products for every implementation: tiles and shared tiles, in place, packed panels of either operand, few rows,
/// chunks along K; with tails of rows and columns.
std::vector<Product> products() {
  std::vector<Product> all;
  for (bool transA : {false, true})
    for (bool transB : {false, true})
      for (auto [batch, m, n, k] : {std::tuple(1, 1, 1, 1), std::tuple(1, 7, 5, 3), std::tuple(13, 16, 16, 8),
                                    std::tuple(2, 33, 17, 65), std::tuple(1, 131, 259, 67)})
        all.push_back({batch, m, n, k, transA, transB});
  for (bool transB : {false, true})
    all.push_back({1, 9, 70, 1301, false, transB});
  all.push_back({1, 70, 3101, 37, false, false});
  all.push_back({1, 50, 3101, 37, true, true});
  all.push_back({1, 61, 67, 3100, false, true});
  all.push_back({1, 65, 1030, 1100, false, false});
  all.push_back({1, 10, 64, 8191, true, false});
  return all;
}

Floats operand(int64_t count, uint32_t seed) { return randomFloats(static_cast<size_t>(count), seed); }
} // namespace

TEST(SpecialNumbers, OfTheFirstFactorOfAProduct) {
  std::set<std::string> kernels;
  for (const Product &s : products()) {
    Floats a = operand(s.batch * s.m * s.k, 1), b = operand(s.batch * s.k * s.n, 2);
    a[s.at(s.batch - 1, s.m - 1, s.k - 1)] = NAN;
    a[s.at(0, s.m / 2, s.k / 2)] = INFINITY;
    b[s.bt(0, s.k / 2, 0)] = 0; // meets the infinity
    s.check(a, b, &kernels);
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_TRUE(kernels.contains("panels"));
  EXPECT_TRUE(kernels.contains("few rows") || test::machineLevel() == "cpu:v3");
}

TEST(SpecialNumbers, OfTheSecondFactorOfAProduct) {
  for (const Product &s : products()) {
    Floats a = operand(s.batch * s.m * s.k, 1), b = operand(s.batch * s.k * s.n, 2);
    b[s.bt(s.batch - 1, s.k - 1, s.n - 1)] = NAN;
    b[s.bt(0, s.k / 3, s.n / 2)] = -INFINITY;
    a[s.at(0, s.m - 1, s.k / 3)] = -0.0f;
    s.check(a, b);
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST(SpecialNumbers, SubnormalFactorsAreNumbers) {
  for (const Product &s : products()) {
    Floats a = operand(s.batch * s.m * s.k, 1), b = operand(s.batch * s.k * s.n, 2);
    for (size_t i = 0; i < a.size(); ++i)
      a[i] *= 0x1p-130f;
    for (size_t i = 0; i < b.size(); ++i)
      b[i] *= 0x1p+100f;
    s.check(a, b);
    ASSERT_FALSE(HasFatalFailure());
  }
}

/// A NaN of x reaches the outputs whose window contains it, a NaN of w its feature; x also has an ∞.
TEST(SpecialNumbers, OfAConvolution) {
  for (auto [channels, features, extent] : {std::tuple(3, 5, 7), std::tuple(16, 32, 14), std::tuple(33, 17, 9)}) {
    ConvolutionShape shape{
        {2, channels, extent, extent}, {features, channels, 3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1};
    auto at = [&, c = channels, e = extent](int64_t n, int64_t channel, int64_t row, int64_t column) {
      return ((n * c + channel) * e + row) * e + column;
    };
    Floats x = operand(2 * channels * extent * extent, 1), w = operand(features * channels * 9, 2),
           y(static_cast<size_t>(2 * features * extent * extent));
    x[at(0, channels - 1, 0, 0)] = NAN;
    x[at(1, 0, extent / 2, extent - 1)] = INFINITY;
    w[((features - 1) * channels + 1) * 9 + 4] = NAN;
    ASSERT_EQ(runCall(convolutionCall(shape, plan::ConvolutionCall::FORWARD), x, w, y, 3), "");
    for (int64_t n = 0; n < 2; ++n)
      for (int64_t f = 0; f < features; ++f)
        for (int64_t row = 0; row < extent; ++row)
          for (int64_t column = 0; column < extent; ++column) {
            double sum = 0, size = 0;
            for (int64_t c = 0; c < channels; ++c)
              for (int64_t tap = 0; tap < 9; ++tap) {
                int64_t r = row + tap / 3 - 1, s = column + tap % 3 - 1;
                if (r < 0 || s < 0 || r >= extent || s >= extent)
                  continue;
                double product = double(x[at(n, c, r, s)]) * double(w[(f * channels + c) * 9 + tap]);
                sum += product;
                size += std::fabs(product);
              }
            expectSum(y[((n * features + f) * extent + row) * extent + column], sum, size, 32 * 0x1p-23,
                      fmt::format("{} channels, feature {} at {}, {}", channels, f, row, column));
            ASSERT_FALSE(HasFatalFailure());
          }
  }
}

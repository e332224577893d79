//===- NarrowMatmulTest.cpp - bf16 products against a naive sum ----------===//
//
// Runs at the machine's default level and (TCC_TEST_LEVEL, see CMakeLists.txt) at cpu:v3, both of which widen bf16, and at
// cpu:v4-bf16, which multiplies it.
// Operands are exact in bf16, so the only errors are those of f32 sums and of the last rounding.
//
//===----------------------------------------------------------------------===//
#include "LibraryFixture.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>

using namespace tcc;
using namespace tcc::test;

namespace {
float widen(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

/// bf16 values in [-1, 1) in the memory of `Floats`.
struct Narrows {
  explicit Narrows(int64_t count, uint32_t seed) : memory(static_cast<size_t>(count + 1) / 2), bits(nullptr) {
    bits = reinterpret_cast<uint16_t *>(memory.get());
    Floats values = randomFloats(static_cast<size_t>(count), seed);
    for (int64_t i = 0; i < count; ++i)
      bits[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(values[static_cast<size_t>(i)]) >> 16);
  }
  Floats memory;
  uint16_t *bits;
};

struct Shape {
  int64_t batch, m, n, k;
};

void check(Shape s, bool transA, bool transB, bool wideResult, unsigned threads, plan::MatmulCall *filled = nullptr) {
  auto [batch, m, n, k] = s;
  Narrows a(batch * m * k, 1), b(batch * k * n, 2);
  Floats c(static_cast<size_t>(wideResult ? batch * m * n : (batch * m * n + 1) / 2));
  plan::MatmulCall call = matmulCall(batch, m, n, k, transA, transB);
  call.set_dtype(plan::BF16);
  call.set_result_dtype(wideResult ? plan::F32 : plan::BF16);
  std::string what = call.ShortDebugString();
  ASSERT_EQ(runCall(call, a.memory, b.memory, c, threads, filled), "") << what;
  auto *narrow = reinterpret_cast<const uint16_t *>(c.get());
  for (int64_t p = 0; p < batch; ++p)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, size = 0;
        for (int64_t q = 0; q < k; ++q) {
          double product = double(widen(a.bits[p * m * k + (transA ? q * m + i : i * k + q)])) *
                           double(widen(b.bits[p * k * n + (transB ? j * k + q : q * n + j)]));
          sum += product;
          size += std::fabs(product);
        }
        int64_t at = (p * m + i) * n + j;
        double bound = (std::sqrt(double(k)) + 2) * 0x1p-23 * size + 1e-30;
        if (!wideResult)
          bound += 0x1p-8 * std::fabs(sum); // one rounding to 8 bits
        ASSERT_NEAR(wideResult ? c[static_cast<size_t>(at)] : widen(narrow[at]), sum, bound) << what << " at " << at;
      }
}

class NarrowMatmul : public testing::Test {
  void SetUp() override {
    if (Status status = runtime::checkLevel(testLevel()); !status.ok())
      GTEST_SKIP() << status.message();
  }
};
} // namespace

TEST_F(NarrowMatmul, AnyShapeAndTransposition) {
  for (Shape s : {Shape{1, 1, 1, 1},
                  {1, 7, 5, 3},
                  {1, 33, 17, 65},
                  {1, 131, 259, 67},
                  {1, 3, 2051, 40},
                  {1, 1001, 3, 40},
                  {1, 99, 21, 1601},
                  {13, 16, 16, 8},
                  {48, 64, 64, 64},
                  {3, 150, 170, 90}})
    for (bool transA : {false, true})
      for (bool transB : {false, true})
        for (bool wideResult : {false, true})
          check(s, transA, transB, wideResult, 2);
}

/// Blocks of K add up in f32: a result that was rounded after each block would miss the bound.
TEST_F(NarrowMatmul, LongSumsAreRoundedOnce) {
  for (bool wideResult : {false, true}) {
    check({1, 65, 130, 5000}, false, false, wideResult, 2);
    check({1, 40, 200, 6001}, true, false, wideResult, 3);
    for (bool transA : {false, true})
      check({1, 49, 518, 2501}, transA, false, wideResult, 3);
  }
}

TEST_F(NarrowMatmul, SmallWeightGradientIsSplitAlongK) {
  plan::MatmulCall call;
  for (bool wideResult : {false, true}) {
    check({1, 10, 64, 8191}, true, false, wideResult, 3, &call);
    EXPECT_LT(call.chunk_k(), 8191);
  }
}

/// An odd K ends in half a pair: memory after a row must not reach its sum, not even as a product with zero.
TEST_F(NarrowMatmul, OddKMeetsNothingBehindIt) {
  constexpr int64_t m = 64, n = 520, k = 1601;
  for (bool transA : {false, true})
    for (bool transB : {false, true}) {
      Narrows a(m * k, 1), b(n * k + 2, 2);
      b.bits[n * k] = b.bits[n * k + 1] = 0x7fc1; // NaN
      for (int64_t i = 0; i < k; ++i)
        a.bits[transA ? i * m + 1 : k + i] = 0x7fc1; // all of the second row
      Floats c(static_cast<size_t>(m * n));
      plan::MatmulCall call = matmulCall(1, m, n, k, transA, transB);
      call.set_dtype(plan::BF16);
      call.set_result_dtype(plan::F32);
      ASSERT_EQ(runCall(call, a.memory, b.memory, c, 1), "");
      for (int64_t i = 0; i < m * n; ++i)
        EXPECT_EQ(std::isnan(c[static_cast<size_t>(i)]), i / n == 1) << call.ShortDebugString() << " at " << i;
    }
}

/// An f32 operand that is rounded as it is read gives the same bits as a rounded copy. Some of its numbers are ties.
TEST_F(NarrowMatmul, RoundsTheRightOperandAsItReadsIt) {
  for (Shape s : {Shape{1, 100, 531, 1601}, {1, 64, 520, 1030}, {1, 57, 515, 2050}, {1, 5, 131, 1601}})
    for (bool transA : {false, true})
      for (bool transB : {false, true}) {
        auto [batch, m, n, k] = s;
        if (transA && m < 48)
          continue; // no kernel of ours computes it
        Narrows a(m * k, 1), copy(k * n, 2);
        Floats b = randomFloats(static_cast<size_t>(k * n), 3), wanted(static_cast<size_t>(m * n)),
               got(static_cast<size_t>(m * n));
        for (int64_t i = 0; i < k * n; ++i) {
          float &x = b[static_cast<size_t>(i)];
          if (i % 3 == 0)
            x = std::bit_cast<float>((std::bit_cast<uint32_t>(x) & ~0xffffu) | 0x8000u);
          uint32_t bits = std::bit_cast<uint32_t>(x);
          copy.bits[i] = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        }
        plan::MatmulCall call = matmulCall(1, m, n, k, transA, transB);
        call.set_dtype(plan::BF16);
        call.set_result_dtype(plan::F32);
        ASSERT_EQ(runCall(call, a.memory, copy.memory, wanted, 2), "");
        call.set_rounds_b(true);
        ASSERT_EQ(runCall(call, a.memory, b, got, 2), "");
        for (size_t i = 0; i < static_cast<size_t>(m * n); ++i)
          ASSERT_EQ(got[i], wanted[i]) << call.ShortDebugString() << " at " << i;
      }
}

TEST_F(NarrowMatmul, InfinityAndNanStayWhatTheyAre) {
  Narrows a(8, 1), b(8, 2);
  for (int64_t i = 0; i < 8; ++i)
    b.bits[i] = 0x3f80; // 1
  a.bits[3] = 0x7f80;   // infinity
  a.bits[4] = 0x7fc1;   // NaN
  Floats c(2);
  plan::MatmulCall call = matmulCall(1, 2, 1, 4, false, false);
  call.set_dtype(plan::BF16);
  call.set_result_dtype(plan::BF16);
  ASSERT_EQ(runCall(call, a.memory, b.memory, c, 1), "");
  auto *narrow = reinterpret_cast<const uint16_t *>(c.get());
  EXPECT_TRUE(std::isinf(widen(narrow[0])));
  EXPECT_TRUE(std::isnan(widen(narrow[1])));
}

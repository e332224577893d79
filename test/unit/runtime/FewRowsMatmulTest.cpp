//===- FewRowsMatmulTest.cpp - products of few rows ----------------------===//
//
// Sums of small integers are exact in f32 in any order: each element must be the right one to the last bit, whatever
// the tails of rows, columns and K. Runs in f32 at the machine's default level, and at a level with bf16 products
// (TCC_TEST_LEVEL) in bf16, too, and with a second operand that is rounded as it is read.
//
//===----------------------------------------------------------------------===//
#include "LibraryFixture.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>

using namespace tcc;
using namespace tcc::test;

namespace {
enum class Kind { F32, Bf16, Rounded };

uint16_t narrowed(float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); }

/// Stores values in the memory of `Floats`, as f32 or as bf16, in which they must be exact.
Floats stored(const std::vector<float> &values, bool narrow) {
  Floats memory(narrow ? (values.size() + 1) / 2 : values.size());
  for (size_t i = 0; i < values.size(); ++i)
    if (narrow)
      reinterpret_cast<uint16_t *>(memory.get())[i] = narrowed(values[i]);
    else
      memory[i] = values[i];
  return memory;
}

/// Integers from -4 to 4.
std::vector<float> integers(int64_t count, uint64_t state) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float &value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<float>(static_cast<int64_t>((state >> 33) % 9) - 4);
  }
  return values;
}

plan::MatmulCall callOf(Kind kind, int64_t m, int64_t n, int64_t k, bool transB) {
  plan::MatmulCall call = matmulCall(1, m, n, k, false, transB);
  if (kind != Kind::F32)
    call.set_dtype(plan::BF16);
  call.set_result_dtype(plan::F32);
  call.set_rounds_b(kind == Kind::Rounded);
  return call;
}

/// The kinds of products for which this level has few-row kernels.
std::vector<Kind> kinds() {
  if (testLevel() == "cpu:v3")
    return {};
  return {Kind::F32, Kind::Bf16, Kind::Rounded}; // bf16 in pairs, or widened
}

bool isOurs(const plan::MatmulCall &call) { return call.implementation() == plan::MatmulCall::FEW_ROWS; }

struct Operands {
  std::vector<float> a, b;

  Operands(int64_t m, int64_t n, int64_t k) : a(integers(m * k, 1)), b(integers(k * n, 2)) {}
  std::string run(const plan::MatmulCall &call, Kind kind, const Floats &c, unsigned threads,
                  plan::MatmulCall *filled = nullptr) const {
    return runCall(call, stored(a, kind != Kind::F32), stored(b, kind == Kind::Bf16), c, threads, filled);
  }
};
} // namespace

TEST(FewRowsMatmul, EveryElementIsTheRightOne) {
  std::vector<std::array<int64_t, 3>> shapes;
  for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 29, 47})
    for (auto [n, k] : {std::pair(1, 1), std::pair(5, 3), std::pair(67, 33), std::pair(130, 95)})
      shapes.push_back({m, n, k});
  for (int64_t m : {1, 7, 8, 12}) {
    shapes.push_back({m, 519, 260});
    shapes.push_back({m, 19, 2048}); // rows of A that share few sets of the first cache
    shapes.push_back({m, 81, 3001}); // several blocks of K
  }
  for (Kind kind : kinds())
    for (auto [m, n, k] : shapes)
      for (bool transB : {false, true}) {
        Operands operands(m, n, k);
        Floats c(static_cast<size_t>(m * n));
        plan::MatmulCall filled;
        ASSERT_EQ(operands.run(callOf(kind, m, n, k, transB), kind, c, 3, &filled), "");
        ASSERT_TRUE(isOurs(filled)) << filled.ShortDebugString();
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            float sum = 0;
            for (int64_t q = 0; q < k; ++q)
              sum += operands.a[static_cast<size_t>(i * k + q)] *
                     operands.b[static_cast<size_t>(transB ? j * k + q : q * n + j)];
            ASSERT_EQ(c[static_cast<size_t>(i * n + j)], sum) << filled.ShortDebugString() << " at " << i << ", " << j;
          }
      }
}

/// With one or several blocks of K: the product is summed completely, and then rounded or added once.
TEST(FewRowsMatmul, ResultsAreRoundedOrAddedOnce) {
  for (Kind kind : kinds())
    for (auto [m, n, k] : {std::array<int64_t, 3>{6, 75, 301}, {13, 40, 2500}})
      for (bool transB : {false, true}) {
        Operands operands(m, n, k);
        size_t size = static_cast<size_t>(m * n);
        Floats product(size), sum(size), narrow((size + 1) / 2);
        plan::MatmulCall call = callOf(kind, m, n, k, transB);
        ASSERT_EQ(operands.run(call, kind, product, 2), "");
        if (kind != Kind::F32) {
          call.set_result_dtype(plan::BF16);
          ASSERT_EQ(operands.run(call, kind, narrow, 2), "");
          for (size_t i = 0; i < size; ++i)
            ASSERT_EQ(reinterpret_cast<uint16_t *>(narrow.get())[i], runtime::roundToBf16(product[i]))
                << call.ShortDebugString() << " at " << i;
          call.set_result_dtype(plan::F32);
        }
        call.set_accumulate(true);
        std::vector<float> addend(size);
        for (size_t i = 0; i < size; ++i)
          sum[i] = addend[i] = static_cast<float>(i) * 0.37f;
        ASSERT_EQ(operands.run(call, kind, sum, 2), "");
        for (size_t i = 0; i < size; ++i)
          ASSERT_EQ(sum[i], addend[i] + product[i]) << call.ShortDebugString() << " at " << i;
      }
}

/// The order of a sum depends on K only: neither other rows nor the number of threads change any bit.
TEST(FewRowsMatmul, BitsDoNotDependOnOtherRowsOrThreads) {
  constexpr int64_t most = 17, n = 135, k = 1733;
  for (Kind kind : kinds())
    for (bool transB : {false, true}) {
      Floats random = randomFloats(static_cast<size_t>(most * k), 1), second = randomFloats(size_t(n * k), 2);
      Operands operands(most, n, k);
      for (size_t i = 0; i < operands.a.size(); ++i)
        operands.a[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(random[i]) & 0xffff0000u);
      for (size_t i = 0; i < operands.b.size(); ++i)
        operands.b[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(second[i]) & 0xffff0000u);
      Floats all(static_cast<size_t>(most * n));
      ASSERT_EQ(operands.run(callOf(kind, most, n, k, transB), kind, all, 1), "");
      for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 12, 17}) {
        Floats c(static_cast<size_t>(m * n));
        ASSERT_EQ(operands.run(callOf(kind, m, n, k, transB), kind, c, 3), "");
        ASSERT_EQ(std::memcmp(c.get(), all.get(), c.size() * 4), 0) << m << " rows, B transposed: " << transB;
      }
    }
}

/// NaNs after the last row of either operand, and in another row of A, reach no sum, even with odd sizes.
TEST(FewRowsMatmul, TailsMeetNothingBehindThem) {
  for (Kind kind : kinds())
    for (bool transB : {false, true})
      for (auto [m, n, k] : {std::array<int64_t, 3>{5, 33, 77}, {8, 100, 1025}, {9, 3, 1}}) {
        Operands operands(m, n, k);
        for (int64_t q = 0; q < k; ++q)
          operands.a[static_cast<size_t>(k + q)] = NAN;
        operands.a.insert(operands.a.end(), 40, NAN);
        operands.b.insert(operands.b.end(), 40, NAN);
        Floats c(static_cast<size_t>(m * n));
        plan::MatmulCall call = callOf(kind, m, n, k, transB);
        ASSERT_EQ(operands.run(call, kind, c, 2), "");
        for (int64_t i = 0; i < m * n; ++i)
          ASSERT_EQ(std::isnan(c[static_cast<size_t>(i)]), i / n == 1) << call.ShortDebugString() << " at " << i;
      }
}

/// The columns of a large weight are divided among workers; a small product has one tile, so that it wakes none.
TEST(FewRowsMatmul, TilesAreWorthAWorker) {
  if (Status status = runtime::checkLevel(testLevel()); !status.ok())
    GTEST_SKIP() << status.message();
  for (Kind kind : kinds()) {
    plan::MatmulCall small = callOf(kind, 8, 10, 64, true), large = callOf(kind, 8, 768, 768, true);
    ASSERT_TRUE(test::query(small));
    ASSERT_TRUE(test::query(large));
    EXPECT_EQ(small.tile_n(), 10);
    EXPECT_LE(large.tile_n(), 768 / 16);
    EXPECT_EQ(large.chunk_k(), 768) << "no partial sums in memory";
  }
}

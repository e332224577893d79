//===- MatmulTest.cpp - products against a naive sum in f64 --------------===//
#include "LibraryFixture.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace tcc;
using namespace tcc::test;

namespace {
/// Each value may differ by the rounding of its k products and sums: k · 2^-24 · Σ|a b|, far above what is seen.
void checkProduct(int64_t batch, int64_t m, int64_t n, int64_t k, bool transA, bool transB, unsigned threads = 2,
                  plan::MatmulCall *filled = nullptr) {
  Floats a = randomFloats(static_cast<size_t>(batch * m * k), 1),
         b = randomFloats(static_cast<size_t>(batch * k * n), 2);
  Floats c(static_cast<size_t>(batch * m * n));
  std::string what = fmt::format("{} x [{} x {} x {}]{}{}", batch, m, n, k, transA ? " A transposed" : "",
                                 transB ? " B transposed" : "");
  std::string problem = runCall(matmulCall(batch, m, n, k, transA, transB), a, b, c, threads, filled);
  ASSERT_EQ(problem, "") << what;
  for (int64_t p = 0; p < batch; ++p)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0, size = 0;
        for (int64_t q = 0; q < k; ++q) {
          double product = double(a[p * m * k + (transA ? q * m + i : i * k + q)]) *
                           double(b[p * k * n + (transB ? j * k + q : q * n + j)]);
          sum += product;
          size += std::fabs(product);
        }
        double bound = (std::sqrt(double(k)) + 2) * 0x1p-23 * size + 1e-30;
        ASSERT_NEAR(c[p * m * n + i * n + j], sum, bound) << what << " at " << p << ", " << i << ", " << j;
      }
}

void checkAllTranspositions(int64_t batch, int64_t m, int64_t n, int64_t k) {
  for (bool transA : {false, true})
    for (bool transB : {false, true})
      checkProduct(batch, m, n, k, transA, transB);
}
} // namespace

TEST(Matmul, SizeOneAndOdd) {
  for (int64_t m : {1, 7, 33})
    for (int64_t n : {1, 5, 17})
      for (int64_t k : {1, 3, 65})
        checkAllTranspositions(1, m, n, k);
}

TEST(Matmul, TilesWithTailsOnBothAxes) {
  checkAllTranspositions(1, 131, 259, 67);
  checkAllTranspositions(1, 257, 193, 300);
}

TEST(Matmul, WideAndTall) {
  checkAllTranspositions(1, 3, 2051, 40);
  checkAllTranspositions(1, 2051, 3, 40);
}

TEST(Matmul, LongKInBlocks) {
  checkAllTranspositions(1, 129, 257, 1500);
  checkAllTranspositions(1, 65, 2050, 1100);
}

/// Those that PackedMatmul.cpp multiplies: tails of panels on both axes, several blocks of K, partial sums.
TEST(Matmul, PackedPanels) {
  plan::MatmulCall call;
  bool partial = false;
  for (auto [m, n, k] :
       {std::tuple(70, 3101, 37), std::tuple(71, 517, 3100), std::tuple(301, 577, 257), std::tuple(129, 513, 2077)})
    for (bool transA : {false, true})
      for (bool transB : {false, true}) {
        checkProduct(1, m, n, k, transA, transB, 3, &call);
        if (runtime::machineLevel() != "cpu:v3" && (!transB || (n >= 3072 && k < 512))) {
          EXPECT_EQ(call.kernels(0).implementation(), "packed:avx512") << call.ShortDebugString();
          partial |= call.chunk_k() < k;
        }
      }
  EXPECT_TRUE(partial || runtime::machineLevel() == "cpu:v3");
}

TEST(Matmul, SmallBatchesShareTiles) {
  checkAllTranspositions(13, 16, 16, 8);
  checkAllTranspositions(7, 1, 64, 33);
  checkAllTranspositions(301, 9, 5, 3);
  plan::MatmulCall call;
  checkProduct(48, 64, 64, 64, false, true, 2, &call);
  EXPECT_GT(call.tile_batch(), 1) << "one library call for each small product";
}

TEST(Matmul, LargeBatches) { checkAllTranspositions(3, 150, 170, 90); }

TEST(Matmul, SmallWeightGradientIsSplitAlongK) {
  plan::MatmulCall call;
  checkProduct(1, 10, 64, 8192, true, false, 3, &call);
  EXPECT_LT(call.chunk_k(), 8192);
  EXPECT_GE(8192 / call.chunk_k(), 2);
  checkProduct(1, 10, 64, 8191, true, false, 3, &call); // the last chunk is shorter
  checkProduct(2, 10, 20, 4500, true, false);
}

/// addend + product to the last bit, as if added afterwards, in each of the ways a tiling has: the library adds to C, a
/// tile of C is added when it is copied out, partial sums are added together first.
TEST(Matmul, AddsToWhatIsThere) {
  struct Shape {
    int64_t batch, m, n, k;
    bool transA;
  };
  bool inPlace = false, packed = false, partial = false;
  for (Shape s : {Shape{1, 1, 1, 1, false},
                  {1, 7, 5, 3, true},
                  {3, 33, 17, 65, false},
                  {1, 131, 259, 67, false},
                  {1, 1001, 96, 257, true},
                  {1, 65, 2050, 1100, false},
                  {1, 700, 64, 1500, true},
                  {1, 10, 64, 8191, true},
                  {1, 300, 550, 3100, false},
                  {1, 129, 513, 2077, true},
                  {1, 65, 3101, 70, true},
                  {1, 50, 40, 8191, true}})
    for (unsigned threads : {1, 3}) {
      Floats a = randomFloats(static_cast<size_t>(s.batch * s.m * s.k), 1),
             b = randomFloats(static_cast<size_t>(s.batch * s.k * s.n), 2),
             sum = randomFloats(static_cast<size_t>(s.batch * s.m * s.n), 3), product(sum.size());
      std::vector<float> addend(sum.get(), sum.get() + sum.size());
      for (float &value : addend)
        value *= 100;
      std::copy(addend.begin(), addend.end(), sum.get());
      plan::MatmulCall call = matmulCall(s.batch, s.m, s.n, s.k, s.transA, false), filled;
      ASSERT_EQ(runCall(call, a, b, product, threads), "");
      call.set_accumulate(true);
      ASSERT_EQ(runCall(call, a, b, sum, threads, &filled), "") << call.ShortDebugString();
      bool chunks = filled.chunk_k() < s.k;
      (chunks ? partial : filled.tile_n() < s.n ? packed : inPlace) = true;
      for (size_t i = 0; i < sum.size(); ++i)
        ASSERT_EQ(sum[i], addend[i] + product[i]) << call.ShortDebugString() << " at " << i;
    }
  EXPECT_TRUE(inPlace && packed && partial) << inPlace << packed << partial;
}

TEST(Matmul, AddedSumsAreTheSameForAnyThreads) {
  for (auto [m, n, k] : {std::tuple(1001, 96, 257), std::tuple(10, 64, 8191)}) {
    Floats a = randomFloats(static_cast<size_t>(m * k), 1), b = randomFloats(static_cast<size_t>(k * n), 2);
    Floats one = randomFloats(static_cast<size_t>(m * n), 3), many = randomFloats(static_cast<size_t>(m * n), 3);
    plan::MatmulCall call = matmulCall(1, m, n, k, true, false);
    call.set_accumulate(true);
    ASSERT_EQ(runCall(call, a, b, one, 1), "");
    ASSERT_EQ(runCall(call, a, b, many, 3), "");
    EXPECT_EQ(std::memcmp(one.get(), many.get(), one.size() * 4), 0);
  }
}

/// The plan's tiles come from the shape alone: same answers, always.
TEST(Matmul, QueryIsDeterministic) {
  ASSERT_TRUE(runtime::selectLevel(runtime::machineLevel()).ok());
  plan::MatmulCall first = matmulCall(1, 256, 3072, 768, false, false), second = first;
  ASSERT_TRUE(runtime::query(first).ok());
  ASSERT_TRUE(runtime::query(second).ok());
  EXPECT_EQ(first.SerializeAsString(), second.SerializeAsString());
  EXPECT_GE(first.kernels_size(), 1);
}

/// A matrix of one row or column is its own transpose in memory. The library must not answer one description of it
/// before, and another after it has made a kernel for the first.
TEST(Matmul, RowsAndColumnsAreDescribedInOneWay) {
  ASSERT_TRUE(runtime::selectLevel(runtime::machineLevel()).ok());
  std::vector<std::pair<plan::MatmulCall, runtime::Scratch>> calls;
  for (auto [m, n, k] : {std::tuple(16, 16, 1), std::tuple(16, 1, 16), std::tuple(1, 16, 16), std::tuple(16, 1, 1)})
    for (bool transA : {true, false})
      for (bool transB : {true, false}) {
        plan::MatmulCall call = matmulCall(48, m, n, k, transA, transB);
        auto needs = runtime::query(call);
        ASSERT_TRUE(needs.ok());
        calls.emplace_back(call, scratchOf(*needs, 1));
      }
  for (const auto &[call, scratch] : calls) {
    auto made = runtime::prepare(call, scratch, 1);
    EXPECT_TRUE(made.ok()) << call.ShortDebugString() << ": " << made.message();
  }
}

TEST(Matmul, UnsupportedIsAnError) {
  plan::MatmulCall call = matmulCall(1, 4, 4, 4, false, false);
  call.set_dtype(plan::F64);
  EXPECT_NE(runtime::query(call).message().find("no f64 matmul"), std::string::npos);
  call = matmulCall(1, 4, 0, 4, false, false);
  EXPECT_NE(runtime::query(call).message().find("n = 0"), std::string::npos);
  EXPECT_FALSE(runtime::librarySupports(plan::I32));
}

/// Which instructions multiply bf16 by default is measured, once a process: the answer stays, and is one that runs here.
TEST(Matmul, TheDefaultLevelOfBf16IsOneOfThisMachine) {
  std::string plain = runtime::machineLevel(), level = runtime::machineLevel(true);
  EXPECT_EQ(runtime::machineLevel(true), level);
  if (level != plain) {
    EXPECT_EQ(level, "cpu:v4-bf16");
    EXPECT_TRUE(__builtin_cpu_supports("avx512bf16"));
    EXPECT_TRUE(runtime::multipliesBf16(level));
  }
}

TEST(Matmul, OtherKernelsThanThePlansAreRefused) {
  ASSERT_TRUE(runtime::selectLevel(runtime::machineLevel()).ok());
  plan::MatmulCall call = matmulCall(1, 64, 64, 64, false, false);
  auto needs = runtime::query(call);
  ASSERT_TRUE(needs.ok());
  plan::MatmulCall other = call;
  other.mutable_kernels(0)->set_implementation("brg:tomorrow");
  auto refused = runtime::prepare(other, scratchOf(*needs, 1), 1);
  EXPECT_NE(refused.message().find("brg:tomorrow"), std::string::npos) << refused.message();
  EXPECT_NE(refused.message().find("recompile"), std::string::npos);
  other = call;
  other.set_tile_m(call.tile_m() + 1);
  EXPECT_NE(runtime::prepare(other, scratchOf(*needs, 1), 1).message().find("tiles"), std::string::npos);
  plan::MatmulCall wide = matmulCall(1, 64, 64, 64, true, false);
  needs = runtime::query(wide);
  ASSERT_TRUE(needs.ok());
  runtime::Scratch small = scratchOf(*needs, 1);
  small.slotBytes -= 64;
  EXPECT_NE(runtime::prepare(wide, small, 1).message().find("scratch"), std::string::npos);
  small = scratchOf(*needs, 1);
  small.slots = 0;
  EXPECT_NE(runtime::prepare(wide, small, 1).message().find("scratch"), std::string::npos);
}

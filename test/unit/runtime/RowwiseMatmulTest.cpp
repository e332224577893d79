//===- RowwiseMatmulTest.cpp - products whose rows go to a kernel --------===//
//
// The kernel sees each row once, with the bits of the plain product, whichever of two implementations computes that.
//
//===----------------------------------------------------------------------===//
#include "LibraryFixture.h"

#include <atomic>
#include <gtest/gtest.h>

using namespace tcc;
using namespace tcc::test;

namespace {
/// The sizes that the kernel would be compiled for; the kernel copies its tile's rows and counts them.
struct Compiled {
  int64_t rows, columns, tileRows;
  std::atomic<int64_t> seen;
} compiled;

void copyRows(void *const *pointers, int64_t begin, int64_t end, void *) {
  auto *from = static_cast<const float *>(pointers[0]);
  auto *to = static_cast<float *>(pointers[1]);
  for (int64_t row = begin * compiled.tileRows; row < std::min(end * compiled.tileRows, compiled.rows); ++row) {
    std::memcpy(to + row * compiled.columns, from + row * compiled.columns, static_cast<size_t>(compiled.columns) * 4);
    ++compiled.seen;
  }
}

/// Runs the product row by row. False if the library cannot do so for this product.
bool runRowwise(plan::MatmulCall call, const Floats &a, const Floats &b, const Floats &out, unsigned threads) {
  call.mutable_row_kernel();
  call.set_row_operands(1);
  auto needs = test::query(call);
  if (!needs)
    return false;
  EXPECT_EQ(call.chunk_k(), call.k());
  EXPECT_EQ(call.tile_n(), call.n());
  compiled.rows = call.m();
  compiled.columns = call.n();
  compiled.tileRows = call.tile_m();
  compiled.seen = 0;
  auto runner = runtime::prepare(call, test::levelOfTest(), scratchOf(*needs, threads), threads, copyRows);
  EXPECT_TRUE(bool(runner)) << runner.message();
  runtime::WorkerScope scope;
  runtime::ThreadPool pool(threads);
  Floats scratch(needs->scratchBytes(threads) / 4);
  std::memset(scratch.get(), 0xff, scratch.size() * 4);
  void *pointers[] = {a.get(), b.get(), out.get()};
  EXPECT_TRUE(runtime::runCall(**runner, pool, pointers, reinterpret_cast<char *>(scratch.get())));
  EXPECT_TRUE(scratch.intact() && out.intact());
  EXPECT_EQ(compiled.seen, call.m());
  // The scratch that workers share is no larger than the product would be.
  EXPECT_LE(needs->scratchSharedBytes, out.size() * 4);
  return true;
}

struct Operands {
  Operands(const plan::MatmulCall &call)
      : a(randomFloats(size_t(call.m() * call.k()), 3)), b(randomFloats(size_t(call.k() * call.n()), 4)) {
    // narrow() stores the high halves of the f32 numbers, which are bf16.
    if (call.dtype() != plan::BF16)
      return;
    narrow(a);
    if (!call.rounds_b())
      narrow(b);
  }
  static void narrow(const Floats &values) {
    auto *halves = reinterpret_cast<uint16_t *>(values.get());
    for (size_t i = 0; i < values.size(); ++i)
      halves[i] = static_cast<uint16_t>(reinterpret_cast<const uint32_t *>(values.get())[i] >> 16);
  }
  Floats a, b;
};

/// Checks many shapes, and returns how many of them can be computed row by row.
int check(plan::DType dtype, bool roundsB) {
  int made = 0;
  for (auto [m, n, k] :
       {std::tuple(512, 784, 8), std::tuple(512, 784, 64), std::tuple(512, 512, 64), std::tuple(768, 768, 256),
        std::tuple(96, 3072, 100), std::tuple(301, 577, 257), std::tuple(129, 513, 33), std::tuple(640, 520, 1030),
        std::tuple(77, 300, 5), std::tuple(600, 128, 200), std::tuple(8, 20000, 3), std::tuple(1030, 40, 50)})
    for (bool transA : {false, true})
      for (bool transB : {false, true}) {
        plan::MatmulCall call = matmulCall(1, m, n, k, transA, transB);
        call.set_dtype(dtype);
        call.set_result_dtype(plan::F32);
        call.set_rounds_b(roundsB);
        Operands operands(call);
        Floats whole(size_t(m * n)), rows(size_t(m * n));
        std::string problem = runCall(call, operands.a, operands.b, whole, 2);
        if (roundsB && !problem.empty())
          continue; // no plain product rounds B for this shape
        EXPECT_EQ(problem, "");
        for (unsigned threads : {1, 3}) {
          std::memset(rows.get(), 0xff, rows.size() * 4);
          if (!runRowwise(call, operands.a, operands.b, rows, threads))
            break;
          made += threads == 1;
          EXPECT_EQ(std::memcmp(whole.get(), rows.get(), rows.size() * 4), 0)
              << call.ShortDebugString() << " on " << threads;
        }
      }
  return made;
}

bool hasNone(plan::DType dtype) {
  return !runtime::hasPanels(*runtime::levelFromName(testLevel()), dtype);
}
} // namespace

TEST(RowwiseMatmul, SameBitsAsAProductByItself) {
  int made = check(plan::F32, false);
  EXPECT_GE(made, hasNone(plan::F32) ? 0 : 20);
}

TEST(RowwiseMatmul, SameBitsOfBf16) {
  int made = check(plan::BF16, false);
  EXPECT_GE(made, hasNone(plan::BF16) ? 0 : 20);
}

TEST(RowwiseMatmul, SameBitsOfRoundedOperands) {
  int made = check(plan::BF16, true);
  EXPECT_GE(made, hasNone(plan::BF16) ? 0 : 4);
}

TEST(RowwiseMatmul, RefusesWhatWouldDiffer) {
  if (hasNone(plan::F32))
    GTEST_SKIP() << "no panels at this level";
  auto refused = [](plan::MatmulCall call) {
    call.mutable_row_kernel();
    auto needs = test::query(call);
    return !needs && needs.message().find("at a time") != std::string::npos;
  };
  plan::MatmulCall call = matmulCall(1, 512, 784, 8, true, false);
  EXPECT_FALSE(refused(call));
  plan::MatmulCall added = call;
  added.set_accumulate(true);
  EXPECT_TRUE(refused(added));
  // A long K is summed in partial sums, so that the order would differ.
  EXPECT_TRUE(refused(matmulCall(1, 128, 512, 8192, true, false)));
  // A level's few-row kernels sum in another order.
  EXPECT_FALSE(refused(matmulCall(1, 64, 256, 8, true, true)));
  EXPECT_EQ(refused(matmulCall(1, 64, 256, 8, false, true)),
            runtime::hasFewRows(*runtime::levelFromName(testLevel()), plan::F32));
  // Panels of B would take more than the gradient.
  EXPECT_TRUE(refused(matmulCall(1, 64, 784, 512, true, false)));
  EXPECT_TRUE(refused(matmulCall(2, 512, 784, 8, true, false)));
  // Not even eight rows fit into the second-level cache.
  EXPECT_TRUE(refused(matmulCall(1, 512, 1 << 15, 8, true, false)));
}

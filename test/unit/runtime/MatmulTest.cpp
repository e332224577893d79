//===- MatmulTest.cpp - products against a naive sum in f64 --------------===//
#include "LibraryFixture.h"
#include "runtime/plan/FourBits.h"
#include "test/support/FourBitGrids.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>

using namespace tcc;
using namespace tcc::test;

namespace {
/// Each value may differ by the rounding of its k products and sums: k · 2^-24 · Σ|a b|, far more than is observed.
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

/// Products on the panels of PackedMatmul.cpp: tails on both axes, several blocks of K, partial sums.
TEST(Matmul, PackedPanels) {
  plan::MatmulCall call;
  bool partial = false;
  for (auto [m, n, k] :
       {std::tuple(70, 3101, 37), std::tuple(71, 517, 3100), std::tuple(301, 577, 257), std::tuple(129, 513, 2077)})
    for (bool transA : {false, true})
      for (bool transB : {false, true}) {
        checkProduct(1, m, n, k, transA, transB, 3, &call);
        if (test::machineLevel() == "cpu:v3" || !transB || (n >= 3072 && k < 512)) {
          EXPECT_EQ(call.implementation(), plan::MatmulCall::PANELS) << call.ShortDebugString();
          partial |= call.chunk_k() < k;
        }
      }
  EXPECT_TRUE(partial);
}

/// One core's registers hold 8 words instead of 16; every sum is made in the same order.
TEST(Matmul, PanelsHaveTheSameBitsWithAvx2Alone) {
  runtime::CpuFeatures avx2;
  avx2.avx2 = true;
  for (auto [m, n, k] : {std::tuple(1, 1, 1), std::tuple(7, 5, 3), std::tuple(33, 17, 65), std::tuple(13, 40, 9),
                         std::tuple(131, 259, 67), std::tuple(70, 130, 1100)})
    for (int form = 0; form < 16; ++form) {
      plan::MatmulCall call = matmulCall(1, m, n, k, form & 1, form & 2);
      if (form & 4) {
        call.set_dtype(plan::BF16);
        call.set_widened(true);
        call.set_result_dtype(form & 8 ? plan::BF16 : plan::F32);
      } else {
        call.set_accumulate(form & 8);
      }
      call.set_implementation(plan::MatmulCall::PANELS);
      call.set_tile_batch(1);
      call.set_tile_m(std::min(m, 48));
      call.set_tile_n(std::min(n, 96));
      call.set_chunk_k(k);
      call.set_block_k(std::min(k, 256));
      call.set_numerics(runtime::numericsOf(call.implementation()));
      auto needs = runtime::needsOf(call);
      ASSERT_TRUE(needs.ok()) << needs.message();
      Floats a = randomFloats(static_cast<size_t>(m * k), 1), b = randomFloats(static_cast<size_t>(k * n), 2);
      for (const Floats *values : {&a, &b})
        for (size_t i = 0; form & 4 && i < values->size(); ++i)
          reinterpret_cast<uint16_t *>(values->get())[i] = runtime::roundToBf16((*values)[i]);
      auto run = [&] {
        Floats c = randomFloats(static_cast<size_t>(m * n), 3), scratch(needs->scratchBytes(1) / 4);
        auto made = runtime::prepare(call, test::levelOfTest(), scratchOf(*needs, 1), 1);
        EXPECT_TRUE(made.ok()) << made.message();
        runtime::WorkerScope scope;
        runtime::ThreadPool pool(1);
        std::vector<void *> pointers = {a.get(), b.get(), c.get()};
        if (call.accumulate())
          pointers.insert(pointers.begin() + 2, c.get());
        EXPECT_TRUE(runtime::runCall(**made, pool, pointers.data(), reinterpret_cast<char *>(scratch.get())));
        EXPECT_TRUE(scratch.intact() && c.intact());
        return c;
      };
      Floats here = run();
      runtime::ScopedFeatures less(avx2);
      Floats there = run();
      EXPECT_EQ(std::memcmp(here.get(), there.get(), here.size() * 4), 0) << call.ShortDebugString();
    }
}

/// Makes of f32 values bf16 ones in the same memory, two in the place of one.
void narrowInPlace(Floats &values) {
  for (size_t i = values.size(); i-- > 0;)
    values[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(values[i]) & 0xffff0000U |
                                     std::bit_cast<uint32_t>(values[i]) >> 16);
}

/// A call whose operand A is bf16 (`narrow`), and perhaps its result; B is in 4 bits, or f32 that the call rounds.
void setTypes(plan::MatmulCall &call, bool narrow, bool narrowC, bool unpacks) {
  call.set_dtype(narrow ? plan::BF16 : plan::F32);
  call.set_result_dtype(narrowC ? plan::BF16 : plan::F32);
  call.set_widened(narrow && !runtime::multipliesBf16(test::levelOfTest()));
  call.set_rounds_b(narrow && !unpacks);
}

/// A product that unpacks 4 bits has the bits of the one with the widened matrix, in several tiles and blocks of K.
TEST(Matmul, FourBitsHaveTheBitsOfTheWidenedMatrix) {
  for (auto [m, n, k] : {std::tuple(1, 1, 1), std::tuple(7, 5, 3), std::tuple(33, 17, 65), std::tuple(131, 259, 67),
                         std::tuple(70, 130, 1100), std::tuple(48, 96, 256)})
    for (int form = 0; form < 64; ++form) {
      const bool alongK = form & 1, transA = form & 2, narrow = form & 16, narrowC = narrow && form & 32;
      if (!narrow && form & 32)
        continue;
      const auto code = form & 4 ? plan::FourBits::NF4 : plan::FourBits::INT4;
      const int64_t dims[] = {k, n};
      const bool inRow[] = {alongK, !alongK};
      plan::FourBits layout = plan::fourBitsOf(code, form & 8 ? 64 : 32, dims, inRow);
      layout.set_nested(code == plan::FourBits::NF4 && form & 8);
      Floats a = randomFloats(static_cast<size_t>(m * k), 1), b = randomFloats(static_cast<size_t>(k * n), 2);
      const auto packed = plan::roundToFourBits(std::as_bytes(std::span(b.get(), b.size())), plan::F32, layout);
      ASSERT_TRUE(packed);
      std::vector<float> numbers = packed->nested.numbers;
      const auto wide = plan::widenFourBits(std::as_bytes(std::span(packed->bytes)), packed->scaleBytes(), layout,
                                            plan::F32, std::as_bytes(std::span(numbers)));
      std::memcpy(b.get(), wide.data(), wide.size());
      if (narrow)
        narrowInPlace(a);
      auto run = [&](bool unpacks) {
        plan::MatmulCall call = matmulCall(1, m, n, k, transA, false);
        setTypes(call, narrow, narrowC, unpacks);
        call.set_implementation(plan::MatmulCall::PANELS);
        call.set_tile_batch(1);
        call.set_tile_m(std::min(m, 48));
        call.set_tile_n(std::min(n, 96));
        call.set_chunk_k(k > 1000 ? 576 : k);
        call.set_block_k(std::min(k, 256));
        call.set_numerics(runtime::numericsOf(call.implementation()));
        if (unpacks)
          *call.mutable_four_bits() = layout;
        auto needs = runtime::needsOf(call);
        EXPECT_TRUE(needs.ok()) << needs.message();
        Floats c(static_cast<size_t>(m * n)), scratch(needs->scratchBytes(1) / 4), partial(needs->partialBytes / 4 + 1);
        auto made = runtime::prepare(call, test::levelOfTest(), scratchOf(*needs, 1), 1);
        EXPECT_TRUE(made.ok()) << made.message();
        runtime::WorkerScope scope;
        runtime::ThreadPool pool(1);
        std::vector<uint8_t> bytes = packed->bytes;
        std::vector<std::byte> scales(packed->scaleBytes().begin(), packed->scaleBytes().end());
        std::vector<void *> pointers = {a.get()};
        if (unpacks)
          pointers.insert(pointers.end(), {bytes.data(), scales.data()});
        else
          pointers.push_back(b.get());
        if (unpacks && layout.nested())
          pointers.push_back(numbers.data());
        pointers.insert(pointers.end(), {c.get(), partial.get()});
        EXPECT_TRUE(runtime::runCall(**made, pool, pointers.data(), reinterpret_cast<char *>(scratch.get())));
        EXPECT_TRUE(scratch.intact() && c.intact());
        return c;
      };
      Floats unpacked = run(true), widened = run(false);
      EXPECT_EQ(std::memcmp(unpacked.get(), widened.get(), unpacked.size() * 4), 0)
          << m << " " << n << " " << k << " " << form;
    }
}

/// The same for matrices of files, with scales and zero points of a grid.
TEST(Matmul, GridsHaveTheBitsOfTheWidenedMatrix) {
  std::mt19937 random(11);
  for (auto [m, n, k] : {std::tuple(1, 1, 1), std::tuple(7, 5, 3), std::tuple(33, 17, 65), std::tuple(131, 259, 67),
                         std::tuple(70, 130, 1100), std::tuple(48, 96, 256)})
    for (int form = 0; form < 48; ++form) {
      test::GridMatrix matrix = test::randomGrid(random, k, n);
      const bool transA = form & 1, narrow = form & 2, narrowC = narrow && form & 4;
      Floats a = randomFloats(static_cast<size_t>(m * k), 1), b(static_cast<size_t>(k * n));
      const auto wide = matrix.widened();
      std::memcpy(b.get(), wide.data(), wide.size());
      if (narrow)
        narrowInPlace(a);
      auto run = [&](bool unpacks) {
        plan::MatmulCall call = matmulCall(1, m, n, k, transA, false);
        setTypes(call, narrow, narrowC, unpacks);
        call.set_implementation(plan::MatmulCall::PANELS);
        call.set_tile_batch(1);
        call.set_tile_m(std::min(m, 48));
        call.set_tile_n(std::min(n, 96));
        call.set_chunk_k(k > 1000 ? 576 : k);
        call.set_block_k(std::min(k, 256));
        call.set_numerics(runtime::numericsOf(call.implementation()));
        if (unpacks)
          *call.mutable_four_bits() = matrix.layout;
        auto needs = runtime::needsOf(call);
        EXPECT_TRUE(needs.ok()) << needs.message();
        Floats c(static_cast<size_t>(m * n)), scratch(needs->scratchBytes(1) / 4), partial(needs->partialBytes / 4 + 1);
        auto made = runtime::prepare(call, test::levelOfTest(), scratchOf(*needs, 1), 1);
        EXPECT_TRUE(made.ok()) << made.message();
        runtime::WorkerScope scope;
        runtime::ThreadPool pool(1);
        std::vector<void *> pointers = {a.get()};
        if (unpacks)
          pointers.insert(pointers.end(), {matrix.bytes.data(), matrix.scales.data()});
        else
          pointers.push_back(b.get());
        if (unpacks && matrix.hasZeros())
          pointers.push_back(const_cast<void *>(matrix.zeros()));
        pointers.insert(pointers.end(), {c.get(), partial.get()});
        EXPECT_TRUE(runtime::runCall(**made, pool, pointers.data(), reinterpret_cast<char *>(scratch.get())));
        EXPECT_TRUE(scratch.intact() && c.intact());
        return c;
      };
      Floats unpacked = run(true), widened = run(false);
      EXPECT_EQ(std::memcmp(unpacked.get(), widened.get(), unpacked.size() * 4), 0)
          << m << " " << n << " " << k << " " << form << " " << matrix.layout.ShortDebugString();
    }
}

TEST(Matmul, FourBitsOfAnotherLayoutAreRefused) {
  const int64_t dims[] = {64, 48};
  const bool inRow[] = {true, false};
  plan::MatmulCall good = matmulCall(1, 32, 48, 64, false, false);
  good.set_implementation(plan::MatmulCall::PANELS);
  good.set_tile_batch(1);
  good.set_tile_m(32);
  good.set_tile_n(48);
  good.set_chunk_k(64);
  good.set_block_k(64);
  good.set_numerics(runtime::numericsOf(good.implementation()));
  *good.mutable_four_bits() = plan::fourBitsOf(plan::FourBits::NF4, 64, dims, inRow);
  EXPECT_TRUE(runtime::needsOf(good).ok());
  auto refused = [&](auto change) {
    plan::MatmulCall call = good;
    change(call);
    EXPECT_FALSE(runtime::needsOf(call).ok()) << call.ShortDebugString();
  };
  refused([](plan::MatmulCall &call) { call.mutable_four_bits()->set_block(48); });
  refused([](plan::MatmulCall &call) { call.mutable_four_bits()->set_dims(0, 65); });
  refused([](plan::MatmulCall &call) { call.mutable_four_bits()->set_strides(0, 2); });
  refused([](plan::MatmulCall &call) { call.mutable_four_bits()->set_code(plan::FourBits::NONE); });
  refused([](plan::MatmulCall &call) { call.mutable_four_bits()->set_code(plan::FourBits::INT8); });
  refused([](plan::MatmulCall &call) { call.set_accumulate(true); });
  refused([](plan::MatmulCall &call) { call.set_implementation(plan::MatmulCall::LIBRARY); });
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

/// The result is addend + product to the last bit, as if added afterwards, for each way of adding: the library adds to
/// C; a tile is added when it is copied to C; partial sums are added to each other first.
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
  plan::MatmulCall first = matmulCall(1, 256, 3072, 768, false, false), second = first;
  ASSERT_TRUE(test::query(first).ok());
  ASSERT_TRUE(test::query(second).ok());
  EXPECT_EQ(first.SerializeAsString(), second.SerializeAsString());
  EXPECT_GE(first.tile_m(), 1);
}

/// Among tilings with the same cost for few workers and the same order of sums, the one that serves more workers is
/// chosen.
TEST(Matmul, PanelsLeaveWorkForManyWorkers) {
  target::cpu::CpuModel model;
  for (auto [m, n, k] : {std::tuple(256, 3072, 768), std::tuple(256, 768, 50257)}) {
    runtime::MatmulShape shape{1, m, n, k, false, false, 4};
    EXPECT_GE(target::cpu::choosePanelTiling(shape, model).tiles(shape), 16) << m << " x " << n << " x " << k;
  }
}

/// Tiles that need less scratch sum in the order of the usual ones.
TEST(Matmul, LighterTilesHaveTheSameBits) {
  const target::cpu::CpuModel model;
  const uint64_t slots = 8;
  plan::MatmulCall usual = matmulCall(1, 512, 2304, 1280, true, false);
  auto needs = test::query(usual);
  ASSERT_TRUE(needs.ok()) << needs.message();
  ASSERT_EQ(usual.implementation(), plan::MatmulCall::PANELS);
  plan::MatmulCall lighter = usual;
  EXPECT_FALSE(target::cpu::lighter(lighter, slots, needs->scratchBytes(slots), model)) << "it needs no more";
  auto choice = target::cpu::lighter(lighter, slots, 0, model);
  ASSERT_TRUE(choice);
  EXPECT_LT(choice->needs.scratchBytes(slots), needs->scratchBytes(slots));
  EXPECT_EQ(lighter.chunk_k(), usual.chunk_k());
  EXPECT_EQ(lighter.block_k(), usual.block_k());
  Floats a = randomFloats(512 * 1280, 1), b = randomFloats(2304 * 1280, 2), first(512 * 2304), second(512 * 2304);
  ASSERT_EQ(runCall(usual, a, b, first, 2), "");
  ASSERT_EQ(runCall(lighter, a, b, second, 2), "");
  EXPECT_EQ(std::memcmp(first.get(), second.get(), first.size() * 4), 0);
}

/// A matrix of one row or column is its own transpose in memory. The library must not answer one description of it
/// before, and another after it has made a kernel for the first.
TEST(Matmul, RowsAndColumnsAreDescribedInOneWay) {
  std::vector<std::pair<plan::MatmulCall, runtime::Scratch>> calls;
  for (auto [m, n, k] : {std::tuple(16, 16, 1), std::tuple(16, 1, 16), std::tuple(1, 16, 16), std::tuple(16, 1, 1)})
    for (bool transA : {true, false})
      for (bool transB : {true, false}) {
        plan::MatmulCall call = matmulCall(48, m, n, k, transA, transB);
        auto needs = test::query(call);
        ASSERT_TRUE(needs.ok());
        calls.emplace_back(call, scratchOf(*needs, 1));
      }
  for (const auto &[call, scratch] : calls) {
    auto made = runtime::prepare(call, test::levelOfTest(), scratch, 1);
    EXPECT_TRUE(made.ok()) << call.ShortDebugString() << ": " << made.message();
  }
}

TEST(Matmul, UnsupportedIsAnError) {
  plan::MatmulCall call = matmulCall(1, 4, 4, 4, false, false);
  call.set_dtype(plan::F64);
  EXPECT_NE(test::query(call).message().find("no f64 matmul call"), std::string::npos);
  call = matmulCall(1, 4, 0, 4, false, false);
  EXPECT_NE(test::query(call).message().find("n = 0"), std::string::npos);
}

/// A plan carries its tiles, so that tiles which this version would not choose must run as well.
TEST(Matmul, OtherTilesThanTheChosenOnesRun) {
  plan::MatmulCall chosen = matmulCall(1, 96, 640, 300, false, true);
  ASSERT_TRUE(test::query(chosen).ok());
  Floats a = randomFloats(96 * 300, 1), b = randomFloats(640 * 300, 2), first(96 * 640), other(96 * 640);
  auto run = [&](const plan::MatmulCall &call, Floats &c) {
    auto needs = runtime::needsOf(call);
    ASSERT_TRUE(needs.ok()) << needs.message();
    auto made = runtime::prepare(call, test::levelOfTest(), scratchOf(*needs, 2), 2);
    ASSERT_TRUE(made.ok()) << made.message();
    runtime::WorkerScope scope;
    runtime::ThreadPool pool(2);
    Floats scratch(needs->scratchBytes(2) / 4);
    void *pointers[] = {a.get(), b.get(), c.get()};
    EXPECT_TRUE(runtime::runCall(**made, pool, pointers, reinterpret_cast<char *>(scratch.get())));
    EXPECT_TRUE(scratch.intact() && c.intact());
  };
  run(chosen, first);
  plan::MatmulCall tiles = chosen;
  tiles.set_tile_m(24);
  tiles.set_tile_n(320);
  tiles.set_library_scratch_bytes(1 << 20);
  run(tiles, other);
  for (size_t i = 0; i < first.size(); ++i)
    ASSERT_NEAR(first[i], other[i], 1e-3) << i;
}

TEST(Matmul, UnsoundCallsAreRefused) {
  plan::MatmulCall call = matmulCall(1, 64, 64, 64, false, false);
  auto needs = test::query(call);
  ASSERT_TRUE(needs.ok());
  plan::MatmulCall other = call;
  other.set_numerics(call.numerics() + 1);
  auto refused = runtime::prepare(other, test::levelOfTest(), scratchOf(*needs, 1), 1);
  EXPECT_NE(refused.message().find("numerics 2"), std::string::npos) << refused.message();
  EXPECT_NE(refused.message().find("recompile"), std::string::npos);
  other = call;
  other.set_tile_m(65);
  EXPECT_NE(runtime::prepare(other, test::levelOfTest(), scratchOf(*needs, 1), 1).message().find("tile_m"), std::string::npos);
  other = call;
  other.set_tile_n(0);
  EXPECT_NE(runtime::prepare(other, test::levelOfTest(), scratchOf(*needs, 1), 1).message().find("tile_n"), std::string::npos);
  other = call;
  other.set_implementation(plan::MatmulCall::ROWS_TO_KERNEL);
  EXPECT_NE(runtime::prepare(other, test::levelOfTest(), scratchOf(*needs, 1), 1).message().find("kernel"), std::string::npos);
  // Instructions that the level of the test lacks would end the process.
  other = matmulCall(1, 64, 640, 300, false, false);
  other.set_dtype(plan::BF16);
  ASSERT_TRUE(target::cpu::choose(other, runtime::CpuLevel::V4Bf16, target::cpu::CpuModel()).ok());
  ASSERT_EQ(other.implementation(), plan::MatmulCall::PANELS);
  runtime::Scratch plenty{1 << 24, 1, 1 << 24};
  EXPECT_NE(runtime::prepare(other, test::levelOfTest(), plenty, 1).message().find("does not have"), std::string::npos);
  other.set_block_k(101);
  EXPECT_NE(runtime::prepare(other, test::levelOfTest(), plenty, 1).message().find("splits a pair"), std::string::npos);
  other = matmulCall(1, 64, 640, 640, true, true);
  ASSERT_TRUE(test::query(other).ok());
  if (other.implementation() == plan::MatmulCall::LIBRARY && other.library_scratch_bytes() > 0) {
    other.set_library_scratch_bytes(0);
    runtime::Scratch ample{1 << 24, 1, 0};
    EXPECT_NE(runtime::prepare(other, test::levelOfTest(), ample, 1).message().find("the plan bounds it by"), std::string::npos);
  }
  plan::MatmulCall wide = matmulCall(1, 64, 64, 64, true, false);
  needs = test::query(wide);
  ASSERT_TRUE(needs.ok());
  runtime::Scratch small = scratchOf(*needs, 1);
  small.slotBytes -= 64;
  EXPECT_NE(runtime::prepare(wide, test::levelOfTest(), small, 1).message().find("scratch"), std::string::npos);
  small = scratchOf(*needs, 1);
  small.slots = 0;
  EXPECT_NE(runtime::prepare(wide, test::levelOfTest(), small, 1).message().find("scratch"), std::string::npos);
}

/// The compiler does not ask the library: a formula bounds a primitive's scratch.
TEST(Matmul, LibraryScratchIsBounded) {
  auto level = *runtime::levelFromName(test::testLevel());
  uint64_t state = 3;
  auto pick = [&](int64_t most) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    auto value = static_cast<int64_t>(state >> 33);
    return std::min<int64_t>(most, value % 3 == 0 ? 1 + value / 3 % 24 : value % 3 == 1 ? int64_t(1) << (value / 3 % 11) : 1 + value / 3 % 600);
  };
  for (int i = 0; i < 600; ++i) {
    plan::MatmulCall call = test::matmulCall(i % 3 ? 1 : pick(8), pick(1024), pick(1024), i % 5 ? pick(2048) : 1 + i * 13, i % 2, i / 2 % 2);
    if (runtime::multipliesBf16(level) && i % 4 == 0)
      call.set_dtype(plan::BF16);
    call.set_implementation(plan::MatmulCall::LIBRARY);
    call.set_tile_batch(call.batch());
    call.set_tile_m(call.m());
    call.set_tile_n(call.n());
    call.set_chunk_k(call.k());
    call.set_block_k(call.k());
    call.set_numerics(runtime::numericsOf(call.implementation()));
    auto shape = runtime::shapeOf(call);
    ASSERT_TRUE(shape.ok());
    call.set_library_scratch_bytes(runtime::libraryScratchBound(*shape, *runtime::tilingOf(call, *shape), level));
    auto needs = runtime::needsOf(call);
    ASSERT_TRUE(needs.ok()) << needs.message();
    auto made = runtime::prepare(call, test::levelOfTest(), test::scratchOf(*needs, 1), 1);
    EXPECT_TRUE(made.ok()) << made.message();
  }
}

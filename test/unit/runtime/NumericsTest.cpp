//===- NumericsTest.cpp - results that may only change with their version -===//
//
// A plan names the numerics version of each call's implementation, so that a later program either gives the same bits
// or refuses the plan. Here each implementation runs on frozen inputs with a frozen descriptor. If a hash differs
// although the version is the same, old plans would silently get other results: raise the version in runtime/cpu/calls,
// and store the new hash with it here.
//
//===----------------------------------------------------------------------===//
#include "LibraryFixture.h"
#include "runtime/cpu/calls/ConvolutionDesign.h"

#include <gtest/gtest.h>
#include <map>

using namespace tcc;
using test::Floats;

namespace {
using Call = plan::MatmulCall;

struct Frozen {
  uint32_t version;
  uint64_t hash;
};

uint64_t hashOf(const Floats &values) { // FNV-1a
  uint64_t hash = 14695981039346656037u;
  const auto *bytes = reinterpret_cast<const unsigned char *>(values.get());
  for (size_t i = 0; i < values.size() * 4; ++i)
    hash = (hash ^ bytes[i]) * 1099511628211u;
  return hash;
}

void copyRows(void *const *pointers, int64_t begin, int64_t, void *) {
  constexpr int64_t rows = 16, columns = 96, all = 72;
  auto *from = static_cast<const float *>(pointers[0]);
  auto *to = static_cast<float *>(pointers[1]);
  for (int64_t i = begin * rows * columns; i < std::min((begin + 1) * rows, all) * columns; ++i)
    to[i] = from[i];
}

Call product(Call::Implementation implementation, plan::DType dtype, int64_t m, int64_t n, int64_t k, int64_t tileM,
             int64_t tileN, int64_t blockK) {
  Call call = test::matmulCall(1, m, n, k, false, true);
  call.set_dtype(dtype);
  call.set_result_dtype(plan::F32);
  call.set_implementation(implementation);
  call.set_tile_batch(1);
  call.set_tile_m(tileM);
  call.set_tile_n(tileN);
  call.set_chunk_k(k);
  call.set_block_k(blockK);
  call.set_numerics(runtime::numericsOf(implementation));
  if (implementation == Call::LIBRARY)
    call.set_library_scratch_bytes(1 << 20);
  if (implementation == Call::ROWS_TO_KERNEL) {
    call.mutable_row_kernel();
    call.set_row_operands(1);
  }
  return call;
}

/// Runs a frozen call on random values; bf16 operands are the upper halves of such values.
uint64_t resultOf(const Call &call) {
  auto operand = [&](int64_t count, uint32_t seed) {
    Floats values = test::randomFloats(static_cast<size_t>(count), seed);
    if (call.dtype() == plan::BF16) {
      auto *narrow = reinterpret_cast<uint16_t *>(values.get());
      for (int64_t i = 0; i < count; ++i)
        narrow[i] = runtime::roundToBf16(values[static_cast<size_t>(i)]);
    }
    return values;
  };
  Floats a = operand(call.m() * call.k(), 1), b = operand(call.n() * call.k(), 2),
         c(static_cast<size_t>(call.m() * call.n()));
  auto needs = runtime::needsOf(call);
  EXPECT_TRUE(needs.ok()) << needs.message();
  auto made = runtime::prepare(call, test::levelOfTest(), test::scratchOf(*needs, 1), 1, copyRows);
  EXPECT_TRUE(made.ok()) << made.message();
  if (!made)
    return 0;
  runtime::WorkerScope scope;
  runtime::ThreadPool pool(1);
  Floats scratch(needs->scratchBytes(1) / 4);
  void *pointers[] = {a.get(), b.get(), c.get()};
  EXPECT_TRUE(runtime::runCall(**made, pool, pointers, reinterpret_cast<char *>(scratch.get())));
  return hashOf(c);
}

void check(const std::string &name, const Call &call, const Frozen &frozen) {
  uint64_t hash = resultOf(call);
  uint32_t version = runtime::numericsOf(call.implementation());
  EXPECT_EQ(version, frozen.version) << name << ": write the hash of the new version down: " << fmt::format("{:#x}", hash);
  EXPECT_EQ(hash, frozen.hash) << fmt::format("{}: {:#x} instead of {:#x}: its bits changed and its version did not", name,
                                              hash, frozen.hash);
}

plan::ConvolutionCall convolution(plan::ConvolutionCall::Kind kind, plan::DType dtype, int64_t groups,
                                  plan::ConvolutionCall::Form form = plan::ConvolutionCall::CHANNELS) {
  plan::ConvolutionCall call = test::convolutionCall(
      {{3, 24, 11, 13}, {groups == 1 ? 40 : 24, 24 / groups, 3, 2}, {2, 1}, {1, 2}, {1, 0}, {0, 1}, groups}, kind);
  call.set_dtype(dtype);
  call.set_result_dtype(plan::F32 == dtype || kind == plan::ConvolutionCall::WEIGHT_GRADIENT ? plan::F32 : dtype);
  call.set_channels_last(true);
  call.set_form(form);
  call.set_widened(dtype == plan::BF16);
  call.set_tile_batch(2);
  auto shape = runtime::ConvolutionDesign::shapeOf(call);
  EXPECT_TRUE(shape.ok()) << shape.message();
  call.set_tile_lines(kind == plan::ConvolutionCall::WEIGHT_GRADIENT ? shape->lines : 3);
  call.set_tile_columns(std::min<int64_t>(16, shape->columns()));
  call.set_block_words(48);
  call.set_numerics(runtime::numericsOf(form));
  auto design = runtime::ConvolutionDesign::create(call);
  EXPECT_TRUE(design.ok()) << design.message();
  if (design)
    call.set_partial_bytes(design->partialBytes);
  return call;
}

uint64_t resultOf(const plan::ConvolutionCall &call) {
  auto size = [](const auto &dims) { return test::elements(dims); };
  bool toInput = call.kind() == plan::ConvolutionCall::INPUT_GRADIENT, toWeights = call.kind() == plan::ConvolutionCall::WEIGHT_GRADIENT;
  auto operand = [&](size_t count, uint32_t seed) {
    Floats values = test::randomFloats(count, seed);
    if (call.dtype() == plan::BF16)
      for (size_t i = 0; i < count; ++i)
        reinterpret_cast<uint16_t *>(values.get())[i] = runtime::roundToBf16(values[i]);
    return values;
  };
  Floats first = operand(size(toInput ? call.y_dims() : call.x_dims()), 1),
         second = operand(size(toWeights ? call.y_dims() : call.w_dims()), 2),
         result(size(toWeights ? call.w_dims() : toInput ? call.x_dims() : call.y_dims()));
  auto needs = runtime::needsOf(call);
  auto made = runtime::prepare(call, test::levelOfTest(), test::scratchOf(*needs, 1), 1);
  EXPECT_TRUE(made.ok()) << made.message();
  if (!made)
    return 0;
  runtime::WorkerScope scope;
  runtime::ThreadPool pool(1);
  Floats scratch(needs->scratchBytes(1) / 4), partials(needs->partialBytes / 4);
  void *pointers[] = {first.get(), second.get(), result.get(), partials.get()};
  EXPECT_TRUE(runtime::runCall(**made, pool, pointers, reinterpret_cast<char *>(scratch.get())));
  return hashOf(result);
}

void check(const std::string &name, const plan::ConvolutionCall &call, uint64_t frozen) {
  uint64_t hash = resultOf(call);
  EXPECT_EQ(call.numerics(), call.form() == plan::ConvolutionCall::CHANNELS ? 2u : 3u)
      << "write the hashes of the new version down";
  EXPECT_EQ(hash, frozen) << fmt::format("{}: {:#x} instead of {:#x}: its bits changed and its version did not", name, hash,
                                         frozen);
}

runtime::CpuLevel level() { return *runtime::levelFromName(test::testLevel()); }
} // namespace

/// One test for all calls, so that a machine which lacks the instructions of some still checks the others. The CMake
/// file lists the levels.
TEST(Numerics, OwnProducts) {
  const Call panels = product(Call::PANELS, plan::BF16, 70, 130, 300, 32, 96, 128),
             fewRows = product(Call::FEW_ROWS, plan::BF16, 5, 130, 300, 5, 64, 300);
  auto widened = [](Call call) {
    call.set_widened(true);
    return call;
  };
  check("panels", product(Call::PANELS, plan::F32, 70, 130, 300, 32, 96, 128), {1, 0x9d7200bd998a9025});
  check("rows to kernel", product(Call::ROWS_TO_KERNEL, plan::F32, 72, 96, 300, 16, 96, 128), {1, 0xb238aceba96a00b7});
  check("widened panels", widened(panels), {1, 0x4d99c8d2cf61d656});
  if (runtime::hasFewRows(level(), plan::F32)) {
    check("few rows", product(Call::FEW_ROWS, plan::F32, 5, 130, 300, 5, 64, 300), {1, 0x25c7b244e3dc1ea7});
    check("widened few rows", widened(fewRows), {1, 0x85c0d32442c4bb21});
  }
  if (runtime::multipliesBf16(level())) {
    check("panels of bf16", panels, {1, 0xf44ea8452dc7e452});
    check("few rows of bf16", fewRows, {1, 0xa625cec009cf8188});
  }
}

/// The same bits at every level: arithmetic is in f32, even if bf16 is widened.
TEST(Numerics, Convolutions) {
  using Conv = plan::ConvolutionCall;
  check("forward", convolution(Conv::FORWARD, plan::F32, 1), 0x9f3a58ecc0f2ff17);
  check("input gradient", convolution(Conv::INPUT_GRADIENT, plan::F32, 1), 0x64a689e7a3c928de);
  check("weight gradient", convolution(Conv::WEIGHT_GRADIENT, plan::F32, 1), 0x1357a2b25bd0be5e);
  check("groups", convolution(Conv::FORWARD, plan::F32, 2), 0x848731a94bf9ac2c);
  check("depthwise", convolution(Conv::FORWARD, plan::F32, 24), 0x916d3a89ac1b0715);
  check("depthwise weight gradient", convolution(Conv::WEIGHT_GRADIENT, plan::F32, 24), 0xe59494fdcbcb8b5f);
  // All forms have the same bits, except the weight gradient by planes.
  check("forward by planes", convolution(Conv::FORWARD, plan::F32, 1, Conv::PLANES), 0x9f3a58ecc0f2ff17);
  check("input gradient by planes", convolution(Conv::INPUT_GRADIENT, plan::F32, 1, Conv::PLANES), 0x64a689e7a3c928de);
  check("weight gradient by pixels", convolution(Conv::WEIGHT_GRADIENT, plan::F32, 1, Conv::PIXELS), 0x1357a2b25bd0be5e);
  check("weight gradient by planes", convolution(Conv::WEIGHT_GRADIENT, plan::F32, 1, Conv::PLANES), 0xc2a072cdea88560b);
  check("widened", convolution(Conv::FORWARD, plan::BF16, 1), 0x79308d93d92e5a99);
}

TEST(Numerics, ProductsOfTheLibrary) {
  const std::map<std::string, Frozen> frozen = {{"cpu:v3", {1, 0x933609284b4a5a94}}, {"cpu:v4", {1, 0x51b191c93f4a40a5}}, {"cpu:v4-bf16", {1, 0x51b191c93f4a40a5}}};
  auto known = frozen.find(test::testLevel());
  if (known == frozen.end()) // no results are frozen for the library's products at this level
    return;
  check("oneDNN at " + known->first, product(Call::LIBRARY, plan::F32, 64, 48, 96, 32, 48, 96), known->second);
}

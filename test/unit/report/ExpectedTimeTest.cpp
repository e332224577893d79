//===- ExpectedTimeTest.cpp - the expected time of a card's launches ------===//
#include "tools/common/ExpectedTime.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace tcc;
using namespace tcc::report;

namespace {
using enum WorkClass;
enum Flags { kNone = 0, kPasses = 1, kLibrary = 2, kCausal = 4, kGeluGradient = 8 };

struct Row {
  WorkClass kind;
  double calls, bytes;
  int64_t launches;
  double flops, instructions, approximations;
  int flags;
  double batch = 0, m = 0, n = 0, k = 0, width = 0;

  Work work() const {
    Work work;
    work.kind = kind, work.bytes = bytes, work.launches = launches, work.flops = flops;
    work.instructions = instructions, work.approximations = approximations;
    work.passes = flags & kPasses, work.library = flags & kLibrary;
    work.causal = flags & kCausal, work.geluGradient = flags & kGeluGradient;
    work.batch = batch, work.m = m, work.n = n, work.k = k, work.width = width;
    const bool onTensorCores =
        kind == Products || kind == Convolutions || kind == AttentionForward || kind == AttentionGradient;
    work.flopsShare = onTensorCores ? 1 : findCard("h100")->f32 / findCard("h100")->bf16;
    return work;
  }
};

#include "test/unit/report/RecordedRuns.inc"

const Card &kCard = *findCard("h100");
const nvidia::Rates kRates = nvidia::ratesOf("sm_90");

double seconds(const Work &work, const Card &card = kCard) {
  return expectedSeconds(card, nvidia::ratesOf(card.architecture), work);
}

ExpectedTime expected(const std::vector<Row> &rows, const Card &card) {
  ExpectedTime time;
  for (const Row &row : rows)
    time.add(card, nvidia::ratesOf(card.architecture), {row.work()}, row.calls);
  return time;
}

Work product(double m, double n, double k) {
  Work work;
  work.kind = Products, work.library = true;
  work.batch = 1, work.m = m, work.n = n, work.k = k;
  work.flops = 2 * m * n * k;
  work.bytes = 2 * (m * n + m * k + n * k);
  return work;
}

Work kernel(double bytes, double instructions) {
  Work work;
  work.bytes = bytes, work.instructions = instructions;
  return work;
}
} // namespace

TEST(ExpectedTime, IsWithinATenthOfWhatCardsTook) {
  struct Run {
    const char *name;
    const std::vector<Row> &plan;
    const char *card;
    double milliseconds;
  };
  // Constants rest on GPT-2 and on ResNet-50 with 64 images; the other runs only check them.
  const Run runs[] = {{"GPT-2 64x1024", kGpt64, "h100", 139.3},
                      {"its attention by cuDNN", kGpt64Calls, "h100", 130.7},
                      {"GPT-2 8x1024", kGpt8, "h100", 19.3},
                      {"Llama", kLlama, "h100", 144.6},
                      {"ViT", kVit, "h100", 23.7},
                      {"BERT", kBert, "h100", 41.3},
                      {"ResNet-50 64", kResnet64, "h100", 15.1},
                      {"GPT-2 8x1024", kGpt8, "h200", 18.3},
                      {"GPT-2 64x1024", kGpt64, "h200", 133.6},
                      {"ResNet-50 32", kResnet32, "h200", 7.8}};
  for (const Run &run : runs) {
    const ExpectedTime time = expected(run.plan, *findCard(run.card));
    EXPECT_NEAR(1e3 * time.total() / run.milliseconds, 1, 0.1)
        << run.name << " on " << run.card << ": " << 1e3 * time.total() << " ms expected, " << run.milliseconds
        << " taken; " << classesText(time);
  }
}

TEST(ExpectedTime, IsAtLeastTheBoundOnEveryCard) {
  for (const Card &card : cards())
    for (const std::vector<Row> *plan : {&kGpt8, &kGpt64, &kGpt64Calls, &kLlama, &kVit, &kBert, &kResnet64})
      for (const Row &row : *plan) {
        const Work work = row.work();
        const double least = std::max(work.bytes / card.bytesPerSecond, work.flops / (card.bf16 * work.flopsShare));
        EXPECT_GE(seconds(work, card), least) << card.name;
      }
}

TEST(ExpectedTime, GrowsWithBytesInstructionsAndDimensions) {
  for (double bytes = 1e3; bytes < 1e10; bytes *= 4)
    for (double instructions = 0; instructions < 1e10; instructions = 4 * instructions + 1e3) {
      EXPECT_GT(seconds(kernel(2 * bytes, instructions)), seconds(kernel(bytes, instructions)));
      EXPECT_GT(seconds(kernel(bytes, 2 * instructions + 1e9)), seconds(kernel(bytes, instructions)));
    }
  for (double m = 100; m < 1e5; m *= 1.7)
    for (double k = 16; k < 1e5; k *= 1.7) {
      EXPECT_GE(seconds(product(1.3 * m, 768, k)), 0.999 * seconds(product(m, 768, k))) << m << " " << k;
      EXPECT_GE(seconds(product(m, 768, 2 * k)), seconds(product(m, 768, k))) << m << " " << k;
    }
}

TEST(ExpectedTime, OfAKernelIsHiddenOnlyInPart) {
  const double traffic = seconds(kernel(1e8, 0)), issue = seconds(kernel(0, 5e7));
  const double both = seconds(kernel(1e8, 5e7));
  EXPECT_GT(both, std::max(traffic, issue));
  EXPECT_LT(both, traffic + issue);
  Work passes = kernel(1e8, 5e7);
  passes.passes = true;
  EXPECT_NEAR(seconds(passes), traffic + issue, 1e-12) << "threads of a row wait for each other";
  Work approximates = kernel(0, 5e7);
  approximates.approximations = 5e7;
  EXPECT_NEAR(seconds(approximates), 5e7 * 32 / (16 * 132 * 1.98e9), 1e-6) << "16 for each processor and cycle";
  // gelu by tanh of GPT-2, 8 × 1024, on a card with each memory: 47 and 46 µs.
  EXPECT_NEAR(seconds(kernel(100.7e6, 34e6)), 47e-6, 6e-6);
  EXPECT_NEAR(seconds(kernel(100.7e6, 34e6), *findCard("h200")), 46e-6, 6e-6);
}

TEST(ExpectedTime, OfAProductGoesInWavesOfTiles) {
  // Of a short K, which is not cut into parts, and without the time of memory.
  const double rows = 128.0 * kCard.processors;
  Work full = product(rows, 256, 480), more = product(rows + 1, 256, 480);
  full.bytes = more.bytes = 0;
  EXPECT_GT(seconds(more), 1.3 * seconds(full)) << "one more row of tiles is a second wave";
  const Work few = product(768, 768, 65536);
  EXPECT_GT(few.flops / seconds(few), 0.6 * kCard.bf16) << "18 tiles with a long K are cut into parts";
  Work epilogue = product(8192, 3072, 768);
  const double plain = seconds(epilogue);
  EXPECT_NEAR(38.65e9 / plain / 1e12, 627, 40) << "TFLOP/s, as a card";
  epilogue.geluGradient = true;
  EXPECT_GT(seconds(epilogue), 3.5 * plain) << "as a card showed";
}

TEST(ExpectedTime, OfAttentionIsThatOfWholeTiles) {
  Work work;
  work.kind = AttentionGradient, work.library = true;
  work.batch = 768, work.m = work.n = 197, work.k = work.width = 64;
  Work whole = work;
  whole.m = whole.n = 256;
  EXPECT_EQ(seconds(work), seconds(whole));
  whole.causal = true;
  EXPECT_LT(seconds(whole), seconds(work));
  EXPECT_GT(seconds(whole), 0.7 * seconds(work)) << "three of four tiles have pairs that count";
}

TEST(ExpectedTime, OfAttentionInKernelsIsThatOfWholeTiles) {
  Work work;
  work.kind = AttentionGradient;
  work.flops = 19.91e9; // ViT's: 64 images, 12 heads, 197 rows
  const double even = seconds(work);
  work.batch = 768, work.m = work.n = 197;
  EXPECT_NEAR(seconds(work) / even, 256.0 / 197 * 256 / 197, 1e-9);
  EXPECT_NEAR(12 * seconds(work), 2.6e-3, 0.2e-3) << "as a card took";
  work.tilesShare = 1.0 / 6;
  EXPECT_NEAR(seconds(work) / even, 6 * 256.0 / 197 * 256 / 197, 1e-9);
}

TEST(ExpectedTime, ListsClassesByTime) {
  ExpectedTime time;
  time.add(kCard, kRates, {product(8192, 3072, 768), kernel(1e9, 0)});
  time.add(kCard, kRates, {kernel(1e3, 0)}, 100);
  EXPECT_GT(time.of(Elementwise), time.of(Products));
  EXPECT_NEAR(time.of(Launches), 102 * kRates.launchSeconds, 1e-12);
  const std::string text = classesText(time);
  EXPECT_LT(text.find("elementwise"), text.find("launches"));
  EXPECT_LT(text.find("launches"), text.find("products"));
  Work link;
  link.kind = Links, link.bytes = 1e9;
  const double before = time.total();
  time.add(kCard, kRates, {link});
  EXPECT_EQ(time.total(), before) << "no time is expected of links";
}

namespace {
/// A plan of one entry whose kernels read buffer 0 and write buffer 1, each of `elements` f32 numbers.
struct OnePlan {
  plan::Plan plan;
  plan::Entry &entry = *plan.add_entries();

  OnePlan() {
    plan.mutable_training()->set_target("labels");
    plan.add_variables()->set_role(plan::OPTIMIZER);
  }
  uint32_t buffer(int64_t elements, int variable = -1) {
    plan::Buffer &buffer = *entry.add_buffers();
    buffer.mutable_type()->set_dtype(plan::F32);
    buffer.mutable_type()->add_dims(elements);
    buffer.set_variable(variable);
    return uint32_t(entry.buffers_size() - 1);
  }
  WorkClass kernel(uint32_t read, uint32_t written, uint64_t bytes, const std::string &loops = "") {
    plan::Instruction instruction;
    instruction.mutable_kernel()->set_symbol("k");
    instruction.mutable_kernel()->set_loops(loops);
    instruction.set_bytes(bytes);
    plan::Operand &source = *instruction.add_operands(), &result = *instruction.add_operands();
    source.set_buffer(read), source.set_read(true);
    result.set_buffer(written), result.set_write(true);
    return works(instruction).front().kind;
  }
  std::vector<Work> works(const plan::Instruction &instruction) const {
    return worksOf(kCard, plan, entry, instruction, {});
  }
};
} // namespace

TEST(Works, KindsFollowFromOperands) {
  OnePlan one;
  const uint32_t large = one.buffer(1000), other = one.buffer(1000), small = one.buffer(10),
                 state = one.buffer(1000, 0);
  EXPECT_EQ(one.kernel(large, other, 8000), Elementwise);
  EXPECT_EQ(one.kernel(large, small, 4040), Sums);
  EXPECT_EQ(one.kernel(large, state, 8000), Optimizer);
  EXPECT_EQ(one.kernel(large, other, 100), Lookups) << "fewer bytes than the table has";
  EXPECT_EQ(one.kernel(small, other, 4040, "scatter_add"), Lookups);
  EXPECT_EQ(one.kernel(large, other, 8000, "attention"), AttentionForward);
  EXPECT_EQ(one.kernel(large, other, 8000, "attention_grad"), AttentionGradient);
  one.entry.add_inputs()->set_name("labels");
  one.entry.mutable_inputs(0)->set_buffer(small);
  EXPECT_EQ(one.kernel(small, other, 4040), Loss);
}

TEST(Works, OfAttentionInKernelsHaveTheDimensionsOfStatistics) {
  OnePlan one;
  plan::Instruction instruction;
  instruction.mutable_kernel()->set_loops("attention");
  instruction.mutable_kernel()->set_dtype(plan::BF16);
  for (const std::vector<int64_t> &dims : {std::vector<int64_t>{64, 197, 2304}, {64, 12, 197, 1}, {64, 197, 12, 64}}) {
    plan::Buffer &buffer = *one.entry.add_buffers();
    buffer.mutable_type()->set_dtype(dims.back() == 1 ? plan::F32 : plan::BF16);
    buffer.mutable_type()->mutable_dims()->Assign(dims.begin(), dims.end());
    instruction.add_operands()->set_buffer(uint32_t(one.entry.buffers_size() - 1));
  }
  Work work = one.works(instruction).front();
  EXPECT_EQ(work.batch, 64 * 12);
  EXPECT_EQ(work.m, 197);
  EXPECT_EQ(work.n, 197);
  EXPECT_EQ(work.tilesShare, 1);
  instruction.mutable_kernel()->set_dtype(plan::F32);
  EXPECT_EQ(one.works(instruction).front().tilesShare, 1.0 / 6);
  one.plan.set_precision("tf32");
  EXPECT_EQ(one.works(instruction).front().tilesShare, 1.0 / 2);
}

TEST(Works, OfAProductInSlicesAreProductsAndUpdates) {
  OnePlan one;
  plan::Instruction instruction;
  plan::MatmulCall &call = *instruction.mutable_matmul();
  call.set_implementation(plan::MatmulCall::BLAS);
  call.set_dtype(plan::BF16);
  call.set_batch(1), call.set_m(5632), call.set_n(2048), call.set_k(8192), call.set_tile_m(2816);
  call.mutable_row_kernel()->set_symbol("k");
  const double factors = 2.0 * (5632 + 2048) * 8192, state = 28.0 * 5632 * 2048, stored = 4.0 * 5632 * 2048;
  instruction.set_bytes(uint64_t(factors + state));
  instruction.set_flops(2.0 * 5632 * 2048 * 8192);
  const std::vector<Work> works = one.works(instruction);
  ASSERT_EQ(works.size(), 2u);
  EXPECT_EQ(works[0].kind, Products);
  EXPECT_EQ(works[0].launches, 2);
  EXPECT_EQ(works[0].m, 2816);
  EXPECT_EQ(works[0].bytes, factors + stored);
  EXPECT_EQ(works[1].kind, Optimizer);
  EXPECT_EQ(works[1].launches, 2);
  EXPECT_EQ(works[1].bytes, state);
  // A card ran such products, updates included, at 460 to 530 TFLOP/s.
  ExpectedTime time;
  time.add(kCard, kRates, works);
  EXPECT_NEAR(instruction.flops() / time.total() / 1e12, 495, 35);
}

TEST(Works, OfConvolutionsAreProducts) {
  OnePlan one;
  plan::Instruction instruction;
  plan::ConvolutionCall &call = *instruction.mutable_convolution();
  call.set_implementation(plan::ConvolutionCall::CUDNN);
  call.set_dtype(plan::BF16);
  for (int64_t dim : {64, 3, 224, 224})
    call.add_x_dims(dim);
  for (int64_t dim : {768, 3, 16, 16})
    call.add_w_dims(dim);
  for (int64_t dim : {64, 768, 14, 14})
    call.add_y_dims(dim);
  auto dims = [&](plan::ConvolutionCall::Kind kind) {
    call.set_kind(kind);
    const Work work = one.works(instruction).front();
    return std::array<double, 3>{work.m, work.n, work.k};
  };
  const double pixels = 64 * 14 * 14, channels = 8, taps = 256; // three channels are padded to 16 bytes
  EXPECT_EQ(dims(plan::ConvolutionCall::FORWARD), (std::array{pixels, 768.0, channels * taps}));
  EXPECT_EQ(dims(plan::ConvolutionCall::INPUT_GRADIENT), (std::array{pixels, channels, 768 * taps}));
  EXPECT_EQ(dims(plan::ConvolutionCall::WEIGHT_GRADIENT), (std::array{768.0, channels * taps, pixels}));
  call.set_groups(3);
  EXPECT_EQ(one.works(instruction).front().batch, 3);
}

TEST(Rates, OfOtherArchitecturesFollowFromDataSheets) {
  EXPECT_TRUE(kRates.measured);
  EXPECT_EQ(kRates.narrowProduct, 600e12);
  EXPECT_EQ(kRates.memory, 2.5e12);
  const nvidia::Rates a100 = nvidia::ratesOf("sm_80");
  EXPECT_FALSE(a100.measured);
  EXPECT_NEAR(a100.narrowProduct, 600e12 * 312 / 989.4, 1e9);
  EXPECT_NEAR(a100.tiles, 150e12 * 312 / 989.4, 1e9);
  EXPECT_NEAR(a100.memory, 2.5e12 * 2039 / 3350, 1e9);
  EXPECT_NEAR(a100.kernel, 10e12 * 19.5 / 66.9, 1e9);
  for (const Card &card : cards()) {
    const double clock = card.f32 / (nvidia::ratesOf(card.architecture).operationsPerCycle * card.processors);
    EXPECT_GT(clock, 1.2e9) << card.name;
    EXPECT_LT(clock, 2.8e9) << card.name;
  }
}

TEST(KernelWork, CountsInstructionsInLoops) {
  const KernelWorks works = countWork(R"(
.version 8.0
.visible .entry k_simple(
	.param .u64 .ptr .global .align 16 k_simple_param_0
)
.maxntid 128
{
	.reg .pred 	%p<3>;
	ld.param.b64 	%rd1, [k_simple_param_0];
	mov.u32 	%r1, %ctaid.x;
$L__BB0_1:                              // =>This Inner Loop Header: Depth=1
	ld.global.nc.v4.b32 	{%r2, %r3, %r4, %r5}, [%rd1];
	add.s64 	%rd1, %rd1, 16;
	rcp.approx.ftz.f32 	%r6, %r2;
	mul.rn.f32 	%r6, %r6, %r3;
	setp.lt.f32 	%p1, %r6, 0f00000000;
	@%p1 bra 	$L__BB0_3;
	div.rn.f32 	%r6, %r2, %r3;
$L__BB0_3:
	st.global.v2.b16 	[%rd1], {%rs1, %rs2};
	setp.lt.s64 	%p2, %rd2, %rd3;
	@%p2 bra 	$L__BB0_1;
	ret;
}
.visible .entry k_rows(
	.param .u64 k_rows_param_0
)
{
$L__BB1_1:
	add.rn.f32 	%r1, %r1, %r2;
$L__BB1_2:
	ld.global.b32 	%r1, [%rd1];
	add.rn.f32 	%r1, %r1, %r2;
	@%p1 bra 	$L__BB1_2;
	shfl.sync.down.b32 	%r3, %r1, 1, 31, -1;
	@%p2 bra 	$L__BB1_1;
	ret;
}
)");
  ASSERT_EQ(works.size(), 2u);
  const KernelWork &simple = works.at("k_simple");
  // A load, two for the address, an approximation, a product, a comparison and its jump; a store, two for the
  // comparison, its jump. The division is of rare operands.
  EXPECT_EQ(simple.tile.instructions, 11);
  EXPECT_EQ(simple.tile.approximations, 1);
  EXPECT_EQ(simple.tile.bytes, 16 + 4);
  EXPECT_TRUE(simple.loops.empty());
  EXPECT_FALSE(simple.shuffles);
  const ThreadWork launch = launchWork(simple, 10, 64, 0);
  EXPECT_EQ(launch.instructions, 10 * 2 * 11) << "two warps take a tile";

  const KernelWork &rows = works.at("k_rows");
  EXPECT_TRUE(rows.shuffles);
  EXPECT_EQ(rows.tile.instructions, 3);
  ASSERT_EQ(rows.loops.size(), 1u);
  EXPECT_EQ(rows.loops[0].instructions, 3);
  EXPECT_EQ(rows.loops[0].bytes, 4);
  // 100 tiles of a warp, 1280 bytes each: ten iterations of 32 threads.
  EXPECT_EQ(launchWork(rows, 100, 32, 100 * 1280).instructions, 100 * (3 + 10 * 3));
}

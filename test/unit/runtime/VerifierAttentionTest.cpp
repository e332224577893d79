//===- VerifierAttentionTest.cpp - tensors of a call of attention ---------===//
#include "TestPlan.h"
#include "runtime/plan/AttentionLayout.h"

#include <fmt/ranges.h>
#include <functional>

using namespace tcc;
using namespace tcc::test;

namespace {

/// Instruction 3 of the plan as attention of 4 queries and 4 keys of 8 bf16.
plan::AttentionCall &smallAttention(plan::Plan &plan, int64_t batch, int64_t heads) {
  plan.set_target("cuda:sm_90");
  plan.set_execution(plan::Plan::GRIDS);
  plan::AttentionCall &call = *plan.mutable_entries(0)->mutable_instructions(3)->mutable_attention();
  call.set_dtype(plan::BF16);
  call.set_batch(batch), call.set_heads(heads), call.set_key_heads(heads);
  call.set_queries(4), call.set_keys(4), call.set_depth(8), call.set_width(8);
  call.set_scale(1);
  return call;
}

/// Adds a tensor of the call: strides of batch, head, position and feature, in elements.
void addTensor(plan::AttentionCall &call, uint32_t operand, int64_t offset, std::initializer_list<int64_t> strides) {
  plan::AttentionCall::Tensor &tensor = *call.add_tensors();
  tensor.set_operand(operand);
  tensor.set_offset(offset);
  for (int64_t stride : strides)
    tensor.add_strides(stride);
}

/// The verifier's messages about two results in one buffer: an output of 4 rows of 8 bf16, `rowStep` apart, and
/// logsumexp, 4 f32 from `offset` on, `step` apart.
std::string problemsOf(int64_t rowStep, int64_t offset, int64_t step) {
  plan::Plan plan = makeTestPlan();
  plan::AttentionCall &call = smallAttention(plan, 1, 1);
  plan::Instruction &instruction = *plan.mutable_entries(0)->mutable_instructions(3);
  auto add = [&](uint32_t operand, int64_t from, int64_t between) {
    addTensor(call, operand, from, {256, 256, between, 1});
  };
  for (int64_t from : {0, 32, 64})
    add(0, from, 8);
  add(1, 0, rowStep);
  add(1, offset, step);
  instruction.mutable_operands()->DeleteSubrange(1, 1); // t is read, z is written
  return fmt::format("{}", fmt::join(plan::verifyPlan(plan, 50), "\n"));
}

TEST(VerifierAttention, ResultsInOneBufferShareNoByte) {
  constexpr const char *kShared = "output and logsumexp may share bytes of";
  // One after the other: the output takes 64 bytes.
  EXPECT_EQ(problemsOf(8, 16, 1).find(kShared), std::string::npos) << problemsOf(8, 16, 1);
  EXPECT_NE(problemsOf(8, 15, 1).find(kShared), std::string::npos);
  EXPECT_NE(problemsOf(8, 0, 1).find(kShared), std::string::npos);
  // Interleaved: each row takes 16 of 32 bytes.
  EXPECT_EQ(problemsOf(16, 4, 8).find(kShared), std::string::npos) << problemsOf(16, 4, 8);
  EXPECT_EQ(problemsOf(16, 7, 8).find(kShared), std::string::npos);
  EXPECT_NE(problemsOf(16, 3, 8).find(kShared), std::string::npos);
  EXPECT_NE(problemsOf(16, 8, 8).find(kShared), std::string::npos);
  EXPECT_NE(problemsOf(16, 4, 7).find(kShared), std::string::npos);
}

/// The verifier's messages about a bias with `batch` samples and `heads` heads, for attention of 2 samples and 2 heads
/// with 4 queries and keys of 8 bf16. Its rows are `row` elements apart, and it begins `offset` elements after the
/// start of w, which has 1024.
std::string problemsOfBias(int64_t batch, int64_t heads, int64_t row, int64_t offset = 0, bool gradient = false) {
  plan::Plan plan = makeTestPlan();
  plan::AttentionCall &call = smallAttention(plan, 2, 2);
  call.set_bias_batch(batch), call.set_bias_heads(heads), call.set_bias_gradient(gradient);
  auto add = [&](uint32_t operand, int64_t from, std::initializer_list<int64_t> strides) {
    addTensor(call, operand, from, strides);
  };
  for (int i = 0; i < 3; ++i)
    add(1, 128 * i, {64, 32, 8, 1});
  if (batch > 0)
    add(1, offset, {heads * 4 * row, 4 * row, row, 1});
  add(2, 0, {64, 32, 8, 1});
  add(2, 128, {8, 4, 1, 1});
  return fmt::format("{}", fmt::join(plan::verifyPlan(plan, 50), "\n"));
}

TEST(VerifierAttention, ABiasHasARowForEachQueryAndNoGaps) {
  auto says = [](const std::string &problems, const char *text) { return problems.find(text) != std::string::npos; };
  for (int64_t batch : {1, 2})
    for (int64_t heads : {1, 2})
      EXPECT_FALSE(says(problemsOfBias(batch, heads, 4), "bias")) << problemsOfBias(batch, heads, 4);
  EXPECT_TRUE(says(problemsOfBias(3, 1, 4), "a bias of 3 samples and 1 heads for attention of 2 and 2"));
  EXPECT_TRUE(says(problemsOfBias(1, 4, 4), "a bias of 1 samples and 4 heads"));
  EXPECT_TRUE(says(problemsOfBias(1, 1, 8), "bias has gaps"));
  EXPECT_TRUE(says(problemsOfBias(1, 1, 4, 8), "bias has gaps"));
  EXPECT_TRUE(says(problemsOfBias(0, 0, 4, 0, true), "a bias of 0 samples and 0 heads"));
  EXPECT_TRUE(says(problemsOfBias(1, 1, 4, 0, true), "attention forward with the gradient of a bias"));
}

/// The verifier's messages about attention with a kernel that computes it where there is no library. Its signature has
/// the bytes and accesses of query, key and value (in one operand), output and logsumexp, but for the change.
std::string problemsOfKernel(const std::function<void(plan::AttentionCall &, plan::KernelSignature &)> &change) {
  plan::Plan plan = makeTestPlan();
  plan::AttentionCall &call = smallAttention(plan, 1, 1);
  plan::Instruction &instruction = *plan.mutable_entries(0)->mutable_instructions(3);
  auto add = [&](uint32_t operand, int64_t from, int64_t between) {
    addTensor(call, operand, from, {32, 32, between, 1});
  };
  for (int64_t from : {0, 32, 64})
    add(0, from, 8);
  add(1, 0, 8);
  add(1, 16, 1);
  instruction.mutable_operands()->DeleteSubrange(1, 1); // t is read, z is written
  plan::KernelCall &kernel = *call.add_kernels();
  plan::KernelSignature &signature = *plan.mutable_code_objects(0)->add_kernels();
  signature.set_symbol("attention");
  signature.set_tiles(3);
  signature.set_tile_threads(128);
  kernel.set_symbol("attention");
  kernel.set_tiles(3);
  kernel.mutable_grid()->set_blocks(3);
  kernel.mutable_grid()->set_threads(128);
  for (bool written : {false, true}) {
    plan::KernelSignature::Operand &operand = *signature.add_operands();
    operand.set_bytes(written ? 80 : 192);
    operand.set_alignment(16);
    operand.set_read(!written);
    operand.set_write(written);
  }
  change(call, signature);
  plan::CodeObject &code = *plan.mutable_code_objects(0);
  code.set_signatures_xxh3(
      plan::hashSignatures(code, plan::CodeBytes::of(plan.payloads(static_cast<int>(code.payload())))));
  return fmt::format("{}", fmt::join(plan::verifyPlan(plan, 50), "\n"));
}

TEST(VerifierAttention, KernelsOfACallAccessItsOperands) {
  auto says = [](const std::string &problems, const char *text) { return problems.find(text) != std::string::npos; };
  using Call = plan::AttentionCall;
  using Signature = plan::KernelSignature;
  const std::string good = problemsOfKernel([](Call &, Signature &) {});
  EXPECT_FALSE(says(good, "kernel 'attention'")) << good;
  EXPECT_FALSE(says(good, "compute attention")) << good;
  auto problem = [&](const char *text, auto change) {
    const std::string problems = problemsOfKernel(change);
    EXPECT_TRUE(says(problems, text)) << text << "\n" << problems;
  };
  problem("operand 0 of kernel 'attention' needs 4096 bytes",
          [](Call &, Signature &signature) { signature.mutable_operands(0)->set_bytes(4096); });
  problem("is written, the plan says it is read", [](Call &, Signature &signature) {
    signature.mutable_operands(0)->set_read(false);
    signature.mutable_operands(0)->set_write(true);
  });
  problem("is read, the plan says it is written", [](Call &, Signature &signature) {
    signature.mutable_operands(1)->set_read(true);
    signature.mutable_operands(1)->set_write(false);
  });
  problem("takes 3 operands, it is given 2",
          [](Call &, Signature &signature) { *signature.add_operands() = signature.operands(0); });
  problem("has scratch of its own", [](Call &, Signature &signature) { signature.set_scratch_bytes(64); });
  problem("a call of 4 tiles", [](Call &call, Signature &) { call.mutable_kernels(0)->set_tiles(4); });
  problem("a grid of 0 blocks",
          [](Call &call, Signature &) { call.mutable_kernels(0)->mutable_grid()->set_blocks(0); });
  problem("no signature of a kernel 'other'",
          [](Call &call, Signature &) { call.mutable_kernels(0)->set_symbol("other"); });
  problem("2 kernels compute attention, 1 were expected",
          [](Call &call, Signature &) { *call.add_kernels() = call.kernels(0); });
}

/// The verifier's messages about the gradient's two kernels, the first of which writes the sums of rows that the second
/// one reads.
std::string problemsOfGradient(const std::function<void(plan::KernelSignature &, plan::KernelSignature &)> &change) {
  plan::Plan plan = makeTestPlan();
  plan::AttentionCall &call = smallAttention(plan, 1, 1);
  call.set_kind(plan::AttentionCall::GRADIENT);
  plan::Instruction &instruction = *plan.mutable_entries(0)->mutable_instructions(3);
  instruction.mutable_operands()->DeleteSubrange(1, 1); // t is read, z is written
  auto add = [&](uint32_t operand, int64_t from, int64_t between) {
    addTensor(call, operand, from, {32, 32, between, 1});
  };
  for (int64_t from : {0, 32, 64, 96})
    add(0, from, 8);
  add(0, 0, 1); // logsumexp
  add(0, 0, 8);
  for (int64_t from : {0, 32, 64})
    add(1, from, 8);
  call.set_library_scratch_bytes(plan::attentionRowBytes(call));
  instruction.set_scratch_slot_bytes(plan::attentionRowBytes(call) + plan::kLibraryWorkspaceAlignment);
  plan::CodeObject &code = *plan.mutable_code_objects(0);
  auto addKernel = [&](const char *symbol, std::initializer_list<std::pair<uint64_t, bool>> operands) {
    plan::KernelSignature &signature = *code.add_kernels();
    plan::KernelCall &kernel = *call.add_kernels();
    signature.set_symbol(symbol);
    kernel.set_symbol(symbol);
    signature.set_tiles(1);
    kernel.set_tiles(1);
    signature.set_tile_threads(128);
    kernel.mutable_grid()->set_blocks(1);
    kernel.mutable_grid()->set_threads(128);
    for (auto [bytes, written] : operands) {
      plan::KernelSignature::Operand &operand = *signature.add_operands();
      operand.set_bytes(bytes);
      operand.set_alignment(16);
      operand.set_read(!written);
      operand.set_write(written);
    }
  };
  addKernel("sums", {{256, false}, {64, false}, {16, true}});
  addKernel("gradient", {{256, false}, {16, false}, {192, true}});
  const int count = code.kernels_size();
  change(*code.mutable_kernels(count - 2), *code.mutable_kernels(count - 1));
  code.set_signatures_xxh3(
      plan::hashSignatures(code, plan::CodeBytes::of(plan.payloads(static_cast<int>(code.payload())))));
  return fmt::format("{}", fmt::join(plan::verifyPlan(plan, 50), "\n"));
}

TEST(VerifierAttention, TheGradientsKernelsPassTheSumsOfRows) {
  auto says = [](const std::string &problems, const char *text) { return problems.find(text) != std::string::npos; };
  using Signature = plan::KernelSignature;
  const std::string good = problemsOfGradient([](Signature &, Signature &) {});
  EXPECT_FALSE(says(good, "of kernel 'sums'") || says(good, "of kernel 'gradient'")) << good;
  auto problem = [&](const char *text, auto change) {
    const std::string problems = problemsOfGradient(change);
    EXPECT_TRUE(says(problems, text)) << text << "\n" << problems;
  };
  auto turn = [](Signature::Operand &operand) {
    operand.set_read(operand.write());
    operand.set_write(!operand.write());
  };
  problem("operand 2 of kernel 'sums' is read and of 16 bytes, the sums in the scratch are written",
          [&](Signature &sums, Signature &) { turn(*sums.mutable_operands(2)); });
  problem("operand 1 of kernel 'gradient' is written and of 16 bytes, the sums in the scratch are read",
          [&](Signature &, Signature &gradient) { turn(*gradient.mutable_operands(1)); });
  problem("of 4096 bytes, the sums in the scratch are written and take 256",
          [](Signature &sums, Signature &) { sums.mutable_operands(2)->set_bytes(4096); });
  problem("operand 0 of kernel 'gradient' needs 512 bytes",
          [](Signature &, Signature &gradient) { gradient.mutable_operands(0)->set_bytes(512); });
}

} // namespace

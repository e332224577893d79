//===- VerifierAttentionTest.cpp - tensors of a call of attention ---------===//
#include "TestPlan.h"

#include <fmt/ranges.h>

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

/// The verifier's messages about two results in one buffer: an output of 4 rows of 8 bf16, `rowStep` apart, and
/// logsumexp, 4 f32 from `offset` on, `step` apart.
std::string problemsOf(int64_t rowStep, int64_t offset, int64_t step) {
  plan::Plan plan = makeTestPlan();
  plan::AttentionCall &call = smallAttention(plan, 1, 1);
  plan::Instruction &instruction = *plan.mutable_entries(0)->mutable_instructions(3);
  auto add = [&](uint32_t operand, int64_t from, int64_t between) {
    plan::AttentionCall::Tensor &tensor = *call.add_tensors();
    tensor.set_operand(operand);
    tensor.set_offset(from);
    for (int64_t stride : {int64_t(256), int64_t(256), between, int64_t(1)})
      tensor.add_strides(stride);
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
    plan::AttentionCall::Tensor &tensor = *call.add_tensors();
    tensor.set_operand(operand);
    tensor.set_offset(from);
    for (int64_t stride : strides)
      tensor.add_strides(stride);
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

} // namespace

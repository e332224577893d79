//===- AttentionPairs.cpp - attention by products of bf16 pairs -*- C++ -*-===//
//
// On a machine level that multiplies pairs of bf16, attention's bf16 products do so too, and round weights and score
// gradients to bf16 for it. Otherwise they are as at other levels: the same cases must hold within the same bounds.
//
//===----------------------------------------------------------------------===//
#include "test/kernels/Compare.h"
#include "test/support/Evaluate.h"
#include "test/support/RunCompiled.h"

using namespace mlir;
using namespace tcc;
using tcc::train::HostTensor;

namespace {

constexpr const char *kPairs = "cpu:v4-bf16";

test::Case attentionCase(const std::string &name) {
  for (const test::Case &c : test::allCases())
    if (c.name == name)
      return c;
  ADD_FAILURE() << "no case " << name;
  return {};
}

/// A case and its arguments; at() gives the results of its kernels at a machine level.
struct AttentionExample {
  explicit AttentionExample(const test::Case &c)
      : whole(test::parseCase(c, "")), changed(test::parseCase(c, "")), c(c) {
    arguments = test::argumentsOf(c, function());
  }
  func::FuncOp function() { return *whole->getOps<func::FuncOp>().begin(); }
  std::vector<HostTensor> at(const std::string &level, test::Placement placement = test::Placement::BeforeFence) {
    OwningOpRef<ModuleOp> module(cast<ModuleOp>(changed->clone()));
    test::CompiledFunctions compiled(level);
    compiled.add(*module);
    return compiled.compile() ? compiled.run(*module, arguments, placement) : std::vector<HostTensor>();
  }
  OwningOpRef<ModuleOp> whole, changed;
  test::Case c;
  std::vector<HostTensor> arguments;
};

class AttentionPairs : public testing::Test {
  void SetUp() override {
    if (!test::machineMultipliesPairs())
      GTEST_SKIP() << "this machine has no dot products of bf16";
  }
};

/// Cases of odd sizes do not use pairs; the others have tails of keys, queries and features, diagonals, masks, groups
/// and dropout.
TEST_F(AttentionPairs, AgreeWithReference) {
  for (const test::Case &c : test::allCases()) {
    if (c.name.rfind("attention_grad_", 0) != 0 || c.name.find("_bf16") == std::string::npos)
      continue;
    SCOPED_TRACE(c.name);
    AttentionExample run(c);
    std::vector<HostTensor> expected = test::evaluate(run.function(), run.arguments), actual = run.at(kPairs);
    ASSERT_EQ(actual.size(), expected.size());
    for (auto [got, wanted] : llvm::zip_equal(actual, expected))
      test::expectEqual(got, wanted, c);
  }
}

/// Rounding turns a weight p into p·(1 + ε), |ε| ≤ 2⁻⁸: the error of the output, before it is rounded itself, is at
/// most 2⁻⁸·Σ p·|value|.
TEST_F(AttentionPairs, RoundWeightsAndNothingElse) {
  for (const char *name : {"attention_grad_full_block_bf16", "attention_grad_even_bf16"}) {
    SCOPED_TRACE(name);
    AttentionExample run(attentionCase(name));
    HostTensor output = run.at(kPairs)[0], wanted = test::evaluate(run.function(), run.arguments)[0];
    std::vector<HostTensor> absolute = run.arguments;
    for (int64_t i = 0; i < absolute[2].size(); ++i)
      absolute[2].setDouble(i, std::fabs(absolute[2].getDouble(i)));
    HostTensor sums = test::evaluate(run.function(), absolute)[0];
    bool rounded = false;
    for (int64_t i = 0; i < output.size(); ++i) {
      double x = wanted.getDouble(i), bound = 0x1p-8 * 1.01 * (sums.getDouble(i) + 2 * std::fabs(x));
      ASSERT_NEAR(output.getDouble(i), x, bound) << "element " << i;
    }
    // Some result must differ from the other level's, or else pairs are not multiplied at all.
    HostTensor wide = run.at("cpu:v4")[0];
    for (int64_t i = 0; i < output.size(); ++i)
      rounded |= output.getDouble(i) != wide.getDouble(i);
    EXPECT_TRUE(rounded);
  }
}

TEST_F(AttentionPairs, OtherTypesHaveTheBitsOfOtherLevels) {
  for (const char *name : {"attention_grad_causal_blocks_f32", "attention_grad_odd_f32", "attention_grad_small_f16"}) {
    SCOPED_TRACE(name);
    AttentionExample run(attentionCase(name));
    for (auto [pairs, single] : llvm::zip_equal(run.at(kPairs), run.at("cpu:v4")))
      test::expectSameBits(pairs, single);
  }
}

} // namespace

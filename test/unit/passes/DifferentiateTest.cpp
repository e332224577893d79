//===- DifferentiateTest.cpp - whole gradients against finite differences ----===//
//
// A causal attention block with an embedding that is also the output projection, so that a gradient is a sum of a
// product and a scatter. All in f64; differences are central.
//
//===----------------------------------------------------------------------===//
#include "test/unit/passes/Program.h"

#include "mlir/Transforms/Passes.h"
#include <gtest/gtest.h>

namespace tcc::test {
namespace {

const char *kAttention = R"(
train.variable @table : tensor<7x4xf64> {role = "parameter"}
train.variable @qkv : tensor<1x4x12xf64> {role = "parameter"}
train.variable @scale : tensor<4xf64> {role = "parameter"}
train.variable @bias : tensor<4xf64> {role = "parameter"}
func.func @forward(%tokens: tensor<2x3xi64> {train.name = "tokens", train.sample_axis = 0 : i64})
    -> (tensor<2x3x7xf64> {train.name = "logits"}) {
  %table = train.read @table : tensor<7x4xf64>
  %qkv = train.read @qkv : tensor<1x4x12xf64>
  %scale = train.read @scale : tensor<4xf64>
  %bias = train.read @bias : tensor<4xf64>
  %x = train.gather %table, %tokens axis = 0 : (tensor<7x4xf64>, tensor<2x3xi64>) -> tensor<2x3x4xf64>
  %n, %mean, %rstd = train.layer_norm %x, %scale, %bias axis = 2 epsilon = 1.0e-5 : (tensor<2x3x4xf64>, tensor<4xf64>, tensor<4xf64>) -> (tensor<2x3x4xf64>, tensor<2x3x1xf64>, tensor<2x3x1xf64>)
  %flat = train.reshape %n : tensor<2x3x4xf64> -> tensor<1x6x4xf64>
  %p = train.matmul %flat, %qkv : (tensor<1x6x4xf64>, tensor<1x4x12xf64>) -> tensor<1x6x12xf64>
  %split = train.reshape %p : tensor<1x6x12xf64> -> tensor<2x3x12xf64>
  %q = train.slice %split starts [0, 0, 0] steps [1, 1, 1] : tensor<2x3x12xf64> -> tensor<2x3x4xf64>
  %k = train.slice %split starts [0, 0, 4] steps [1, 1, 1] : tensor<2x3x12xf64> -> tensor<2x3x4xf64>
  %v = train.slice %split starts [0, 0, 8] steps [1, 1, 1] : tensor<2x3x12xf64> -> tensor<2x3x4xf64>
  %scores = train.matmul %q, %k {transB = true} : (tensor<2x3x4xf64>, tensor<2x3x4xf64>) -> tensor<2x3x3xf64>
  %half = train.constant dense<0.5> : tensor<2x3x3xf64>
  %scaled = train.mul %scores, %half : tensor<2x3x3xf64>
  %row = train.iota dim = 1 : tensor<2x3x3xi64>
  %column = train.iota dim = 2 : tensor<2x3x3xi64>
  %causal = train.compare le %column, %row : tensor<2x3x3xi64> -> tensor<2x3x3xi1>
  %hidden = train.constant dense<0xFFF0000000000000> : tensor<2x3x3xf64>
  %masked = train.select %causal, %scaled, %hidden : tensor<2x3x3xi1>, tensor<2x3x3xf64>
  %weights = train.softmax %masked dim = 2 : tensor<2x3x3xf64>
  %mixed = train.matmul %weights, %v : (tensor<2x3x3xf64>, tensor<2x3x4xf64>) -> tensor<2x3x4xf64>
  %active = train.gelu %mixed {tanh = true} : tensor<2x3x4xf64>
  %sum = train.add %x, %active : tensor<2x3x4xf64>
  %rows = train.reshape %sum : tensor<2x3x4xf64> -> tensor<1x6x4xf64>
  %head = train.reshape %table : tensor<7x4xf64> -> tensor<1x7x4xf64>
  %out = train.matmul %rows, %head {transB = true} : (tensor<1x6x4xf64>, tensor<1x7x4xf64>) -> tensor<1x6x7xf64>
  %logits = train.reshape %out : tensor<1x6x7xf64> -> tensor<2x3x7xf64>
  return %logits : tensor<2x3x7xf64>
})";

/// Numbers in [-1, 1) from a fixed linear congruential sequence.
Numbers randomNumbers(size_t count, uint64_t seed) {
  Numbers numbers;
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    numbers.push_back(double(int64_t(seed) >> 11) / double(int64_t(1) << 52));
  }
  return numbers;
}

void differentiate(Program &program) {
  Recipe recipe;
  recipe.loss.kind = "cross_entropy";
  recipe.loss.target = "labels";
  recipe.loss.classAxis = -1;
  recipe.loss.labelSmoothing = 0.1;
  recipe.loss.shift = true;
  program.describe(recipe);
  ASSERT_TRUE(program.run([](mlir::PassManager &manager) {
    manager.addPass(train::createAttachLossPass());
    manager.addPass(train::createElideUnusedPass());
    manager.addPass(train::createDifferentiatePass());
  })) << program.messages;
}

const char *kParameters[] = {"table", "qkv", "scale", "bias"};

Tensors attentionArguments(Program &program) {
  Tensors arguments{{"tokens", program.tensor("tokens", {0, 3, 6, 3, 1, 2})},
                    {"labels", program.tensor("labels", {3, 6, -100, 1, 2, 5})}};
  uint64_t seed = 1;
  for (const char *name : kParameters) {
    auto type = mlir::cast<mlir::RankedTensorType>(program.module->lookupSymbol<train::VariableOp>(name).getType());
    arguments[name] = program.tensor(name, randomNumbers(size_t(type.getNumElements()), seed++));
  }
  return arguments;
}

TEST(Differentiate, AttentionBlockAgreesWithFiniteDifferences) {
  Program program(kAttention);
  differentiate(program);
  Tensors arguments = attentionArguments(program), derived = program.call("backward", arguments);
  const double step = 1e-5;
  for (const char *name : kParameters) {
    Numbers differences;
    HostTensor &parameter = arguments[name];
    for (int64_t i = 0; i < parameter.size(); ++i) {
      const double at = parameter.getDouble(i);
      auto lossAt = [&](double value) {
        parameter.setDouble(i, value);
        return program.call("loss", arguments)["loss_sum"].getDouble(0);
      };
      differences.push_back((lossAt(at + step) - lossAt(at - step)) / (2 * step));
      parameter.setDouble(i, at);
    }
    SCOPED_TRACE(name);
    expectNear(derived[std::string("gradient:") + name], differences, 1e-6, 0.05);
  }
}

/// Later passes change the gradients by no more than another order of summation does.
TEST(Differentiate, LaterPassesKeepTheGradients) {
  Program program(kAttention);
  differentiate(program);
  Tensors arguments = attentionArguments(program), before = program.call("backward", arguments);
  ASSERT_TRUE(program.run([&](mlir::PassManager &manager) {
    manager.addPass(train::createElideZeroFillPass());
    manager.addPass(train::createDecomposeCompositesPass());
    manager.addPass(train::createFoldConstantsPass());
    manager.addPass(mlir::createCanonicalizerPass());
    manager.addPass(mlir::createCSEPass());
  })) << program.messages;
  program.module->walk(
      [](train::Decomposable op) { ADD_FAILURE() << op->getName().getStringRef().str() << " is left"; });
  Tensors after = program.call("backward", arguments);
  ASSERT_EQ(before.size(), after.size());
  for (auto &[name, value] : before) {
    SCOPED_TRACE(name);
    expectNear(after[name], values(value), 1e-12);
  }
  // The table's gradient is that of the projection, into which the lookup's gradient is scattered.
  auto elided = (*program.module)->getAttrOfType<mlir::ArrayAttr>("train.zero_fill_elided");
  auto kept = (*program.module)->getAttrOfType<mlir::ArrayAttr>("train.zero_fill_kept");
  ASSERT_TRUE(elided && kept);
  EXPECT_TRUE(kept.empty());
  auto first = mlir::cast<mlir::DictionaryAttr>(elided[0]);
  EXPECT_EQ(first.getAs<mlir::StringAttr>("parameter").getValue(), "table");
  EXPECT_EQ(first.getAs<mlir::IntegerAttr>("bytes").getInt(), 7 * 4 * 8);
}

} // namespace
} // namespace tcc::test

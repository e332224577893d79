//===- LossTest.cpp - built-in losses against PyTorch -----------------------===//
//
// The prediction is a parameter, so that its gradient is the loss's own. In f64: the formulas are tested, not the
// rounding.
//
//===----------------------------------------------------------------------===//
#include "passes/losses/Loss.h"
#include "test/unit/passes/LossValues.h"
#include "test/unit/passes/Program.h"

#include <gtest/gtest.h>
#include <sstream>

namespace tcc::test {
namespace {

class Loss : public testing::TestWithParam<LossCase> {};

/// The module of a case. The target is a graph input if the case has a targetShape; several predictions are slices of
/// the parameter, called y0, y1, ….
std::string moduleOf(const LossCase &test) {
  std::string text = parameterModule(test.shape), target = test.targetShape, shape = test.shape;
  if (!target.empty())
    text.replace(text.find("@forward("), 9, "@forward(%t: tensor<" + target + "xf64> {train.name = \"target\"}");
  if (test.outputs == 1)
    return text;
  const std::string row = shape.substr(shape.find('x') + 1), whole = "tensor<" + shape + "xf64>",
                    slice = "tensor<1x" + row + "xf64>", type = "tensor<" + row + "xf64>";
  std::string results, body, values, types;
  for (int i = 0; i < test.outputs; ++i) {
    const std::string n = std::to_string(i), comma = i ? ", " : "";
    std::string starts = n, steps = "1";
    for (char c : row) {
      starts += c == 'x' ? ", 0" : "";
      steps += c == 'x' ? ", 1" : "";
    }
    body += "  %s" + n + " = train.slice %p starts [" + starts + ", 0] steps [" + steps + ", 1] : " + whole + " -> " + slice +
            "\n  %y" + n + " = train.reshape %s" + n + " : " + slice + " -> " + type + "\n";
    results += comma + type + " {train.name = \"y" + n + "\"}";
    values += comma + "%y" + n;
    types += comma + type;
  }
  return "train.variable @p : " + whole + " {role = \"parameter\"}\nfunc.func @forward() -> (" + results +
         ") {\n  %p = train.read @p : " + whole + "\n" + body + "  return " + values + " : " + types + "\n}\n";
}

/// The case's settings; its predictions are "y", or "y0", "y1", ….
std::vector<std::string> settingsOf(const LossCase &test) {
  std::string names = test.outputs > 1 ? "'y0'" : "'y'";
  for (int i = 1; i < test.outputs; ++i)
    names += ", 'y" + std::to_string(i) + "'";
  std::vector<std::string> settings{"loss.target=target", "loss.of=[" + names + "]"};
  std::istringstream words(test.settings);
  for (std::string word; words >> word;)
    settings.push_back("loss." + word);
  return settings;
}

TEST_P(Loss, IsPyTorchsWithItsGradient) {
  const LossCase &test = GetParam();
  Program program(moduleOf(test));
  Recipe recipe;
  const Status applied = applySettings(recipe, settingsOf(test));
  ASSERT_TRUE(applied.ok()) << applied.message();
  program.describe(recipe, {"evaluate", "predict", "gradients"});
  ASSERT_TRUE(program.run([&](mlir::PassManager &manager) {
    manager.addPass(train::createAttachLossPass());
    manager.addPass(train::createDifferentiatePass());
    manager.addPass(train::createBuildUpdatePass());
  })) << program.messages;
  Tensors arguments{{"p", program.tensor("p", test.prediction)}};
  if (!test.target.empty())
    arguments.emplace("target", program.tensor("target", test.target));
  if (!test.weights.empty())
    arguments.emplace("w", program.tensor("w", test.weights));

  Tensors gradients = program.call("gradients", arguments);
  expectNear(gradients["loss"], {test.loss}, 1e-12);
  expectNear(gradients["gradient:p"], test.gradient, 1e-12);

  Tensors evaluated = program.call("evaluate", arguments);
  expectNear(evaluated["loss_sum"], {test.loss * evaluated["loss_weight"].getDouble(0)}, 1e-6);
  if (test.counted >= 0) {
    expectNear(evaluated["correct"], {test.correct}, 0);
    expectNear(evaluated["counted"], {test.counted}, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Loss, testing::ValuesIn(kLossCases),
                         [](const testing::TestParamInfo<LossCase> &info) { return std::string(info.param.name); });

/// The recipe and the passes know the same kinds.
TEST(LossKinds, AreThoseOfTheRecipe) {
  std::string names;
  for (const std::string &kind : lossKindNames()) {
    EXPECT_TRUE(train::findLoss(kind)) << kind;
    names += (names.empty() ? "" : ", ") + kind;
  }
  EXPECT_EQ(train::lossNames(), names);
}

/// A saturated probability has a finite loss and gradient.
TEST(BinaryCrossEntropy, StaysFiniteWhereSaturated) {
  Program program(parameterModule("2"));
  Recipe recipe;
  recipe.loss.kind = "bce";
  program.describe(recipe);
  ASSERT_TRUE(program.run([&](mlir::PassManager &manager) {
    manager.addPass(train::createAttachLossPass());
    manager.addPass(train::createDifferentiatePass());
  }));
  Tensors results =
      program.call("backward", {{"p", program.tensor("p", {0, 1})}, {"target", program.tensor("target", {1, 0})}});
  expectNear(results["loss_sum"], {200}, 0); // torch.nn.functional.binary_cross_entropy clamps each logarithm at -100
  expectNear(results["gradient:p"], {0, 0}, 0);
}

TEST(Ctc, WhatItKeepsIsBounded) {
  const std::string type = "tensor<1000x4000x30xf32>";
  Program program("func.func @forward(%x: " + type + " {train.name = \"x\"}) -> (" + type +
                  " {train.name = \"y\"}) {\n  return %x : " + type + "\n}\n");
  Recipe recipe;
  recipe.loss.kind = "ctc";
  recipe.loss.target = "labels";
  recipe.loss.maxTargetLength = 1 << 20;
  recipe.where["loss.max_target_length"] = "recipe.toml:5:1";
  program.describe(recipe);
  EXPECT_FALSE(program.run([](mlir::PassManager &manager) { manager.addPass(train::createAttachLossPass()); }));
  EXPECT_NE(program.messages.find("recipe.toml:5:1: ctc keeps [samples, steps, 2·labels + 1] = [4000, 1000, 2097153] numbers "
                                  "for its gradient: more than 1 TiB, the most that one tensor may take"),
            std::string::npos)
      << program.messages;
}

TEST(AttachLoss, NamesTheRecipesLine) {
  Program program(parameterModule("2x3"));
  Recipe recipe;
  recipe.file = "recipe.toml";
  recipe.loss.kind = "cross_entropy";
  recipe.loss.of = {"logits"};
  recipe.where["loss.of"] = "recipe.toml:3:1";
  program.describe(recipe);
  EXPECT_FALSE(program.run([](mlir::PassManager &manager) { manager.addPass(train::createAttachLossPass()); }));
  EXPECT_NE(program.messages.find("recipe.toml:3:1: loss.of: the graph has no output `logits`; outputs: `y`"),
            std::string::npos)
      << program.messages;
}

} // namespace
} // namespace tcc::test

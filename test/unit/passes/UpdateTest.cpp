//===- UpdateTest.cpp - optimizers, clipping and accumulation against PyTorch ===//
//
// Three updates of y = x·w + b. The model is f64; run-time scalars are f32, which bounds the agreement.
//
//===----------------------------------------------------------------------===//
#include "test/unit/passes/Program.h"
#include "test/unit/passes/UpdateValues.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>

namespace tcc::test {
namespace {

const char *kLinear = R"(
train.variable @w : tensor<2x3xf64> {role = "parameter"}
train.variable @b : tensor<3xf64> {role = "parameter"}
func.func @forward(%x: tensor<2x3xf64> {train.name = "x", train.sample_axis = 0 : i64}) -> (tensor<2x3xf64> {train.name = "y"}) {
  %w = train.read @w : tensor<2x3xf64>
  %b = train.read @b : tensor<3xf64>
  %0 = train.mul %x, %w : tensor<2x3xf64>
  %1 = train.broadcast %b : tensor<3xf64> -> tensor<2x3xf64>
  %2 = train.add %0, %1 : tensor<2x3xf64>
  return %2 : tensor<2x3xf64>
})";

Recipe recipeOf(const UpdateCase &test) {
  Recipe recipe;
  recipe.loss.kind = "mse";
  recipe.loss.target = "t";
  plan::Optimizer &optimizer = *recipe.training.mutable_optimizer();
  optimizer.set_kind(test.kind);
  optimizer.mutable_numbers()->insert(test.numbers.begin(), test.numbers.end());
  optimizer.set_nesterov(test.nesterov);
  recipe.optimizer.flags = test.flags;
  recipe.optimizer.adjustLr = test.adjustLr;
  if (test.clipValue > 0)
    recipe.train.clipValue = test.clipValue;
  if (test.exemptBias)
    recipe.optimizer.decayExempt = {"@1d"};
  if (test.clipNorm > 0)
    recipe.training.set_clip_norm(test.clipNorm);
  recipe.training.set_accumulate(test.accumulate);
  return recipe;
}

void compile(Program &program, const Recipe &recipe) {
  program.describe(recipe);
  ASSERT_TRUE(program.run([&](mlir::PassManager &manager) {
    manager.addPass(train::createAttachLossPass());
    manager.addPass(train::createElideUnusedPass());
    manager.addPass(train::createDifferentiatePass());
    manager.addPass(train::createBuildUpdatePass());
    manager.addPass(train::createElideZeroFillPass());
    manager.addPass(train::createFoldConstantsPass());
    manager.addPass(train::createDecomposeCompositesPass());
  })) << program.messages;
}

/// The run-time scalars of update `t` (from 1), as the runtime defines them.
Numbers scalarValues(const std::vector<std::string> &names, const UpdateCase &test, int t) {
  const std::map<std::string, double> &defaults = findOptimizerKind(test.kind)->numbers;
  auto number = [&](const char *name, double otherwise) {
    auto found = test.numbers.find(name), kinds = defaults.find(name);
    return found != test.numbers.end() ? found->second : kinds != defaults.end() ? kinds->second : otherwise;
  };
  const double lr = number("lr", 1e-3), beta1 = number("beta1", 0.9), beta2 = number("beta2", 0.999);
  const double decay = number("weight_decay", 0), momentum = number("momentum", 0), alpha = number("alpha", 0);
  const std::map<std::string, double> all{{"lr", lr},
                                          {"weight_decay", decay},
                                          {"decay", 1 - lr * decay},
                                          {"step_size", lr / (1 - std::pow(beta1, t))},
                                          {"beta1", beta1},
                                          {"one_minus_beta1", 1 - beta1},
                                          {"beta2", beta2},
                                          {"one_minus_beta2", 1 - beta2},
                                          {"eps", number("eps", 1e-8)},
                                          {"bias_correction2_sqrt", std::sqrt(1 - std::pow(beta2, t))},
                                          {"momentum", momentum},
                                          {"one_minus_momentum", 1 - momentum},
                                          {"alpha", alpha},
                                          {"one_minus_alpha", 1 - alpha},
                                          {"bias_correction1", 1 - std::pow(beta1, t)},
                                          {"decayed_lr", lr / (1 + (t - 1) * number("lr_decay", 0))},
                                          {"one_minus_dampening", 1 - number("dampening", 0)},
                                          {"first_update", t == 1 ? 1 : 0},
                                          {"clip_norm", test.clipNorm}};
  Numbers numbers;
  for (const std::string &name : names) {
    size_t dot = name.find('.');
    auto found = all.find(dot == std::string::npos ? name : name.substr(dot + 1));
    EXPECT_NE(found, all.end()) << name << " is no scalar of the contract";
    numbers.push_back(found == all.end() ? 0 : found->second);
  }
  return numbers;
}

/// The initial state: parameters, and the fill values of variables that the passes declared.
Tensors initialState(Program &program) {
  Tensors state{{"w", program.tensor("w", kInitialW)}, {"b", program.tensor("b", kInitialB)}};
  for (auto variable : program.module->getOps<train::VariableOp>())
    if (variable.getRole() != "parameter") {
      HostTensor value(mlir::cast<mlir::RankedTensorType>(variable.getType()));
      for (int64_t i = 0; i < value.size() && variable.getFill(); ++i)
        value.setDouble(i, variable.getFill()->convertToDouble());
      state[variable.getSymName().str()] = std::move(value);
    }
  return state;
}

/// Calls an entry, and updates `state` with its results.
Tensors step(Program &program, const std::string &entry, Tensors &state, Tensors inputs) {
  inputs.insert(state.begin(), state.end());
  Tensors results = program.call(entry, inputs);
  for (auto &[name, value] : state)
    if (auto next = results.find(name); next != results.end())
      value = next->second;
  return results;
}

Tensors microBatch(Program &program, int i) {
  return {{"x", program.tensor("x", kX[i])}, {"t", program.tensor("t", kT[i])}};
}

class Update : public testing::TestWithParam<UpdateCase> {};

TEST_P(Update, FollowsPyTorchForThreeSteps) {
  const UpdateCase &test = GetParam();
  Program program(kLinear);
  compile(program, recipeOf(test));
  Tensors state = initialState(program);
  for (int t = 1; t <= 3; ++t) {
    HostTensor scalars = program.tensor("scalars", scalarValues(program.scalars(), test, t));
    Tensors results;
    if (test.accumulate == 1) {
      Tensors inputs = microBatch(program, 0);
      inputs["scalars"] = scalars;
      results = step(program, "step", state, inputs);
    } else {
      for (int i = 0; i < test.accumulate; ++i)
        step(program, i == 0 ? "accumulate_first" : "accumulate_next", state, microBatch(program, i));
      results = step(program, "update", state, {{"scalars", scalars}});
    }
    EXPECT_NEAR(results["loss_sum"].getDouble(0) / results["loss_weight"].getDouble(0), test.losses[t - 1],
                1e-6 * test.losses[t - 1]);
    expectNear(results["grad_norm"], {test.norms[t - 1]}, 1e-6);
  }
  expectNear(state["w"], test.w, 1e-6, 0.1);
  expectNear(state["b"], test.b, 1e-6, 0.1);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Update, testing::ValuesIn(kUpdateCases),
                         [](const testing::TestParamInfo<UpdateCase> &info) { return std::string(info.param.name); });

TEST(Update, ChangesNoBitWhereTheStepIsNotFinite) {
  const UpdateCase &test = *std::find_if(std::begin(kUpdateCases), std::end(kUpdateCases),
                                         [](const UpdateCase &c) { return std::string(c.name) == "adamw_groups"; });
  Program program(kLinear);
  compile(program, recipeOf(test));
  for (double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    Tensors state = initialState(program), inputs = microBatch(program, 0);
    const Tensors before = state;
    inputs["x"].setDouble(4, bad);
    inputs["scalars"] = program.tensor("scalars", scalarValues(program.scalars(), test, 1));
    Tensors results = step(program, "step", state, inputs);
    EXPECT_FALSE(std::isfinite(results["loss_sum"].getDouble(0)));
    for (const auto &[name, value] : before)
      EXPECT_EQ(std::memcmp(value.data(), state[name].data(), value.sizeBytes()), 0) << name;
  }
}

TEST(Update, RefusesWhereNothingIsTrained) {
  std::string text = kLinear;
  for (size_t at; (at = text.find("\"parameter\"")) != std::string::npos;)
    text.replace(at, 11, "\"frozen\"");
  Program program(text);
  Recipe recipe;
  recipe.loss.kind = "mse";
  program.describe(recipe);
  EXPECT_FALSE(program.run([&](mlir::PassManager &manager) {
    manager.addPass(train::createAttachLossPass());
    manager.addPass(train::createDifferentiatePass());
    manager.addPass(train::createBuildUpdatePass());
  }));
  EXPECT_NE(program.messages.find("nothing to train"), std::string::npos) << program.messages;
}

} // namespace
} // namespace tcc::test

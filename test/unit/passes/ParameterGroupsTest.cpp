//===- ParameterGroupsTest.cpp - globs, selectors, first match ---------------===//
#include "passes/training/ParameterGroups.h"

#include "compiler/dialect/WeightFacts.h"

#include "test/unit/passes/Program.h"

#include <gtest/gtest.h>

namespace tcc::test {
namespace {

const char *kVariables = R"(
train.variable @layers.0.weight : tensor<4x4xf32> {role = "parameter"}
train.variable @layers.0.bias : tensor<4xf32> {role = "parameter"}
train.variable @layers.1.weight : tensor<4x4xf32> {role = "parameter"}
train.variable @onnx_MatMul_7 : tensor<4x4xf32> {role = "parameter"}
train.variable @ln.weight : tensor<4xf32> {role = "parameter"}
train.variable @mask : tensor<4xf32> {role = "frozen"})";

struct Groups : testing::Test {
  Program program{kVariables};
  Recipe recipe;

  void SetUp() override {
    train::WeightFacts bias, norm;
    bias.uses = {"bias"};
    norm.uses = {"norm"};
    setFacts("layers.0.bias", bias);
    setFacts("ln.weight", norm);
    setDisplay("head.weight");
  }
  void setFacts(const char *name, const train::WeightFacts &facts) {
    train::setWeightFacts(program.module->lookupSymbol<train::VariableOp>(name), facts);
  }
  /// The exporter's name of onnx_MatMul_7.
  void setDisplay(const std::string &name) {
    train::WeightFacts facts;
    facts.display = name;
    setFacts("onnx_MatMul_7", facts);
  }

  Expected<std::vector<train::ParameterGroup>> make() {
    std::vector<train::VariableOp> parameters, others;
    for (auto variable : program.module->getOps<train::VariableOp>())
      (variable.getRole() == "parameter" ? parameters : others).push_back(variable);
    return train::groupParameters(parameters, others, recipe, 0.1);
  }
};

using Names = std::vector<std::string>;

TEST_F(Groups, DefaultHoldsEverything) {
  auto groups = make();
  ASSERT_TRUE(groups) << groups.message();
  ASSERT_EQ(groups->size(), 1u);
  EXPECT_EQ((*groups)[0].name, "default");
  EXPECT_EQ((*groups)[0].parameters.size(), 5u);
}

TEST_F(Groups, SelectorsAskWhatReadsTheParameter) {
  recipe.optimizer.decayExempt = {"@bias", "@norm", "@embedding"}; // a selector may match nothing, as @embedding here
  auto groups = make();
  ASSERT_TRUE(groups) << groups.message();
  ASSERT_EQ(groups->size(), 2u);
  EXPECT_EQ((*groups)[1].parameters, (Names{"layers.0.bias", "ln.weight"}));
  EXPECT_EQ((*groups)[1].weightDecay, 0);
}

TEST_F(Groups, FirstMatchDecidesAndExporterNamesCount) {
  recipe.optimizer.decayExempt = {"*.bias"};
  recipe.optimizer.groups = {{{"layers.0.*"}, 0.5, {}, "recipe.toml:9:1"},
                             {{"layers.*", "head.*"}, 2, 0.3, "recipe.toml:13:1"}};
  auto groups = make();
  ASSERT_TRUE(groups) << groups.message();
  ASSERT_EQ(groups->size(), 4u);
  EXPECT_EQ((*groups)[0].parameters, (Names{"ln.weight"}));
  EXPECT_EQ((*groups)[1].parameters, (Names{"layers.0.weight"}));
  EXPECT_EQ((*groups)[1].lrScale, 0.5);
  EXPECT_EQ((*groups)[1].weightDecay, 0.1);
  EXPECT_EQ((*groups)[2].parameters, (Names{"layers.0.bias"})); // exempt, since its group sets no decay
  EXPECT_EQ((*groups)[2].weightDecay, 0);
  EXPECT_EQ((*groups)[3].name, "layers.*, head.*");
  EXPECT_EQ((*groups)[3].parameters, (Names{"layers.1.weight", "onnx_MatMul_7"}));
  EXPECT_EQ((*groups)[3].weightDecay, 0.3);
}

TEST_F(Groups, LayerDecayScalesFromTheLastLayerDown) {
  setDisplay("layers.2.weight"); // layers are found by the displayed name
  recipe.optimizer.groups = {{{"layers.0.bias"}, 0.5, {}, "recipe.toml:9:1"}};
  recipe.optimizer.layerDecay = LayerDecaySettings{"layers.{}.", 0.5, true};
  std::vector<train::VariableOp> parameters;
  for (auto variable : program.module->getOps<train::VariableOp>())
    parameters.push_back(variable);
  for (bool before : {false, true}) {
    recipe.optimizer.layerDecay->beforeFirst = before;
    auto groups = train::groupParameters(parameters, {}, recipe, 0.1, {"ln.weight", "layers.0.weight", "mask"});
    ASSERT_TRUE(groups) << groups.message();
    std::map<std::string, double> scale;
    for (const train::ParameterGroup &group : *groups)
      for (const std::string &name : group.parameters)
        scale[name] = group.lrScale;
    EXPECT_EQ(scale["onnx_MatMul_7"], 1);
    EXPECT_EQ(scale["layers.1.weight"], 0.5);
    EXPECT_EQ(scale["layers.0.weight"], 0.25);
    EXPECT_EQ(scale["layers.0.bias"], 0.125) << "times its group's";
    EXPECT_EQ(scale["ln.weight"], before ? 0.125 : 1) << "read before the first layer";
    EXPECT_EQ(scale["mask"], 1) << "read after it";
  }
  recipe.optimizer.layerDecay->pattern = "block{}";
  EXPECT_NE(make().message().find("no parameter's name contains"), std::string::npos);
}

TEST_F(Groups, AGlobThatMatchesNothingIsAnError) {
  recipe.optimizer.groups = {{{"layer.0.weight"}, 1, {}, "recipe.toml:9:1"}};
  auto groups = make();
  ASSERT_FALSE(groups);
  EXPECT_EQ(groups.message(),
            "recipe.toml:9:1: optimizer.group.match: `layer.0.weight` matches no parameter; the nearest are "
            "layers.0.weight, layers.1.weight");
  recipe.optimizer.groups = {};
  recipe.optimizer.decayExempt = {"mask"}; // matches a frozen parameter, which is no mistake
  EXPECT_TRUE(make());
}

} // namespace
} // namespace tcc::test

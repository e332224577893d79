//===- ModesTest.cpp - which nodes train, what they draw, what exporters lost ===//
#include "compiler/dialect/Philox.h"
#include "test/unit/frontend/Importing.h"

using namespace tcc;
using namespace tcc::test;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

namespace {

class Modes : public Importing {
protected:
  /// Two dropouts one after another, both called "drop".
  static OnnxModel dropouts() {
    OnnxModel m;
    m.input("x", {"4"}).output("y").floats("ratio", {}, {0.5});
    onnx::TensorProto &flag = *m.graph().add_initializer();
    flag.set_name("training");
    flag.set_data_type(onnx::TensorProto::BOOL);
    flag.add_int32_data(1);
    m.node("Dropout", {"x", "ratio", "training"}, {"h"}, "drop");
    m.node("Dropout", {"h", "ratio", "training"}, {"y"}, "drop");
    return m;
  }
  /// A batch norm in inference mode whose note says how it was traced.
  static OnnxModel norm(const std::string &call) {
    OnnxModel m;
    m.input("x", {"4", "2"}).output("y");
    for (const char *name : {"scale", "bias", "mean", "var"})
      m.floats(name, {2}, {1, 2});
    onnx::StringStringEntryProto &note =
        *m.node("BatchNormalization", {"x", "scale", "bias", "mean", "var"}, {"y"}, "norm").add_metadata_props();
    note.set_key("pkg.torch.onnx.fx_node");
    note.set_value("call_function[target=torch.ops.aten." + call + ")");
    return m;
  }
  static frontend::ImportOptions batchNorm(const std::string &setting) {
    frontend::ImportOptions options;
    options.model.batchNorm = setting;
    return options;
  }
};

TEST_F(Modes, DropoutDrawsByItsNodesName) {
  auto ids = [&] {
    auto model = import(dropouts());
    EXPECT_TRUE(model) << model.message();
    std::vector<int64_t> found;
    model->module->walk([&](train::DropoutOp op) { found.push_back(op.getId()); });
    return found;
  };
  std::vector<int64_t> first = ids();
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0], train::randomId("drop", 0));
  EXPECT_NE(first[1], first[0]); // a node of the same name draws its own
  EXPECT_EQ(ids(), first);
}

TEST_F(Modes, TheRecipesProbabilityGoesToEveryNode) {
  frontend::ImportOptions options;
  options.model.dropout = 0.125;
  auto model = import(dropouts(), options);
  ASSERT_TRUE(model) << model.message();
  std::vector<double> found;
  model->module->walk([&](train::DropoutOp op) { found.push_back(op.getP().convertToDouble()); });
  EXPECT_THAT(found, ElementsAre(0.125, 0.125));
  options.model.dropout = 0;
  model = import(dropouts(), options);
  ASSERT_TRUE(model) << model.message();
  EXPECT_THAT(text(*model), Not(HasSubstr("train.dropout")));
}

TEST_F(Modes, TheModeMustBeKnown) {
  OnnxModel m;
  m.input("x", {"4"}).input("training", {}, onnx::TensorProto::BOOL).output("y").floats("ratio", {}, {0.5});
  m.node("Dropout", {"x", "ratio", "training"}, {"y"}, "drop");
  EXPECT_THAT(problem(m), AllOf(HasSubstr("node drop"), HasSubstr("graph input training")));
}

TEST_F(Modes, BiasDropoutAddsBiasAndResidual) {
  OnnxModel m;
  m.model.add_opset_import()->set_domain("com.microsoft");
  m.model.mutable_opset_import(1)->set_version(1);
  m.input("x", {"2", "2"}).input("b", {"2"}).input("r", {"2", "2"}).output("y").floats("ratio", {}, {0.5});
  m.node("BiasDropout", {"x", "b", "r", "ratio"}, {"y"}, "drop").set_domain("com.microsoft");
  EXPECT_THAT(evaluate(m, {{1, 2, 3, 4}, {10, 20}, {100, 200, 300, 400}}), ElementsAre(111, 222, 313, 424));
}

/// In version 7, spatial = 0 means statistics for every position.
TEST_F(Modes, BatchNormOfEveryPosition) {
  OnnxModel m;
  m.model.mutable_opset_import(0)->set_version(7);
  m.input("x", {"1", "2", "2"}).output("y");
  m.floats("s", {2, 2}, {1, 1, 1, 2}).floats("b", {2, 2}, {0, 0, 1, 0});
  m.floats("m", {2, 2}, {1, 2, 3, 4}).floats("v", {2, 2}, {1, 4, 1, 1});
  onnx::NodeProto &n = m.node("BatchNormalization", {"x", "s", "b", "m", "v"}, {"y"});
  set(n, "spatial", int64_t(0));
  n.add_attribute()->set_name("epsilon");
  n.mutable_attribute(1)->set_type(onnx::AttributeProto::FLOAT);
  n.mutable_attribute(1)->set_f(0);
  EXPECT_THAT(evaluate(m, {{2, 4, 3, 5}}), ElementsAre(1, 1, 1, 2));
}

/// torch.onnx writes a batch norm that was traced in train() mode in inference mode; the call in its notes is right.
TEST_F(Modes, ATracedBatchNormTrains) {
  const std::string training = "_native_batch_norm_legit_functional.default](args = (%x, %s, %b, %m, %v, True, 0.1, 1e-05)";
  auto model = import(norm(training));
  ASSERT_TRUE(model) << model.message();
  EXPECT_THAT(text(*model), AllOf(HasSubstr("train.batch_norm"), HasSubstr("train.write @mean"), HasSubstr("train.write @var")));
  EXPECT_THAT(model->warnings, Contains(AllOf(HasSubstr("train() mode"), HasSubstr("norm"))));
  auto automatic = import(norm(training), batchNorm("auto"));
  ASSERT_TRUE(automatic) << automatic.message();
  EXPECT_EQ(text(*automatic), text(*model));
  model = import(norm(training), batchNorm("as-exported"));
  ASSERT_TRUE(model) << model.message();
  EXPECT_THAT(text(*model), Not(HasSubstr("train.batch_norm")));
}

TEST_F(Modes, AnEvalBatchNormTrainsWhereTheRecipeSaysSo) {
  const std::string inference = "_native_batch_norm_legit_no_training.default](args = (%x, %s, %b, %m, %v, 0.1, 1e-05)";
  auto model = import(norm(inference));
  ASSERT_TRUE(model) << model.message();
  EXPECT_THAT(text(*model), Not(HasSubstr("train.batch_norm")));
  model = import(norm(inference), batchNorm("train"));
  ASSERT_TRUE(model) << model.message();
  EXPECT_THAT(text(*model), HasSubstr("train.batch_norm"));
}

/// x · Bernoulli(0.75) ÷ `divisor`, as torch's exporter writes Dropout2d.
static OnnxModel drawn(float divisor) {
  OnnxModel m;
  m.input("x", {"4", "3"}).output("y").floats("q", {}, {0.75}).floats("divisor", {}, {divisor});
  m.node("RandomUniformLike", {"x"}, {"uniform"}, "draw");
  m.node("Less", {"uniform", "q"}, {"kept"});
  m.node("CastLike", {"kept", "x"}, {"mask"});
  m.node("Div", {"mask", "divisor"}, {"factor"}, "scaled");
  m.node("Mul", {"x", "factor"}, {"y"});
  return m;
}

TEST_F(Modes, AMaskThatIsDividedByItsProbabilityIsADropout) {
  auto model = import(drawn(0.75));
  ASSERT_TRUE(model) << model.message();
  EXPECT_THAT(text(*model), AllOf(HasSubstr("train.dropout"), HasSubstr("p = 2.5"), Not(HasSubstr("train.random uniform"))));
  EXPECT_THAT(model->warnings, Not(Contains(HasSubstr("draws"))));
  frontend::ImportOptions options;
  options.model.dropout = 0;
  model = import(drawn(0.75), options);
  ASSERT_TRUE(model) << model.message();
  EXPECT_THAT(text(*model), AllOf(Not(HasSubstr("train.dropout")), Not(HasSubstr("train.random uniform"))));
  // Divided by another number it is not a dropout: it draws in every mode, and a warning says so.
  model = import(drawn(0.5));
  ASSERT_TRUE(model) << model.message();
  EXPECT_THAT(text(*model), AllOf(Not(HasSubstr("train.dropout")), HasSubstr("train.random uniform")));
  EXPECT_THAT(model->warnings, Contains(AllOf(HasSubstr("node draw draws 0 or 1"), HasSubstr("eval() mode"))));
}

/// Neither a symbol nor ONNX's shape inference tells which axis of the output holds the samples.
TEST_F(Modes, AnotherBatchTellsTheSamplesOfAStaticExport) {
  OnnxModel m;
  m.input("x", {"4", "3", "2"}).output("y").output("m");
  onnx::TensorProto &axes = *m.graph().add_initializer();
  axes.set_name("axis");
  axes.set_data_type(onnx::TensorProto::INT64);
  axes.add_int64_data(2);
  onnx::TensorProto &vector = *m.graph().add_initializer();
  vector.set_name("vector");
  vector.set_data_type(onnx::TensorProto::INT64);
  vector.add_dims(1);
  vector.add_int64_data(-1);
  m.node("Reshape", {"axis", "vector"}, {"axes"});
  set(m.node("ReduceMean", {"x", "axes"}, {"y"}), "keepdims", int64_t(0));
  onnx::NodeProto &mean = m.node("ReduceMean", {"y"}, {"m"});
  set(mean, "keepdims", int64_t(1));
  auto model = import(m);
  ASSERT_TRUE(model) << model.message();
  EXPECT_THAT(text(*model), AllOf(HasSubstr("{train.name = \"y\", train.sample_axis = 0 : i64}"),
                                  HasSubstr("{train.name = \"m\"}")));
}

/// Running statistics merged with a weight would be trained and overwritten at the same time.
TEST_F(Modes, MergedStatisticsAreRefused) {
  OnnxModel m = norm("");
  m.graph().mutable_node(0)->set_input(3, "bias");
  frontend::ImportOptions options = batchNorm("train");
  options.model.merged = "keep";
  options.model.trainable = {"bias", "scale"};
  EXPECT_THAT(problem(m, options), AllOf(HasSubstr("node norm"), HasSubstr("bias"), HasSubstr("merged")));
}

} // namespace

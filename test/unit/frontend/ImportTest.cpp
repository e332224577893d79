//===- ImportTest.cpp - whole graphs: variables, folding, locations, errors -===//
#include "compiler/dialect/WeightFacts.h"
#include "test/unit/frontend/Importing.h"

using namespace tcc;
using namespace tcc::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

namespace {

class Import : public Importing {
protected:
  /// The roles of the module's variables, "name:role".
  std::vector<std::string> variables(ImportedModel &model) {
    std::vector<std::string> found;
    for (auto variable : model.module->getOps<train::VariableOp>())
      found.push_back(variable.getSymName().str() + ":" + variable.getRole().str());
    return found;
  }
  static OnnxModel linear() {
    OnnxModel m;
    m.input("x", {"batch", "2"}).output("y");
    m.floats("fc.weight", {3, 2}, {1, 2, 3, 4, 5, 6}).floats("fc.bias", {3}, {1, 1, 1}).floats("scale", {}, {2});
    set(m.node("Gemm", {"x", "fc.weight", "fc.bias"}, {"h"}, "fc"), "transB", int64_t(1));
    m.node("Mul", {"h", "scale"}, {"y"}, "scaled");
    return m;
  }
  static frontend::ImportOptions batch(int64_t size) {
    frontend::ImportOptions options;
    options.dims = {{"batch", size}};
    return options;
  }
};

TEST_F(Import, VariablesArgumentsAndNames) {
  auto model = import(linear(), batch(4));
  ASSERT_TRUE(model) << model.message();
  EXPECT_THAT(variables(*model), ElementsAre("fc.bias:parameter", "fc.weight:parameter"));
  EXPECT_THAT(text(*model), AllOf(HasSubstr("%arg0: tensor<4x2xf32> {train.name = \"x\", train.sample_axis = 0 : i64}"),
                                  HasSubstr("(tensor<4x3xf32> {train.name = \"y\"})")));
  EXPECT_EQ(model->name, "m.onnx");
  const Initializer &bias = model->initializers.at("fc.bias");
  auto facts = train::weightFacts(model->module->lookupSymbol<train::VariableOp>("fc.bias"));
  ASSERT_TRUE(facts);
  EXPECT_THAT(facts->uses, ElementsAre("1d", "bias"));
  EXPECT_EQ(bias.node, "fc");
  EXPECT_EQ(bias.type.dtype(), plan::F32);
  EXPECT_EQ(bias.bytes, 12u);
  EXPECT_EQ(reinterpret_cast<const float *>(model->initializers.at("fc.weight").data)[5], 6);
  auto function = model->module->lookupSymbol<mlir::func::FuncOp>("forward");
  function.walk([](mlir::Operation *op) {
    if (mlir::isa<train::MatMulOp>(op)) {
      auto location = mlir::dyn_cast<mlir::NameLoc>(op->getLoc());
      ASSERT_TRUE(location);
      EXPECT_EQ(location.getName().str(), "fc");
    }
  });
}

TEST_F(Import, GradcheckImportsEverythingInF64) {
  frontend::ImportOptions options = batch(4);
  options.forceF64 = true;
  auto model = import(linear(), options);
  ASSERT_TRUE(model) << model.message();
  EXPECT_THAT(text(*model), AllOf(HasSubstr("f64"), Not(HasSubstr("f32"))));
}

TEST_F(Import, TheRecipeChoosesWhatIsTrained) {
  frontend::ImportOptions options = batch(4);
  options.model.trainable = std::vector<std::string>{"fc.*"};
  options.model.frozen = {"@bias"};
  EXPECT_THAT(variables(*import(linear(), options)), ElementsAre("fc.bias:frozen", "fc.weight:parameter"));
  options.model.trainable = std::vector<std::string>{"scale"}; // an exact name also matches outside the default set
  options.model.frozen = {};
  EXPECT_THAT(variables(*import(linear(), options)),
              ElementsAre("fc.bias:frozen", "fc.weight:frozen", "scale:parameter"));
  options.model.trainable = std::vector<std::string>{"fc.weigth"};
  options.where = {{"model.trainable", "r.toml:2:1"}};
  EXPECT_THAT(problem(linear(), options), AllOf(HasSubstr("r.toml:2:1: model.trainable: \"fc.weigth\" matches no"),
                                                HasSubstr("; the nearest is fc.weight")));
  options.model.trainable.reset();
  options.model.frozen = {"sc?le.*"};
  EXPECT_THAT(problem(linear(), options), HasSubstr("model.frozen: \"sc?le.*\" matches no"));
}

TEST_F(Import, TheExportersNotesTellParametersFromConstants) {
  OnnxModel m;
  m.input("x", {"2", "2"}).output("y").floats("val_1", {2, 2}, {1, 2, 3, 4}).floats("val_2", {2}, {1, 2});
  m.node("MatMul", {"x", "val_1"}, {"h"});
  m.node("Mul", {"h", "val_2"}, {"y"});
  for (const auto &[name, sources] : {std::pair("val_1", "['w', 'val_0']"), std::pair("val_2", "['arange', 'cos']")}) {
    onnx::ValueInfoProto &value = *m.graph().add_value_info();
    value.set_name(name);
    value.mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
    auto &note = *value.add_metadata_props();
    note.set_key("pkg.onnxscript.optimizer.folded_from");
    note.set_value(sources);
  }
  auto model = import(m);
  ASSERT_TRUE(model) << model.message();
  EXPECT_THAT(variables(*model), ElementsAre("val_1:parameter", "val_2:frozen"));
  EXPECT_EQ(model->initializers.at("val_1").display, "w");
  EXPECT_TRUE(model->initializers.at("val_2").constant);
}

TEST_F(Import, ShapeArithmeticFoldsAway) {
  OnnxModel m;
  m.input("x", {"batch", "6"}).output("y").ints("zero", {1}, {0}).ints("tail", {2}, {2, -1});
  m.node("Shape", {"x"}, {"s"});
  m.node("Gather", {"s", "zero"}, {"n"});
  set(m.node("Concat", {"n", "tail"}, {"target"}), "axis", int64_t(0));
  m.node("Reshape", {"x", "target"}, {"y"});
  auto model = import(m, batch(4));
  ASSERT_TRUE(model) << model.message();
  EXPECT_THAT(text(*model), AllOf(HasSubstr("tensor<4x6xf32> -> tensor<4x2x3xf32>"), Not(HasSubstr("train.gather")),
                                  Not(HasSubstr("train.concat"))));
}

TEST_F(Import, RepeatedConstantsAreStoredOnce) {
  OnnxModel m;
  m.input("x", {"8", "16"}).output("y").ints("shape", {2}, {8, 16});
  std::vector<int64_t> row;
  for (int64_t i = 0; i < 16; ++i)
    row.push_back(i);
  m.ints("row", {16}, row);
  m.node("Expand", {"row", "shape"}, {"rows"});
  set(m.node("Cast", {"rows"}, {"floats"}), "to", int64_t(onnx::TensorProto::FLOAT));
  m.node("Add", {"x", "floats"}, {"y"});
  EXPECT_THAT(text(*import(m)), HasSubstr("tensor<1x16xf32> -> tensor<8x16xf32>"));
}

TEST_F(Import, WhatAnImporterReadsIsNoWeight) {
  OnnxModel m;
  m.input("x", {"2", "3"}).output("y").floats("depth", {1}, {3}).floats("levels", {2}, {0.5f, 2}).floats("times", {3}, {1, 1, 2});
  m.node("OneHot", {"x", "depth", "levels"}, {"h"}, "classes");
  m.node("Resize", {"h", "", "times"}, {"y"}, "larger");
  auto model = import(m);
  ASSERT_TRUE(model) << model.message();
  EXPECT_TRUE(model->initializers.at("depth").constant);
  EXPECT_EQ(model->initializers.at("depth").sign, "input 1 of classes, which is read at compile time");
  EXPECT_EQ(model->initializers.at("times").sign, "input 2 of larger, which is read at compile time");
  EXPECT_FALSE(model->initializers.at("levels").constant) << "another input of the same op";
  // An initializer that a product also reads stays a weight, and the error says why it cannot be read at compile time.
  m.floats("both", {1, 1}, {3}).output("z");
  m.node("OneHot", {"x", "both", "levels"}, {"i"}, "more");
  m.node("MatMul", {"y", "both"}, {"z"}, "product");
  EXPECT_THAT(problem(m), AllOf(HasSubstr("more"), HasSubstr("initializer both, which is a weight")));
}

TEST_F(Import, RegionsOfTheDataAreSampledUpToABound) {
  OnnxModel m;
  m.input("x", {"1", "1", "8", "8"}).input("rois", {"2", "4"}).ints("batch", {2}, {0, 0}).output("y");
  onnx::NodeProto &align = m.node("RoiAlign", {"x", "rois", "batch"}, {"y"}, "pool");
  set(align, "output_height", int64_t(2));
  auto model = import(m);
  ASSERT_TRUE(model) << model.message();
  EXPECT_THAT(model->warnings, ElementsAre(AllOf(HasSubstr("pool: RoiAlign (opset 20): sampling_ratio is 0"),
                                                 HasSubstr("at most as many as a region 12 high and 10 wide"))));
  set(align, "sampling_ratio", int64_t(2));
  model = import(m);
  ASSERT_TRUE(model) << model.message();
  EXPECT_THAT(model->warnings, IsEmpty());
}

TEST_F(Import, AShapeThatDependsOnDataIsAnError) {
  OnnxModel m;
  m.input("x", {"4"}).input("n", {"1"}, onnx::TensorProto::INT64).output("y", {"a"});
  m.node("Reshape", {"x", "n"}, {"y"}, "reshape");
  EXPECT_THAT(problem(m), AllOf(HasSubstr("node reshape (Reshape, opset 20)"), HasSubstr("input \"n\""),
                                HasSubstr("depends on graph input n")));
}

TEST_F(Import, ShapesThatDoNotFitAreErrors) {
  OnnxModel m;
  m.input("x", {"4", "3"}).output("y").ints("s", {2}, {5, 2});
  m.node("Reshape", {"x", "s"}, {"y"}, "view");
  EXPECT_THAT(problem(m), AllOf(HasSubstr("node view"), HasSubstr("f32[4x3] does not fit into shape [5, 2]")));
}

TEST_F(Import, UnsupportedOpsAreListedTogether) {
  OnnxModel m;
  m.input("x", {"4"}).output("y");
  m.node("NonZero", {"x"}, {"i"}, "where");
  m.node("Frobnicate", {"x"}, {"y"}, "odd");
  EXPECT_THAT(problem(m), AllOf(HasSubstr("2 of its nodes are not supported"), HasSubstr("where: NonZero (opset 20)"),
                                HasSubstr("comes from graph input x"),
                                HasSubstr("odd: Frobnicate (opset 20): opset 20 has no such op")));
}

TEST_F(Import, ReshapedStaticExportNamesWhatResists) {
  OnnxModel m;
  m.input("x", {"4", "3"}).output("y", {"4", "3"}).ints("s", {2}, {4, 3});
  m.node("Reshape", {"x", "s"}, {"y"}, "view");
  frontend::ImportOptions options;
  options.shapes = {{"x", {8, 3}}};
  EXPECT_THAT(problem(m, options), AllOf(HasSubstr("node view"), HasSubstr("s = [4, 3]"), HasSubstr("--shape")));
  m.graph().mutable_initializer(0)->set_int64_data(0, -1);
  auto model = import(m, options);
  ASSERT_TRUE(model) << model.message();
  EXPECT_THAT(text(*model), HasSubstr("tensor<8x3xf32>"));
}

TEST_F(Import, SampleAxisByNameAndByRecipe) {
  OnnxModel m;
  m.input("x", {"seq", "batch"}).input("c", {}).output("y", {"seq", "batch"}).output("z", {"seq", ""});
  m.node("Add", {"x", "c"}, {"y"});
  m.node("Neg", {"y"}, {"z"});
  frontend::ImportOptions options;
  options.dims = {{"seq", 2}, {"batch", 3}};
  EXPECT_THAT(text(*import(m, options)), AllOf(HasSubstr("train.name = \"x\", train.sample_axis = 1 : i64"),
                                               HasSubstr("train.name = \"c\", train.sample_axis = -1 : i64"),
                                               HasSubstr("{train.name = \"y\", train.sample_axis = 1 : i64}"),
                                               HasSubstr("{train.name = \"z\"}")));
  options.batchAxis = {{"x", 0}};
  EXPECT_THAT(text(*import(m, options)), HasSubstr("train.name = \"x\", train.sample_axis = 0 : i64"));
}

TEST_F(Import, InspectSaysWhatIsThere) {
  OnnxModel m = linear();
  m.save(folder + "/m.onnx");
  auto report = frontend::inspectModel(context, folder + "/m.onnx", {});
  ASSERT_TRUE(report) << report.message();
  EXPECT_THAT(report->text, AllOf(HasSubstr("opset 20"), HasSubstr("[batch, 2]"), HasSubstr("trained: 2 tensors, 9 elements, 36 B"),
                             HasSubstr("input x, axis 0: batch"), HasSubstr("Gemm"), HasSubstr("every op is supported")));
}

class Zoo : public Importing, public testing::WithParamInterface<const char *> {};
TEST_P(Zoo, Imports) {
  auto model = frontend::importModel(context, std::string(TCC_ZOO) + "/" + GetParam() + "/model.onnx", {});
  ASSERT_TRUE(model) << model.message();
  // Numbers of shape arithmetic and masks become constants, so that every variable is a parameter.
  for (auto variable : model->module->getOps<train::VariableOp>())
    EXPECT_EQ(variable.getRole(), "parameter") << variable.getSymName().str();
}
INSTANTIATE_TEST_SUITE_P(Models, Zoo, testing::Values("mlp", "small-cnn", "nano-gpt", "hf-gpt2-tiny", "in-graph-loss"),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

} // namespace

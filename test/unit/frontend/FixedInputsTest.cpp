//===- FixedInputsTest.cpp - inputs that are settings, dimensions without names -===//
#include "test/unit/frontend/Importing.h"
#include "test/unit/frontend/OnnxText.h"

using namespace tcc;
using namespace tcc::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace {

using FixedInputs = Importing;

FixedValue number(int64_t value) {
  FixedValue fixed;
  fixed.numbers = {double(value)};
  fixed.integers = {value};
  return fixed;
}
FixedValue list(std::vector<double> values) {
  FixedValue fixed;
  fixed.numbers = values;
  fixed.shape = {int64_t(values.size())};
  return fixed;
}

const char *kRepeated = R"(g (float[2] x, int64 times, float[3] unused) => (float[N, 2] y) {
    one = Constant <value_ints = [1]> ()
    two = Constant <value_int = 2> ()
    t = Reshape (times, one)
    width = Reshape (two, one)
    shape = Concat <axis = 0> (t, width)
    y = Expand (x, shape)
  })";

TEST_F(FixedInputs, DecideShapes) {
  OnnxModel m = fromText(kRepeated);
  EXPECT_THAT(problem(m), HasSubstr("--fix times=VALUE (model.fix in the recipe)"));
  frontend::ImportOptions options;
  options.model.fix["times"] = number(3);
  auto imported = import(m, options);
  ASSERT_TRUE(imported) << imported.message();
  auto function = imported->module->lookupSymbol<mlir::func::FuncOp>("forward");
  EXPECT_EQ(function.getNumArguments(), 2u);
  auto result = mlir::cast<mlir::RankedTensorType>(function.getBody().front().getTerminator()->getOperand(0).getType());
  EXPECT_THAT(result.getShape(), ElementsAre(3, 2));
}

TEST_F(FixedInputs, AnExportKeepsTheInputWithADefault) {
  frontend::ImportOptions options;
  options.model.fix["times"] = number(3);
  auto imported = import(fromText(kRepeated), options);
  ASSERT_TRUE(imported) << imported.message();
  onnx::ModelProto stripped;
  ASSERT_TRUE(stripped.ParseFromString(imported->strippedModel));
  EXPECT_EQ(stripped.graph().input_size(), 3);
  ASSERT_EQ(stripped.graph().initializer_size(), 1);
  EXPECT_EQ(stripped.graph().initializer(0).name(), "times");
  EXPECT_EQ(stripped.graph().initializer(0).raw_data(), std::string("\3\0\0\0\0\0\0\0", 8));
}

TEST_F(FixedInputs, OneNumberFillsAKnownShape) {
  OnnxModel m = fromText("g (float[2] x, float[2] s) => (float[2] y) { y = Mul (x, s) }");
  frontend::ImportOptions options;
  options.model.fix["s"] = number(3);
  auto imported = import(m, options);
  ASSERT_TRUE(imported) << imported.message();
  EXPECT_TRUE(imported->module->getOps<train::VariableOp>().empty()) << "a fixed input is not trained";
  options.model.fix["s"] = list({5, 7});
  EXPECT_TRUE(import(m, options));
}

TEST_F(FixedInputs, Errors) {
  OnnxModel m = fromText(kRepeated);
  auto with = [&](const std::string &name, const FixedValue &value) {
    frontend::ImportOptions options;
    options.model.fix[name] = value;
    return problem(m, options);
  };
  EXPECT_THAT(with("tmes", number(1)), AllOf(HasSubstr("model.fix.tmes: the model has no such input"), HasSubstr("times")));
  EXPECT_THAT(with("times", list({1, 2})), HasSubstr("model.fix.times: its value has the shape [2], the input []"));
  FixedValue half = number(0);
  half.numbers = {0.5};
  half.integers = {};
  EXPECT_THAT(with("times", half), HasSubstr("model.fix.times: 0.5 is no i64"));
  FixedValue file;
  file.file = folder + "/none.safetensors";
  EXPECT_THAT(with("times", file), HasSubstr("none.safetensors"));
  OnnxModel open = fromText("g (float[2] x, float[N] s) => (float[2] y) { y = Mul (x, s) }");
  frontend::ImportOptions options;
  options.model.fix["s"] = number(1);
  EXPECT_THAT(problem(open, options), AllOf(HasSubstr("shape [?] is not known"), HasSubstr("--shape s=")));
}

TEST_F(FixedInputs, DimensionsWithoutANameAreNotOne) {
  for (const char *name : {"?", "-1", "", "unk__214", "None", "floor(height/2)"}) {
    OnnxModel m;
    m.input("x", {"4", "3", name, name}).output("y");
    m.node("Neg", {"x"}, {"y"});
    frontend::ImportOptions options;
    options.shapes["x"] = {4, 3, 48, 192};
    EXPECT_EQ(problem(m, options), "accepted") << name;
  }
  OnnxModel m;
  m.input("x", {"side", "side"}).output("y");
  m.node("Neg", {"x"}, {"y"});
  frontend::ImportOptions options;
  options.shapes["x"] = {48, 192};
  EXPECT_THAT(problem(m, options), HasSubstr("dimension 1 (side) is 192, but 48 elsewhere"));
}

TEST_F(FixedInputs, DeclaredShapesAreHints) {
  OnnxModel m = fromText(R"(g (float[4, 6] x) => (float[1, 6] y, float[4, N] z) {
    y = Neg (x)
    z = Neg (y)
  })");
  auto imported = import(m);
  ASSERT_TRUE(imported) << imported.message();
  EXPECT_THAT(imported->warnings, ElementsAre(AllOf(HasSubstr("y is declared [1, 6] and computed [4, 6]"),
                                                    HasSubstr("the computed ones hold"))));
  // Declared shapes of inner values are compared as well, even if their rank differs.
  onnx::ValueInfoProto &inner = *m.graph().add_value_info();
  inner = m.graph().output(0);
  inner.set_name("u");
  inner.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim()->RemoveLast();
  m.graph().mutable_node(1)->set_input(0, "u");
  onnx::NodeProto &node = *m.graph().add_node();
  node.set_op_type("Abs");
  node.add_input("y");
  node.add_output("u");
  m.graph().mutable_node()->SwapElements(1, 2);
  imported = import(m);
  ASSERT_TRUE(imported) << imported.message();
  EXPECT_THAT(imported->warnings, ElementsAre(HasSubstr("u is declared [1] and computed [4, 6]")));
}

} // namespace

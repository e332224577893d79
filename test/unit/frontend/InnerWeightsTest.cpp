//===- InnerWeightsTest.cpp - weights in Constant nodes, branches, functions -===//
#include "test/unit/frontend/Importing.h"
#include "test/unit/frontend/OnnxText.h"

#include "frontend/InnerWeights.h"
#include "runtime/plan/ModelNotes.h"

#include <cmath>
#include <numbers>

using namespace tcc;
using namespace tcc::test;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

namespace {

class InnerWeights : public Importing {
protected:
  /// Names of the variables of a role ("parameter", "frozen").
  std::vector<std::string> variables(const OnnxModel &m, const std::string &role = "parameter",
                                     const frontend::ImportOptions &options = {}) {
    auto imported = import(m, options);
    EXPECT_TRUE(imported) << imported.message();
    std::vector<std::string> names;
    if (imported)
      imported->module->walk([&](train::VariableOp op) {
        if (op.getRole() == role)
          names.push_back(op.getSymName().str());
      });
    return names;
  }
};

/// A Constant node of floats.
void constant(OnnxModel &m, const std::string &name, const Dims &dims, const std::vector<float> &values) {
  onnx::NodeProto &node = m.node("Constant", {}, {name});
  onnx::AttributeProto &value = *node.add_attribute();
  value.set_name("value");
  value.set_type(onnx::AttributeProto::TENSOR);
  value.mutable_t()->set_data_type(onnx::TensorProto::FLOAT);
  value.mutable_t()->mutable_dims()->Add(dims.begin(), dims.end());
  value.mutable_t()->mutable_float_data()->Add(values.begin(), values.end());
}

std::vector<float> some(size_t count) {
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i)
    values.push_back(0.1f + 0.37f * float((i * 7) % 11) - 0.2f * float(i % 3));
  return values;
}

TEST_F(InnerWeights, ConstantsThatAreReadAsWeightsAreTrained) {
  OnnxModel m;
  m.input("x", {"2", "3", "5", "5"}).output("y", {"2", "4"});
  constant(m, "conv.w", {4, 3, 3, 3}, some(108));
  constant(m, "conv.b", {4}, some(4));
  m.node("Conv", {"x", "conv.w", "conv.b"}, {"c"});
  constant(m, "s", {4}, some(4));
  constant(m, "shift", {4}, some(4));
  constant(m, "mean", {4}, some(4));
  constant(m, "var", {4}, {1, 1, 2, 2});
  m.node("BatchNormalization", {"c", "s", "shift", "mean", "var"}, {"n"});
  m.node("GlobalAveragePool", {"n"}, {"p"});
  m.node("Flatten", {"p"}, {"f"});
  constant(m, "fc", {4, 4}, some(16));
  m.node("MatMul", {"f", "fc"}, {"h"});
  constant(m, "addend", {4}, some(4));
  m.node("Add", {"h", "addend"}, {"y"});
  EXPECT_THAT(variables(m), UnorderedElementsAre("conv.w", "conv.b", "s", "shift", "fc", "addend"));
  EXPECT_THAT(variables(m, "frozen"), UnorderedElementsAre("mean", "var"));
}

TEST_F(InnerWeights, OtherConstantsAreNot) {
  OnnxModel m;
  m.input("x", {"2", "3", "4"}).output("y", {"2", "3", "4"});
  constant(m, "pixel_mean", {4}, {0.4f, 0.5f, 0.6f, 0.7f});
  constant(m, "pixel_std", {4}, {0.2f, 0.3f, 0.2f, 0.3f});
  m.node("Sub", {"x", "pixel_mean"}, {"a"});
  m.node("Div", {"a", "pixel_std"}, {"b"});
  m.node("Transpose", {"b"}, {"t"}).add_attribute()->CopyFrom([] {
    onnx::AttributeProto perm;
    perm.set_name("perm");
    perm.set_type(onnx::AttributeProto::INTS);
    for (int axis : {0, 2, 1})
      perm.add_ints(axis);
    return perm;
  }());
  m.node("MatMul", {"b", "t"}, {"scores"});
  constant(m, "root", {1}, {0.5f});
  m.node("Mul", {"scores", "root"}, {"scaled"});
  constant(m, "mask", {1, 3, 3}, {0, -1e9f, -1e9f, 0, 0, -1e9f, 0, 0, 0});
  m.node("Add", {"scaled", "mask"}, {"masked"});
  m.node("Softmax", {"masked"}, {"p"});
  m.node("MatMul", {"p", "b"}, {"o"});
  constant(m, "three", {1}, {3});
  m.node("Add", {"o", "three"}, {"y"});
  EXPECT_THAT(variables(m), IsEmpty());
}

TEST_F(InnerWeights, AFourierBasisIsNoWeight) {
  // Windowed cos and −sin of 2πkn/N, the filters of an STFT by convolution.
  const int n = 32, bins = 17;
  std::vector<float> basis;
  for (int part = 0; part < 2; ++part)
    for (int k = 0; k < bins; ++k)
      for (int i = 0; i < n; ++i) {
        const double window = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * i / n), at = 2 * std::numbers::pi * k * i / n;
        basis.push_back(float(window * (part ? -std::sin(at) : std::cos(at))));
      }
  OnnxModel m;
  m.input("x", {"1", "1", "64"}).output("y");
  constant(m, "kernel", {2 * bins, 1, n}, basis);
  m.node("Conv", {"x", "kernel"}, {"f"});
  constant(m, "w", {3, 2 * bins, 1}, some(3 * 2 * bins));
  m.node("Conv", {"f", "w"}, {"y"});
  EXPECT_THAT(variables(m), ElementsAre("w"));
  EXPECT_THAT(variables(m, "frozen"), IsEmpty());

  // The same basis as an initializer is not trained either.
  OnnxModel other;
  other.input("x", {"1", "1", "64"}).output("y").floats("kernel", {2 * bins, 1, n}, basis);
  other.node("Conv", {"x", "kernel"}, {"y"});
  EXPECT_THAT(variables(other), IsEmpty());
  EXPECT_THAT(variables(other, "frozen"), ElementsAre("kernel"));
}

TEST_F(InnerWeights, AGridOfCoordinatesIsNoWeight) {
  std::vector<float> grid;
  for (int row = 0; row < 5; ++row)
    for (int column = 0; column < 4; ++column)
      grid.insert(grid.end(), {float(column) / 3 * 2 - 1, float(row) / 4 * 2 - 1, 1});
  OnnxModel m;
  m.input("x", {"2", "3"}).output("y");
  constant(m, "base", {20, 3}, grid);
  constant(m, "w", {3, 2}, some(6));
  m.node("MatMul", {"x", "w"}, {"theta"});
  m.node("Gemm", {"base", "x"}, {"y"}).add_attribute()->CopyFrom([] {
    onnx::AttributeProto transposed;
    transposed.set_name("transB");
    transposed.set_type(onnx::AttributeProto::INT);
    transposed.set_i(1);
    return transposed;
  }());
  m.output("theta");
  EXPECT_THAT(variables(m), ElementsAre("w"));
}

TEST_F(InnerWeights, TorchStoresParametersAsInitializers) {
  OnnxModel m;
  m.input("x", {"2", "3"}).output("y");
  constant(m, "/Constant_3_output_0", {3, 3}, some(9));
  m.node("MatMul", {"x", "/Constant_3_output_0"}, {"y"});
  EXPECT_THAT(variables(m), ElementsAre("/Constant_3_output_0"));
  m.model.set_producer_name("pytorch");
  EXPECT_THAT(variables(m), IsEmpty());
}

TEST_F(InnerWeights, ANameCanSayThatItIsABuffer) {
  OnnxModel m;
  m.input("x", {"1", "1", "8"}).output("y").floats("stft.forward_basis_buffer", {2, 1, 3}, some(6)).floats("w", {2, 2, 1}, some(4));
  m.node("Conv", {"x", "stft.forward_basis_buffer"}, {"f"});
  m.node("Conv", {"f", "w"}, {"y"});
  EXPECT_THAT(variables(m), ElementsAre("w"));
}

TEST_F(InnerWeights, NormsThatAreWrittenOut) {
  OnnxModel m;
  m.input("x", {"2", "4"}).output("y", {"2", "4"});
  m.node("ReduceMean", {"x"}, {"mean"});
  m.node("Sub", {"x", "mean"}, {"d"});
  m.node("Mul", {"d", "d"}, {"q"});
  m.node("ReduceMean", {"q"}, {"v"});
  constant(m, "eps", {1}, {1e-5f});
  m.node("Add", {"v", "eps"}, {"ve"});
  m.node("Sqrt", {"ve"}, {"r"});
  m.node("Div", {"d", "r"}, {"n"});
  constant(m, "g1", {4}, some(4));
  m.node("Mul", {"n", "g1"}, {"s"});
  constant(m, "b1", {4}, some(4));
  m.node("Add", {"s", "b1"}, {"y"});
  EXPECT_THAT(variables(m), UnorderedElementsAre("g1", "b1"));
}

TEST_F(InnerWeights, BehindOpsThatMoveElements) {
  OnnxModel m = fromText(R"(g (float[2, 3] x) => (float[2, 3] y) <float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 10}> {
    [a] u = Identity (w)
    [b] v = Identity (u)
    t = Transpose (v)
    y = MatMul (x, t)
  })");
  auto imported = import(m);
  ASSERT_TRUE(imported) << imported.message();
  EXPECT_EQ(imported->initializers.at("w").sign, "floating-point, with a name of its own");
  // A generated name says nothing about the role; the product at the end of the chain does.
  m.graph().mutable_initializer(0)->set_name("val_3");
  m.graph().mutable_node(0)->set_input(0, "val_3");
  imported = import(m);
  ASSERT_TRUE(imported) << imported.message();
  EXPECT_THAT(imported->initializers.at("val_3").sign, HasSubstr("read as a weight by MatMul"));
  EXPECT_THAT(imported->warnings, testing::Not(Contains(HasSubstr("nothing says whether"))));
}

TEST_F(InnerWeights, BranchesThatAreTaken) {
  // Both branches call their weight w; the branch that is not taken has none.
  OnnxModel m = fromText(R"(g (float[1, 2] x, int64 rate) => (float[1, 2] y) <int64 wide = {16000}> {
    c = Equal (rate, wide)
    [choose] y = If (c) <
      then_branch = a () => (float[1, 2] p) <float[2, 2] w = {1, 2, 3, 5}> { p = MatMul (x, w) },
      else_branch = b () => (float[1, 2] q) { w = Constant <value = float[2, 2] {7, 8, 9, 11}> ()  q = MatMul (x, w) }>
  })");
  frontend::ImportOptions options;
  options.model.fix["rate"].numbers = {16000};
  options.model.fix["rate"].integers = {16000};
  EXPECT_THAT(variables(m, "parameter", options), ElementsAre("w"));
  options.model.fix["rate"].integers = {8000};
  EXPECT_THAT(variables(m, "parameter", options), ElementsAre("choose/else_branch/w"));
}

TEST_F(InnerWeights, OtherInitializersOfAGraphStay) {
  OnnxModel m = fromText(R"(g (float[1, 4] x) => (float[2, 2] y) <bool yes = {1}> {
    y = If (yes) <then_branch = a () => (float[2, 2] p) <int64[2] shape = {2, 2}> { p = Reshape (x, shape) },
                  else_branch = b () => (float[2, 2] q) <int64[2] shape = {2, 2}, float w = {2}> {
                    s = Mul (x, w)  q = Reshape (s, shape) }>
  })");
  EXPECT_THAT(evaluate(m, {{1, 2, 3, 4}}), ElementsAre(1, 2, 3, 4));
  m.graph().mutable_initializer(0)->clear_int32_data();
  m.graph().mutable_initializer(0)->set_raw_data(std::string(1, '\0'));
  EXPECT_THAT(evaluate(m, {{1, 2, 3, 4}}), ElementsAre(2, 4, 6, 8));
}

TEST_F(InnerWeights, AFunctionsWeightIsOneForAllCalls) {
  OnnxModel m = fromText(R"(<ir_version: 10, opset_import: ["" : 20, "own" : 1]>
    g (float[2, 2] x) => (float[2, 2] y) {
      h = own.Linear (x)
      y = own.Linear (h)
    }
    <domain: "own", opset_import: ["" : 20]> Linear (a) => (b) {
      w = Constant <value = float[2, 2] {1, 2, 3, 5}> ()
      b = MatMul (a, w)
    })");
  EXPECT_THAT(variables(m), ElementsAre("w"));
  EXPECT_THAT(evaluate(m, {{1, 0, 0, 1}}), ElementsAre(7, 12, 18, 31));
}

TEST_F(InnerWeights, TheExportKnowsWhereTheyStand) {
  OnnxModel m = fromText(R"(g (float[2, 300] x) => (float[2, 2] y) {
    other = Constant <value = float[2] {3, 4}> ()
    s = Mul (other, other)
    y0 = MatMul (x, w)
    y = Mul (y0, s)
  })");
  onnx::NodeProto node;
  OnnxModel maker;
  constant(maker, "w", {300, 2}, some(600));
  m.graph().add_node()->Swap(maker.graph().mutable_node(0));
  for (int i = m.graph().node_size() - 1; i > 0; --i)
    m.graph().mutable_node()->SwapElements(i, i - 1);
  auto imported = import(m);
  ASSERT_TRUE(imported) << imported.message();
  onnx::ModelProto stripped;
  ASSERT_TRUE(stripped.ParseFromString(imported->strippedModel));
  const onnx::TensorProto &weight = stripped.graph().node(0).attribute(0).t(), &number = stripped.graph().node(1).attribute(0).t();
  ASSERT_EQ(weight.metadata_props_size(), 1);
  EXPECT_EQ(weight.metadata_props(0).key(), plan::kWeightNote);
  EXPECT_EQ(weight.metadata_props(0).value(), "w");
  EXPECT_FALSE(weight.has_raw_data());
  // A constant that is not a weight is unchanged.
  EXPECT_EQ(number.metadata_props_size(), 0);
  EXPECT_EQ(number.raw_data().size(), 8u);
}

TEST_F(InnerWeights, RecipesChooseAmongThem) {
  OnnxModel m;
  m.input("x", {"2", "4"}).output("y", {"2", "4"});
  constant(m, "w", {4, 4}, some(16));
  m.node("MatMul", {"x", "w"}, {"h"});
  constant(m, "per_feature", {4}, some(4));
  m.node("Mul", {"h", "per_feature"}, {"y"});
  EXPECT_THAT(variables(m), ElementsAre("w"));
  frontend::ImportOptions options;
  options.model.trainable = {"per_feature"};
  EXPECT_THAT(variables(m, "parameter", options), ElementsAre("per_feature"));
  EXPECT_THAT(variables(m, "frozen", options), ElementsAre("w"));
}

} // namespace

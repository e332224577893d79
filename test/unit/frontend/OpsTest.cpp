//===- OpsTest.cpp - ONNX ops by what they compute ------------------------===//
//
// One or two cases for each choice that a family's importer makes: versions, defaults, broadcasting, folding. Comments
// show how the expected values are computed.
//
//===----------------------------------------------------------------------===//
#include "test/unit/frontend/Importing.h"
#include "test/unit/frontend/OnnxText.h"

#include <cmath>

using namespace tcc;
using namespace tcc::test;
using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;
using testing::Pointwise;

namespace {

class Ops : public Importing {
protected:
  static OnnxModel unary(const std::string &op, const Names &dims, int64_t opset = 20) {
    OnnxModel m(opset);
    m.input("x", dims).output("y");
    m.node(op, {"x"}, {"y"});
    return m;
  }
  static testing::Matcher<std::vector<double>> near(std::vector<double> values) {
    return Pointwise(testing::DoubleNear(1e-5), values);
  }
};

TEST_F(Ops, BinaryOpsBroadcast) {
  OnnxModel m;
  m.input("x", {"2", "1"}).input("z", {"3"}).output("y");
  m.node("Sub", {"x", "z"}, {"y"});
  EXPECT_THAT(evaluate(m, {{10, 20}, {1, 2, 3}}), ElementsAre(9, 8, 7, 19, 18, 17));
  EXPECT_EQ(shape, (Dims{2, 3}));
}

TEST_F(Ops, ModFollowsTheDivisorsSignOrTheDividends) {
  for (bool fmod : {false, true}) {
    OnnxModel m;
    m.input("x", {"4"}, onnx::TensorProto::INT64).input("z", {"4"}, onnx::TensorProto::INT64);
    m.output("y", {"?"}, onnx::TensorProto::INT64);
    set(m.node("Mod", {"x", "z"}, {"y"}), "fmod", int64_t(fmod));
    std::vector<double> expected = fmod ? std::vector<double>{1, -1, 1, -1} : std::vector<double>{1, 2, -2, -1};
    EXPECT_EQ(evaluate(m, {{7, -7, 7, -7}, {3, 3, -3, -3}}), expected);
  }
}

TEST_F(Ops, PowWithASmallConstantIsAProduct) {
  OnnxModel m;
  m.input("x", {"3"}).output("y").floats("e", {}, {3});
  m.node("Pow", {"x", "e"}, {"y"});
  EXPECT_THAT(evaluate(m, {{-2, 0, 3}}), ElementsAre(-8, 0, 27));
  EXPECT_THAT(text(*import(m)), testing::Not(HasSubstr("train.pow")));
}

TEST_F(Ops, InverseTrigonometry) {
  OnnxModel m = unary("Atan", {"3"}, 7);
  EXPECT_THAT(evaluate(m, {{0, 1, -std::sqrt(3.0)}}), near({0, M_PI / 4, -M_PI / 3}));
  EXPECT_THAT(text(*import(m)), HasSubstr("train.atan"));
}

TEST_F(Ops, ClipByAttributesAndByInputs) {
  OnnxModel old = unary("Clip", {"3"}, 7);
  onnx::AttributeProto &low = *old.graph().mutable_node(0)->add_attribute();
  low.set_name("min");
  low.set_type(onnx::AttributeProto::FLOAT);
  low.set_f(0);
  EXPECT_THAT(evaluate(old, {{-1, 2, 9}}), ElementsAre(0, 2, 9));
  OnnxModel m;
  m.input("x", {"3"}).output("y").floats("high", {}, {5});
  m.node("Clip", {"x", "", "high"}, {"y"});
  EXPECT_THAT(evaluate(m, {{-1, 2, 9}}), ElementsAre(-1, 2, 5));
}

TEST_F(Ops, SoftmaxBeforeOpset13TakesAllFromTheAxisOn) {
  // Axis 1 of [1, 2, 2]: up to opset 12 all four elements are normalised together, from 13 on columns of two.
  OnnxModel old = unary("Softmax", {"1", "2", "2"}, 12);
  EXPECT_THAT(evaluate(old, {{0, 0, 0, 0}}), ElementsAre(.25, .25, .25, .25));
  OnnxModel now = unary("Softmax", {"1", "2", "2"}, 13);
  set(*now.graph().mutable_node(0), "axis", int64_t(1));
  EXPECT_THAT(evaluate(now, {{0, 0, 0, 0}}), ElementsAre(.5, .5, .5, .5));
}

TEST_F(Ops, ReductionsTakeAxesAsAttributeOrInput) {
  OnnxModel old = unary("ReduceMean", {"2", "3"}, 13);
  set(*old.graph().mutable_node(0), "axes", Dims{-1});
  set(*old.graph().mutable_node(0), "keepdims", int64_t(0));
  EXPECT_THAT(evaluate(old, {{1, 2, 3, 4, 5, 6}}), ElementsAre(2, 5));
  EXPECT_EQ(shape, Dims{2});
  OnnxModel m;
  m.input("x", {"2", "3"}).output("y").ints("axes", {1}, {0});
  m.node("ReduceSum", {"x", "axes"}, {"y"});
  EXPECT_THAT(evaluate(m, {{1, 2, 3, 4, 5, 6}}), ElementsAre(5, 7, 9));
  EXPECT_EQ(shape, (Dims{1, 3}));
}

TEST_F(Ops, MatMulOfEveryRank) {
  struct Case {
    Names x, z;
    std::vector<double> a, b, expected;
    Dims dims;
  };
  const Case cases[] = {
      {{"2"}, {"2"}, {1, 2}, {3, 4}, {11}, {}},
      {{"2", "2"}, {"2"}, {1, 2, 3, 4}, {1, 10}, {21, 43}, {2}},
      {{"2"}, {"2", "2"}, {1, 10}, {1, 2, 3, 4}, {31, 42}, {2}},
      {{"2", "1", "2"}, {"2", "1"}, {1, 2, 3, 4}, {1, 10}, {21, 43}, {2, 1, 1}},
      // Batches of 2 on both sides; each product is [1, 2] · [2, 1].
      {{"2", "1", "2"}, {"2", "2", "1"}, {1, 2, 3, 4}, {1, 1, 10, 10}, {3, 70}, {2, 1, 1}},
      // The left batch of 1 is broadcast.
      {{"1", "1", "2"}, {"2", "2", "1"}, {1, 2}, {1, 1, 10, 10}, {3, 30}, {2, 1, 1}},
  };
  for (const Case &c : cases) {
    OnnxModel m;
    m.input("x", c.x).input("z", c.z).output("y");
    m.node("MatMul", {"x", "z"}, {"y"});
    EXPECT_EQ(evaluate(m, {c.a, c.b}), c.expected);
    EXPECT_EQ(shape, c.dims);
  }
}

TEST_F(Ops, TranspositionsBecomeFlagsOfMatMul) {
  // y = x · (c·reshape(transpose(z))) without a transpose op: [1, 2] · [[1, 3], [2, 4]]·2 = [10, 22].
  OnnxModel m;
  m.input("x", {"1", "1", "2"}).input("z", {"1", "2", "2"}).output("y").floats("c", {}, {2}).ints("s", {4}, {1, 1, 2, 2});
  m.node("Unsqueeze", {"x", "zero"}, {"x4"});
  m.ints("zero", {1}, {0});
  set(m.node("Transpose", {"z"}, {"t"}), "perm", Dims{0, 2, 1});
  m.node("Reshape", {"t", "s"}, {"r"});
  m.node("Mul", {"r", "c"}, {"scaled"});
  m.node("MatMul", {"x4", "scaled"}, {"y"});
  EXPECT_THAT(evaluate(m, {{1, 2}, {1, 2, 3, 4}}), ElementsAre(10, 22));
  EXPECT_THAT(text(*import(m)), testing::AllOf(HasSubstr("transB = true"), testing::Not(HasSubstr("train.transpose"))));
}

TEST_F(Ops, GemmScalesAndTransposes) {
  OnnxModel m;
  m.input("a", {"2", "1"}).input("b", {"3", "2"}).output("y").floats("c", {3}, {1, 1, 1});
  onnx::NodeProto &node = m.node("Gemm", {"a", "b", "c"}, {"y"});
  set(node, "transA", int64_t(1));
  set(node, "transB", int64_t(1));
  for (const auto &[name, value] : {std::pair("alpha", 2.0f), std::pair("beta", 10.0f)}) {
    onnx::AttributeProto &attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::FLOAT);
    attribute.set_f(value);
  }
  // 2·[1, 2]·Bᵀ + 10 with B's rows [1, 0], [0, 1], [1, 1].
  EXPECT_THAT(evaluate(m, {{1, 2}, {1, 0, 0, 1, 1, 1}}), ElementsAre(12, 14, 16));
}

TEST_F(Ops, SliceClampsAndRunsBackwards) {
  OnnxModel m;
  m.input("x", {"5"}).output("y").ints("starts", {1}, {-1}).ints("ends", {1}, {INT64_MIN}).ints("axes", {1}, {0});
  m.ints("steps", {1}, {-2});
  m.node("Slice", {"x", "starts", "ends", "axes", "steps"}, {"y"});
  EXPECT_THAT(evaluate(m, {{0, 1, 2, 3, 4}}), ElementsAre(4, 2, 0));
}

TEST_F(Ops, AveragePoolCountsWhatIsThere) {
  OnnxModel m = unary("AveragePool", {"1", "1", "3"});
  set(*m.graph().mutable_node(0), "kernel_shape", Dims{2});
  set(*m.graph().mutable_node(0), "pads", Dims{1, 1});
  EXPECT_THAT(evaluate(m, {{2, 4, 6}}), ElementsAre(2, 3, 5, 6));
  set(*m.graph().mutable_node(0), "count_include_pad", int64_t(1));
  EXPECT_THAT(evaluate(m, {{2, 4, 6}}), ElementsAre(1, 3, 5, 3));
}

TEST_F(Ops, ConvPadsGroupsAndAddsItsBias) {
  OnnxModel m;
  m.input("x", {"1", "2", "3"}).output("y").floats("w", {2, 1, 2}, {1, 1, 1, -1}).floats("b", {2}, {10, 0});
  onnx::NodeProto &node = m.node("Conv", {"x", "w", "b"}, {"y"});
  set(node, "group", int64_t(2));
  set(node, "auto_pad", std::string("SAME_UPPER"));
  // Channel 0: sums of neighbours + 10; channel 1: differences; padded by 0 at the end.
  EXPECT_THAT(evaluate(m, {{1, 2, 3, 5, 4, 2}}), ElementsAre(13, 15, 13, 1, 2, 2));
}

TEST_F(Ops, LossIgnoresAndWeighs) {
  OnnxModel m;
  m.input("s", {"3", "2"}).input("t", {"3"}, onnx::TensorProto::INT64).output("y").floats("w", {2}, {1, 3});
  set(m.node("NegativeLogLikelihoodLoss", {"s", "t", "w"}, {"y"}), "ignore_index", int64_t(-100));
  // −(1·(−1) + 3·(−4)) / (1 + 3); the third target is ignored.
  EXPECT_THAT(evaluate(m, {{-1, -2, -3, -4, -5, -6}, {0, 1, -100}}), ElementsAre(13.0 / 4));
}

TEST_F(Ops, GatherNDFlattensItsIndices) {
  OnnxModel m;
  m.input("x", {"2", "3"}).output("y").ints("i", {2, 2}, {0, -1, 1, 0});
  m.node("GatherND", {"x", "i"}, {"y"});
  EXPECT_THAT(evaluate(m, {{1, 2, 3, 4, 5, 6}}), ElementsAre(3, 4));
}

TEST_F(Ops, SequencesOfTensorsAreFollowed) {
  OnnxModel m;
  m.input("x", {"1", "5"}).output("y").ints("size", {}, {2}).ints("at", {}, {-1});
  set(m.node("SplitToSequence", {"x", "size"}, {"parts"}), "axis", int64_t(1));
  m.node("SequenceAt", {"parts", "at"}, {"y"});
  EXPECT_THAT(evaluate(m, {{1, 2, 3, 4, 5}}), ElementsAre(5));
}

TEST_F(Ops, EinsumContracts) {
  OnnxModel m;
  m.input("a", {"2", "2", "3"}).input("b", {"2", "3"}).output("y");
  set(m.node("Einsum", {"a", "b"}, {"y"}), "equation", std::string("bij,bj->ib"));
  EXPECT_THAT(evaluate(m, {{1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1}, {1, 2, 3, 4, 5, 6}}), ElementsAre(1, 6, 2, 15));
}

TEST_F(Ops, StandardFunctionsFallBackToTheirBodies) {
  // The standard defines BlackmanWindow by plain ops, with a default attribute.
  OnnxModel window(17);
  window.output("y").ints("n", {}, {4});
  window.node("BlackmanWindow", {"n"}, {"y"});
  EXPECT_THAT(evaluate(window, {}), near({0, 0.34, 1, 0.34}));
}

TEST_F(Ops, MaxUnpoolKeepsItsChannels) {
  OnnxModel m = fromText(R"(g (float[1,2,2] x, int64[1,2,2] at) => (float[1,3,4] y) {
    size = Constant <value_ints = [1, 3, 4]> ()
    [spread] y = MaxUnpool <kernel_shape = [2], strides = [2]> (x, at, size)
  })");
  EXPECT_THAT(problem(m), HasSubstr("spread (MaxUnpool, opset 20): the output [1, 3, 4] must have the batch and channels "
                                    "of f32[1x2x2]"));
}

TEST_F(Ops, ModelFunctionsAreInlined) {
  OnnxModel m;
  m.model.add_opset_import()->set_domain("mine");
  m.model.mutable_opset_import(1)->set_version(1);
  onnx::FunctionProto &function = *m.model.add_functions();
  function.set_name("Twice");
  function.set_domain("mine");
  function.add_input("a");
  function.add_output("b");
  function.add_opset_import()->set_version(20);
  onnx::NodeProto &body = *function.add_node();
  body.set_op_type("Add");
  body.add_input("a");
  body.add_input("a");
  body.add_output("b");
  m.input("x", {"2"}).output("y");
  m.node("Twice", {"x"}, {"y"}, "call").set_domain("mine");
  EXPECT_THAT(evaluate(m, {{1, 2}}), ElementsAre(2, 4));
}

} // namespace

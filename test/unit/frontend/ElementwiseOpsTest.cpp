//===- ElementwiseOpsTest.cpp - arithmetic, bits, empty tensors, einsum ---===//
#include "test/unit/frontend/Importing.h"

#include <cmath>

using namespace tcc;
using namespace tcc::test;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

class ElementwiseOps : public Importing {
protected:
  using Type = onnx::TensorProto;
  /// op(x, z) for 1-d inputs of one type.
  std::vector<double> binary(const std::string &op, int type, const std::vector<double> &x,
                             const std::vector<double> &z, const std::string &direction = "") {
    OnnxModel m(28);
    m.input("x", {std::to_string(x.size())}, type)
        .input("z", {std::to_string(z.size())}, type)
        .output("y", {"?"}, type);
    onnx::NodeProto &node = m.node(op, {"x", "z"}, {"y"});
    if (!direction.empty())
      set(node, "direction", direction);
    return evaluate(m, {x, z});
  }
  std::vector<double> einsum(const std::string &equation, const std::vector<Names> &shapes,
                             const std::vector<std::vector<double>> &inputs) {
    OnnxModel m;
    Names names;
    for (size_t i = 0; i < shapes.size(); ++i) {
      names.push_back("x" + std::to_string(i));
      m.input(names.back(), shapes[i]);
    }
    m.output("y");
    set(m.node("Einsum", names, {"y"}), "equation", equation);
    return evaluate(m, inputs);
  }
};

TEST_F(ElementwiseOps, ShiftsPushBitsOut) {
  EXPECT_THAT(binary("BitShift", Type::UINT8, {1, 255, 7}, {3, 1, 8}, "LEFT"), ElementsAre(8, 254, 0));
  EXPECT_THAT(binary("BitShift", Type::UINT8, {200, 255, 7}, {3, 1, 8}, "RIGHT"), ElementsAre(25, 127, 0));
  EXPECT_THAT(binary("BitShift", Type::INT32, {-8, -1, 5}, {1, 40, -1}, "RIGHT"), ElementsAre(-4, -1, 0));
}

TEST_F(ElementwiseOps, BitCastKeepsBits) {
  OnnxModel m(26);
  m.input("x", {"2"}).output("y", {"?"}, Type::INT32);
  set(m.node("BitCast", {"x"}, {"y"}), "to", int64_t(Type::INT32));
  EXPECT_THAT(evaluate(m, {{1, -0.0}}), ElementsAre(0x3f800000, double(INT32_MIN)));
  OnnxModel wider(26);
  wider.input("x", {"2"}).output("y", {"?"}, Type::INT64);
  set(wider.node("BitCast", {"x"}, {"y"}), "to", int64_t(Type::INT64));
  EXPECT_THAT(problem(wider), testing::Not("accepted"));
}

TEST_F(ElementwiseOps, PowTakesTheWiderOfTwoTypes) {
  OnnxModel m;
  m.input("x", {"3"}, Type::INT32).input("e", {"3"}).output("y", {"?"}, Type::INT32);
  m.node("Pow", {"x", "e"}, {"y"});
  EXPECT_THAT(evaluate(m, {{4, 9, 2}, {0.5, 1.5, -1}}), ElementsAre(2, 27, 0));
  // 3^39 has 62 bits: no double holds it.
  OnnxModel wide;
  wide.input("x", {"1"}, Type::INT64).input("e", {"1"}, Type::INT64).output("y", {"?"}, Type::INT32);
  wide.ints("m", {1}, {1000});
  wide.node("Pow", {"x", "e"}, {"p"});
  wide.node("Mod", {"p", "m"}, {"r"});
  set(wide.node("Cast", {"r"}, {"y"}), "to", int64_t(Type::INT32));
  EXPECT_THAT(evaluate(wide, {{3}, {39}}), ElementsAre(267));
}

TEST_F(ElementwiseOps, MaxOfManyIsOneReduction) {
  OnnxModel m;
  m.input("a", {"2"}).input("b", {"1"}).input("c", {"2"}).output("y");
  m.node("Max", {"a", "b", "c"}, {"y"});
  EXPECT_THAT(evaluate(m, {{1, 7}, {5}, {2, 9}}), ElementsAre(5, 9));
  EXPECT_THAT(text(*import(m)), HasSubstr("train.reduce max")); // a tie of three shares its gradient in thirds
}

TEST_F(ElementwiseOps, EinsumTakesDiagonalsAndOuterProducts) {
  EXPECT_THAT(einsum("ii->i", {{"2", "2"}}, {{1, 2, 3, 4}}), ElementsAre(1, 4));
  EXPECT_THAT(einsum("i i", {{"2", "2"}}, {{1, 2, 3, 4}}), ElementsAre(5));
  EXPECT_THAT(einsum("bii->bi", {{"2", "2", "2"}}, {{1, 2, 3, 4, 5, 6, 7, 8}}), ElementsAre(1, 4, 5, 8));
  EXPECT_THAT(einsum("iii->i", {{"2", "2", "2"}}, {{1, 2, 3, 4, 5, 6, 7, 8}}), ElementsAre(1, 8));
  EXPECT_THAT(einsum("i,j->ji", {{"2"}, {"3"}}, {{1, 2}, {3, 4, 5}}), ElementsAre(3, 6, 4, 8, 5, 10));
  EXPECT_THAT(einsum("i,i,i->", {{"2"}, {"2"}, {"2"}}, {{1, 2}, {3, 4}, {5, 6}}), ElementsAre(15 + 48));
  // Implicit: labels that occur once, capitals first.
  EXPECT_THAT(einsum("aB", {{"2", "3"}}, {{1, 2, 3, 4, 5, 6}}), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(einsum("...ij,...j->...i", {{"2", "1", "2"}, {"2"}}, {{1, 2, 3, 4}, {1, 10}}), ElementsAre(21, 43));
}

TEST_F(ElementwiseOps, TensorsWithoutElements) {
  // A sum over no rows is 0, a product with an inner extent of 0 too.
  OnnxModel sum(20);
  sum.input("x", {"0", "3"}).output("y").ints("axes", {1}, {0});
  sum.node("ReduceSum", {"x", "axes"}, {"y"});
  EXPECT_THAT(evaluate(sum, {{}}), ElementsAre(0, 0, 0));
  OnnxModel product;
  product.input("x", {"2", "0"}).input("w", {"0", "2"}).output("y");
  product.node("MatMul", {"x", "w"}, {"y"});
  EXPECT_THAT(evaluate(product, {{}, {}}), ElementsAre(0, 0, 0, 0));
  OnnxModel joined;
  joined.input("x", {"0", "2"}).input("w", {"1", "2"}).output("y");
  set(joined.node("Concat", {"x", "w"}, {"y"}), "axis", int64_t(0));
  EXPECT_THAT(evaluate(joined, {{}, {4, 5}}), ElementsAre(4, 5));
}

} // namespace

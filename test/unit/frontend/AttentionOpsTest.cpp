//===- AttentionOpsTest.cpp - attention and its relatives by hand ---------===//
//
// Scores are 0, so that weights are even over the keys that a query sees, and the result is the mean of their values.
//
//===----------------------------------------------------------------------===//
#include "test/unit/frontend/Importing.h"

#include <cmath>

using namespace tcc;
using namespace tcc::test;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

class AttentionOps : public Importing {
protected:
  /// One head of one feature: three queries of 0, keys 1, values 3, 5, 10.
  static OnnxModel attention(Names extra = {}) {
    OnnxModel m(25);
    m.input("q", {"1", "1", "3", "1"}).input("k", {"1", "1", "3", "1"}).input("v", {"1", "1", "3", "1"}).output("y");
    Names inputs = {"q", "k", "v"};
    inputs.insert(inputs.end(), extra.begin(), extra.end());
    m.node("Attention", inputs, {"y"});
    return m;
  }
  static onnx::NodeProto &node(OnnxModel &m) { return *m.graph().mutable_node(0); }
  std::vector<std::vector<double>> values = {{0, 0, 0}, {1, 1, 1}, {3, 5, 10}};
};

TEST_F(AttentionOps, CausalQueriesSeeTheKeysBeforeThem) {
  OnnxModel m = attention();
  set(node(m), "is_causal", int64_t(1));
  EXPECT_THAT(evaluate(m, values), ElementsAre(3, 4, 6));
  set(node(m), "left_window_size", int64_t(1));
  EXPECT_THAT(evaluate(m, values), ElementsAre(3, 4, 7.5));
}

TEST_F(AttentionOps, ARowWithoutKeysIsZero) {
  OnnxModel m = attention({"mask"});
  m.input("mask", {"3", "3"}, onnx::TensorProto::BOOL);
  values.push_back({1, 0, 0, 0, 0, 0, 0, 1, 1});
  EXPECT_THAT(evaluate(m, values), ElementsAre(3, 0, 7.5));
}

TEST_F(AttentionOps, PaddedKeysMoveTheDiagonal) {
  OnnxModel m = attention({"", "", "", "lengths"});
  m.input("lengths", {"1"}, onnx::TensorProto::INT64);
  set(node(m), "is_causal", int64_t(1));
  values.push_back({2}); // 2 keys for 3 queries: the first query precedes all keys
  EXPECT_THAT(evaluate(m, values), ElementsAre(0, 3, 4));
}

TEST_F(AttentionOps, GroupsOfQueriesShareKeysWithoutCopies) {
  OnnxModel m(23);
  m.input("q", {"1", "4", "2", "2"}).input("k", {"1", "2", "3", "2"}).input("v", {"1", "2", "3", "2"}).output("y");
  m.node("Attention", {"q", "k", "v"}, {"y"});
  auto imported = import(m);
  ASSERT_TRUE(imported) << imported.message();
  // For each of the 2 heads of keys, 2 heads of queries × 2 tokens are the rows of one product.
  EXPECT_THAT(text(*imported), HasSubstr("(tensor<2x4x2xf32>, tensor<2x3x2xf32>) -> tensor<2x4x3xf32>"));
}

TEST_F(AttentionOps, RotaryEmbeddingTurnsPairs) {
  for (bool interleaved : {false, true}) {
    OnnxModel m(23);
    m.input("x", {"1", "1", "1", "4"}).output("y").ints("at", {1, 1}, {1});
    m.floats("cos", {2, 2}, {9, 9, 0, -1}).floats("sin", {2, 2}, {9, 9, 1, 0});
    set(m.node("RotaryEmbedding", {"x", "cos", "sin", "at"}, {"y"}), "interleaved", int64_t(interleaved));
    // The first pair turns by 90°, the second by 180°.
    std::vector<double> expected =
        interleaved ? std::vector<double>{-2, 1, -3, -4} : std::vector<double>{-3, -2, 1, -4};
    EXPECT_EQ(evaluate(m, {{1, 2, 3, 4}}), expected);
  }
}

TEST_F(AttentionOps, LinearAttentionAddsUpItsState) {
  OnnxModel m(27);
  m.input("q", {"1", "2", "1"}).input("k", {"1", "2", "1"}).input("v", {"1", "2", "1"}).output("y").output("s");
  onnx::NodeProto &n = m.node("LinearAttention", {"q", "k", "v"}, {"y", "s"});
  set(n, "q_num_heads", int64_t(1));
  set(n, "kv_num_heads", int64_t(1));
  set(n, "update_rule", std::string("linear"));
  // States 2·5 and 10 + 3·7, read by queries 1 and 2.
  EXPECT_THAT(evaluate(m, {{1, 2}, {2, 3}, {5, 7}}), ElementsAre(10, 62));
}

TEST_F(AttentionOps, FusedMatMulTransposesAndScales) {
  OnnxModel m;
  m.model.add_opset_import()->set_domain("com.microsoft");
  m.model.mutable_opset_import(1)->set_version(1);
  m.input("a", {"2", "1"}).input("b", {"3", "2"}).output("y");
  onnx::NodeProto &n = m.node("FusedMatMul", {"a", "b"}, {"y"});
  n.set_domain("com.microsoft");
  set(n, "transA", int64_t(1));
  set(n, "transB", int64_t(1));
  EXPECT_THAT(evaluate(m, {{1, 2}, {1, 0, 0, 1, 1, 1}}), ElementsAre(1, 2, 3));
}

TEST_F(AttentionOps, OptimizerStepsAreArithmetic) {
  OnnxModel m;
  m.model.add_opset_import()->set_domain("ai.onnx.preview.training");
  m.model.mutable_opset_import(1)->set_version(1);
  m.input("r", {}).input("t", {}, onnx::TensorProto::INT64).input("x", {"1"}).input("g", {"1"}).input("v", {"1"});
  m.output("y").output("w");
  onnx::NodeProto &n = m.node("Momentum", {"r", "t", "x", "g", "v"}, {"y", "w"});
  n.set_domain("ai.onnx.preview.training");
  for (auto [name, value] : {std::pair("alpha", 0.5f), {"beta", 0.25f}, {"norm_coefficient", 0.0f}}) {
    onnx::AttributeProto &attribute = *n.add_attribute();
    attribute.set_name(name);
    attribute.set_type(onnx::AttributeProto::FLOAT);
    attribute.set_f(value);
  }
  set(n, "mode", std::string("standard"));
  // v = 0.5·4 + 0.25·8 = 4; x = 10 − 0.5·4.
  EXPECT_THAT(evaluate(m, {{0.5}, {3}, {10}, {8}, {4}}), ElementsAre(8));
}

} // namespace

//===- IndexingOpsTest.cpp - gathers, scatters, sorts, selections ---------===//
#include "test/unit/frontend/Importing.h"

#include <cmath>

using namespace tcc;
using namespace tcc::test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsNan;

namespace {

class IndexingOps : public Importing {
protected:
  using Type = onnx::TensorProto;
  /// ScatterElements into four numbers, at indices that are a graph input.
  std::vector<double> scatter(const std::string &reduction, const std::vector<double> &x,
                              const std::vector<double> &places, const std::vector<double> &updates) {
    OnnxModel m;
    std::string count = std::to_string(places.size());
    m.input("x", {"4"}).input("i", {count}, Type::INT64).input("u", {count}).output("y");
    set(m.node("ScatterElements", {"x", "i", "u"}, {"y"}), "reduction", reduction);
    return evaluate(m, {x, places, updates});
  }
  /// The values or indices of TopK over five numbers.
  std::vector<double> top(const std::string &output, int64_t k, bool largest, const std::vector<double> &x) {
    OnnxModel m;
    m.input("x", {"5"}).output(output, {"?"}, output == "places" ? Type::INT64 : Type::FLOAT).ints("k", {1}, {k});
    set(m.node("TopK", {"x", "k"}, {"values", "places"}), "largest", int64_t(largest));
    return evaluate(m, {x});
  }
};

TEST_F(IndexingOps, TheLastOfSeveralWritesStays) {
  EXPECT_THAT(scatter("none", {1, 2, 3, 4}, {0, -1, 0}, {10, 20, 30}), ElementsAre(30, 2, 3, 20));
}

TEST_F(IndexingOps, ScattersCombineInOrder) {
  EXPECT_THAT(scatter("add", {1, 2, 3, 4}, {0, -1, 0}, {10, 20, 30}), ElementsAre(41, 2, 3, 24));
  EXPECT_THAT(scatter("mul", {1, 2, 3, 4}, {0, -1, 0}, {10, 20, 30}), ElementsAre(300, 2, 3, 80));
  EXPECT_THAT(scatter("max", {1, 2, 3, 4}, {0, 1, 0}, {10, -20, 5}), ElementsAre(10, 2, 3, 4));
  EXPECT_THAT(scatter("min", {1, 2, 3, 4}, {0, 1, 0}, {10, -20, 5}), ElementsAre(1, -20, 3, 4));
  OnnxModel m;
  m.input("x", {"4"}).input("i", {"4"}, Type::INT64).output("y");
  set(m.node("ScatterElements", {"x", "i", "x"}, {"y"}), "reduction", std::string("mean"));
  EXPECT_THAT(problem(m), HasSubstr("reduction is 'mean'; ONNX allows 'none', 'add', 'mul', 'max' or 'min'"));
}

TEST_F(IndexingOps, AScatterOfNothingChangesNothing) {
  EXPECT_THAT(scatter("add", {1, 2, 3, 4}, {}, {}), ElementsAre(1, 2, 3, 4));
}

TEST_F(IndexingOps, NothingIsFoundAmongNoElements) {
  OnnxModel gather, largest;
  gather.input("x", {"2", "0"}).input("i", {"1"}, Type::INT64).output("y");
  set(gather.node("Gather", {"x", "i"}, {"y"}), "axis", int64_t(1));
  EXPECT_THAT(problem(gather), HasSubstr("f32[2x0] has no elements along axis 1"));
  largest.input("x", {"2", "0"}).output("y", {"?"}, Type::INT64);
  set(largest.node("ArgMax", {"x"}, {"y"}), "axis", int64_t(1));
  EXPECT_THAT(problem(largest), HasSubstr("f32[2x0] has no elements along axis 1"));
}

TEST_F(IndexingOps, ScatterNDTakesPartialTuples) {
  OnnxModel m;
  m.input("x", {"2", "2", "2"}).input("i", {"2", "2"}, Type::INT64).input("u", {"2", "2"}).output("y");
  m.node("ScatterND", {"x", "i", "u"}, {"y"});
  EXPECT_THAT(evaluate(m, {{0, 0, 0, 0, 0, 0, 0, 0}, {0, 1, -1, 0}, {1, 2, 3, 4}}),
              ElementsAre(0, 0, 1, 2, 3, 4, 0, 0));
}

TEST_F(IndexingOps, CircularCachesGoOnAtTheBeginning) {
  OnnxModel m(24);
  m.input("x", {"2", "3", "1"}).input("u", {"2", "2", "1"}).input("i", {"2"}, Type::INT64).output("y");
  set(m.node("TensorScatter", {"x", "u", "i"}, {"y"}), "mode", std::string("circular"));
  EXPECT_THAT(evaluate(m, {{0, 0, 0, 0, 0, 0}, {1, 2, 3, 4}, {2, 1}}), ElementsAre(2, 0, 1, 0, 3, 4));
}

TEST_F(IndexingOps, EqualElementsKeepTheirOrderAndNanIsBeyondAllNumbers) {
  EXPECT_THAT(top("places", 4, true, {1, 3, 3, 0, 3}), ElementsAre(1, 2, 4, 0));
  EXPECT_THAT(top("places", 3, false, {1, 0, 3, 0, 1}), ElementsAre(1, 3, 0));
  EXPECT_THAT(top("values", 2, true, {1, INFINITY, 3, NAN, 3}), ElementsAre(IsNan(), INFINITY));
  EXPECT_THAT(top("values", 2, false, {1, NAN, 3, -INFINITY, 3}), ElementsAre(-INFINITY, 1));
  OnnxModel m;
  m.input("x", {"5"}).output("v").ints("k", {1}, {6});
  m.node("TopK", {"x", "k"}, {"v", "p"});
  EXPECT_THAT(problem(m), HasSubstr("k is 6; it must be from 0 to 5, the extent of the axis"));
}

TEST_F(IndexingOps, SequencesAreReversedByLengthsThatComeAsData) {
  OnnxModel m;
  m.input("x", {"3", "2"}).input("l", {"2"}, Type::INT64).output("y");
  m.node("ReverseSequence", {"x", "l"}, {"y"});
  EXPECT_THAT(evaluate(m, {{1, 2, 3, 4, 5, 6}, {3, 2}}), ElementsAre(5, 4, 3, 2, 1, 6));
}

TEST_F(IndexingOps, RunningProductsRunBothWays) {
  for (int64_t reverse : {0, 1}) {
    OnnxModel m(26);
    m.input("x", {"4"}).output("y").ints("axis", {}, {0});
    onnx::NodeProto &node = m.node("CumProd", {"x", "axis"}, {"y"});
    set(node, "reverse", reverse);
    set(node, "exclusive", int64_t(1));
    if (reverse)
      EXPECT_THAT(evaluate(m, {{2, 3, 4, 5}}), ElementsAre(60, 20, 5, 1));
    else
      EXPECT_THAT(evaluate(m, {{2, 3, 4, 5}}), ElementsAre(1, 2, 6, 24));
  }
}

TEST_F(IndexingOps, TheDiagonalMayBeData) {
  OnnxModel m;
  m.input("x", {"2", "3"}).input("k", {}, Type::INT64).output("y");
  set(m.node("Trilu", {"x", "k"}, {"y"}), "upper", int64_t(0));
  EXPECT_THAT(evaluate(m, {{1, 2, 3, 4, 5, 6}, {1}}), ElementsAre(1, 2, 0, 4, 5, 6));
  EXPECT_THAT(evaluate(m, {{1, 2, 3, 4, 5, 6}, {-1}}), ElementsAre(0, 0, 0, 4, 0, 0));
}

// The length of NonZero's result depends on data; for constants it is known.
TEST_F(IndexingOps, PlacesThatAreNotZeroAreFoundInConstants) {
  OnnxModel m;
  m.input("x", {"2", "2"}).output("y").ints("mask", {2, 2}, {0, 1, 1, 0});
  m.node("NonZero", {"mask"}, {"n"});
  set(m.node("Transpose", {"n"}, {"i"}), "perm", Dims{1, 0});
  m.node("GatherND", {"x", "i"}, {"y"});
  EXPECT_THAT(evaluate(m, {{1, 2, 3, 4}}), ElementsAre(2, 3));
  OnnxModel data;
  data.input("x", {"2", "2"}).output("y", {"?"}, Type::INT64);
  data.node("NonZero", {"x"}, {"y"}, "find");
  EXPECT_THAT(problem(data),
              testing::AllOf(HasSubstr("find"), HasSubstr("shapes must be known at compile time"), HasSubstr("Where")));
}

TEST_F(IndexingOps, CompressSelectsByAConstant) {
  OnnxModel m;
  m.input("x", {"2", "3"}).output("y").ints("c", {3}, {1, 0, 1});
  set(m.node("Cast", {"c"}, {"b"}), "to", int64_t(Type::BOOL));
  set(m.node("Compress", {"x", "b"}, {"y"}), "axis", int64_t(-1));
  EXPECT_THAT(evaluate(m, {{1, 2, 3, 4, 5, 6}}), ElementsAre(1, 3, 4, 6));
  EXPECT_EQ(shape, (Dims{2, 2}));
}

TEST_F(IndexingOps, UniqueElementsOfConstants) {
  auto part = [&](const std::string &output, int64_t sorted) {
    OnnxModel m;
    m.output(output, {"?"}, Type::INT64).ints("x", {6}, {7, 3, 7, 1, 3, 7});
    set(m.node("Unique", {"x"}, {"values", "first", "inverse", "counts"}), "sorted", sorted);
    return evaluate(m, {});
  };
  EXPECT_THAT(part("values", 1), ElementsAre(1, 3, 7));
  EXPECT_THAT(part("first", 1), ElementsAre(3, 1, 0));
  EXPECT_THAT(part("inverse", 1), ElementsAre(2, 1, 2, 0, 1, 2));
  EXPECT_THAT(part("counts", 1), ElementsAre(1, 2, 3));
  EXPECT_THAT(part("values", 0), ElementsAre(7, 3, 1));
  EXPECT_THAT(part("inverse", 0), ElementsAre(0, 1, 0, 2, 1, 0));
}

TEST_F(IndexingOps, BoxesOfConstantsAreSuppressed) {
  // The second overlaps the first by 0.9; the third is elsewhere.
  OnnxModel m;
  auto constant = [&](const std::string &name, const Dims &dims, const std::vector<float> &values) {
    onnx::AttributeProto &value = *m.node("Constant", {}, {name}).add_attribute();
    value.set_name("value");
    value.set_type(onnx::AttributeProto::TENSOR);
    value.mutable_t()->set_data_type(Type::FLOAT);
    value.mutable_t()->mutable_dims()->Add(dims.begin(), dims.end());
    value.mutable_t()->mutable_float_data()->Add(values.begin(), values.end());
  };
  constant("boxes", {1, 3, 4}, {0, 0, 1, 1, 0, 0.05f, 1, 1.05f, 0, 10, 1, 11});
  constant("scores", {1, 1, 3}, {0.9f, 0.75f, 0.6f});
  constant("overlap", {1}, {0.5f});
  m.output("y", {"?"}, Type::INT64).ints("most", {1}, {3});
  m.node("NonMaxSuppression", {"boxes", "scores", "most", "overlap"}, {"y"});
  EXPECT_THAT(evaluate(m, {}), ElementsAre(0, 0, 0, 0, 0, 2));
  EXPECT_EQ(shape, (Dims{2, 3}));
}

/// Counts of 7, (5, 6) and (6, 7) in a row of six tokens.
OnnxModel grams(const Dims &begins, int64_t skips = 0) {
  OnnxModel m;
  m.input("x", {"6"}, onnx::TensorProto::INT64).output("y");
  onnx::NodeProto &node = m.node("TfIdfVectorizer", {"x"}, {"y"}, "grams");
  set(node, "mode", std::string("TF"));
  set(node, "min_gram_length", int64_t(1));
  set(node, "max_gram_length", int64_t(2));
  set(node, "max_skip_count", skips);
  set(node, "pool_int64s", Dims{7, 5, 6, 6, 7});
  set(node, "ngram_counts", begins);
  set(node, "ngram_indexes", Dims{3, 0, 1});
  return m;
}

TEST_F(IndexingOps, GramsAreCountedAlsoWithSkips) {
  const std::vector<std::vector<double>> tokens = {{5, 6, 7, 6, 6, 7}};
  EXPECT_THAT(evaluate(grams({0, 1}), tokens), ElementsAre(1, 2, 0, 2));
  // One token further apart: 5 _ 7, 6 _ 6, 7 _ 6 and 6 _ 7. Single tokens are counted once.
  EXPECT_THAT(evaluate(grams({0, 1}, 1), tokens), ElementsAre(1, 3, 0, 2));
  EXPECT_THAT(problem(grams({0, 2})), HasSubstr("ngram_counts [0, 2] do not divide a pool of 5 tokens"));
  EXPECT_THAT(problem(grams({3, 1})), HasSubstr("do not divide"));
  EXPECT_THAT(problem(grams({0, 5, 5})), HasSubstr("more n-grams than the 3 ngram_indexes"));
}

} // namespace

//===- ControlFlowTest.cpp - If, Loop, Scan, functions and sequences in them -===//
#include "test/unit/frontend/Importing.h"
#include "test/unit/frontend/OnnxText.h"

using namespace tcc;
using namespace tcc::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

namespace {

using ControlFlow = Importing;

TEST_F(ControlFlow, TheBranchThatIsTaken) {
  // The condition is computed from a shape; the branch that is not taken cannot be imported.
  OnnxModel m = fromText(R"(g (float[2, 3] x) => (float[2, 3] y) <int64 three = {3}> {
    shape = Shape (x)
    one = Constant <value_int = 1> ()
    columns = Gather (shape, one)
    wide = Equal (columns, three)
    y = If (wide) <then_branch = a () => (float[2, 3] p) { p = Add (x, x) },
                   else_branch = b () => (float[2, 3] q) { i = NonZero (x)  f = Cast <to = 1> (i)  q = Expand (f, shape) }>
  })");
  EXPECT_THAT(evaluate(m, {{1, 2, 3, 4, 5, 6}}), ElementsAre(2, 4, 6, 8, 10, 12));
}

TEST_F(ControlFlow, AConditionOnDataChoosesBetweenBothBranches) {
  OnnxModel m = fromText(R"(g (float[2] x, bool c) => (float[2] y) {
    [choose] y = If (c) <then_branch = a () => (float[2] p) { p = Sqrt (x) }, else_branch = b () => (float[2] q) { q = Neg (x) }>
  })");
  EXPECT_THAT(evaluate(m, {{4, 9}, {1}}), ElementsAre(2, 3));
  EXPECT_THAT(evaluate(m, {{4, 9}, {0}}), ElementsAre(-4, -9));
  auto model = import(m);
  ASSERT_TRUE(model) << model.message();
  EXPECT_THAT(model->warnings, ElementsAre(AllOf(HasSubstr("choose: If (opset 20): its condition depends on graph input c"),
                                                 HasSubstr("computes both branches"), HasSubstr("--fix c=VALUE"))));
}

TEST_F(ControlFlow, BranchesOfOtherShapesCannotBeChosenByData) {
  OnnxModel m = fromText(R"(g (float[2] x, bool c, int64 n) => (float[N] y) {
    [choose] y = If (c) <then_branch = a () => (float[2] p) { p = Neg (x) },
                         else_branch = b () => (float[4] q) { q = Concat <axis = 0> (x, x) }>
  })");
  EXPECT_THAT(problem(m), AllOf(HasSubstr("choose (If, opset 20): its condition depends on graph input c"),
                                HasSubstr("\"y\" is f32[2] in then_branch and f32[4] in else_branch"),
                                HasSubstr("--fix c=VALUE"), Not(HasSubstr("--fix n"))));
}

TEST_F(ControlFlow, ALoopWithABoundRunsToItAndKeepsItsState) {
  // Doubles v while it is below the limit, at most five times.
  OnnxModel m = fromText(R"(g (float[2] x, float limit) => (float[2] y) <int64 n = {5}, bool go = {1}> {
    [loop] y = Loop (n, go, x) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w) {
      w = Add (v, v)
      m = ReduceMax <keepdims = 0> (w)
      d = Less (m, limit)
    }>
  })");
  EXPECT_THAT(evaluate(m, {{1, 3}, {20}}), ElementsAre(8, 24));
  EXPECT_THAT(evaluate(m, {{1, 3}, {1}}), ElementsAre(2, 6));
  EXPECT_THAT(evaluate(m, {{1, 3}, {1e6}}), ElementsAre(32, 96));
  // Without a maximum trip count the length of the plan would be unknown.
  m.graph().mutable_node(0)->set_input(0, "");
  EXPECT_THAT(problem(m), AllOf(HasSubstr("its condition must be known at compile time"), HasSubstr("--fix limit=VALUE")));
}

TEST_F(ControlFlow, ACountThatDependsOnDataStacksNothing) {
  OnnxModel m = fromText(R"(g (float[2] x, bool go) => (float[N, 2] all) <int64 n = {3}> {
    last, all = Loop (n, go, x) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w, float[2] s) {
      d = Identity (c)
      w = Neg (v)
      s = Identity (w)
    }>
  })");
  EXPECT_THAT(problem(m), AllOf(HasSubstr("\"all\" has one part for each iteration, and their number depends on graph input go"),
                                HasSubstr("--fix go=VALUE")));
}

const char *kPowers = R"(g (float[2] x) => (float[2] y, float[3, 2] all) <int64 n = {3}, bool go = {1}> {
    [loop] y, all = Loop (n, go, x) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w, float[2] s) {
      d = Identity (c)
      f = Cast <to = 1> (i)
      [grow] u = Add (v, f)
      w = Add (u, x)
      s = Identity (w)
    }>
  })";

TEST_F(ControlFlow, LoopsUnroll) {
  OnnxModel m = fromText(kPowers);
  EXPECT_THAT(evaluate(m, {{1, 10}}), ElementsAre(7, 43)); // ((x + 0 + x) + 1 + x) + 2 + x
  std::swap(*m.graph().mutable_output(0), *m.graph().mutable_output(1));
  EXPECT_THAT(evaluate(m, {{1, 10}}), ElementsAre(2, 20, 4, 31, 7, 43));
  EXPECT_THAT(shape, ElementsAre(3, 2));
}

TEST_F(ControlFlow, IterationsHaveNamesOfTheirOwn) {
  auto model = import(fromText(kPowers));
  ASSERT_TRUE(model) << model.message();
  std::vector<std::string> names;
  model->module->walk([&](train::AddOp op) { names.push_back(mlir::cast<mlir::NameLoc>(op.getLoc()).getName().str()); });
  EXPECT_THAT(names, testing::IsSupersetOf({"grow[0]", "grow[1]", "grow[2]"}));
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

TEST_F(ControlFlow, AConditionComputedFromTheIterationEndsTheLoop) {
  // The carried value doubles in each iteration, so that its shape changes every time.
  OnnxModel m = fromText(R"(g (float[1] x) => (float[N] y) <int64 two = {2}, bool go = {1}> {
    y = Loop (, go, x) <body = b (int64 i, bool c, float[K] v) => (bool d, float[L] w) {
      d = Less (i, two)
      w = Concat <axis = 0> (v, v)
    }>
  })");
  EXPECT_THAT(evaluate(m, {{5}}), ElementsAre(5, 5, 5, 5, 5, 5, 5, 5));
}

TEST_F(ControlFlow, SequencesAreStateOfLoops) {
  OnnxModel m = fromText(R"(g (float[2] x) => (float[6] y) <int64 n = {3}, bool go = {1}> {
    empty = SequenceEmpty ()
    parts = Loop (n, go, empty) <body = b (int64 i, bool c, seq(float[2]) s) => (bool d, seq(float[2]) t) {
      d = Identity (c)
      f = Cast <to = 1> (i)
      p = Mul (x, f)
      t = SequenceInsert (s, p)
    }>
    y = ConcatFromSequence <axis = 0> (parts)
  })");
  EXPECT_THAT(evaluate(m, {{1, 10}}), ElementsAre(0, 0, 1, 10, 2, 20));
}

TEST_F(ControlFlow, LoopsThatNeverEndOrDependOnDataAreErrors) {
  OnnxModel m = fromText(R"(g (float[2] x, int64 n) => (float[2] y, float[2] z) <bool go = {1}> {
    [counted] y = Loop (n, , x) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w) { d = Identity (c)  w = Neg (v) }>
    [until] z = Loop (, go, x) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w) {
      w = Neg (v)
      most = ReduceMax <keepdims = 0> (w)
      zero = Constant <value_float = 0.0> ()
      d = Less (most, zero)
    }>
  })");
  EXPECT_THAT(problem(m), AllOf(HasSubstr("counted: Loop (opset 20): its trip count must be known at compile time, but depends "
                                          "on graph input n"),
                                HasSubstr("until: Loop (opset 20): its condition"), HasSubstr("graph input x")));
}

TEST_F(ControlFlow, ProblemsInsideAreReportedOnceWithThoseOutside) {
  OnnxModel m = fromText(R"(g (float[2] x, int64[1] s) => (float[2] y, float[N] z) <int64 n = {4}> {
    [loop] y = Loop (n, , x) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w) {
      d = Identity (c)
      [odd] w = Frobnicate (v)
    }>
    [view] z = Reshape (x, s)
    [twist] u = Twiddle (z)
  })");
  EXPECT_THAT(problem(m), AllOf(HasSubstr("3 of its nodes are not supported"), HasSubstr("odd[0]: Frobnicate"),
                                Not(HasSubstr("odd[1]")), HasSubstr("view: Reshape (opset 20): input \"s\""),
                                HasSubstr("twist: Twiddle")));
  m.save(folder + "/m.onnx");
  auto report = frontend::inspectModel(context, folder + "/m.onnx", {});
  ASSERT_TRUE(report) << report.message();
  EXPECT_THAT(report->text, AllOf(HasSubstr("unsupported: 3 nodes"), HasSubstr("odd[0]"), HasSubstr("view"), HasSubstr("twist")));
}

TEST_F(ControlFlow, ScansRunEitherWay) {
  OnnxModel m = fromText(R"(g (float[1] h, float[2, 3] x) => (float[1] last, float[3, 1] all) {
    last, all = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1], scan_output_directions = [1],
      body = b (float[1] s, float[2] v) => (float[1] t, float[1] o) {
        p = ReduceSum (v)
        t = Add (s, p)
        o = Identity (t)
      }> (h, x)
  })");
  EXPECT_THAT(evaluate(m, {{100}, {1, 2, 3, 10, 20, 30}}), ElementsAre(166));
  std::swap(*m.graph().mutable_output(0), *m.graph().mutable_output(1));
  EXPECT_THAT(evaluate(m, {{100}, {1, 2, 3, 10, 20, 30}}), ElementsAre(166, 155, 133)); // columns 3, 2, 1, written backwards
}

TEST_F(ControlFlow, ScanOfVersion8HasABatch) {
  OnnxModel m = fromText(R"(<ir_version: 4, opset_import: ["" : 8]>
    g (float[2, 1] h, float[2, 3, 1] x) => (float[2, 1] last, float[2, 3, 1] all) <int64[2] lens = {3, 2}> {
    last, all = Scan <num_scan_inputs = 1, body = b (float[1] s, float[1] v) => (float[1] t, float[1] o) {
        t = Add (s, v)
        o = Identity (t)
      }> (lens, h, x)
  })");
  EXPECT_THAT(evaluate(m, {{0, 100}, {1, 2, 3, 1, 2, 3}}), ElementsAre(6, 103));
  std::swap(*m.graph().mutable_output(0), *m.graph().mutable_output(1));
  EXPECT_THAT(evaluate(m, {{0, 100}, {1, 2, 3, 1, 2, 3}}), ElementsAre(1, 3, 6, 101, 103, 0));
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

TEST_F(ControlFlow, FunctionsOfTheModelWithAttributesAndOverloads) {
  OnnxModel m = fromText(R"(<ir_version: 10, opset_import: ["" : 20, "pkg.a" : 1]>
    g (float[3] x) => (float[3] y) { h = pkg.a.scaled <by = 3.0> (x)  k = pkg.a.scaled (h)  y = pkg.a.twice (k) }
    <opset_import: ["" : 20], domain: "pkg.a"> scaled <by: float = 2.0> (v) => (w) {
      c = Constant <value_float: float = @by> ()
      w = Mul (v, c)
    }
    <opset_import: ["" : 20, "pkg.a" : 1], domain: "pkg.a"> twice (v) => (w) { u = pkg.a.scaled (v)  w = Add (u, v) }
  )");
  EXPECT_THAT(evaluate(m, {{1, 2, 3}}), ElementsAre(18, 36, 54));
}

TEST_F(ControlFlow, AFunctionOfAnotherOpsetIsReadByItsOwn) {
  // In opset 11 Squeeze has its axes as an attribute, and Softmax flattens.
  OnnxModel m = fromText(R"(<ir_version: 10, opset_import: ["" : 20, "pkg.old" : 1]>
    g (float[2, 1, 2] x) => (float[2, 2] y) { [call] y = pkg.old.head (x) }
    <opset_import: ["" : 11], domain: "pkg.old"> head (v) => (w) { s = Squeeze <axes = [1]> (v)  w = Neg (s) }
  )");
  EXPECT_THAT(evaluate(m, {{1, 2, 3, 4}}), ElementsAre(-1, -2, -3, -4));
}

TEST_F(ControlFlow, TheStandardsFunctionsAreTheFallback) {
  // SequenceMap has a body that depends on its inputs, with a Loop over sequences inside.
  OnnxModel m = fromText(R"(g (float[2, 3] x) => (float[2, 3] y) <int64 one = {1}> {
    parts = SplitToSequence <axis = 0> (x, one)
    mapped = SequenceMap <body = b (float[1, 3] v) => (float[1, 3] w) { w = Add (v, v) }> (parts)
    y = ConcatFromSequence <axis = 0> (mapped)
  })");
  EXPECT_THAT(evaluate(m, {{1, 2, 3, 4, 5, 6}}), ElementsAre(2, 4, 6, 8, 10, 12));
}

//===----------------------------------------------------------------------===//
// Spellings
//===----------------------------------------------------------------------===//

TEST_F(ControlFlow, NamesMayOccurTwiceOrBeMissing) {
  auto model = import(fromText(R"(g (float[2] x) => (float[2] y) {
    [same] a = Neg (x)
    [same] b = Exp (a)
    y = Tanh (b)
  })"));
  ASSERT_TRUE(model) << model.message();
  std::vector<std::string> names;
  model->module->lookupSymbol<mlir::func::FuncOp>("forward").walk([&](mlir::Operation *op) {
    if (isa<train::NegOp, train::ExpOp, train::TanhOp>(op))
      names.push_back(mlir::cast<mlir::NameLoc>(op->getLoc()).getName().str());
  });
  EXPECT_THAT(names, ElementsAre("same", "same", "Tanh → y"));
}

TEST_F(ControlFlow, SparseConstantsAreStoredDense) {
  OnnxModel m;
  m.input("x", {"2", "3"}).output("y");
  auto fill = [](onnx::SparseTensorProto &sparse, const char *name) {
    sparse.mutable_values()->set_name(name);
    sparse.mutable_values()->set_data_type(onnx::TensorProto::FLOAT);
    sparse.mutable_values()->add_dims(2);
    for (float value : {5.f, 7.f})
      sparse.mutable_values()->add_float_data(value);
    sparse.mutable_indices()->set_data_type(onnx::TensorProto::INT64);
    sparse.mutable_indices()->add_dims(2);
    for (int64_t index : {1, 5})
      sparse.mutable_indices()->add_int64_data(index);
    sparse.add_dims(2);
    sparse.add_dims(3);
  };
  fill(*m.graph().add_sparse_initializer(), "w");
  onnx::AttributeProto &attribute = *m.node("Constant", {}, {"c"}).add_attribute();
  attribute.set_name("sparse_value");
  attribute.set_type(onnx::AttributeProto::SPARSE_TENSOR);
  fill(*attribute.mutable_sparse_tensor(), "");
  m.node("Add", {"x", "w"}, {"h"});
  m.node("Add", {"h", "c"}, {"y"});
  EXPECT_THAT(evaluate(m, {{0, 0, 0, 0, 0, 1}}), ElementsAre(0, 10, 0, 0, 0, 15));
  m.graph().mutable_sparse_initializer(0)->mutable_indices()->set_int64_data(1, 6);
  EXPECT_THAT(problem(m), AllOf(HasSubstr("sparse initializer \"w\""), HasSubstr("index 6 is outside")));
}

TEST_F(ControlFlow, TextIsAnErrorOnlyWhereItIsRead) {
  EXPECT_THAT(evaluate(fromText(R"(g (float[1] x) => (float[1] y) { s = Constant <value_string = "a"> ()  y = Neg (x) })"), {{2}}),
              ElementsAre(-2));
  EXPECT_THAT(problem(fromText(R"(g (float[1] x) => (float[1] y) {
                s = Constant <value_string = "a"> ()
                [read] y = CastLike (s, x) })")),
              AllOf(HasSubstr("node read"), HasSubstr("a constant of strings")));
}

TEST_F(ControlFlow, TrainingInfoIsIgnoredAndSaid) {
  OnnxModel m = fromText("g (float[1] x) => (float[1] y) { y = Neg (x) }");
  m.model.add_training_info()->mutable_algorithm()->set_name("sgd");
  auto model = import(m);
  ASSERT_TRUE(model) << model.message();
  EXPECT_THAT(model->warnings, ElementsAre(HasSubstr("training_info is ignored")));
}

} // namespace

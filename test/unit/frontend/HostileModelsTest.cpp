//===- HostileModelsTest.cpp - models that ask for too much, or make no sense -===//
//
// Each of these models crashed, hung or took gigabytes in some version. The tests expect one message that names the
// node or the tensor, and no crash.
//
//===----------------------------------------------------------------------===//
#include "frontend/Limits.h"
#include "frontend/OpTable.h"
#include "test/unit/frontend/Importing.h"

using namespace tcc;
using namespace tcc::test;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

namespace {

class HostileModels : public Importing {
protected:
  static void attribute(onnx::NodeProto &node, const std::string &name, const std::string &text) {
    onnx::AttributeProto &made = *node.add_attribute();
    made.set_name(name);
    made.set_type(onnx::AttributeProto::STRING);
    made.set_s(text);
  }
  static void attribute(onnx::NodeProto &node, const std::string &name, const Dims &numbers) {
    onnx::AttributeProto &made = *node.add_attribute();
    made.set_name(name);
    made.set_type(onnx::AttributeProto::INTS);
    made.mutable_ints()->Add(numbers.begin(), numbers.end());
  }
};

/// An empty name stands for an omitted input, which is allowed for optional inputs only.
TEST_F(HostileModels, EveryOpAnswersForEachInputThatIsMissing) {
  int ops = 0;
  for (std::span<const frontend::OpEntry> family : frontend::opFamilies())
    for (const frontend::OpEntry &entry : family) {
      ++ops;
      for (unsigned count = 1; count <= 4; ++count)
        for (unsigned blanks = 1; blanks < (1u << count); ++blanks) {
          if (blanks != (1u << count) - 1 && (blanks & (blanks - 1)) != 0)
            continue; // omit exactly one input, or all
          OnnxModel m(std::min<int64_t>(entry.domain.empty() ? entry.until : 20, 23));
          m.input("x", {"2", "4"}).output("y");
          Names inputs(count, "x");
          for (unsigned i = 0; i < count; ++i)
            if (blanks >> i & 1)
              inputs[i].clear();
          onnx::NodeProto &node = m.node(std::string(entry.op), inputs, {"y"}, "hostile");
          if (!entry.domain.empty()) {
            node.set_domain(std::string(entry.domain));
            onnx::OperatorSetIdProto &set = *m.model.add_opset_import();
            set.set_domain(std::string(entry.domain));
            set.set_version(1);
          }
          frontend::ImportOptions options;
          options.isolate = false;
          SCOPED_TRACE(std::string(entry.op) + " of " + std::to_string(count) + ", " + std::to_string(blanks));
          EXPECT_FALSE(problem(m, options).empty());
        }
    }
  EXPECT_GT(ops, 150);
}

TEST_F(HostileModels, VariadicInputsHaveNoGaps) {
  for (const char *op : {"Concat", "Sum", "Max", "Min", "Mean", "Einsum"}) {
    OnnxModel m(17);
    m.input("x", {"2", "4"}).output("y");
    onnx::NodeProto &node = m.node(op, {"x", "x", ""}, {"y"}, "hostile");
    attribute(node, "equation", std::string("ij,ij,ij->ij"));
    if (std::string(op) != "Einsum")
      node.clear_attribute();
    if (std::string(op) == "Concat") {
      onnx::AttributeProto &axis = *node.add_attribute();
      axis.set_name("axis");
      axis.set_type(onnx::AttributeProto::INT);
    }
    EXPECT_THAT(problem(m), AllOf(HasSubstr("hostile"), HasSubstr("its input 2 is missing")));
  }
}

TEST_F(HostileModels, TensorsBeyondTheLimitAreRefusedBeforeTheyAreMade) {
  OnnxModel wraps(17);
  wraps.input("x", {"2", "4"}).output("y").ints("s", {2}, {int64_t(1) << 31, int64_t(1) << 31});
  wraps.node("ConstantOfShape", {"s"}, {"k"}, "fill");
  wraps.node("ReduceSum", {"k"}, {"r"});
  wraps.node("Add", {"x", "r"}, {"y"});
  EXPECT_THAT(problem(wraps), AllOf(HasSubstr("fill"), HasSubstr("1 TiB")));

  OnnxModel input(17);
  input.input("x", {"4611686018427387904", "4"}).output("y");
  input.node("Relu", {"x"}, {"y"});
  EXPECT_THAT(problem(input), AllOf(HasSubstr("input x"), HasSubstr("1 TiB")));

  OnnxModel grid(20);
  grid.input("t", {"1", "2", "3"}).output("y").ints("s", {4}, {1, 1, int64_t(1) << 31, int64_t(1) << 31});
  grid.node("AffineGrid", {"t", "s"}, {"y"}, "grid");
  EXPECT_THAT(problem(grid), AllOf(HasSubstr("grid"), HasSubstr("at most 33554432")));

  OnnxModel ranks(17);
  ranks.input("x", {"2"}).output("y").ints("axes", {100}, Dims(100, 0));
  ranks.node("Unsqueeze", {"x", "axes"}, {"y"}, "deep");
  EXPECT_THAT(problem(ranks), HasSubstr("64"));
}

TEST_F(HostileModels, ABillionEqualElementsAreNotWrittenOut) {
  OnnxModel m(17);
  m.input("x", {"2", "4"}).output("y").ints("s", {1}, {1'000'000'000});
  m.node("ConstantOfShape", {"s"}, {"k"});
  m.node("ReduceSum", {"k"}, {"r"});
  m.node("Add", {"x", "r"}, {"y"});
  // The model is valid; the plan computes the sum when it runs.
  EXPECT_EQ(problem(m), "accepted");
}

TEST_F(HostileModels, LoopsStopAtTheLimitOfNodes) {
  OnnxModel m(17);
  m.input("x", {"2"}).output("y").ints("trips", {}, {frontend::kMostNodes});
  onnx::TensorProto &going = *m.graph().add_initializer();
  going.set_name("going");
  going.set_data_type(onnx::TensorProto::BOOL);
  going.add_int32_data(1);
  onnx::NodeProto &loop = m.node("Loop", {"trips", "going", "x"}, {"y"}, "forever");
  onnx::AttributeProto &attribute = *loop.add_attribute();
  attribute.set_name("body");
  attribute.set_type(onnx::AttributeProto::GRAPH);
  OnnxModel body;
  body.input("i", {}, onnx::TensorProto::INT64).input("c", {}, onnx::TensorProto::BOOL).input("v", {"2"});
  body.output("d", {}, onnx::TensorProto::BOOL).output("w", {"2"});
  body.node("Identity", {"c"}, {"d"});
  body.node("Sin", {"v"}, {"w"});
  *attribute.mutable_g() = body.graph();
  EXPECT_THAT(problem(m), AllOf(HasSubstr("more than 100000 nodes"), HasSubstr("g["), HasSubstr("shorten its loops")));
}

/// Each function calls the next one twice, which gives 2^41 nodes.
TEST_F(HostileModels, DoublingFunctionsAreCountedNotInlined) {
  OnnxModel m(17);
  m.input("x", {"2"}).output("y");
  m.model.add_opset_import()->set_domain("loc");
  m.model.mutable_opset_import(1)->set_version(1);
  m.node("F0", {"x"}, {"y"}).set_domain("loc");
  for (int i = 0; i <= 40; ++i) {
    onnx::FunctionProto &function = *m.model.add_functions();
    function.set_domain("loc");
    function.set_name("F" + std::to_string(i));
    function.add_input("a");
    function.add_output("b");
    *function.mutable_opset_import() = m.model.opset_import();
    for (int k = 0; k < 2; ++k) {
      onnx::NodeProto &node = *function.add_node();
      node.set_op_type(i == 40 ? "Relu" : "F" + std::to_string(i + 1));
      if (i < 40)
        node.set_domain("loc");
      node.add_input(k ? "t" : "a");
      node.add_output(k ? "b" : "t");
    }
  }
  EXPECT_THAT(problem(m), HasSubstr("inlining its functions gives more than 100000 nodes"));
  // The last function calls the first.
  onnx::NodeProto &last = *m.model.mutable_functions(40)->mutable_node(0);
  last.set_op_type("F0");
  last.set_domain("loc");
  EXPECT_THAT(problem(m), HasSubstr("calls itself"));
}

/// The ONNX library's shape inference crashes on the first model and never ends on the second.
TEST_F(HostileModels, ACrashOfTheOnnxLibraryIsNoCrash) {
  OnnxModel crash(20);
  crash.input("x", {"2", "4"}).output("y");
  crash.node("RegexFullMatch", {""}, {"y"}, "match");
  EXPECT_THAT(problem(crash), HasSubstr("match"));

  OnnxModel hang(17);
  hang.input("x", {"2", "4"}).output("y");
  attribute(hang.node("Einsum", {"x"}, {"y"}, "sum"), "equation", std::string("...i...j->"));
  EXPECT_THAT(problem(hang), HasSubstr("sum"));
}

TEST_F(HostileModels, SparseTensorsHaveALimitTogether) {
  OnnxModel m(17);
  m.input("x", {"2", "4"}).output("y");
  onnx::SparseTensorProto &sparse = *m.graph().add_sparse_initializer();
  sparse.mutable_values()->set_name("w");
  sparse.mutable_values()->set_data_type(onnx::TensorProto::FLOAT);
  sparse.mutable_values()->add_dims(1);
  sparse.mutable_values()->add_float_data(1);
  sparse.mutable_indices()->set_data_type(onnx::TensorProto::INT64);
  sparse.mutable_indices()->add_dims(1);
  sparse.mutable_indices()->add_int64_data(0);
  sparse.add_dims(1 << 28);
  m.node("Add", {"x", "w"}, {"y"});
  EXPECT_THAT(problem(m), AllOf(HasSubstr("\"w\""), HasSubstr("256 MiB")));
}

TEST_F(HostileModels, WindowsAndTablesAreBounded) {
  OnnxModel pool(17);
  pool.input("x", {"1", "1", "8"}).output("y");
  onnx::NodeProto &average = pool.node("AveragePool", {"x"}, {"y"}, "pool");
  attribute(average, "kernel_shape", Dims{int64_t(1) << 29});
  attribute(average, "pads", Dims{int64_t(1) << 29, int64_t(1) << 29});
  EXPECT_THAT(problem(pool), AllOf(HasSubstr("pool"), HasSubstr("at most")));

  OnnxModel strides(17);
  strides.input("x", {"1", "1", "8"}).output("y").floats("w", {1, 1, 1}, {1});
  attribute(strides.node("ConvTranspose", {"x", "w"}, {"y"}, "conv"), "strides", Dims{INT64_MAX});
  EXPECT_THAT(problem(strides), AllOf(HasSubstr("conv"), HasSubstr("strides")));

  OnnxModel resize(18);
  resize.input("x", {"1", "1", "8"}).output("y").ints("sizes", {3}, {1, 1, (int64_t(1) << 31) - 1});
  resize.node("Resize", {"x", "", "", "sizes"}, {"y"}, "resize");
  EXPECT_THAT(problem(resize), AllOf(HasSubstr("resize"), HasSubstr("at most")));
}

/// A newline in a name would begin a message of its own.
TEST_F(HostileModels, NodeNamesStayOnOneLine) {
  OnnxModel m(17);
  m.input("x", {"2", "4"}).output("y").ints("s", {1}, {7});
  m.node("Reshape", {"x", "s"}, {"y"}, "a\nerror: b\x1b[31m");
  EXPECT_THAT(problem(m), AllOf(HasSubstr("a\\u000aerror: b\\u001b[31m"), Not(HasSubstr("\x1b"))));
}

} // namespace

//===- StopMarksTest.cpp - where marks of stopped gradients end up --------===//
#include "frontend/StopMarks.h"
#include "test/unit/frontend/Importing.h"
#include "test/unit/frontend/OnnxText.h"

using namespace tcc;
using namespace tcc::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

namespace {

void note(onnx::NodeProto &node, const std::string &key, const std::string &text) {
  onnx::StringStringEntryProto &entry = *node.add_metadata_props();
  entry.set_key(key);
  entry.set_value(text);
}

/// Adds the note by which torch's newer exporter names the call that became the node.
void fxNote(onnx::NodeProto &node, const std::string &target, const std::string &arguments = "(%mul,)") {
  note(node, "pkg.torch.onnx.fx_node",
       "%x : [num_users=2] = call_function[target=torch.ops." + target + "](args = " + arguments + ", kwargs = {})");
}

class StopMarks : public Importing {
protected:
  /// "node: operation it stops (source)" for each stop of the imported graph.
  std::vector<std::string> stops(const OnnxModel &model, std::vector<std::string> globs = {}) {
    frontend::ImportOptions options;
    options.model.stopGradient = std::move(globs);
    auto imported = import(model, options);
    EXPECT_TRUE(imported) << imported.message();
    std::vector<std::string> found;
    if (imported)
      imported->module->walk([&](train::StopGradientOp stop) {
        found.push_back(mlir::cast<mlir::NameLoc>(stop.getLoc()).getName().str() + ": " +
                        stop.getInput().getDefiningOp()->getName().stripDialect().str() + " (" +
                        stop.getSource().str() + ")");
      });
    return found;
  }

  /// y = f(h) + h with h = w · x and f = Identity.
  static OnnxModel marked() {
    return fromText(R"(g (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> {
      [node_mul] h = Mul(w, x)
      [node_detach] d = Identity(h)
      [node_after] y = Add(d, h)
    })");
  }
};

TEST_F(StopMarks, ADetachIsItsNodesOwnTarget) {
  for (const char *target : {"aten.detach.default", "aten.detach_.default", "aten.detach"}) {
    OnnxModel m = marked();
    fxNote(*m.graph().mutable_node(1), target);
    EXPECT_THAT(stops(m), ElementsAre("node_detach: mul (aten.detach)")) << target;
  }
  // Arguments, names and scopes that mention the detach of another node are no mark.
  for (const char *target :
       {"aten.lift_fresh_copy.default", "aten.clone.default", "aten.alias.default", "my.detach.default"}) {
    OnnxModel m = marked();
    fxNote(*m.graph().mutable_node(1), target, "(%detach_aten.detach.default,)");
    note(*m.graph().mutable_node(1), "pkg.torch.onnx.name_scopes", "['', 'aten.detach.default']");
    note(*m.graph().mutable_node(1), "pkg.torch.onnx.class_hierarchy", "['M', 'aten.detach.default']");
    EXPECT_THAT(stops(m), IsEmpty()) << target;
  }
  OnnxModel other = marked(); // a note that mentions detach, at a node that is not an Identity
  fxNote(*other.graph().mutable_node(2), "aten.add.Tensor", "(%detach, %mul)");
  EXPECT_THAT(stops(other), IsEmpty());
}

TEST_F(StopMarks, OlderNotesTellTheTargetToo) {
  OnnxModel classes = marked();
  note(*classes.graph().mutable_node(1), "pkg.torch.onnx.class_hierarchy", "['__main__.M', 'aten.detach.default']");
  EXPECT_THAT(stops(classes), ElementsAre("node_detach: mul (aten.detach)"));
  OnnxModel spaces = marked();
  note(*spaces.graph().mutable_node(1), "namespace", ": __main__.M/detach: aten.detach.default");
  EXPECT_THAT(stops(spaces), ElementsAre("node_detach: mul (aten.detach)"));
  OnnxModel inner = marked(); // the clone of a module whose name looks like detach
  note(*inner.graph().mutable_node(1), "pkg.torch.onnx.class_hierarchy",
       "['aten.detach.default', 'aten.clone.default']");
  note(*inner.graph().mutable_node(1), "namespace", ": M/detach: aten.detach.default/clone: aten.clone.default");
  EXPECT_THAT(stops(inner), IsEmpty());
}

TEST_F(StopMarks, StopGradientOfOurDomainIsReadWithAndWithoutItsFunction) {
  const std::string graph = R"(g (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> {
      h = Mul(w, x)
      [stop] d = tcc.StopGradient(h)
      y = Add(d, h)
    })";
  const std::string function = R"(
    <domain: "tcc", opset_import: ["" : 20]> StopGradient (value) => (result) { result = Identity(value) })";
  const std::string head = R"(<ir_version: 10, opset_import: ["" : 20, "tcc" : 1]> )";
  for (const std::string &text : {head + graph, head + graph + function})
    EXPECT_THAT(stops(fromText(text)), ElementsAre("stop: mul (tcc::StopGradient)"));
  EXPECT_EQ(evaluate(fromText(head + graph + function), {{1, 1, 2}}), (std::vector<double>{2, 4, 12}));
  // In a function whose own operator sets have no default domain.
  const std::string nested = R"(<ir_version: 10, opset_import: ["" : 20, "tcc" : 1, "local" : 1]>
    g (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> { h = Mul(w, x) [call] y = local.Frozen(h) }
    <domain: "local", opset_import: ["tcc" : 1]> Frozen (a) => (b) { [inside] b = tcc.StopGradient(a) })";
  for (const std::string &text : {nested, nested + function})
    EXPECT_THAT(stops(fromText(text)), ElementsAre(HasSubstr(": mul (tcc::StopGradient)")));
}

TEST_F(StopMarks, StopGradientThatIsNotOursToReadIsRefused) {
  const std::string graph = "g (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> { h = Mul(w, x) ";
  EXPECT_THAT(problem(fromText(R"(<ir_version: 10, opset_import: ["" : 20, "tcc" : 2]> )" + graph +
                               "[stop] y = tcc.StopGradient(h) }")),
              HasSubstr("opset 2 of domain tcc: this build reads version 1 alone"));
  EXPECT_THAT(problem(fromText(R"(<ir_version: 10, opset_import: ["" : 20, "tcc" : 1]> )" + graph +
                               "[stop] y = tcc.StopGradient(h, h) }")),
              HasSubstr("node stop (tcc::StopGradient): it has 2 inputs and 1 outputs"));
}

TEST_F(StopMarks, TheRecipeNamesNodesValuesAndInitializers) {
  const OnnxModel m = marked();
  EXPECT_THAT(stops(m), IsEmpty());
  EXPECT_THAT(stops(m, {"node_mul"}), ElementsAre("node_mul: mul (model.stop_gradient: node_mul)"));
  EXPECT_THAT(stops(m, {"d"}), ElementsAre("node_detach: mul (model.stop_gradient: d)"));
  EXPECT_THAT(stops(m, {"node_d*", "h"}), ElementsAre("node_mul: mul (model.stop_gradient: h)",
                                                      "node_detach: stop_gradient (model.stop_gradient: node_d*)"));
  EXPECT_THAT(stops(m, {"w"}), ElementsAre("node_mul: read (model.stop_gradient: w)"));
  EXPECT_THAT(stops(m, {"x"}), IsEmpty()); // an input has no gradient to stop
  frontend::ImportOptions options;
  options.model.stopGradient = {"node_*", "encoder.*"};
  options.where = {{"model.stop_gradient", "r.toml:2:1"}};
  EXPECT_THAT(problem(m, options),
              AllOf(HasSubstr("r.toml:2:1: model.stop_gradient: \"encoder.*\" matches no node or value of m.onnx"),
                    HasSubstr("m.onnx; there are ")));
}

TEST_F(StopMarks, TheRecipeNamesOneOutputOfSeveral) {
  const OnnxModel m = fromText(R"(g (float[4] x) => (float[2] y) <float[4] w = {1, 2, 3, 4}> {
      h = Mul(w, x)
      [both] a, b = Split<num_outputs = 2>(h)
      y = Add(a, b)
    })");
  EXPECT_THAT(stops(m, {"b"}), ElementsAre("both: slice (model.stop_gradient: b)"));
  EXPECT_THAT(stops(m, {"both"}),
              ElementsAre("both: slice (model.stop_gradient: both)", "both: slice (model.stop_gradient: both)"));
}

TEST_F(StopMarks, EveryTensorOfASequence) {
  const OnnxModel m = fromText(R"(g (float[4] x) => (float[4] y) <float[4] w = {1, 2, 3, 4}, int64 two = {2}> {
      h = Mul(w, x)
      [parts] s = SplitToSequence(h, two)
      [joined] y = ConcatFromSequence<axis = 0>(s)
    })");
  EXPECT_THAT(stops(m, {"s"}),
              ElementsAre("parts: slice (model.stop_gradient: s)", "parts: slice (model.stop_gradient: s)"));
}

TEST_F(StopMarks, CallsOfFunctionsAndWhatIsInThem) {
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 20, "local" : 1]>
    g (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> {
      h = Mul(w, x)
      [first] a = local.Twice(h)
      [second] b = local.Twice(a)
      y = Add(a, b)
    }
    <domain: "local", opset_import: ["" : 20]> Twice (u) => (v) { [half] t = Exp(u) [whole] v = Add(t, t) })";
  const OnnxModel m = fromText(text);
  EXPECT_THAT(stops(m, {"second"}), ElementsAre("second: add (model.stop_gradient: second)"));
  EXPECT_THAT(stops(m, {"a"}), ElementsAre("first: add (model.stop_gradient: a)"));
  EXPECT_THAT(stops(m, {"half"}),
              ElementsAre("half__1: exp (model.stop_gradient: half)", "half__2: exp (model.stop_gradient: half)"));
  EXPECT_THAT(stops(m, {"half__2"}), ElementsAre("half__2: exp (model.stop_gradient: half__2)"));
  OnnxModel noted = m; // the exporter's own mark inside a function
  onnx::NodeProto &detach = *noted.model.mutable_functions(0)->mutable_node(0);
  detach.set_op_type("Identity");
  fxNote(detach, "aten.detach.default");
  EXPECT_THAT(stops(noted), ElementsAre("half__1: mul (aten.detach)", "half__2: add (aten.detach)"));
  // torch's first dynamo exporter wrote detach as a function.
  OnnxModel library = fromText(R"(<ir_version: 10, opset_import: ["" : 20, "pkg.onnxscript.torch_lib" : 1]>
    g (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}> {
      h = Mul(w, x)
      [aten_detach_0] y = pkg.onnxscript.torch_lib.aten_detach(h)
    }
    <domain: "pkg.onnxscript.torch_lib", opset_import: ["" : 20]> aten_detach (self) => (result) { result = Identity(self) })");
  EXPECT_THAT(stops(library), ElementsAre("aten_detach_0: mul (aten.detach)"));
}

TEST_F(StopMarks, BodiesOfLoopsAreStoppedInEachIteration) {
  OnnxModel m = fromText(R"(g (float[3] x) => (float[3] y) <float[3] w = {1, 2, 3}, int64 n = {2}, bool go = {1}> {
      h = Mul(w, x)
      [loop] y = Loop(n, go, h) <body = body (int64 i, bool c, float[3] state) => (bool k, float[3] next) {
        k = Identity(c)
        s = Add(state, w)
        [inner] next = Identity(s)
      }>
    })");
  EXPECT_THAT(stops(m, {"inner"}),
              ElementsAre("inner[0]: add (model.stop_gradient: inner)", "inner[1]: add (model.stop_gradient: inner)"));
  EXPECT_THAT(stops(m, {"state"}),
              ElementsAre("state[0]: mul (model.stop_gradient: state)", "state[1]: add (model.stop_gradient: state)"));
  onnx::NodeProto &loop = *m.graph().mutable_node(1);
  fxNote(*loop.mutable_attribute(0)->mutable_g()->mutable_node(2), "aten.detach.default");
  EXPECT_THAT(stops(m), ElementsAre("inner[0]: add (aten.detach)", "inner[1]: add (aten.detach)"));
}

TEST_F(StopMarks, DetachOfAWeightIsNoSecondWeight) {
  // Merged weights are separated at an Identity, but the Identity of a detach stays a reader of the one weight.
  OnnxModel m = fromText(R"(g (float[3] x) => (float[3] y) <float[3] w = {1, 1, 1}> {
      [node_detach] detach = Identity(w)
      h = Mul(x, w)
      y = Mul(h, detach)
    })");
  fxNote(*m.graph().mutable_node(0), "aten.detach.default", "(%p_w,)");
  EXPECT_THAT(stops(m), ElementsAre("node_detach: read (aten.detach)"));
  auto model = import(m);
  ASSERT_TRUE(model) << model.message();
  EXPECT_EQ(model->initializers.size(), 1u);
}

TEST_F(StopMarks, ConstantsStayConstants) {
  // A stop does not keep frozen and constant values from being read at compile time.
  OnnxModel m = fromText(R"(g (float[2, 3] x) => (float[2, 3] y) <float[1] k = {2}> {
      [node_detach] d = Identity(k)
      [c] two = Constant<value_float = 2.0>()
      [node_detach_1] e = Identity(two)
      p = Pow(x, e)
      y = Mul(p, d)
    })");
  fxNote(*m.graph().mutable_node(0), "aten.detach.default");
  fxNote(*m.graph().mutable_node(2), "aten.detach.default");
  frontend::ImportOptions options;
  options.model.frozen = {"k"};
  auto model = import(m, options);
  ASSERT_TRUE(model) << model.message();
  model->module->walk([](train::StopGradientOp) { ADD_FAILURE() << "a stop of what has no gradient"; });
}

TEST_F(StopMarks, ReleasedModelsCarryTheFilesMarksAlone) {
  frontend::ImportOptions options;
  options.model.stopGradient = {"node_mul"};
  auto model = import(marked(), options);
  ASSERT_TRUE(model) << model.message();
  EXPECT_EQ(model->strippedModel.find("stop_gradient"), std::string::npos);
}

TEST_F(StopMarks, InspectionSaysWhichExportsCannotCarryMarks) {
  auto inspected = [&](const OnnxModel &model) {
    model.save(folder + "/m.onnx");
    auto text = frontend::inspectModel(context, folder + "/m.onnx", {});
    EXPECT_TRUE(text) << text.message();
    return text ? text->text : std::string();
  };
  OnnxModel m = marked();
  EXPECT_THAT(inspected(m), HasSubstr("stopped gradients: none: no node of the file is marked\n"));
  m.model.set_producer_name("pytorch");
  EXPECT_THAT(inspected(m),
              AllOf(HasSubstr("torch's older exporter (dynamo=False) removes .detach()"),
                    HasSubstr("dynamo=True, optimize=False"), HasSubstr("torch.no_grad() leaves no mark")));
  fxNote(*m.graph().mutable_node(0), "aten.mul.Tensor");
  EXPECT_THAT(inspected(m), AllOf(HasSubstr("removes .detach() unless optimize=False"), HasSubstr("optimize=False")));
  fxNote(*m.graph().mutable_node(1), "aten.detach.default");
  EXPECT_THAT(inspected(m), AllOf(HasSubstr("stopped gradients: 1 (torch.no_grad() leaves no mark"),
                                  HasSubstr("  node_detach  "), HasSubstr("aten.detach\n")));
}

} // namespace

//===- WeightsTest.cpp - merged, copied and lifted initializers ----------===//
#include "frontend/Weights.h"
#include "frontend/Contents.h"
#include "frontend/FoldedWeights.h"
#include "frontend/Parameters.h"
#include "frontend/BatchConstants.h"
#include "test/unit/frontend/OnnxModel.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

using namespace tcc;
using namespace tcc::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace {

class Weights : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "weights-XXXXXX";
    folder = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  frontend::OnnxFile read(const OnnxModel &model) {
    model.save(folder + "/m.onnx");
    auto file = frontend::readOnnxFile(folder + "/m.onnx");
    EXPECT_TRUE(file) << file.message();
    return file ? file.take() : frontend::OnnxFile();
  }
  std::vector<std::string> restore(frontend::OnnxFile &file, const ModelSettings &settings = {}) {
    auto lines = frontend::restoreWeights(file, settings);
    EXPECT_TRUE(lines) << lines.message();
    return lines ? lines->lines([](const std::string &) { return true; }) : std::vector<std::string>();
  }
  frontend::InitializerRole roleOf(const OnnxModel &model, const std::string &name,
                                   std::vector<std::string> *warnings = nullptr) {
    frontend::OnnxFile file = read(model);
    auto roles = frontend::decideRoles(file, file.model.graph(), {}, {}, {});
    EXPECT_TRUE(roles) << roles.message();
    if (!roles)
      return {};
    if (warnings)
      *warnings = roles->warnings;
    return roles->initializers.at(name);
  }
  std::string folder;
};

void note(onnx::ValueInfoProto &value, const std::string &key, const std::string &text) {
  onnx::StringStringEntryProto &entry = *value.add_metadata_props();
  entry.set_key(key);
  entry.set_value(text);
}

/// Two norms whose scales an exporter merged; an Identity gives the second one its name.
OnnxModel mergedNorms(const std::vector<float> &scale) {
  OnnxModel model;
  model.input("x", {"2", "3"}).output("y").floats("layers.0.norm.weight", {3}, scale);
  model.node("Identity", {"layers.0.norm.weight"}, {"other.weight"}, "Identity_0");
  model.node("LayerNormalization", {"x", "layers.0.norm.weight"}, {"h"}, "/layers.0/norm/LayerNormalization");
  model.node("LayerNormalization", {"h", "other.weight"}, {"y"}, "/other/LayerNormalization");
  return model;
}

TEST_F(Weights, MergedOnesGetTheirOwnInitializers) {
  frontend::OnnxFile file = read(mergedNorms({1, 1, 1}));
  EXPECT_THAT(restore(file),
              ElementsAre(AllOf(HasSubstr("other.weight (was layers.0.norm.weight)"), HasSubstr("keep"))));
  ASSERT_TRUE(file.initializers.count("other.weight"));
  EXPECT_EQ(file.initializers.at("other.weight").data, file.initializers.at("layers.0.norm.weight").data);
  EXPECT_EQ(file.model.graph().node_size(), 2); // the Identity is gone
  EXPECT_EQ(file.model.graph().initializer_size(), 2);
}

TEST_F(Weights, OtherEqualWeightsUnderTwoNamesAreTied) {
  frontend::OnnxFile file = read(mergedNorms({1, 2, 3}));
  EXPECT_THAT(restore(file), ElementsAre(AllOf(HasSubstr("trained as one: other.weight = layers.0.norm.weight"),
                                               HasSubstr("model.merged=split"))));
  EXPECT_FALSE(file.initializers.count("other.weight"));
  ModelSettings split;
  split.merged = "split";
  frontend::OnnxFile again = read(mergedNorms({1, 2, 3}));
  restore(again, split);
  EXPECT_TRUE(again.initializers.count("other.weight"));
}

TEST_F(Weights, KeptWhereTheRecipeSaysSo) {
  ModelSettings keep;
  keep.merged = "keep";
  frontend::OnnxFile file = read(mergedNorms({1, 1, 1}));
  EXPECT_THAT(restore(file, keep), ElementsAre(HasSubstr("trained as one (model.merged)")));
  EXPECT_FALSE(file.initializers.count("other.weight"));
}

TEST_F(Weights, MergedWithoutIdentityByTheModulesOfTheReaders) {
  OnnxModel model;
  model.input("x", {"2", "3"}).output("y").floats("norm.weight", {3}, {1, 1, 1});
  for (auto [input, output, scope] : {std::tuple("x", "h", "norm"), std::tuple("h", "y", "deep.norm2")}) {
    onnx::NodeProto &node = model.node("LayerNormalization", {input, "norm.weight"}, {output}, output);
    onnx::StringStringEntryProto &entry = *node.add_metadata_props();
    entry.set_key("pkg.torch.onnx.name_scopes");
    entry.set_value(std::string("['', '") + scope + "', 'layer_norm']");
  }
  frontend::OnnxFile file = read(model);
  EXPECT_THAT(restore(file), ElementsAre(HasSubstr("deep.norm2.weight (was norm.weight)")));
  EXPECT_EQ(file.model.graph().node(0).input(1), "norm.weight");
  EXPECT_EQ(file.model.graph().node(1).input(1), "deep.norm2.weight");
}

TEST_F(Weights, AConstantThatModulesShareIsNoWeight) {
  OnnxModel model;
  model.input("x", {"2", "3"}).output("y").floats("tmp", {3}, {1, 1, 1});
  onnx::ValueInfoProto &value = *model.graph().add_value_info();
  value.set_name("tmp");
  note(value, "pkg.onnxscript.optimizer.folded_from", "['scalar_tensor_default_1', 'int64_1_1d', 'h', 'val_9']");
  for (auto [input, output, scope] : {std::tuple("x", "h", "tables.0"), std::tuple("h", "y", "tables.1")}) {
    onnx::StringStringEntryProto &entry = *model.node("Mul", {input, "tmp"}, {output}, output).add_metadata_props();
    entry.set_key("pkg.torch.onnx.name_scopes");
    entry.set_value(std::string("['', '") + scope + "', 'embedding_bag']");
  }
  frontend::OnnxFile file = read(model);
  EXPECT_THAT(restore(file), IsEmpty());
  EXPECT_EQ(file.model.graph().node(1).input(1), "tmp");
}

TEST_F(Weights, CopiedLayersThatWereMergedAreSplit) {
  OnnxModel model;
  model.input("x", {"2", "2"}).output("y");
  model.floats("layers.0.lin.bias", {2}, {1, 2})
      .floats("val_1", {2, 2}, {1, 2, 3, 4})
      .floats("head.weight", {2, 2}, {4, 1, 2, 3});
  model.floats("layers.0.att.out.weight", {2, 2}, {7, 1, 2, 3});
  onnx::ValueInfoProto &value = *model.graph().add_value_info();
  value.set_name("val_1");
  note(value, "pkg.onnxscript.optimizer.folded_from", "['layers.0.lin.weight', 'view_4']");
  auto scoped = [&](const char *op, Names inputs, const char *output, const char *scope) {
    onnx::StringStringEntryProto &entry = *model.node(op, inputs, {output}, output).add_metadata_props();
    entry.set_key("pkg.torch.onnx.name_scopes");
    entry.set_value(std::string("['', '") + scope + "', 'linear']");
  };
  scoped("MatMul", {"x", "val_1"}, "a", "layers.0.lin");
  scoped("Add", {"a", "layers.0.lin.bias"}, "b", "layers.0.lin");
  scoped("MatMul", {"b", "val_1"}, "c", "layers.1.lin");
  scoped("Add", {"c", "layers.0.lin.bias"}, "d", "layers.1.lin");
  scoped("MatMul", {"d", "head.weight"}, "e", "head");
  scoped("MatMul", {"e", "head.weight"}, "y", "embedding"); // read by a module of another name: tied, not merged
  // An attention module reads a weight that its inner layer owns.
  scoped("MatMul", {"x", "layers.0.att.out.weight"}, "f", "layers.0.att");
  scoped("MatMul", {"f", "layers.0.att.out.weight"}, "g", "layers.1.att");
  frontend::OnnxFile file = read(model);
  EXPECT_THAT(restore(file), ElementsAre(AllOf(HasSubstr("layers.1.lin.bias (was layers.0.lin.bias)"),
                                               HasSubstr("layers.1.lin.weight/val_1 (was val_1)"))));
  EXPECT_EQ(file.model.graph().node(2).input(1), "layers.1.lin.weight/val_1");
  EXPECT_EQ(file.model.graph().node(3).input(1), "layers.1.lin.bias");
  EXPECT_EQ(file.model.graph().node(5).input(1), "head.weight");
  EXPECT_EQ(file.model.graph().node(6).input(1), "layers.0.att.out.weight");
  EXPECT_EQ(file.model.graph().node(7).input(1), "layers.1.att.out.weight");
  EXPECT_EQ(frontend::foldedParameter(file, file.initializers.at("layers.1.lin.weight/val_1")), "layers.1.lin.weight");
}

/// An embedding, and its transpose as the head.
OnnxModel tiedHead(const std::string &head) {
  OnnxModel model;
  model.input("ids", {"2"}, onnx::TensorProto::INT64).output("y");
  model.floats("emb.weight", {3, 2}, {1, 2, 3, 4, 5, 6}).floats(head, {2, 3}, {1, 3, 5, 2, 4, 6});
  model.node("Gather", {"emb.weight", "ids"}, {"h"}, "gather");
  model.node("MatMul", {"h", head}, {"y"}, "head");
  return model;
}

TEST_F(Weights, ATransposedCopyIsNamedAndTiedOnRequest) {
  frontend::OnnxFile file = read(tiedHead("onnx::MatMul_7"));
  EXPECT_THAT(restore(file),
              ElementsAre(AllOf(HasSubstr("onnx::MatMul_7 is emb.weight transposed"), HasSubstr("model.tie=true"))));
  EXPECT_THAT(file.ties, IsEmpty());
  ModelSettings tie;
  tie.tie = true;
  restore(file, tie);
  ASSERT_TRUE(file.ties.count("onnx::MatMul_7"));
  EXPECT_EQ(file.ties.at("onnx::MatMul_7").of, "emb.weight");
  EXPECT_THAT(file.ties.at("onnx::MatMul_7").permutation, ElementsAre(1, 0));
  EXPECT_FALSE(file.initializers.count("onnx::MatMul_7"));
  frontend::insertTies(file, *file.model.mutable_graph());
  EXPECT_EQ(file.model.graph().node(0).op_type(), "Transpose");
  EXPECT_EQ(file.model.graph().node(0).output(0), "onnx::MatMul_7");
}

TEST_F(Weights, CopiedLayersAreNotTied) {
  OnnxModel model;
  model.input("x", {"2", "2"}).output("y");
  model.floats("layers.0.w", {2, 2}, {1, 2, 3, 4}).floats("layers.1.w", {2, 2}, {1, 2, 3, 4});
  model.node("MatMul", {"x", "layers.0.w"}, {"h"}, "a");
  model.node("MatMul", {"h", "layers.1.w"}, {"y"}, "b");
  frontend::OnnxFile file = read(model);
  EXPECT_THAT(restore(file), IsEmpty());
}

TEST_F(Weights, LiftedConstantsByContents) {
  const float low = -std::numeric_limits<float>::infinity();
  OnnxModel model;
  model.input("x", {"4", "4"}).output("y");
  model.floats("mask", {2, 2}, {0, low, 0, 0})
      .floats("far", {1, 3}, {0, -1e9f, 0})
      .floats("tril", {2, 2}, {1, 0, 1, 1});
  model.floats("eye.weight", {2, 2}, {1, 0, 0, 1}).floats("val_3", {1}, {0.25f}).floats("scale", {1}, {0.25f});
  std::vector<float> table;
  for (int p = 0; p < 8; ++p)
    for (double f : {1.0, 0.1, 0.01})
      table.push_back(float(std::sin(p * f)));
  model.floats("table", {1, 8, 3}, table).floats("inv_freq", {4}, {1, 0.1f, 0.01f, 0.001f});
  std::vector<float> random{0.3f, -0.2f, 0.9f, 0.4f, -0.7f, 0.1f, 0.5f, -0.6f, 0.2f, 0.8f, -0.1f, 0.6f};
  model.floats("pos", {4, 3}, random);
  for (const char *name : {"mask", "far", "tril", "table", "inv_freq", "pos"})
    model.node("Add", {"x", name}, {std::string("add_") + name}, std::string("add_") + name);
  model.node("MatMul", {"x", "eye.weight"}, {"e"}, "product");
  model.node("Mul", {"x", "val_3"}, {"m"}, "mul");
  model.node("Mul", {"x", "scale"}, {"y"}, "mul2");
  EXPECT_EQ(roleOf(model, "mask").sign, "it holds a mask of 0 and -inf");
  EXPECT_EQ(roleOf(model, "far").sign, "it holds a mask of 0 and -1e+09");
  EXPECT_EQ(roleOf(model, "tril").sign, "it holds a mask of 0 and 1");
  EXPECT_EQ(roleOf(model, "table").sign, "it holds a table of sines or cosines");
  EXPECT_THAT(roleOf(model, "inv_freq").sign, HasSubstr("frequencies"));
  EXPECT_EQ(roleOf(model, "val_3").sign, "a single number that scales");
  for (const char *name :
       {"eye.weight", "scale", "pos"}) // a matrix that starts as the identity, a named scale, any table
    EXPECT_EQ(roleOf(model, name).role, frontend::Role::Parameter) << name;
}

TEST_F(Weights, NotesDecideAndDoubtIsSaid) {
  OnnxModel model;
  model.input("x", {"2", "2"}).output("y");
  model.floats("val_1", {2, 2}, {1, 2, 3, 4})
      .floats("val_2", {2, 2}, {1, 2, 3, 5})
      .floats("val_4", {2, 2}, {4, 2, 3, 5});
  for (const char *name : {"val_1", "val_2", "val_4"})
    model.node("Add", {"x", name}, {std::string("y") + name}, std::string("add_") + name);
  std::vector<std::string> warnings;
  EXPECT_EQ(roleOf(model, "val_1", &warnings).role, frontend::Role::Parameter);
  EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("val_1 (read by add_val_1)"), HasSubstr("model.frozen"))));
  // With notes: one parameter, several values, none.
  for (auto [name, from] : {std::pair("val_1", "['layer.weight', 'val_0']"), std::pair("val_2", "['cos', 'arange']")}) {
    onnx::ValueInfoProto &value = *model.graph().add_value_info();
    value.set_name(name);
    note(value, "pkg.onnxscript.optimizer.folded_from", from);
  }
  frontend::InitializerRole folded = roleOf(model, "val_1", &warnings);
  EXPECT_EQ(folded.display, "layer.weight");
  EXPECT_EQ(folded.role, frontend::Role::Parameter);
  EXPECT_EQ(roleOf(model, "val_2").role, frontend::Role::Constant == roleOf(model, "val_2").role
                                             ? frontend::Role::Constant
                                             : frontend::Role::Frozen);
  EXPECT_THAT(roleOf(model, "val_2").sign, HasSubstr("no single parameter"));
  EXPECT_NE(roleOf(model, "val_4").role, frontend::Role::Parameter);
  EXPECT_THAT(warnings, IsEmpty());
}

/// An initializer that a call of torch's graph reads, folded from others.
OnnxModel folded(const std::string &name, const std::string &from, const std::string &call,
                 const std::vector<float> &values = {0.5f, 1.5f, -0.5f, 2.0f}) {
  OnnxModel model;
  model.input("x", {"2", "4"}).output("y").floats(name, {4}, values);
  onnx::ValueInfoProto &value = *model.graph().add_value_info();
  value.set_name(name);
  note(value, "pkg.onnxscript.optimizer.folded_from", from);
  onnx::StringStringEntryProto &entry = *model.node("Mul", {"x", name}, {"y"}, "node").add_metadata_props();
  entry.set_key("pkg.torch.onnx.fx_node");
  entry.set_value(call);
  onnx::StringStringEntryProto &signature = *model.graph().add_metadata_props();
  signature.set_key("pkg.torch.export.ExportedProgram.graph_signature");
  signature.set_value("\n# inputs\np_w: PARAMETER target='w'\np_norm: PARAMETER target='norm'\nb_freq: BUFFER target='freq' "
                      "persistent=True\nx: USER_INPUT\n\n# outputs\nmul: USER_OUTPUT\n");
  return model;
}

std::string mulOf(const std::string &arguments) {
  return "%mul : [num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (" + arguments + "), kwargs = {})";
}

TEST_F(Weights, WhatWasDoneToAWeightDecides) {
  using frontend::List;
  // Ops that only move elements keep the weight, whatever its name. "norm" is also an operation of torch; the list of
  // the module's state says that it is a parameter.
  EXPECT_EQ(roleOf(folded("view", "['val_0', 'w']", mulOf("%x, %view")), "view").list, List::Trained);
  EXPECT_EQ(roleOf(folded("select_1", "['norm', 'val_0']", mulOf("%x, %select_1")), "select_1").display, "norm");
  EXPECT_EQ(roleOf(folded("val_1", "['val_0', 'w']", mulOf("%x, %p_w")), "val_1").list, List::Trained);
  for (auto [name, from, arguments, function] :
       {std::tuple("exp", "['w']", "%x, %exp", "exp of w"), std::tuple("t", "['neg', 'w']", "%x, %t", "neg of w"),
        std::tuple("cat", "['norm', 'w', 'zeros']", "%x, %cat", "constants joined"),
        std::tuple("mul", "['norm', 'w']", "%x, %mul", "mul of norm, w"),
        std::tuple("index", "['freq', 'w']", "%x, %index", "a value of w")}) {
    frontend::InitializerRole role = roleOf(folded(name, from, mulOf(arguments)), name);
    EXPECT_EQ(role.list, List::Frozen) << name;
    EXPECT_THAT(role.function, HasSubstr(function)) << name;
  }
  // The exporter's translation of this call multiplies the weight by alpha before the addition.
  EXPECT_THAT(roleOf(folded("val_1", "['val_0', 'w']",
                            "%add : [num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%x, %p_w), "
                            "kwargs = {alpha: 2})"),
                     "val_1")
                  .function,
              HasSubstr("a value of w"));
  EXPECT_THAT(roleOf(folded("expand", "['val_0', 'w']", mulOf("%x, %expand"), {1, 2, 1, 2}), "expand").function,
              HasSubstr("repeated elements"));
  EXPECT_EQ(roleOf(folded("cos", "['freq', 'mul_2']", mulOf("%x, %cos")), "cos").list, List::Buffer);
  EXPECT_EQ(roleOf(folded("full", "['val_0']", mulOf("%x, %full")), "full").list, List::Constant);
}

TEST_F(Weights, AMovementHasNoElementThatTheWeightHasNot) {
  OnnxModel model = folded("val_1", "['val_0', 'w']", mulOf("%x, %p_w"));
  model.floats("w", {4}, {0.5f, 1.5f, -0.5f, 4.0f});
  EXPECT_THAT(roleOf(model, "val_1").function, HasSubstr("a value of w"));
}

TEST_F(Weights, ScalarsAreTrainedByNoteOrByTheNameOfAModule) {
  using frontend::List;
  OnnxModel model;
  model.input("x", {"2"}).output("y");
  for (const char *name : {"blocks.0.gate", "half", "Constant_3"}) {
    model.floats(name, {}, {0.5f});
    model.node("Mul", {"x", name}, {std::string("y_") + name}, std::string("mul_") + name);
  }
  EXPECT_EQ(roleOf(model, "blocks.0.gate").list, List::Trained);
  EXPECT_EQ(roleOf(model, "half").list, List::Constant);
  model.model.set_producer_name("pytorch");
  std::vector<std::string> warnings;
  EXPECT_EQ(roleOf(model, "half", &warnings).list, List::Trained); // a member of the root module
  EXPECT_EQ(roleOf(model, "Constant_3").list, List::Constant);
  EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("blocks.0.gate (read by"), HasSubstr("half (read by"))));
  onnx::ValueInfoProto &value = *model.graph().add_value_info();
  value.set_name("blocks.0.gate");
  note(value, "pkg.torch.export.graph_signature.InputSpec.kind", "PARAMETER");
  EXPECT_EQ(roleOf(model, "blocks.0.gate", &warnings).list, List::Trained);
  EXPECT_EQ(roleOf(model, "half").list, List::Constant); // notes name every parameter
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(Weights, BatchInConstantsIsNamedByNode) {
  OnnxModel model;
  model.input("x", {"1", "2", "4"}).output("y");
  model.ints("flat", {2}, {1, -1}).ints("right", {2}, {-1, 8}).ints("heads", {3}, {2, 1, 4});
  model.floats("cls", {1, 1, 4}, {1, 2, 3, 4});
  model.node("Reshape", {"x", "flat"}, {"a"}, "view");
  model.node("Reshape", {"x", "right"}, {"b"}, "fine");
  model.node("Transpose", {"x"}, {"t"}, "t").add_attribute()->CopyFrom([] {
    onnx::AttributeProto perm;
    perm.set_name("perm");
    perm.set_type(onnx::AttributeProto::INTS);
    for (int64_t axis : {1, 0, 2})
      perm.add_ints(axis);
    return perm;
  }());
  model.node("Reshape", {"t", "heads"}, {"h"}, "split");
  onnx::AttributeProto &axis = *model.node("Concat", {"cls", "x"}, {"y"}, "cat").add_attribute();
  axis.set_name("axis");
  axis.set_type(onnx::AttributeProto::INT);
  axis.set_i(1);
  EXPECT_THAT(frontend::bakedConstants(model.model, {{"x", {8, 2, 4}}}),
              testing::UnorderedElementsAre(AllOf(HasSubstr("node view (Reshape)"), HasSubstr("flat = [1, -1]")),
                                            AllOf(HasSubstr("node split (Reshape)"), HasSubstr("heads")),
                                            AllOf(HasSubstr("node cat (Concat)"), HasSubstr("cls = [1, 1, 4]"))));
  EXPECT_THAT(frontend::bakedConstants(model.model, {{"x", {1, 2, 4}}}), IsEmpty());
}

} // namespace

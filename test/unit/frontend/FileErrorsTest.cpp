//===- FileErrorsTest.cpp - messages about models that cannot be read ----===//
#include "frontend/OnnxFile.h"
#include "frontend/OnnxLibrary.h"
#include "test/unit/frontend/OnnxModel.h"

#include <cstdlib>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace tcc;
using namespace tcc::frontend;
using namespace tcc::test;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

namespace {

class ModelFile : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "model-XXXXXX";
    folder = mkdtemp(pattern.data());
    path = folder + "/m.onnx";
  }
  void TearDown() override { fs::remove_all(folder); }

  std::string readProblem() {
    Expected<OnnxFile> file = readOnnxFile(path);
    return file ? "accepted" : file.message();
  }
  std::string prepareProblem(PrepareOptions options = {}) {
    Expected<OnnxFile> file = readOnnxFile(path);
    if (!file)
      return file.message();
    if (!options.knows)
      options.knows = [](const std::string &domain, const std::string &op, int64_t) { return domain.empty() && op != "Foo"; };
    Expected<PreparedModel> model = prepareModel(*file, options);
    if (!model)
      return model.message();
    std::string text;
    for (const UnsupportedOp &op : model->unsupported)
      text += describe(op) + "\n";
    return text.empty() ? "accepted" : text;
  }
  /// y = x + w, with w in external data.
  OnnxModel external(const std::string &location, const std::string &length = "16", const std::string &offset = "0") {
    OnnxModel m;
    m.input("x", {"4"}).output("y", {"4"}).floats("w", {4}, {});
    onnx::TensorProto &tensor = *m.graph().mutable_initializer(0);
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto &[key, value] :
         std::initializer_list<std::pair<std::string, std::string>>{{"location", location}, {"offset", offset}, {"length", length}}) {
      auto &entry = *tensor.add_external_data();
      entry.set_key(key);
      entry.set_value(value);
    }
    m.node("Add", {"x", "w"}, {"y"});
    m.save(path);
    return m;
  }
  void write(const std::string &file, const std::string &bytes) { std::ofstream(file, std::ios::binary) << bytes; }

  std::string folder, path;
};

OnnxModel small() {
  OnnxModel m;
  m.input("x", {"4"}).output("y", {"4"}).floats("w", {4}, {1, 2, 3, 4});
  m.node("Add", {"x", "w"}, {"y"}, "sum");
  return m;
}

TEST_F(ModelFile, NoModelAtAll) {
  EXPECT_THAT(readProblem(), AllOf(HasSubstr(path), HasSubstr("No such file")));
  write(path, "");
  EXPECT_THAT(readProblem(), HasSubstr("is empty"));
  write(path, "\xff\xff\xff this is no protobuf");
  EXPECT_THAT(readProblem(), HasSubstr("not an ONNX model, or truncated"));
  path = folder;
  EXPECT_THAT(readProblem(), HasSubstr("is a folder"));
}

TEST_F(ModelFile, EveryTruncationIsAnError) {
  std::string bytes;
  small().model.SerializeToString(&bytes);
  for (size_t size = 1; size < bytes.size(); ++size) {
    write(path, bytes.substr(0, size));
    EXPECT_NE(prepareProblem(), "accepted") << size << " of " << bytes.size() << " bytes";
  }
  write(path, bytes);
  EXPECT_EQ(prepareProblem(), "accepted");
}

TEST_F(ModelFile, InitializersMustFitTheirShape) {
  OnnxModel m = small();
  m.graph().mutable_initializer(0)->mutable_float_data()->RemoveLast();
  m.save(path);
  EXPECT_THAT(readProblem(), AllOf(HasSubstr("initializer \"w\""), HasSubstr("holds 12 bytes, its shape needs 16")));
  m = small();
  m.graph().mutable_initializer(0)->set_dims(0, -4);
  m.save(path);
  EXPECT_THAT(readProblem(), HasSubstr("its shape [-4] is not valid"));
  m = small();
  m.graph().mutable_initializer(0)->set_data_type(onnx::TensorProto::STRING);
  m.save(path);
  EXPECT_THAT(readProblem(), HasSubstr("STRING is not supported"));
}

TEST_F(ModelFile, ExternalDataStaysWhereItIs) {
  write(folder + "/w.bin", std::string(40, '\1'));
  external("w.bin", "16", "8");
  Expected<OnnxFile> file = readOnnxFile(path);
  ASSERT_TRUE(file) << file.message();
  EXPECT_EQ(file->initializers.at("w").file, folder + "/w.bin");
  EXPECT_EQ(file->initializers.at("w").offset, 8u);
  EXPECT_TRUE(file->initializers.at("w").data.empty());
  Expected<std::string> bytes = initializerBytes(file->initializers.at("w"));
  EXPECT_EQ(*bytes, std::string(16, '\1'));
}

TEST_F(ModelFile, ExternalDataThatCannotBeRead) {
  external("w.bin");
  EXPECT_THAT(readProblem(), AllOf(HasSubstr("initializer \"w\""), HasSubstr("w.bin is missing")));
  write(folder + "/w.bin", std::string(15, 'x'));
  EXPECT_THAT(readProblem(), HasSubstr("it ends at byte 16, the file at 15"));
  external("w.bin", "12");
  EXPECT_THAT(readProblem(), HasSubstr("its length is 12 bytes, its shape needs 16"));
  external("w.bin", "16", "18446744073709551615");
  EXPECT_THAT(readProblem(), HasSubstr("it ends at"));
  external("w.bin", "16", "-1");
  EXPECT_THAT(readProblem(), HasSubstr("not a number of bytes"));
}

TEST_F(ModelFile, ExternalDataOutsideOfTheFolderIsRefused) {
  fs::create_directory(folder + "/inner");
  write(folder + "/w.bin", std::string(16, 'x'));
  path = folder + "/inner/m.onnx";
  external("../w.bin");
  EXPECT_THAT(readProblem(), AllOf(HasSubstr("../w.bin, which leads out of the model's folder"), HasSubstr("move it there")));
  external(folder + "/w.bin");
  EXPECT_THAT(readProblem(), AllOf(HasSubstr("absolute"), HasSubstr("only files in the model's folder are read")));
  fs::create_symlink("../w.bin", folder + "/inner/link.bin");
  external("link.bin");
  EXPECT_THAT(readProblem(), AllOf(HasSubstr("is a link that leads out"), HasSubstr("put the file itself there")));
  fs::create_directory_symlink("..", folder + "/inner/up");
  external("up/w.bin");
  EXPECT_THAT(readProblem(), HasSubstr("is a link that leads out"));
}

TEST_F(ModelFile, VersionsThatAreNotRead) {
  OnnxModel m = small();
  m.model.set_ir_version(99);
  m.save(path);
  EXPECT_THAT(prepareProblem(), HasSubstr("ONNX IR version 99"));
  m.model.set_ir_version(10);
  m.model.mutable_opset_import(0)->set_version(6);
  m.save(path);
  EXPECT_THAT(prepareProblem(), AllOf(HasSubstr("opset 6 is outside of what this version reads, 7 to 28"),
                                      HasSubstr("since then sum (Add) changed")));
}

TEST_F(ModelFile, OlderVersionsAreReadWhereNoOpChanged) {
  OnnxModel m(1);
  m.input("x", {"4"}, onnx::TensorProto::BOOL).output("y", {"4"}, onnx::TensorProto::BOOL);
  m.node("Not", {"x"}, {"y"}, "negated");
  m.save(path);
  EXPECT_EQ(prepareProblem(), "accepted");
  for (const char *op : {"Tile", "Cast"}) {
    m.graph().mutable_node(0)->set_op_type(op);
    m.save(path);
    EXPECT_THAT(prepareProblem(), HasSubstr(std::string("since then negated (") + op + ") changed"));
  }
  // A function of the model imports opset versions of its own.
  OnnxModel caller = small();
  onnx::FunctionProto &function = *caller.model.add_functions();
  function.set_name("Twice");
  function.set_domain("local");
  function.add_input("a");
  function.add_output("b");
  *function.add_node() = OnnxModel().node("Add", {"a", "a"}, {"b"}, "double");
  function.add_opset_import()->set_version(6);
  caller.model.add_opset_import()->set_domain("local");
  caller.model.mutable_opset_import(1)->set_version(1);
  caller.node("Twice", {"x"}, {"z"}).set_domain("local");
  caller.save(path);
  EXPECT_THAT(prepareProblem(), AllOf(HasSubstr("function Twice: opset 6"), HasSubstr("since then double (Add) changed")));
  m.model.mutable_opset_import(0)->set_version(0);
  m.save(path);
  EXPECT_THAT(prepareProblem(), HasSubstr("opset 0 is outside"));
}

TEST_F(ModelFile, TheCheckersMessageComesThrough) {
  OnnxModel m = small();
  m.graph().mutable_node(0)->set_input(1, "nowhere");
  m.save(path);
  EXPECT_THAT(prepareProblem(), AllOf(HasSubstr(path), HasSubstr("checker"), HasSubstr("nowhere")));
}

TEST_F(ModelFile, AllUnsupportedOpsAreListedAtOnce) {
  OnnxModel m(20);
  m.model.add_opset_import()->set_domain("my.ops");
  m.model.mutable_opset_import(1)->set_version(3);
  m.input("x", {"4"}).output("y");
  m.node("Foo", {"x"}, {"a"}, "first");
  m.node("Bar", {"a"}, {"b"}, "second").set_domain("my.ops");
  m.node("Relu", {"b"}, {"y"}, "third");
  m.save(path);
  EXPECT_THAT(prepareProblem(), AllOf(HasSubstr("first: Foo (opset 20): opset 20 has no such op"),
                                      HasSubstr("second: my.ops::Bar (opset 3): not a standard ONNX op"),
                                      testing::Not(HasSubstr("third"))));
}

TEST_F(ModelFile, DimensionsMustBeBound) {
  OnnxModel m;
  m.input("x", {"batch", "seq"}).input("z", {"batch", ""}).output("y");
  m.node("Relu", {"x"}, {"y"});
  m.save(path);
  EXPECT_THAT(prepareProblem(),
              AllOf(HasSubstr("input x, axis 0: batch"), HasSubstr("input x, axis 1: seq"),
                    HasSubstr("input z, axis 1: without a name"), HasSubstr("--dim NAME=N")));
  PrepareOptions options;
  options.dims = {{"batch", 2}, {"sequence", 3}};
  EXPECT_THAT(prepareProblem(options), AllOf(HasSubstr("called sequence"), HasSubstr("batch, seq")));
  options.dims = {{"batch", 2}, {"seq", 3}};
  options.shapes = {{"z", {2, 5}}};
  EXPECT_EQ(prepareProblem(options), "accepted");
  options.shapes = {{"z", {3, 5}}};
  EXPECT_THAT(prepareProblem(options), HasSubstr("dimension 0 (batch) is 3, but 2 elsewhere"));
  options.shapes = {{"q", {3, 5}}};
  EXPECT_THAT(prepareProblem(options), AllOf(HasSubstr("no such input"), HasSubstr("x, z")));
}

TEST_F(ModelFile, StrippedModelKeepsWhatIsNoVariable) {
  OnnxModel m = small();
  m.floats("big", {512}, std::vector<float>(512, 3)).ints("shape", {1}, {4});
  m.save(path);
  Expected<OnnxFile> file = readOnnxFile(path);
  ASSERT_TRUE(file) << file.message();
  Expected<std::string> bytes = strippedModel(*file, {"w", "big"});
  ASSERT_TRUE(bytes) << bytes.message();
  onnx::ModelProto stripped;
  ASSERT_TRUE(stripped.ParseFromString(*bytes));
  EXPECT_EQ(stripped.graph().node_size(), 1);
  EXPECT_EQ(stripped.graph().initializer(0).raw_data().size(), 16u);  // small
  EXPECT_EQ(stripped.graph().initializer(1).raw_data().size(), 0u);   // a variable, whose bytes are removed
  EXPECT_EQ(stripped.graph().initializer(1).dims(0), 512);
  EXPECT_EQ(stripped.graph().initializer(2).raw_data().size(), 8u);   // not a variable
}

} // namespace

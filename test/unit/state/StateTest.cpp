//===- StateTest.cpp - checkpoints, weights, exports ---------------------===//
#include "runtime/state/Checkpoint.h"
#include "runtime/state/Export.h"
#include "runtime/state/Weights.h"
#include "runtime/train/Evaluate.h"
#include "runtime/train/RunFolder.h"
#include "support/AtomicFile.h"
#include "test/unit/train/TrainFixture.h"

#include <csignal>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
class State : public TrainTest {
protected:
  void SetUp() override {
    TrainTest::SetUp();
    plan = writeRegressionPlan(at("p.tplan"));
    data = writeRegressionData(at("d.safetensors"), 8);
  }
  void makeRun() {
    TrainOptions every = options(data, 4, "run");
    every.checkpointEvery = 2;
    ASSERT_TRUE(train(plan, every).ok());
  }
  onnx::ModelProto readModel(const std::string &name) {
    onnx::ModelProto model;
    EXPECT_TRUE(model.ParseFromString(*readFile(at(name))));
    return model;
  }
  static std::vector<float> floats(std::string_view bytes) {
    std::vector<float> values(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  std::string plan, data;
};
} // namespace

TEST_F(State, RunReferences) {
  EXPECT_EQ(parseRunReference("a/b").run, "a/b");
  EXPECT_EQ(parseRunReference("a/b").selector, "last");
  EXPECT_EQ(parseRunReference("a@120").selector, "120");
  EXPECT_EQ(parseRunReference("a@best").selector, "best");
  EXPECT_EQ(parseRunReference("me@home").run, "me@home");
}

TEST_F(State, CheckpointsAreFoundAndListed) {
  makeRun();
  EXPECT_EQ(checkpointSteps(at("run")), (std::vector<uint64_t>{2, 4}));
  EXPECT_TRUE(findCheckpoint({at("run"), "last"})->ends_with("step-4"));
  EXPECT_TRUE(findCheckpoint({at("run"), "2"})->ends_with("step-2"));
  expectError(findCheckpoint({at("run"), "3"}), {"step 3", "2, 4"});
  expectError(findCheckpoint({at("run"), "best"}), {"never evaluated", "--eval-data"});
  expectError(findCheckpoint({at("no-run"), "last"}), {"no-run", "no such run"});
  auto manifest = readManifest(at("run/checkpoints/step-4"));
  ASSERT_TRUE(manifest.ok()) << manifest.message();
  EXPECT_EQ(manifest->position.step, 4u);
  EXPECT_EQ(manifest->position.epoch * 2 + manifest->position.batch, 4u);
}

TEST_F(State, ExportSafetensors) {
  makeRun();
  Status status = exportRun(at("run"), at("w.safetensors"));
  ASSERT_TRUE(status.ok()) << status.message();
  auto file = SafetensorsFile::open(at("w.safetensors"));
  ASSERT_TRUE(file.ok()) << file.message();
  ASSERT_EQ(file->tensors().size(), 2u) << "initializers only: no optimizer state";
  EXPECT_EQ(floats({reinterpret_cast<const char *>(file->find("w")->bytes.data()), 12}),
            weights("run/checkpoints/step-4"));
  EXPECT_EQ(floats({reinterpret_cast<const char *>(file->find("frozen")->bytes.data()), 8}),
            (std::vector<float>{5, 5}));
  ASSERT_TRUE(exportRun(at("run") + "@2", at("w2.safetensors")).ok());
  EXPECT_NE(*readFile(at("w.safetensors")), *readFile(at("w2.safetensors")));
}

TEST_F(State, ExportOnnx) {
  makeRun();
  Status status = exportRun(at("run"), at("m.onnx"));
  ASSERT_TRUE(status.ok()) << status.message();
  onnx::ModelProto model = readModel("m.onnx");
  EXPECT_EQ(floats(model.graph().initializer(0).raw_data()), weights("run/checkpoints/step-4"));
  EXPECT_EQ(floats(model.graph().initializer(1).raw_data()), (std::vector<float>{5, 5}));
  EXPECT_EQ(model.graph().node(0).op_type(), "MatMul");
  EXPECT_EQ(*readFile(at("run/model.onnx")), *readFile(at("m.onnx"))) << "what the end of the run wrote";
  EXPECT_EQ(exportRun(at("run"), at("m.pt")).code(), StatusCode::Usage);
}

TEST_F(State, LargeWeightsLieBesideTheModel) {
  auto reader = plan::PlanReader::open(writeRegressionPlan(at("big.tplan"), 1, nullptr, 400));
  ASSERT_TRUE(reader.ok()) << reader.message();
  ExportOptions options;
  options.externalAbove = 100;
  Status status = exportWeights(*reader, {}, at("x.onnx"), options);
  ASSERT_TRUE(status.ok()) << status.message();
  onnx::ModelProto model = readModel("x.onnx");
  EXPECT_EQ(model.graph().initializer(0).raw_data().size(), 12u) << "small ones stay inside";
  const onnx::TensorProto &large = model.graph().initializer(1);
  EXPECT_EQ(large.data_location(), onnx::TensorProto::EXTERNAL);
  EXPECT_EQ(large.external_data(0).value(), "x.onnx.data");
  EXPECT_EQ(large.external_data(2).value(), "1600");
  const size_t offset = std::stoul(large.external_data(1).value());
  EXPECT_EQ(floats(readFile(at("x.onnx.data"))->substr(offset)), std::vector<float>(400, 5));
}

TEST_F(State, ModelAndPlanMustAgree) {
  auto reader = plan::PlanReader::open(writeRegressionPlan(at("odd.tplan"), 1, [](plan::Plan &changed) {
    *changed.mutable_variables(kFrozen)->mutable_type() = typeOf(plan::F32, {1, 2});
  }));
  ASSERT_TRUE(reader.ok()) << reader.message();
  ExportOptions options;
  options.externalAbove = 1;
  expectError(exportWeights(*reader, {}, at("x.onnx"), options), {"'frozen'", "f32[2]", "f32[1x2]"});
  EXPECT_FALSE(std::filesystem::exists(at("x.onnx")));
  EXPECT_FALSE(std::filesystem::exists(at("x.onnx.data"))) << "nothing half done stays";
}

TEST_F(State, InitialWeightsByName) {
  auto session = openSession({plan, "cpu", 1, {}});
  ASSERT_TRUE(session.ok());
  std::vector<float> w = {7, 8, 9}, frozen = {1, 2};
  auto load = [&](std::vector<Tensor> tensors, WeightsRule rule = WeightsRule::Strict) {
    EXPECT_TRUE(writeSafetensors(at("w.safetensors"), std::move(tensors)).ok());
    return loadWeights(session->plan(), *session->device, at("w.safetensors"), rule);
  };
  const Place weight = Place::variable(kWeight);
  auto value = [&] { return valuesAt<float>(*session->device, weight)[2]; };
  auto loaded = load({tensorOf("w", plan::F32, {3}, w)});
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  EXPECT_EQ(loaded->loaded, 1u);
  EXPECT_NE(loaded->text().find("keep the model's own are 'frozen'"), std::string::npos)
      << "what is frozen may be left out";
  EXPECT_EQ(value(), 9);
  setValues<float>(*session->device, weight, {7, 8, 0});
  Tensor odd = tensorOf("frozne", plan::F32, {2}, frozen), right = tensorOf("w", plan::F32, {3}, w);
  expectError(load({odd, right}), {"the model has no 'frozne'", "did you mean 'frozen'?", "--init-partial"});
  const std::vector<int64_t> count = {3};
  expectError(load({right, tensorOf("bn.num_batches_tracked", plan::I64, {}, count)}), {"'bn.num_batches_tracked'"});
  expectError(load({tensorOf("w", plan::F32, {1, 3}, w)}), {"'w' (f32[1x3], the model's is f32[3])"});
  expectError(load({tensorOf("frozen", plan::F32, {2}, frozen)}), {"missing are 'w'"});
  EXPECT_EQ(value(), 0) << "nothing is copied on an error";
  auto part = load({odd, right}, WeightsRule::WhatFits);
  ASSERT_TRUE(part.ok()) << part.message();
  EXPECT_EQ(value(), 9);
  EXPECT_EQ(part->unexpected.size(), 1u);
  EXPECT_NE(part->text().find("'frozne'"), std::string::npos);
  expectError(load({odd}, WeightsRule::WhatFits), {"no weights of the model"});
  std::vector<Tensor> many = {right};
  for (int i = 0; i < 100; ++i)
    many.push_back(tensorOf("extra" + std::to_string(i), plan::F32, {2}, frozen));
  expectError(load(many), {"'extra0'", "and 92 more"});
}

TEST_F(State, FrozenWeightsThatAreGivenStayWithTheRun) {
  auto session = openSession({plan, "cpu", 1, {}});
  ASSERT_TRUE(session.ok());
  std::vector<float> w = {7, 8, 9}, frozen = {1, 2};
  ASSERT_TRUE(writeSafetensors(at("w.safetensors"),
                               {tensorOf("w", plan::F32, {3}, w), tensorOf("frozen", plan::F32, {2}, frozen)})
                  .ok());
  auto loaded = loadWeights(session->plan(), *session->device, at("w.safetensors"), WeightsRule::Strict);
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  ASSERT_EQ(loaded->replaced, std::vector<int>{kFrozen});
  ASSERT_TRUE(
      writeCheckpoint(at("run"), {}, {}, checkpointTensors(session->plan(), *session->device, {}, loaded->replaced))
          .ok());
  auto checkpoint = Checkpoint::open(at("run/checkpoints/step-0"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.message();
  auto again = openSession({plan, "cpu", 1, {}});
  std::vector<int> replaced;
  Status status = loadState(*checkpoint, again->plan(), *again->device, &replaced);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(replaced, std::vector<int>{kFrozen});
  EXPECT_EQ(valuesAt<float>(*again->device, Place::variable(kFrozen)), frozen);
}

TEST_F(State, InitialWeightsOfARun) {
  makeRun();
  auto session = openSession({plan, "cpu", 1, {}});
  ASSERT_TRUE(session.ok());
  auto loaded = loadWeights(session->plan(), *session->device, at("run@2"), WeightsRule::Strict);
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  EXPECT_EQ(valuesAt<float>(*session->device, Place::variable(kWeight))[1], weights("run/checkpoints/step-2")[1]);
  EXPECT_EQ(valuesAt<float>(*session->device, Place::variable(kMomentum))[1], 0) << "the optimizer starts anew";
  auto other = openSession(
      {writeRegressionPlan(at("o.tplan"), 1, [](plan::Plan &p) { p.mutable_variables(kFrozen)->set_fill(6); }),
       "cpu",
       1,
       {}});
  ASSERT_TRUE(other.ok());
  expectError(loadWeights(other->plan(), *other->device, at("run"), WeightsRule::Strict),
              {"'frozen' (its frozen value is another"});
}

TEST_F(State, PredictAndGradients) {
  auto session = openSession({plan, "cpu", 1, {}});
  ASSERT_TRUE(session.ok());
  const Place weight = Place::variable(kWeight);
  setValues<float>(*session->device, weight, {1, -2, 3}); // the weights from which the data was computed
  std::string six = writeRegressionData(at("six.safetensors"), 6);
  EntryRunner runner(*session->device, *findEntry(session->plan(), "predict"));
  auto inputs = openEntryData(*session, runner.entry(), six, {});
  ASSERT_TRUE(inputs.ok()) << inputs.message();
  ASSERT_TRUE(writePredictions({&runner, 1}, *inputs, at("out.safetensors")).ok());
  auto out = SafetensorsFile::open(at("out.safetensors"));
  auto in = SafetensorsFile::open(six);
  EXPECT_EQ(plan::typeName(out->find("prediction")->type), "f32[6]") << "two calls, put together";
  for (size_t i = 0; i < 6; ++i)
    EXPECT_NEAR(floats({reinterpret_cast<const char *>(out->find("prediction")->bytes.data()), 24})[i],
                floats({reinterpret_cast<const char *>(in->find("y")->bytes.data()), 24})[i], 1e-5);
  EntryRunner gradients(*session->device, *findEntry(session->plan(), "gradients"));
  auto wrong = openEntryData(*session, gradients.entry(), six, {});
  expectError(writeGradients(gradients, wrong->reader(), at("g.safetensors")), {"6 samples", "exactly 4"});
  auto four = openEntryData(*session, gradients.entry(), writeRegressionData(at("four.safetensors"), 4), {});
  setValues<float>(*session->device, weight, {2, -2, 3});
  ASSERT_TRUE(writeGradients(gradients, four->reader(), at("g.safetensors")).ok());
  auto g = SafetensorsFile::open(at("g.safetensors"));
  ASSERT_NE(g->find("w"), nullptr) << "under the initializer's name";
  // Errors are x0: the loss is the mean of x0 squared, x0 = -1/2, -1/4, 0, 1/4.
  EXPECT_NEAR(floats({reinterpret_cast<const char *>(g->find("loss")->bytes.data()), 4})[0], 0.375 / 4, 1e-6);
}

TEST_F(State, AtomicFilesAreWholeOrAbsent) {
  expectError(writeFileAtomically(at("nowhere/f"), "x", OwnFile::OfRun), {"nowhere/f", "cannot write"});
  expectError(writeFileAtomically("/proc/f", "x", OwnFile::OfRun), {"/proc/f", "cannot write"});
  ASSERT_TRUE(writeFileAtomically(at("f"), "old", OwnFile::OfRun).ok());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small{100, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small); // as a full disk
  Status status = writeFileAtomically(at("f"), std::string(1000, 'x'), OwnFile::OfRun);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  expectError(status, {"f: cannot write"});
  EXPECT_EQ(*readFile(at("f")), "old");
  size_t files = 0;
  for (const auto &entry : std::filesystem::directory_iterator(folder))
    files += entry.path().filename().string().find(".tmp") != std::string::npos;
  EXPECT_EQ(files, 0u) << "no temporary file stays";
}

TEST_F(State, AtomicFilesReplaceRegularFilesAlone) {
  const std::string old = std::string(kPhaseMark) + "old", fresh = std::string(kPhaseMark) + "new";
  ASSERT_TRUE(writeFileAtomically(at("f"), old, OwnFile::Phase).ok());
  ASSERT_EQ(::chmod(at("f").c_str(), 0640), 0);
  std::filesystem::create_symlink("f", at("link"));
  std::filesystem::create_symlink("later", at("dangling"));
  ASSERT_TRUE(writeFileAtomically(at("link"), fresh, OwnFile::Phase).ok());
  ASSERT_TRUE(writeFileAtomically(at("dangling"), fresh, OwnFile::Phase).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(at("link")) && std::filesystem::is_symlink(at("dangling")));
  EXPECT_EQ(*readFile(at("f")), fresh);
  EXPECT_EQ(*readFile(at("later")), fresh);
  struct stat status {};
  ASSERT_EQ(::stat(at("f").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0640u);
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  expectError(readFile(at("fifo")), {"fifo: cannot read: it is not a regular file"});
  int reader = ::open(at("fifo").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_TRUE(writeFileAtomically(at("fifo"), "through", OwnFile::Phase).ok());
  char text[16] = {};
  EXPECT_EQ(::read(reader, text, sizeof text), 7);
  ::close(reader);
  ASSERT_EQ(::lstat(at("fifo").c_str(), &status), 0);
  EXPECT_TRUE(S_ISFIFO(status.st_mode));
  expectError(writeFileAtomically("/dev/full", "x", OwnFile::Phase), {"/dev/full: cannot write: No space left"});
  ASSERT_EQ(::stat("/dev/full", &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
}

TEST_F(State, TemporaryNamesAreUniqueAndLocked) {
  auto first = AtomicFile::create(at("f"), OwnFile::OfRun), second = AtomicFile::create(at("f"), OwnFile::OfRun);
  ASSERT_TRUE(first && second);
  ASSERT_TRUE(first->write("1").ok() && second->write("2").ok());
  ASSERT_TRUE(second->commit().ok());
  EXPECT_EQ(*readFile(at("f")), "2");
  ASSERT_TRUE(first->commit().ok());
  EXPECT_EQ(*readFile(at("f")), "1");
  EXPECT_EQ(ownerOfTemporary(".f.tcc-12-3.tmp"), 12);
  for (const char *other : {".f.tcc-12.tmp", ".f.tcc-a-3.tmp", "f.tcc-12-3.tmp", ".f.tcc-12-3.tmp2", ".tcc-12-3.tmp"})
    EXPECT_FALSE(ownerOfTemporary(other)) << other;
}

TEST_F(State, LargeFilesHoldEveryByte) {
  // Direct writes past the page cache: from any offset in a page, in pieces of any size, with any remainder.
  constexpr uint64_t kMost = 3 << 20;
  std::vector<unsigned char> bytes(kMost + 4096);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<unsigned char>(i * 2654435761u >> 13);
  for (uint64_t offset : {0, 1, 4095})
    for (std::vector<uint64_t> pieces : {std::vector<uint64_t>{kMost},
                                         {8, 120, kMost - 128},
                                         {4097, 256 << 10, 1 << 20, 5},
                                         {3, (1 << 20) + 1, (1 << 20) - 7},
                                         {4096, 4096},
                                         {}}) {
      auto file = AtomicFile::create(at("large"), OwnFile::OfRun, AtomicFile::Through::Disk);
      ASSERT_TRUE(file.ok()) << file.message();
      uint64_t done = 0;
      for (uint64_t piece : pieces) {
        ASSERT_TRUE(file->write(bytes.data() + offset + done, piece).ok());
        done += piece;
      }
      EXPECT_EQ(file->bytesWritten(), done);
      EXPECT_EQ(file->hash(), plan::hashBytes(bytes.data() + offset, done));
      ASSERT_TRUE(file->commit().ok());
      EXPECT_TRUE(*readFile(at("large")) == std::string_view(reinterpret_cast<char *>(bytes.data()) + offset, done))
          << offset << ", " << done;
    }
}

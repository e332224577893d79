//===- CheckpointTest.cpp - checkpoints that are damaged, cut, or another run's -===//
#include "runtime/state/Checkpoint.h"
#include "support/AtomicFile.h"
#include "runtime/train/RunFolder.h"
#include "test/unit/train/TrainFixture.h"

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
class CheckpointFiles : public TrainTest {
protected:
  void SetUp() override {
    TrainTest::SetUp();
    plan = writeRegressionPlan(at("p.tplan"));
    data = writeRegressionData(at("d.safetensors"), 8);
    TrainOptions every = options(data, 4, "run");
    every.checkpointEvery = 2;
    ASSERT_TRUE(train(plan, every).ok());
  }
  Session session() {
    auto opened = openSession({plan, "cpu", 1, {}});
    EXPECT_TRUE(opened.ok()) << opened.message();
    return opened.take();
  }
  void editManifest(const std::string &step, const std::function<void(Manifest &)> &edit) {
    std::string path = "run/checkpoints/" + step + "/manifest.json";
    auto manifest = readManifest(at("run/checkpoints/" + step));
    ASSERT_TRUE(manifest.ok()) << manifest.message();
    edit(*manifest);
    write(path, manifestText(*manifest));
  }
  const std::string step = "run/checkpoints/step-4";
  std::string plan, data;
};
} // namespace

/// Resume, export and evaluation all refuse an altered checkpoint.
TEST_F(CheckpointFiles, AlteredFilesAreRefusedEverywhere) {
  for (const char *file : {"state.safetensors", "manifest.json"}) {
    std::string path = step + "/" + file, good = *readFile(at(path));
    for (size_t place : {size_t(9), good.size() / 2, good.size() - 1}) {
      std::string bad = good;
      bad[place] ^= 1;
      write(path, bad);
      expectError(Checkpoint::open(at(step)), {file});
      expectError(exportRun(at("run"), at("w.safetensors")), {file});
      TrainOptions more = options(data, 6, "");
      more.out.clear();
      more.resume = at("run");
      expectError(train(plan, more), {file});
    }
    write(path, good);
  }
  EXPECT_FALSE(std::filesystem::exists(at("w.safetensors")));
  EXPECT_TRUE(exportRun(at("run"), at("w.safetensors")).ok());
}

TEST_F(CheckpointFiles, ManifestAndShardMustAgree) {
  editManifest("step-4", [](Manifest &m) { m.position.step = 2; });
  expectError(Checkpoint::open(at(step)), {"step 2", "step 4"});
  editManifest("step-2", [](Manifest &m) { m.tensors[0].type.set_dims(0, 4), m.tensors[0].slices[0].shape = {4}; });
  expectError(Checkpoint::open(at("run/checkpoints/step-2")), {"'w' is f32[3]", "f32[4]"});
  editManifest("step-2", [](Manifest &m) { m.tensors[0].slices[0].key = "other"; });
  expectError(Checkpoint::open(at("run/checkpoints/step-2")), {"no 'other'"});
  editManifest("step-2", [](Manifest &m) { m.shards[0].bytes += 1; });
  expectError(Checkpoint::open(at("run/checkpoints/step-2")), {"bytes"});
  editManifest("step-2", [](Manifest &m) { m.shards[0].file = "gone.safetensors"; });
  expectError(Checkpoint::open(at("run/checkpoints/step-2")), {"gone.safetensors"});
  write("run/checkpoints/step-2/manifest.json", "{}");
  expectError(readManifest(at("run/checkpoints/step-2")), {"manifest.json", "damaged"});
  write("run/checkpoints/step-2/manifest.json", R"({"version":99})");
  expectError(readManifest(at("run/checkpoints/step-2")), {"99", "newer than 2"});
}

TEST_F(CheckpointFiles, AnotherModelsStateIsRefusedWithAllNames) {
  plan = writeRegressionPlan(at("other.tplan"), 1, [](plan::Plan &changed) {
    changed.mutable_variables(kWeight)->set_name("v");
    changed.mutable_variables(kMomentum)->set_role(plan::PARAMETER);
  });
  Session other = session();
  auto checkpoint = Checkpoint::open(at(step));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.message();
  expectError(loadState(*checkpoint, other.plan(), *other.device),
              {"the checkpoint lacks 'v'", "the plan lacks 'w'",
               "'w/momentum_buffer' (role optimizer there, parameter in the plan)", "--init"});
  NameList unused;
  expectError(loadModelValues(*checkpoint, other.plan(), *other.device, unused), {"lacks", "'v'"});
}

/// A checkpoint as by several writers: two shards, one tensor cut in half along its only axis, the other one whole.
TEST_F(CheckpointFiles, TensorsAreMadeOfSlices) {
  std::vector<float> w = weights(step), m = weights(step, "w/momentum_buffer");
  auto part = [&](std::vector<float> &values, const char *name, int64_t begin, int64_t count) {
    return Tensor{name, typeOf(plan::F32, {count}),
                  std::as_bytes(std::span(values).subspan(size_t(begin), size_t(count)))};
  };
  auto first = writeSafetensors(at(step + "/one.safetensors"), {part(w, "w", 2, 1)});
  auto second = writeSafetensors(at(step + "/two.safetensors"), {part(w, "w", 0, 2), part(m, "m", 0, 3)});
  ASSERT_TRUE(first.ok() && second.ok());
  std::filesystem::remove(at(step + "/state.safetensors"));
  editManifest("step-4", [&](Manifest &manifest) {
    auto bytes = [&](const char *file) { return std::filesystem::file_size(at(step + "/" + file)); };
    manifest.shards = {{"one.safetensors", bytes("one.safetensors"), *first},
                       {"two.safetensors", bytes("two.safetensors"), *second}};
    manifest.tensors[0].slices = {{0, "w", {2}, {1}}, {1, "w", {0}, {2}}};
    manifest.tensors[1].slices = {{1, "m", {0}, {3}}};
  });
  auto checkpoint = Checkpoint::open(at(step));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.message();
  Session opened = session();
  Status status = loadState(*checkpoint, opened.plan(), *opened.device);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(valuesAt<float>(*opened.device, Place::variable(kWeight)), w);
  EXPECT_EQ(valuesAt<float>(*opened.device, Place::variable(kMomentum)), m);
  ASSERT_TRUE(exportRun(at("run"), at("w.safetensors")).ok());
  auto exported = SafetensorsFile::open(at("w.safetensors"));
  EXPECT_EQ(0, std::memcmp(exported->find("w")->bytes.data(), w.data(), 12));
}

/// A checkpoint of before manifests had a version 2.
TEST_F(CheckpointFiles, FirstVersionIsResumed) {
  auto manifest = readManifest(at(step));
  ASSERT_TRUE(manifest.ok());
  nlohmann::json old = {
      {"version", 1},
      {"step", 4},
      {"epoch", manifest->position.epoch},
      {"batch", manifest->position.batch},
      {"seed", 0},
      {"shuffle", false},
      {"schedule_total", 4.0},
      {"settings", nlohmann::json::array()},
      {"best_step", 0},
      {"best_loss", 0.0},
      {"model", "regression.onnx"},
      {"files", {{"state.safetensors", {{"xxh3", fmt::format("{:016x}", manifest->shards[0].hash)}}}}}};
  write(step + "/manifest.json", old.dump());
  TrainOptions more = options(data, 6, "");
  more.out.clear();
  more.resume = at("run");
  Status status = train(plan, more);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_TRUE(train(plan, options(data, 6, "whole")).ok());
  EXPECT_EQ(weights("run/checkpoints/step-6"), weights("whole/checkpoints/step-6"));
  std::string bytes = *readFile(at(step + "/state.safetensors"));
  bytes.back() ^= 1;
  write(step + "/state.safetensors", bytes);
  expectError(exportRun(at("run@4"), at("w.safetensors")), {"state.safetensors", "checksum"});
}

TEST_F(CheckpointFiles, BestIsChecked) {
  ASSERT_TRUE(markBest(at("run"), {2, 0.5}).ok());
  EXPECT_TRUE(findCheckpoint({at("run"), "best"})->ends_with("step-2"));
  std::string good = *readFile(at("run/checkpoints/best.json"));
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] ^= 1;
    write("run/checkpoints/best.json", bad);
    expectError(findCheckpoint({at("run"), "best"}), {"best.json"});
  }
  write("run/checkpoints/best.json", R"({"step":2,"eval_loss":0.5})");
  EXPECT_TRUE(findCheckpoint({at("run"), "best"}).ok()) << "as earlier versions wrote it";
  write("run/checkpoints/best.json", R"({"step":-2,"eval_loss":0.5})");
  expectError(findCheckpoint({at("run"), "best"}), {"best.json", "damaged"});
}

TEST_F(CheckpointFiles, BytesThatRanksHaveNotComparedMakeNoCheckpoint) {
  Session opened = session();
  auto manifest = readManifest(at(step));
  ASSERT_TRUE(manifest.ok());
  auto tensors = [&] { return checkpointTensors(opened.plan(), *opened.device); };
  std::vector<CheckpointTensor> given = tensors();
  plan::ByteHash hash;
  ASSERT_TRUE(given.front()
                  .stream([&](std::span<const std::byte> piece) {
                    hash.add(piece.data(), piece.size());
                    return Status();
                  })
                  .ok());
  const auto before = checkpointSteps(at("run"));
  TrainingPosition position = manifest->position;
  position.step = 9;
  given.front().hash = hash.value() ^ 1;
  auto refused = writeCheckpoint(at("run"), manifest->run, position, std::move(given));
  expectError(refused.status(), {"step 9", "has changed since the ranks compared it"});
  EXPECT_EQ(checkpointSteps(at("run")), before);
  given = tensors();
  given.front().hash = hash.value();
  EXPECT_TRUE(writeCheckpoint(at("run"), manifest->run, position, std::move(given)).ok());
}

TEST_F(CheckpointFiles, RemovalAndReplacementAreWhole) {
  Session opened = session();
  auto manifest = readManifest(at(step));
  ASSERT_TRUE(manifest.ok());
  std::filesystem::create_directory(at("run/checkpoints/.step-9.1234.tmp"));
  auto written = writeCheckpoint(at("run"), manifest->run, manifest->position,
                                 checkpointTensors(opened.plan(), *opened.device));
  ASSERT_TRUE(written.ok()) << written.message();
  EXPECT_EQ(*written, std::filesystem::file_size(at(step + "/manifest.json")) +
                          std::filesystem::file_size(at(step + "/state.safetensors")));
  EXPECT_EQ(weights(step), (std::vector<float>{0, 0, 0})) << "the new one took its place";
  EXPECT_TRUE(removeCheckpoint(at("run"), 2).ok());
  EXPECT_TRUE(removeCheckpoint(at("run"), 77).ok());
  EXPECT_EQ(checkpointSteps(at("run")), (std::vector<uint64_t>{4}));
  removeUnfinished(at("run"));
  size_t entries = 0;
  for (const auto &entry : std::filesystem::directory_iterator(at("run/checkpoints")))
    entries += entry.path().filename() != "step-4";
  EXPECT_EQ(entries, 0u) << "no temporary folder stays";
}

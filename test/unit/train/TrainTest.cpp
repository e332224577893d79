//===- TrainTest.cpp - the loop on a plan made by hand -------------------===//
#include "runtime/state/Checkpoint.h"
#include "runtime/train/TensorBoard.h"
#include "test/support/device/DeferredDevice.h"
#include "test/unit/train/TrainFixture.h"

#include <cmath>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
/// The arithmetic of the plan in double.
struct Reference {
  double w[3] = {}, m[3] = {};
  bool first = true;

  /// One update on samples [begin, begin + count) of writeRegressionData; returns (loss, gradient norm).
  std::pair<double, double> update(const std::vector<float> &x, const std::vector<float> &y, size_t begin, size_t count,
                                   double rate = 0.1) {
    double g[3] = {}, loss = 0, norm = 0;
    for (size_t s = begin; s < begin + count; ++s) {
      double error = -y[s];
      for (size_t i = 0; i < 3; ++i)
        error += x[3 * s + i] * w[i];
      loss += error * error / static_cast<double>(count);
      for (size_t i = 0; i < 3; ++i)
        g[i] += 2 * error * x[3 * s + i] / static_cast<double>(count);
    }
    for (size_t i = 0; i < 3; ++i) {
      norm += g[i] * g[i];
      m[i] = first ? g[i] : 0.9 * m[i] + g[i];
      w[i] -= rate * m[i];
    }
    first = false;
    return {loss, std::sqrt(norm)};
  }
};

class Train : public TrainTest {
protected:
  void load(const std::string &path) {
    auto file = SafetensorsFile::open(path);
    ASSERT_TRUE(file.ok());
    for (auto [name, values] : {std::pair("x", &x), std::pair("y", &y)}) {
      std::span<const std::byte> bytes = file->find(name)->bytes;
      values->resize(bytes.size() / 4);
      std::memcpy(values->data(), bytes.data(), bytes.size());
    }
  }
  std::vector<float> x, y;
};
} // namespace

TEST_F(Train, UpdatesAreThoseOfTheOptimizer) {
  std::string plan = writeRegressionPlan(at("p.tplan")), data = writeRegressionData(at("d.safetensors"), 10);
  Status status = train(plan, options(data, 5, "run"));
  ASSERT_TRUE(status.ok()) << status.message();
  load(data);
  Reference reference;
  std::vector<nlohmann::json> lines = metrics("run");
  ASSERT_EQ(lines.size(), 5u);
  for (size_t step = 0; step < 5; ++step) {
    auto [loss, norm] = reference.update(x, y, 4 * (step % 2), 4); // two batches an epoch, the third is too short
    EXPECT_NEAR(lines[step]["loss"].get<double>(), loss, 1e-5 * loss) << step;
    EXPECT_NEAR(lines[step]["grad_norm"].get<double>(), norm, 1e-5 * norm) << step;
    EXPECT_EQ(lines[step]["step"], step + 1);
    EXPECT_EQ(lines[step]["epoch"], step / 2 + 1);
    EXPECT_EQ(lines[step]["lr"], 0.1);
  }
  std::vector<float> w = weights("run/checkpoints/step-5");
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(w[i], reference.w[i], 1e-5);
  for (const char *name : {"plan.tplan", "log.txt", "model.onnx", "source.json"})
    EXPECT_TRUE(std::filesystem::exists(at("run") + "/" + name)) << name;
}

TEST_F(Train, AccumulationWeighsWindowsAndEndsThemWithTheEpoch) {
  std::string plan = writeRegressionPlan(at("p.tplan"), 2), data = writeRegressionData(at("d.safetensors"), 12);
  TrainOptions two = options(data, 0, "run");
  two.steps.reset();
  two.epochs = 2;
  Status status = train(plan, two);
  ASSERT_TRUE(status.ok()) << status.message();
  load(data);
  Reference reference;
  std::vector<nlohmann::json> lines = metrics("run");
  ASSERT_EQ(lines.size(), 4u) << "three micro-batches make two updates an epoch";
  for (size_t step = 0; step < 4; ++step) {
    auto [loss, norm] = step % 2 == 0 ? reference.update(x, y, 0, 8) : reference.update(x, y, 8, 4);
    EXPECT_NEAR(lines[step]["loss"].get<double>(), loss, 1e-5 * loss) << step;
    EXPECT_NEAR(lines[step]["grad_norm"].get<double>(), norm, 1e-5 * norm) << step;
  }
}

TEST_F(Train, ResumeGoesOnBitForBit) {
  for (int64_t accumulate : {1, 2}) {
    std::string name = std::to_string(accumulate), plan = writeRegressionPlan(at(name + ".tplan"), accumulate),
                data = writeRegressionData(at("d.safetensors"), 20);
    auto shuffled = [&](uint64_t steps, const std::string &run) {
      TrainOptions result = options(data, steps, run);
      result.shuffle.reset();
      result.settings = {"schedule.kind=cosine", "schedule.warmup_steps=2", "train.seed=3", "schedule.total_steps=9"};
      return result;
    };
    ASSERT_TRUE(train(plan, shuffled(9, "whole" + name)).ok());
    ASSERT_TRUE(train(plan, shuffled(4, "parts" + name)).ok());
    TrainOptions rest = shuffled(9, "parts" + name);
    rest.resume = rest.out;
    rest.out.clear();
    Status status = train(plan, rest);
    ASSERT_TRUE(status.ok()) << status.message();
    std::vector<nlohmann::json> whole = metrics("whole" + name), parts = metrics("parts" + name);
    ASSERT_EQ(parts.size(), 9u);
    for (size_t i = 0; i < 9; ++i)
      EXPECT_EQ(whole[i]["loss"], parts[i]["loss"]) << i;
    EXPECT_EQ(weights("whole" + name + "/checkpoints/step-9"), weights("parts" + name + "/checkpoints/step-9"));
    EXPECT_EQ(weights("whole" + name + "/checkpoints/step-9", "w/momentum_buffer"),
              weights("parts" + name + "/checkpoints/step-9", "w/momentum_buffer"));
    rest.seed = 4;
    EXPECT_EQ(train(plan, rest).code(), StatusCode::Usage) << "another seed is refused";
  }
}

TEST_F(Train, NonFiniteLossStopsBeforeTheUpdate) {
  for (int64_t accumulate : {1, 2}) {
    std::string name = std::to_string(accumulate), plan = writeRegressionPlan(at(name + ".tplan"), accumulate),
                data = writeRegressionData(at("d.safetensors"), 16);
    std::string bytes = *readFile(data);
    float nan = NAN; // sample 13 of y, in the last batch; with two batches an update, in the second update
    std::memcpy(bytes.data() + bytes.size() - 3 * 4, &nan, 4);
    write("bad.safetensors", bytes);
    uint64_t good = accumulate == 1 ? 3 : 1;
    Status status = train(plan, options(at("bad.safetensors"), 8, "run" + name));
    EXPECT_EQ(status.code(), StatusCode::NonFinite);
    for (const std::string &text : {"step " + std::to_string(good + 1), std::string("nan"),
                                    std::string("column 'y', sample 13: NaN")})
      EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
    ASSERT_TRUE(train(plan, options(data, good, "good" + name)).ok());
    std::string step = "/checkpoints/step-" + std::to_string(good);
    EXPECT_EQ(weights("run" + name + step), weights("good" + name + step));
    EXPECT_EQ(metrics("run" + name).size(), good);
    EXPECT_FALSE(std::filesystem::exists(at("run" + name) + "/model.onnx"));
  }
}

/// Without clipping or accumulation the update does not wait for the norm, so that its result must not become a
/// checkpoint.
TEST_F(Train, NonFiniteNormLeavesTheLastCheckpoint) {
  std::string plan = writeRegressionPlan(at("p.tplan")), data = writeRegressionData(at("d.safetensors"), 16);
  std::string bytes = *readFile(data);
  // The last element of x: its squared error is finite only at w = 0; its product with the error is never finite.
  float large = 1e30f, error = 1e18f;
  std::memcpy(bytes.data() + bytes.size() - 17 * 4, &large, 4);
  std::memcpy(bytes.data() + bytes.size() - 4, &error, 4);
  write("bad.safetensors", bytes);
  TrainOptions none = options(at("bad.safetensors"), 8, "none");
  none.settings = {"optimizer.lr=0"};
  Status status = train(plan, none);
  EXPECT_EQ(status.code(), StatusCode::NonFinite);
  EXPECT_NE(status.message().find("the gradient's norm is inf"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("no checkpoint had been written"), std::string::npos) << status.message();
  EXPECT_TRUE(std::filesystem::is_empty(at("none/checkpoints")));
  TrainOptions some = none;
  some.out = at("some");
  some.checkpointEvery = 2;
  status = train(plan, some);
  EXPECT_NE(status.message().find("the last checkpoint is " + at("some/checkpoints/step-2")), std::string::npos) << status.message();
  EXPECT_FALSE(std::filesystem::exists(at("some/checkpoints/step-3")));
}

TEST_F(Train, EvaluationReadsEverySampleOnce) {
  std::string plan = writeRegressionPlan(at("p.tplan")), data = writeRegressionData(at("d.safetensors"), 10);
  TrainOptions evaluated = options(data, 3, "run");
  evaluated.evalData = data; // 10 samples in batches of 4: the last has two, and copies that are subtracted again
  evaluated.evalEvery = 2;
  Status status = train(plan, evaluated);
  ASSERT_TRUE(status.ok()) << status.message();
  load(data);
  Reference reference;
  std::vector<nlohmann::json> lines = metrics("run");
  ASSERT_EQ(lines.size(), 5u) << "three updates, evaluated after 2 and at the end";
  auto mean = [&] {
    Reference copy = reference;
    return copy.update(x, y, 0, 10).first;
  };
  reference.update(x, y, 0, 4);
  reference.update(x, y, 4, 4);
  EXPECT_NEAR(lines[2]["eval_loss"].get<double>(), mean(), 1e-5 * mean());
  reference.update(x, y, 0, 4);
  EXPECT_NEAR(lines[4]["eval_loss"].get<double>(), mean(), 1e-5 * mean());
  auto best = findCheckpoint(parseRunReference(at("run") + "@best"));
  ASSERT_TRUE(best.ok()) << best.message();
  EXPECT_TRUE(best->ends_with(lines[2]["eval_loss"] < lines[4]["eval_loss"] ? "step-2" : "step-3"));
}

/// Records of an events file: length, checksum, bytes, checksum.
TEST_F(Train, TensorBoardReadsTheEvents) {
  EXPECT_EQ(crc32c("123456789", 9), 0xe3069283u); // the check value of CRC-32C
  std::string plan = writeRegressionPlan(at("p.tplan")), data = writeRegressionData(at("d.safetensors"), 8);
  ASSERT_TRUE(train(plan, options(data, 2, "run")).ok());
  std::string content;
  for (const auto &entry : std::filesystem::directory_iterator(at("run")))
    if (entry.path().filename().string().starts_with("events.out.tfevents."))
      content = *readFile(entry.path().string());
  std::vector<std::string> records;
  for (size_t place = 0; place + 12 <= content.size();) {
    uint64_t length = 0;
    uint32_t check = 0;
    std::memcpy(&length, content.data() + place, 8);
    ASSERT_LE(place + 16 + length, content.size());
    records.push_back(content.substr(place + 12, length));
    std::memcpy(&check, content.data() + place + 12 + length, 4);
    uint32_t crc = crc32c(records.back().data(), length);
    EXPECT_EQ(check, (crc >> 15 | crc << 17) + 0xa282ead8u);
    place += 16 + length;
  }
  ASSERT_EQ(records.size(), 12u) << "the version, four values of two updates, and three of the last checkpoint";
  EXPECT_NE(records[0].find("brain.Event:2"), std::string::npos);
  size_t loss = records[1].find("train/loss");
  ASSERT_NE(loss, std::string::npos);
  float value = 0;
  std::memcpy(&value, records[1].data() + records[1].size() - 4, 4);
  EXPECT_EQ(value, static_cast<float>(metrics("run")[0]["loss"].get<double>()));
}

TEST_F(Train, Refusals) {
  std::string plan = writeRegressionPlan(at("p.tplan")), data = writeRegressionData(at("d.safetensors"), 10);
  std::filesystem::create_directory(at("there"));
  expectError(train(plan, options(data, 1, "there")), {"there: exists already, and is empty", "rmdir"});
  std::filesystem::create_directory(at("there/checkpoints"));
  expectError(train(plan, options(data, 1, "there")), {"there: exists already", "--resume"});
  expectError(train(plan, options(writeRegressionData(at("few.safetensors"), 3), 1, "a")),
              {"few.safetensors", "3", "4"});
  TrainOptions padded = options(data, 1, "b");
  padded.settings = {"data.last=pad"};
  expectError(train(plan, padded), {"data.last", "cannot leave a sample out", "data.last=exact"});
  padded.settings = {"data.last=exact"};
  expectError(train(plan, padded), {"data.last", "fill no batch: 2"});
  std::string blind =
      writeRegressionPlan(at("blind.tplan"), 1, [](plan::Plan &plan) { plan.mutable_entries(0)->set_name("stop"); });
  expectError(train(blind, options(data, 1, "c")), {"'step'", "--entry train"});
  std::string newer = writeRegressionPlan(at("newer.tplan"), 1,
                                          [](plan::Plan &plan) { plan.mutable_training()->set_scalars(1, "warp"); });
  expectError(train(newer, options(data, 1, "d")), {"'warp'", "compile"});
  EXPECT_EQ(train(plan, options(data, 1, "e"), "tpu").code(), StatusCode::Usage);
  expectError(train(plan, options(data, 1, "nowhere/f/" + std::string(300, 'x'))), {"nowhere"});
  for (const char *run : {"a", "b", "c", "d", "e"})
    EXPECT_FALSE(std::filesystem::exists(at(run))) << "a refused run leaves no folder";
}

/// A device that delays its work, and whose memory the host accesses only by copies, gives the same bits.
TEST_F(Train, ADeviceWithItsOwnMemoryTrainsAlike) {
  devices.add(deferredDevice());
  for (int64_t accumulate : {1, 2}) {
    std::string name = std::to_string(accumulate), plan = writeRegressionPlan(at(name + ".tplan"), accumulate),
                data = writeRegressionData(at("d.safetensors"), 10);
    for (const char *device : {"cpu", "deferred"}) {
      TrainOptions begin = options(data, 4, device + name), rest = options(data, 7, device + name);
      begin.evalData = rest.evalData = data;
      begin.evalEvery = rest.evalEvery = 2;
      Status status = train(plan, begin, device);
      rest.resume = rest.out;
      rest.out.clear();
      if (status.ok())
        status = train(plan, rest, device);
      ASSERT_TRUE(status.ok()) << device << ": " << status.message();
    }
    for (const char *tensor : {"w", "w/momentum_buffer"})
      EXPECT_EQ(weights("cpu" + name + "/checkpoints/step-7", tensor),
                weights("deferred" + name + "/checkpoints/step-7", tensor));
    EXPECT_EQ(*readFile(at("cpu" + name + "/model.onnx")), *readFile(at("deferred" + name + "/model.onnx")));
    std::vector<nlohmann::json> cpu = metrics("cpu" + name), deferred = metrics("deferred" + name);
    ASSERT_EQ(cpu.size(), deferred.size());
    for (size_t i = 0; i < cpu.size(); ++i)
      for (const char *key : {"step", "loss", "grad_norm", "eval_loss"})
        EXPECT_EQ(cpu[i].value(key, nlohmann::json()), deferred[i].value(key, nlohmann::json())) << key;
  }
}

TEST_F(Train, NullDeviceWalksThePlan) {
  std::string plan = writeRegressionPlan(at("p.tplan")), data = writeRegressionData(at("d.safetensors"), 8);
  Status status = train(plan, options(data, 3, "run"), "null");
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_EQ(metrics("run").size(), 3u);
  EXPECT_TRUE(metrics("run")[0]["loss"].is_null());
  EXPECT_TRUE(checkpointSteps(at("run")).empty());
}

//===- SideBySideTest.cpp - several trainers in one process ----------------===//
//
// Through the library alone: no files, no signals, no output. tools/nightly.sh also runs it under ThreadSanitizer.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/Stepper.h"
#include "test/unit/train/TrainFixture.h"

#include <thread>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
/// What one run told.
class Told : public RunEvents {
public:
  void begins(const RunFacts &told) override { facts = told; }
  void update(const UpdateMetrics &update) override {
    losses.push_back(update.loss);
    if (onUpdate)
      onUpdate(update.step);
  }
  void evaluated(const EvaluatedStep &evaluated) override { evaluations.push_back(*evaluated.record.find("eval_loss")); }
  void ends(const RunEnd &told) override { end = told; }

  RunFacts facts;
  std::vector<double> losses, evaluations;
  std::optional<RunEnd> end;
  std::function<void(uint64_t step)> onUpdate;
};

/// A plan, data and options that exist in memory alone.
class SideBySide : public TrainTest {
protected:
  struct Trained {
    Status status;
    Told told;
    std::vector<float> weights = std::vector<float>(3);
  };

  void SetUp() override {
    TrainTest::SetUp();
    for (int64_t accumulate : {1, 2})
      plans.push_back(std::make_shared<const std::string>(
          *readFile(writeRegressionPlan(at(std::to_string(accumulate) + ".tplan"), accumulate))));
    dataPath = writeRegressionData(at("d.safetensors"), 40);
    bytes = *readFile(dataPath);
  }

  TrainOptions inMemory(uint64_t steps) {
    TrainOptions result;
    result.data = result.evalData = "rows.safetensors";
    result.dataSource = result.evalDataSource = [this](const DatasetOptions &how) {
      return openDatasetBytes("rows.safetensors", bytes, how);
    };
    result.steps = steps;
    result.evalEvery = 50;
    result.keepsFiles = false;
    return result;
  }

  void trainInMemory(size_t plan, TrainOptions options, Trained &result) {
    options.events = &result.told;
    SessionOptions how;
    how.planPath = "a plan";
    how.planBytes = plans[plan];
    how.threads = 2;
    auto session = openSession(how);
    result.status = session ? runtime::train(*session, options) : session.status();
    if (!session)
      return;
    EXPECT_TRUE(session->device->read(Place::variable(0), 0, std::as_writable_bytes(std::span(result.weights))).ok());
  }

  std::vector<std::shared_ptr<const std::string>> plans;
  std::string dataPath, bytes;
};
} // namespace

TEST_F(SideBySide, TwoTrainersInTwoThreadsDoWhatEachDoesAlone) {
  Trained alone[2], together[2];
  for (size_t i : {0, 1})
    trainInMemory(i, inMemory(200), alone[i]);
  std::thread threads[2];
  for (size_t i : {0, 1})
    threads[i] = std::thread([&, i] { trainInMemory(i, inMemory(200), together[i]); });
  for (std::thread &thread : threads)
    thread.join();
  for (size_t i : {0, 1}) {
    ASSERT_TRUE(together[i].status.ok()) << together[i].status.message();
    EXPECT_EQ(together[i].told.losses.size(), 200u);
    EXPECT_EQ(together[i].told.evaluations.size(), 4u);
    EXPECT_EQ(together[i].told.losses, alone[i].told.losses);
    EXPECT_EQ(together[i].told.evaluations, alone[i].told.evaluations);
    EXPECT_EQ(together[i].weights, alone[i].weights);
    ASSERT_TRUE(together[i].told.end);
    EXPECT_EQ(together[i].told.end->kind, RunEnd::Kind::Done);
  }
  EXPECT_NE(alone[0].weights, alone[1].weights) << "they were different plans";
}

TEST_F(SideBySide, MemoryGivesTheBitsOfFiles) {
  Trained memory;
  trainInMemory(0, inMemory(30), memory);
  ASSERT_TRUE(memory.status.ok()) << memory.status.message();
  TrainOptions files = options(dataPath, 30, "run");
  files.shuffle.reset();
  ASSERT_TRUE(train(at("1.tplan"), files).ok());
  std::vector<nlohmann::json> lines = metrics("run");
  ASSERT_EQ(lines.size(), 30u);
  for (size_t i = 0; i < lines.size(); ++i)
    EXPECT_EQ(lines[i]["loss"], memory.told.losses[i]) << i;
  EXPECT_EQ(weights("run/checkpoints/step-30"), memory.weights);
}

TEST_F(SideBySide, AnotherThreadStopsARun) {
  RunControl control;
  Trained one;
  TrainOptions endless = inMemory(uint64_t(1) << 40);
  endless.control = &control;
  std::atomic<bool> under{false};
  one.told.onUpdate = [&](uint64_t step) { under = under || step == 3; };
  std::thread run([&] { trainInMemory(0, endless, one); });
  while (!under)
    std::this_thread::yield();
  control.stop("the test");
  run.join();
  ASSERT_TRUE(one.status.ok()) << one.status.message();
  ASSERT_TRUE(one.told.end);
  EXPECT_EQ(one.told.end->kind, RunEnd::Kind::Stopped);
  EXPECT_EQ(one.told.end->reason, "the test");
  EXPECT_EQ(one.told.end->step, one.told.losses.size());
  EXPECT_EQ(one.told.facts.totalSteps, uint64_t(1) << 40);
  EXPECT_TRUE(one.told.facts.folder.empty());
}

TEST_F(SideBySide, ARunWithoutFilesLeavesNone) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directory(at("here"));
  std::filesystem::current_path(at("here"));
  Trained one;
  trainInMemory(1, inMemory(5), one);
  EXPECT_TRUE(std::filesystem::is_empty(at("here")));
  std::filesystem::current_path(before);
  EXPECT_TRUE(one.status.ok()) << one.status.message();
}

/// The rows of the file, in order, given by the caller.
TEST_F(SideBySide, AnOwnLoopGivesTheBitsOfARun) {
  TrainOptions files = options(dataPath, 10, "run");
  ASSERT_TRUE(train(at("2.tplan"), files).ok());
  std::vector<nlohmann::json> lines = metrics("run");
  auto file = SafetensorsFile::open(dataPath);
  ASSERT_TRUE(file.ok());
  const auto *x = reinterpret_cast<const float *>(file->find("x")->bytes.data());
  const auto *y = reinterpret_cast<const float *>(file->find("y")->bytes.data());
  SessionOptions how;
  how.planPath = at("2.tplan");
  how.threads = 1;
  auto session = openSession(how);
  ASSERT_TRUE(session.ok()) << session.message();
  auto made = Stepper::create(session.take());
  ASSERT_TRUE(made.ok()) << made.message();
  Stepper &stepper = **made;
  EXPECT_EQ(stepper.rows(), 8u) << "two batches of four";
  UpdateMetrics update;
  for (size_t step = 0; step < 10; ++step) {
    const size_t row = 8 * (step % 5);
    // The weights of one row are apart from the next ones: a view into the file.
    const GivenTensor tensors[] = {{"y", y + row, plan::F32, {8}, {}}, {"x", x + 3 * row, plan::F32, {8, 3}, {3, 1}}};
    Status status = stepper.step(tensors, update);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(lines[step]["loss"], update.loss) << step;
    EXPECT_EQ(lines[step]["grad_norm"], update.gradientNorm) << step;
  }
  std::vector<float> w(3);
  ASSERT_TRUE(stepper.read("w", std::as_writable_bytes(std::span(w))).ok());
  EXPECT_EQ(weights("run/checkpoints/step-10"), w);

  // A checkpoint of the stepper is one of a run.
  ASSERT_TRUE(stepper.save(at("own")).ok());
  EXPECT_EQ(weights("own/checkpoints/step-10"), w);
  const GivenTensor first[] = {{"x", x, plan::F32, {8, 3}, {}}, {"y", y, plan::F32, {8}, {}}};
  ASSERT_TRUE(stepper.step(first, update).ok());
  const double after = update.loss;
  ASSERT_TRUE(stepper.load(at("own")).ok());
  EXPECT_EQ(stepper.position().step, 10u);
  ASSERT_TRUE(stepper.step(first, update).ok());
  EXPECT_EQ(update.loss, after);
  EXPECT_EQ(update.step, 11u);

  expectError(stepper.step(std::span(first).first(1), update), {"no tensor for the model's input 'y' f32[4]"});
  const GivenTensor nine[] = {{"x", x, plan::F32, {9, 3}, {}}, {"y", y, plan::F32, {9}, {}}};
  expectError(stepper.step(nine, update), {"9 rows; an update takes 8"});
  EXPECT_EQ(stepper.position().step, 11u) << "nothing was done";
}

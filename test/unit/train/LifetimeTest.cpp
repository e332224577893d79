//===- LifetimeTest.cpp - a closed plan leaves nothing in the process ----===//
#include "runtime/train/TrainingBatches.h"
#include "runtime/train/UpdateRunner.h"
#include "test/support/ProcessResources.h"
#include "test/unit/train/TrainFixture.h"

#include <chrono>
#include <thread>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
class Lifetime : public TrainTest {
protected:
  /// Opens the plan and the data, runs one update with two workers and a thread that reads ahead, and closes all.
  static void runOnce(const std::string &plan, const std::string &data) {
    auto session = openSession({plan, "cpu", 2, {}});
    ASSERT_TRUE(session.ok()) << session.message();
    auto updates = UpdateRunner::create(*session);
    ASSERT_TRUE(updates.ok()) << updates.message();
    auto entryData = openEntryData(*session, (*updates)->dataEntry(), data, {.training = true});
    ASSERT_TRUE(entryData.ok()) << entryData.message();
    const uint64_t samples = entryData->reader().samples(), batch = entryData->reader().batch();
    Sampler sampler(samples, samples, batch, SampleOrder::Shuffled, 1, LastBatch::Drop);
    TrainingBatches batches(entryData.take(), std::move(sampler), 0, 1);
    auto schedule = LearningSchedule::create(session->training.schedule(), 1);
    ASSERT_TRUE(schedule.ok()) << schedule.message();
    ASSERT_TRUE((*updates)->setSchedule(schedule.take()).ok());
    TrainingPosition position;
    UpdateMetrics metrics;
    bool finite = false;
    Status status = (*updates)->run(position, batches, metrics, finite);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_TRUE(finite);
    ASSERT_GT(metrics.loss, 0);
  }
};

/// A joined thread is listed for a moment longer.
ProcessResources settled(int64_t threads) {
  ProcessResources now = ProcessResources::now();
  for (int i = 0; i < 200 && now.threads > threads; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    now = ProcessResources::now();
  }
  return now;
}
} // namespace

TEST_F(Lifetime, PlansThatAreOpenedAndClosedLeaveNothing) {
  constexpr int kWarmUp = 20, kTimes = 1000;
  constexpr int64_t kHeapMargin = 32 << 10; // 33 bytes a time would exceed it
  const std::string plan = writeRegressionPlan(at("p.tplan")), data = writeRegressionData(at("d.safetensors"), 40);
  const int64_t threads = ProcessResources::now().threads;
  for (int i = 0; i < kWarmUp && !HasFatalFailure(); ++i)
    runOnce(plan, data);
  const ProcessResources before = settled(threads);
  for (int i = 0; i < kTimes && !HasFatalFailure(); ++i)
    runOnce(plan, data);
  const ProcessResources after = settled(threads);
  SCOPED_TRACE(testing::Message() << "before: " << before << "; after: " << after);
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
  EXPECT_EQ(after.mappings, before.mappings);
  EXPECT_LT(after.heapBytes, before.heapBytes + kHeapMargin);
}

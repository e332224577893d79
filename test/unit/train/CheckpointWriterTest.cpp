//===- CheckpointWriterTest.cpp - copying the state during training -------===//
#include "test/unit/train/TrainFixture.h"

#include "runtime/train/CheckpointWriter.h"
#include "support/Processors.h"

#include <chrono>
#include <ctime>
#include <future>
#include <map>
#include <thread>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::test;

namespace {
const std::vector<float> kOldWeight = {1, 2, 3}, kOldMomentum = {4, 5, 6};

class CheckpointWriterTest : public TrainTest {
protected:
  void open(int64_t accumulate = 1) {
    auto opened = openSession({writeRegressionPlan(at("m.tplan"), accumulate), "cpu", 2, {}});
    ASSERT_TRUE(opened.ok()) << opened.message();
    session.emplace(opened.take());
    set(kWeight, kOldWeight);
    set(kMomentum, kOldMomentum);
  }
  Device &device() { return *session->device; }
  void set(uint32_t variable, const std::vector<float> &values) {
    EXPECT_TRUE(device().write(Place::variable(variable), 0, std::as_bytes(std::span(values))).ok());
  }
  std::vector<float> at3(uint32_t variable) {
    std::vector<float> values(3);
    EXPECT_TRUE(device().read(Place::variable(variable), 0, std::as_writable_bytes(std::span(values))).ok());
    return values;
  }
  uint32_t entry() { return *device().findEntry("step"); }
  /// Sets inputs and a learning rate with which a step changes both variables.
  void prepare() {
    const plan::Entry &step = device().plan().entries(static_cast<int>(entry()));
    std::vector<uint32_t> buffers = {static_cast<uint32_t>(step.scalars())};
    for (const plan::Port &port : step.inputs())
      buffers.push_back(port.buffer());
    for (uint32_t buffer : buffers)
      EXPECT_TRUE(device().fill(Place::buffer(entry(), buffer), std::byte(0x3f)).ok());
  }
  Status step() {
    prepare();
    return device().run(entry());
  }
  /// A writer that stores the tensors in `written`.
  CheckpointWriter::Write keep() {
    return [this](const std::vector<CheckpointTensor> &tensors) -> Expected<uint64_t> {
      for (const CheckpointTensor &tensor : tensors) {
        std::vector<float> &values = written[tensor.name];
        Status status = tensor.stream([&](std::span<const std::byte> piece) {
          const size_t old = values.size();
          values.resize(old + piece.size() / sizeof(float));
          std::memcpy(values.data() + old, piece.data(), piece.size());
          return Status();
        });
        if (!status.ok())
          return status;
      }
      return uint64_t(1);
    };
  }
  /// The tensors of the state. A copy of tensor `held` waits for the promise `release`.
  std::vector<CheckpointTensor> tensors(const std::string &held = "", std::span<const HostState> host = {}) {
    std::vector<CheckpointTensor> result = checkpointTensors(device().plan(), device(), host);
    for (CheckpointTensor &tensor : result)
      if (tensor.name == held)
        tensor.stream = [this, inner = std::move(tensor.stream)](const ByteSink &sink) {
          begun.set_value();
          released.wait();
          return inner(sink);
        };
    return result;
  }

  std::optional<Session> session;
  std::map<std::string, std::vector<float>> written;
  std::promise<void> begun, release;
  std::shared_future<void> released = release.get_future().share();
};

/// kWork: nanoseconds of processor time of a piece of work. processorTime(): those that the calling thread has used.
constexpr int64_t kWork = 10'000'000;
int64_t processorTime() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

/// Records the value of each variable when its change is announced, which must be the old one.
struct Listener : StateGuard {
  std::function<std::vector<float>(uint32_t)> read;
  std::map<uint32_t, std::vector<float>> seen;
  void beforeWrite(uint32_t variable) override { seen.try_emplace(variable, read(variable)); }
};
} // namespace

TEST_F(CheckpointWriterTest, TheDeviceAnnouncesVariablesBeforeTheyChange) {
  open();
  const std::vector<std::pair<const char *, std::function<Status()>>> changes = {
      {"run", [&] { return device().run(entry()); }},
      {"runTimed", [&] { return device().runTimed(entry(), [](auto) {}); }},
      {"runObserved", [&] { return device().runObserved(entry(), [](auto) {}); }},
      {"write",
       [&] {
         return set(kWeight, {7, 7, 7}), set(kMomentum, {7, 7, 7}), Status();
       }},
      {"fill and copy",
       [&] {
         Status status = device().fill(Place::variable(kWeight), std::byte(1));
         return status.ok() ? device().copy(Place::variable(kWeight), Place::variable(kMomentum)) : status;
       }},
      {"stage",
       [&] {
         for (uint32_t variable : {kWeight, kMomentum}) {
           auto staging = device().stage(Place::variable(variable));
           std::fill(staging->bytes.begin(), staging->bytes.end(), std::byte(2));
           EXPECT_TRUE(device().commit(*staging).ok());
         }
         return Status();
       }},
  };
  for (const auto &[name, change] : changes) {
    SCOPED_TRACE(name);
    set(kWeight, kOldWeight);
    set(kMomentum, kOldMomentum);
    prepare();
    Listener listener;
    listener.read = [&](uint32_t variable) { return at3(variable); };
    device().setGuard(&listener);
    EXPECT_TRUE(change().ok());
    device().setGuard(nullptr);
    EXPECT_NE(at3(kWeight), kOldWeight) << "the test changes nothing";
    EXPECT_EQ(listener.seen[kWeight], kOldWeight);
    EXPECT_EQ(listener.seen[kMomentum], kOldMomentum);
  }
}

TEST_F(CheckpointWriterTest, AnUpdateWaitsForTheCopyOfWhatItChanges) {
  open();
  CheckpointWriter writer(24, device());
  writer.start(1, tensors("w"), keep());
  begun.get_future().wait(); // the thread copies w
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    release.set_value();
  });
  EXPECT_TRUE(step().ok());
  late.join();
  EXPECT_NE(at3(kWeight), kOldWeight);
  auto result = writer.wait();
  ASSERT_TRUE(result && result->status.ok());
  EXPECT_EQ(written["w"], kOldWeight) << "an update overtook the copy";
  EXPECT_EQ(written["w/momentum_buffer"], kOldMomentum);
  EXPECT_GT(result->blockedSeconds, 0.05) << "a wait inside of an update counts";
}

TEST_F(CheckpointWriterTest, TheThreadRestsUntilSomebodyWaits) {
  open();
  if (usableProcessors() > 32)
    GTEST_SKIP() << "a part of so many cores is no rest";
  CheckpointWriter writer(24, device());
  const auto work = [](const std::vector<CheckpointTensor> &tensors) -> Expected<uint64_t> {
    for (const CheckpointTensor &tensor : tensors)
      if (Status status = tensor.stream([](std::span<const std::byte>) {
            for (const int64_t begun = processorTime(); processorTime() - begun < kWork;) {
            }
            return Status();
          });
          !status.ok())
        return status;
    return uint64_t(1);
  };
  const auto alone = [&] {
    writer.start(1, tensors(), work);
    std::optional<CheckpointWriter::Result> result;
    while (!(result = writer.poll()))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return result->writingSeconds;
  };
  const double calm = alone();
  EXPECT_GT(calm, 2 * (2e-9 * kWork)) << "two pieces of work without a rest";
  writer.start(2, tensors(), work);
  EXPECT_LT(writer.wait()->writingSeconds, calm / 2) << "somebody waited for the rests";
  EXPECT_LT(alone(), 0.75 * calm) << "it is as slow as before somebody had to wait";
}

TEST_F(CheckpointWriterTest, WhatNobodyCopiedYetIsCopiedByTheUpdate) {
  open();
  CheckpointWriter writer(24, device());
  writer.start(1, tensors("w"), keep());
  begun.get_future().wait();
  set(kMomentum, {0, 0, 0}); // the thread is busy with w
  release.set_value();
  auto result = writer.wait();
  ASSERT_TRUE(result && result->status.ok());
  EXPECT_EQ(written["w/momentum_buffer"], kOldMomentum);
  set(kWeight, {0, 0, 0}); // after the copy, changes are not announced any more
  EXPECT_EQ(written["w"], kOldWeight);
}

TEST_F(CheckpointWriterTest, StateOfTheHostIsCopiedBeforeItChanges) {
  open();
  std::vector<float> average = {8, 9, 10};
  const HostState host{"w/ema", device().plan().variables(kWeight).type(), TensorRole::Ema,
                       std::as_bytes(std::span(average))};
  CheckpointWriter writer(36, device());
  writer.start(1, tensors("w", std::span(&host, 1)), keep());
  begun.get_future().wait();
  writer.beforeHostChanges();
  average = {0, 0, 0};
  release.set_value();
  ASSERT_TRUE(writer.wait()->status.ok());
  EXPECT_EQ(written["w/ema"], (std::vector<float>{8, 9, 10}));
}

TEST_F(CheckpointWriterTest, AnErrorOfACopyIsTheResult) {
  open();
  CheckpointWriter writer(24, device());
  std::vector<CheckpointTensor> given = tensors();
  given.front().stream = [](const ByteSink &) { return Status("not finite", StatusCode::NonFinite); };
  writer.start(1, std::move(given), keep());
  EXPECT_TRUE(step().ok());
  auto result = writer.wait();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status.code(), StatusCode::NonFinite);
  EXPECT_TRUE(written.empty());
}

TEST_F(CheckpointWriterTest, MemoryForAPartHoldsTheLastTensors) {
  open();
  CheckpointWriter writer(12, device());
  writer.start(1, tensors(), keep()); // returns when the first tensor is written and the last one is copied
  EXPECT_TRUE(step().ok());
  auto result = writer.wait();
  ASSERT_TRUE(result && result->status.ok());
  EXPECT_EQ(written["w"], kOldWeight);
  EXPECT_EQ(written["w/momentum_buffer"], kOldMomentum);
}

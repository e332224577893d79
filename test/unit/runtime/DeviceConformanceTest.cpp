//===- DeviceConformanceTest.cpp - the contract of every device ----------===//
//
// Tests the contract of Device.h for every standard device, and for one that delays all work (DeferredDevice.h).
//
//===----------------------------------------------------------------------===//
#include "TestReader.h"

#include "runtime/null/NullDevice.h"
#include "runtime/plan/Parallelism.h"
#include "runtime/registry/DeviceRegistry.h"
#include "test/support/device/DeferredDevice.h"
#include "test/support/device/DeviceValues.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace tcc;
using namespace tcc::test;
using namespace tcc::runtime;

namespace {
constexpr uint32_t kStep = 0, kBias = 1, kUnused = 2;

const DeviceRegistry &testedDevices() {
  static const DeviceRegistry devices = [] {
    DeviceRegistry made = standardDevices();
    made.add(deferredDevice());
    return made;
  }();
  return devices;
}

std::vector<std::string> testedNames() {
  std::vector<std::string> names = testedDevices().names();
  std::erase(names, "cuda"); // the plan's kernels are CPU code
  return names;
}

class DeviceConformance : public ::testing::TestWithParam<std::string> {
protected:
  static std::unique_ptr<Device> make() {
    DeviceOptions options;
    options.name = GetParam();
    options.threads = 2;
    auto made = testedDevices().create(goodReader(), options);
    EXPECT_TRUE(made.ok()) << made.message();
    return made.take();
  }
  void expectValues(Place place, const std::vector<float> &expected) {
    std::vector<float> zeros(expected.size());
    EXPECT_EQ(valuesAt<float>(*device, place), hasMemory ? expected : zeros);
  }
  static std::vector<float> count(size_t number, float first) {
    std::vector<float> values(number);
    std::iota(values.begin(), values.end(), first);
    return values;
  }
  /// The expected z after a run on x with the bias `b` (TestPlan.h).
  static std::vector<float> product(const std::vector<float> &x, float b) {
    std::vector<float> z;
    for (size_t row = 0; row < 4; ++row) {
      float sum = 0;
      for (size_t k = 0; k < 16; ++k)
        sum += 2 * (x[row * 16 + k] + b) * 0.5f;
      z.insert(z.end(), 32, sum);
    }
    return z;
  }

  std::unique_ptr<Device> device = make();
  const bool hasMemory = device->capabilities().memory != DeviceMemory::None;
  const Place x = Place::buffer(kStep, kX), z = Place::buffer(kStep, kZ), bias = Place::variable(kBias);
};
INSTANTIATE_TEST_SUITE_P(All, DeviceConformance, ::testing::ValuesIn(testedNames()),
                         [](const auto &info) { return info.param; });
} // namespace

TEST_P(DeviceConformance, TellsWhatItIs) {
  EXPECT_EQ(device->capabilities().name, GetParam());
  EXPECT_GE(device->capabilities().threads, 1u);
  EXPECT_EQ(device->residentBytes(), 2316u);
  EXPECT_EQ(device->transientBytes(), plan::transientBytes(goodReader().plan(), device->capabilities().threads));
  EXPECT_TRUE(hasMemory || !device->capabilities().executes);
}

TEST_P(DeviceConformance, StartsWithTheInitialValues) {
  expectValues(bias, std::vector<float>(64, 3));
  expectValues(Place::variable(kUnused), {1, 1, 1});
}

TEST_P(DeviceConformance, ReadsWhatWasWritten) {
  std::vector<float> given = count(64, 0), part = {-1, -2};
  setValues(*device, bias, given);
  ASSERT_TRUE(device->write(bias, 8, std::as_bytes(std::span(part))).ok());
  std::fill(part.begin(), part.end(), 99.0f); // the caller may reuse its memory at once
  std::copy_n(std::vector<float>{-1, -2}.begin(), 2, given.begin() + 2);
  expectValues(bias, given);
  float one = 7;
  ASSERT_TRUE(device->read(bias, 12, std::as_writable_bytes(std::span(&one, 1))).ok());
  EXPECT_EQ(one, hasMemory ? -2.0f : 0.0f);
  expectValues(Place::variable(kUnused), {1, 1, 1});
}

TEST_P(DeviceConformance, NamesWhatThePlanHasNot) {
  std::byte byte{};
  std::span<std::byte> one(&byte, 1);
  auto refuse = [&](const Status &status, std::initializer_list<const char *> texts) {
    EXPECT_EQ(status.code(), StatusCode::Fault);
    expectContains(status.message(), texts);
  };
  refuse(device->read(Place::variable(3), 0, one), {"variable 3", "has 3"});
  refuse(device->write(Place::buffer(kStep, 99), 0, one), {"entry 'step'", "buffer 99", "has 7"});
  refuse(device->fill(Place::buffer(1, 0), byte), {"entry 1", "has 1"});
  refuse(device->stage(Place::variable(3)).status(), {"variable 3"});
  refuse(device->readPieces(Place::variable(3), [](auto) { return Status(); }), {"variable 3"});
  refuse(device->read(bias, 256, one), {"variable 1 ('b')", "read 1 bytes at offset 256", "has 256"});
  refuse(device->write(x, UINT64_MAX, one), {"buffer 0 ('x')", "write 1 bytes", "has 256"});
  refuse(device->copy(bias, z), {"variable 1 ('b')", "256", "buffer 4 ('z')", "512"});
  refuse(device->run(1), {"entry 1"});
  refuse(device->runObserved(1, {}), {"entry 1"});
  refuse(device->runTimed(1, {}), {"entry 1"});
  refuse(device->touch(1), {"entry 1"});
  refuse(device->findEntry("predict").status(), {"no entry 'predict'", "--entry"});
  EXPECT_EQ(*device->findEntry("step"), kStep);
  EXPECT_TRUE(device->read(bias, 256, {}).ok()) << "nothing at the end is no error";
}

TEST_P(DeviceConformance, StagesAPlace) {
  for (float first : {0.0f, 10.0f, 20.0f})
    for (Place place : {x, bias}) {
      Expected<Staging> staging = device->stage(place);
      ASSERT_TRUE(staging.ok()) << staging.message();
      ASSERT_EQ(staging->bytes.size(), hasMemory ? 256u : 0u);
      std::vector<float> values = count(64, first);
      if (hasMemory)
        std::memcpy(staging->bytes.data(), values.data(), 256);
      ASSERT_TRUE(device->commit(*staging).ok());
      if (first != 10) // otherwise stages again before waiting
        expectValues(place, values);
    }
}

TEST_P(DeviceConformance, HostMemoryIsStagedWithoutACopy) {
  Expected<Staging> staging = device->stage(bias);
  ASSERT_TRUE(staging.ok());
  const std::byte *begin = nullptr;
  ASSERT_TRUE(device
                  ->readPieces(bias,
                               [&](std::span<const std::byte> piece) {
                                 begin = piece.data();
                                 return Status();
                               })
                  .ok());
  EXPECT_EQ(begin == staging->bytes.data(), device->capabilities().memory == DeviceMemory::Host);
}

TEST_P(DeviceConformance, FillsAndCopies) {
  ASSERT_TRUE(device->fill(x, std::byte(0x40)).ok());
  float word = 0;
  std::memset(&word, 0x40, sizeof word);
  expectValues(x, std::vector<float>(64, word));
  ASSERT_TRUE(device->copy(x, bias).ok());
  expectValues(bias, std::vector<float>(64, word));
  ASSERT_TRUE(device->copy(bias, bias).ok());
  expectValues(bias, std::vector<float>(64, word));
}

TEST_P(DeviceConformance, HandsOverPiecesInOrder) {
  std::vector<float> given = count(64, 5), seen;
  setValues(*device, bias, given);
  ASSERT_TRUE(device
                  ->readPieces(bias,
                               [&](std::span<const std::byte> piece) {
                                 const auto *values = reinterpret_cast<const float *>(piece.data());
                                 seen.insert(seen.end(), values, values + piece.size() / 4);
                                 return Status();
                               })
                  .ok());
  EXPECT_EQ(seen, hasMemory ? given : std::vector<float>(64, 0));
  EXPECT_EQ(device->readPieces(bias, [](auto) { return error("full"); }).message(), "full");
}

TEST_P(DeviceConformance, WorksInTheOrderOfSubmission) {
  // Each step sees what was submitted before it, and nothing later.
  std::vector<float> first = count(64, 0), second = count(64, 100);
  setValues(*device, x, first);
  ASSERT_TRUE(device->run(kStep).ok()); // b: 3, then 6
  Event ran = device->record();
  std::vector<float> before = valuesAt<float>(*device, z);
  setValues(*device, x, second);
  ASSERT_TRUE(device->run(kStep).ok());
  setValues(*device, bias, count(64, 0));
  ASSERT_TRUE(device->wait(ran).ok());
  if (device->capabilities().executes) {
    EXPECT_EQ(before, product(first, 3));
    EXPECT_EQ(valuesAt<float>(*device, z), product(second, 6));
  }
  expectValues(bias, count(64, 0));
}

TEST_P(DeviceConformance, WaitsForEvents) {
  Event first = device->record();
  ASSERT_TRUE(device->fill(bias, std::byte(0)).ok());
  Event second = device->record();
  EXPECT_LT(first.number, second.number);
  EXPECT_TRUE(device->wait(second).ok());
  EXPECT_TRUE(device->wait(first).ok()) << "of long ago";
  EXPECT_TRUE(device->wait(second).ok()) << "again";
  for (uint64_t unknown : {uint64_t(0), second.number + 1})
    expectContains(device->wait({unknown}).message(), {"event", "recorded 2"});
}

TEST_P(DeviceConformance, ObserversMayRead) {
  std::vector<float> given = count(64, 1);
  setValues(*device, x, given);
  std::vector<uint32_t> seen;
  ASSERT_TRUE(device
                  ->runObserved(kStep,
                                [&](uint32_t at) {
                                  seen.push_back(at);
                                  if (at == 0)
                                    expectValues(Place::buffer(kStep, kY), given);
                                })
                  .ok());
  EXPECT_EQ(seen, (std::vector<uint32_t>{0, 1, 2, 3, 4}));
  seen.clear();
  setValues(*device, x, given);
  ASSERT_TRUE(device
                  ->runTimed(kStep,
                             [&](std::span<const LaunchPart> parts) {
                               for (const LaunchPart &part : parts)
                                 seen.push_back(part.instruction);
                             })
                  .ok());
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  EXPECT_EQ(seen, (std::vector<uint32_t>{0, 1, 2, 3, 4}));
}

TEST_P(DeviceConformance, TouchChangesNoByte) {
  setValues(*device, x, count(64, 9));
  ASSERT_TRUE(device->touch(kStep).ok());
  expectValues(x, count(64, 9));
  expectValues(bias, std::vector<float>(64, 3));
}

TEST_P(DeviceConformance, DevicesShareNoState) {
  std::unique_ptr<Device> other = make();
  ASSERT_TRUE(device->fill(bias, std::byte(0)).ok());
  ASSERT_TRUE(device->run(kStep).ok());
  EXPECT_EQ(valuesAt<float>(*other, bias), std::vector<float>(64, hasMemory ? 3.0f : 0.0f));
}

TEST_P(DeviceConformance, RefusesAnUnsafePlan) {
  auto made = createDevice(makeReader([](plan::Plan &plan, plan::PlanWriter &) {
                             plan.mutable_entries(0)->mutable_buffers(kY)->set_offset(64);
                           }),
                           {GetParam()}, testedDevices());
  expectContains(made.message(), {"test.tplan", "not safe to run", "'x'", "'y'", "overlap"});
}

TEST(DeviceRegistry, TakesTheDeviceOfTheTarget) {
  auto made = createDevice(goodReader());
  ASSERT_TRUE(made.ok()) << made.message();
  EXPECT_EQ((*made)->capabilities().name, "cpu");
  auto foreign = makeReader([](plan::Plan &plan, plan::PlanWriter &) { plan.set_target("abacus:9"); });
  expectContains(createDevice(foreign).message(), {"test.tplan", "abacus:9", "cpu", "null"});
  EXPECT_TRUE(createDevice(foreign, {"null"}).ok()) << "it checks plans of every target";
}

TEST(DeviceRegistry, ListsItsDevicesForAnUnknownName) {
  auto made = createDevice(goodReader(), {"tpu"});
  EXPECT_EQ(made.status().code(), StatusCode::Usage);
  expectContains(made.message(), {"--device tpu", "cpu", "null"});
}

TEST(DeviceRegistry, TakesAnotherDevice) {
  DeviceRegistry devices = standardDevices();
  devices.add({.name = "abacus", .create = createNullDevice});
  auto foreign = makeReader([](plan::Plan &plan, plan::PlanWriter &) { plan.set_target("abacus:9"); });
  EXPECT_TRUE(devices.create(foreign).ok());
  EXPECT_TRUE(devices.create(foreign, {"abacus:1"}).ok()) << "the number of a device is its own business";
  EXPECT_FALSE(createDevice(foreign).ok()) << "other registries do not have it";
}

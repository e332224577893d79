//===- CpuDeviceTest.cpp - plans that run, and plans that are refused ----===//
#include "TestReader.h"

#include "runtime/cpu/CpuDevice.h"
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/Spaces.h"
#include "test/support/device/DeviceValues.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sys/mman.h>
#include <sys/stat.h>

using namespace tcc;
using namespace tcc::test;
using runtime::Place;

namespace {
struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "device-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

/// The error of making a device for a changed plan.
template <typename Change> std::string refusal(Change change, const std::string &name = "test.tplan") {
  auto device = runtime::createCpuDevice(makeReader(change, name), {"cpu", 2});
  return device ? "" : device.message();
}
} // namespace

TEST(CpuDevice, RunsAPlan) {
  for (unsigned threads : {1u, 2u, 3u, 4u, 8u, 16u, 64u}) {
    auto device = runtime::createCpuDevice(goodReader(), {"cpu", threads});
    ASSERT_TRUE(device.ok()) << device.message();
    EXPECT_EQ((*device)->residentBytes(), 2316u);
    EXPECT_EQ((*device)->transientBytes(), plan::transientBytes(goodReader().plan(), threads));
    EXPECT_EQ((*device)->capabilities().threads, threads) << "more workers than memory was planned for";
    for (int run = 0; run < 3; ++run) {
      std::vector<float> x(64);
      std::iota(x.begin(), x.end(), static_cast<float>(run));
      setValues(**device, Place::buffer(0, kX), x);
      ASSERT_TRUE((*device)->run(0).ok());
      std::vector<float> z = valuesAt<float>(**device, Place::buffer(0, kZ));
      float state = std::ldexp(3.0f, run); // b doubles in each run
      for (int row = 0; row < 4; ++row) {
        float sum = 0;
        for (int k = 0; k < 16; ++k)
          sum += 2 * (static_cast<float>(row * 16 + k + run) + state) * 0.5f;
        for (int column = 0; column < 32; ++column)
          ASSERT_EQ(z[static_cast<size_t>(row * 32 + column)], sum) << row << ", " << column;
      }
      EXPECT_EQ(valuesAt<float>(**device, Place::variable(1))[63], 2 * state);
    }
  }
}

TEST(CpuDevice, TouchesWhatAnEntryUses) {
  constexpr uint64_t mebibyte = uint64_t(1) << 20;
  auto reader = makeReader([&](plan::Plan &plan, plan::PlanWriter &) {
    plan::setSpaceBytes(plan, plan::TRANSIENT, 10 * mebibyte);
    plan::Entry &entry = *plan.mutable_entries(0);
    entry.set_transient_bytes(7 * mebibyte);
    // The memory of another entry, which must not be touched.
    plan::Entry &other = *plan.add_entries();
    other.set_name("other");
    other.set_scalars(-1);
    other.set_batch(1);
    other.set_transient_bytes(10 * mebibyte);
    addBuffer(other, "high", {mebibyte / 4}, plan::TRANSIENT, 9 * mebibyte, -1, 0)->set_kind(plan::Buffer::INPUT);
    plan::Port *high = other.add_inputs();
    high->set_name("high");
    high->set_buffer(0);
    uint32_t index = static_cast<uint32_t>(entry.buffers_size());
    plan::Buffer *far = addBuffer(entry, "far", {mebibyte / 4}, plan::TRANSIENT, 6 * mebibyte, -1, 0);
    far->set_kind(plan::Buffer::INPUT);
    plan::Port *port = entry.add_inputs();
    port->set_name("far");
    port->set_buffer(index);
  });
  for (unsigned threads : {1u, 3u}) {
    auto device = runtime::createCpuDevice(reader, {"cpu", threads});
    ASSERT_TRUE(device.ok()) << device.message();
    auto *start = reinterpret_cast<char *>((*device)->stage(Place::buffer(0, 7))->bytes.data()) - 6 * mebibyte;
    auto present = [&](uint64_t at) {
      unsigned char state = 0;
      EXPECT_EQ(::mincore(start + at, 1, &state), 0);
      return (state & 1) != 0;
    };
    EXPECT_FALSE(present(6 * mebibyte));
    start[6 * mebibyte + 5] = 1;
    ASSERT_TRUE((*device)->touch(0).ok());
    for (uint64_t at = 6 * mebibyte; at < 7 * mebibyte; at += 4096)
      ASSERT_TRUE(present(at)) << at;
    EXPECT_TRUE(present(0));
    EXPECT_FALSE(present(3 * mebibyte));
    EXPECT_FALSE(present(9 * mebibyte));
    EXPECT_EQ(start[6 * mebibyte + 5], 1);
  }
}

TEST(CpuDevice, SeveralDevicesKeepTheirOwnKernelsAndState) {
  auto first = runtime::createCpuDevice(goodReader(), {"cpu", 1}),
       second = runtime::createCpuDevice(goodReader(), {"cpu", 2});
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE((*first)->run(0).ok());
  EXPECT_EQ(valuesAt<float>(**first, Place::variable(1))[0], 6.0f);
  EXPECT_EQ(valuesAt<float>(**second, Place::variable(1))[0], 3.0f);
}

TEST(CpuDevice, RefusesAPlanOfWhichNoVariantIsSelected) {
  expectContains(refusal([](plan::Plan &plan, plan::PlanWriter &) {
                   plan.add_variants()->set_transient_bytes(plan::spaceBytes(plan, plan::TRANSIENT));
                 }),
                 {"1 variants, of which none was selected"});
}

TEST(CpuDevice, RefusesOtherLibraries) {
  expectContains(refusal([](plan::Plan &plan, plan::PlanWriter &) { plan.set_library("oneDNN 9.9.9"); }),
                 {"oneDNN 9.9.9", runtime::libraryName().c_str(), "recompile"});
  expectContains(
      refusal([](plan::Plan &plan, plan::PlanWriter &) {
        plan.mutable_entries(0)->mutable_instructions(3)->mutable_matmul()->set_numerics(77);
      }),
      {"instruction 3 (node 'node_matmul')", "numerics 77", "recompile"});
  expectContains(refusal([](plan::Plan &plan, plan::PlanWriter &) { plan.set_target("cpu:v9"); }),
                 {"unknown target 'cpu:v9'"});
}

TEST(CpuDevice, RefusesCodeItCannotLoad) {
  expectContains(refusal([](plan::Plan &plan, plan::PlanWriter &writer) {
                   plan.mutable_code_objects(0)->set_payload(writer.addPayload("no machine code"));
                   bindCode(*plan.mutable_code_objects(0), "no machine code");
                 }),
                 {"code object 0", "cannot load the generated kernels"});
  expectContains(refusal([](plan::Plan &plan, plan::PlanWriter &) {
                   plan.mutable_entries(0)->mutable_instructions(1)->mutable_kernel()->set_symbol("missing");
                   plan.mutable_code_objects(0)->mutable_kernels(0)->set_symbol("missing");
                   bindCode(*plan.mutable_code_objects(0), kernels());
                 }),
                 {"instruction 1", "no kernel 'missing'"});
}

TEST(CpuDevice, RefusesCodeOfOtherSignatures) {
  expectContains(refusal([](plan::Plan &plan, plan::PlanWriter &writer) {
                   plan.mutable_code_objects(0)->set_payload(writer.addPayload("other code"));
                 }),
                 {"code object 0", "the signatures of its kernels do not belong to its code"});
}

TEST(CpuDevice, InitialValuesFromPayloadAndFile) {
  Folder folder;
  std::vector<float> weights(512), bias(64);
  for (int i = 0; i < 512; ++i)
    weights[static_cast<size_t>(i)] = static_cast<float>(i);
  for (int i = 0; i < 64; ++i)
    bias[static_cast<size_t>(i)] = static_cast<float>(-i);
  std::ofstream(folder.path / "weights.bin", std::ios::binary)
      .write("0123456", 7)
      .write(reinterpret_cast<const char *>(weights.data()), 2048);
  auto change = [&](plan::Plan &plan, plan::PlanWriter &writer) {
    plan::ExternalBytes &external = *plan.mutable_variables(0)->mutable_external();
    external.set_path("weights.bin");
    external.set_offset(7);
    external.set_bytes(2048);
    external.set_xxh3(plan::hashBytes(weights.data(), 2048));
    plan.mutable_variables(1)->set_payload(writer.addPayload(bias.data(), 256));
  };
  std::string name = folder.path / "m.tplan";
  auto device = runtime::createCpuDevice(makeReader(change, name), {"cpu", 2});
  ASSERT_TRUE(device.ok()) << device.message();
  EXPECT_EQ(valuesAt<float>(**device, Place::variable(0))[511], 511.0f);
  EXPECT_EQ(valuesAt<float>(**device, Place::variable(1))[63], -63.0f);

  // Other content, a truncated file, a missing file.
  std::fstream file(folder.path / "weights.bin", std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(100).put('!');
  file.close();
  expectContains(refusal(change, name), {"variable 'w'", "weights.bin' has other content"});
  std::filesystem::resize_file(folder.path / "weights.bin", 2054);
  expectContains(refusal(change, name), {"variable 'w'", "2048 bytes at offset 7", "weights.bin' of 2054 bytes"});
  std::filesystem::remove(folder.path / "weights.bin");
  expectContains(refusal(change, name), {"variable 'w'", "weights.bin: cannot open: No such file", "--embed-weights"});
  ASSERT_EQ(::mkfifo((folder.path / "weights.bin").c_str(), 0600), 0);
  expectContains(refusal(change, name), {"variable 'w'", "weights.bin: cannot read: it is not a regular file"});
}

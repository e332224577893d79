//===- CpuDeviceTest.cpp - plans that run, and plans that are refused ----===//
#include "TestReader.h"

#include "runtime/cpu/Arena.h"
#include "runtime/cpu/calls/MatmulDesigns.h"
#include "runtime/cpu/CpuDevice.h"
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/Spaces.h"
#include "test/support/ProcessResources.h"
#include "test/support/device/DeviceValues.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

/// The test plan for a level, with its product by oneDNN or by our own kernels.
plan::PlanReader planFor(runtime::CpuLevel level, bool library) {
  return makeReader([&](plan::Plan &plan, plan::PlanWriter &) {
    plan.set_target(runtime::levelName(level));
    plan::Entry &entry = *plan.mutable_entries(0);
    plan::Instruction &product = *entry.mutable_instructions(3);
    plan::MatmulCall &call = *product.mutable_matmul();
    EXPECT_TRUE(target::cpu::choose(call, level, target::cpu::CpuModel()).ok());
    if (library) {
      call.set_implementation(plan::MatmulCall::LIBRARY);
      call.set_tile_batch(1);
      call.set_tile_m(call.m());
      call.set_tile_n(call.n());
      call.set_chunk_k(call.k());
      call.set_block_k(call.k());
      call.set_numerics(runtime::numericsOf(call.implementation()));
      auto shape = runtime::shapeOf(call);
      call.set_library_scratch_bytes(runtime::libraryScratchBound(*shape, *runtime::tilingOf(call, *shape), level));
    }
    auto needs = runtime::needsOf(call);
    EXPECT_TRUE(needs.ok()) << needs.message();
    product.set_scratch_slot_bytes(std::max<uint64_t>(needs->scratchSlotBytes, 512));
    product.set_scratch_shared_bytes(needs->scratchSharedBytes);
    entry.set_transient_bytes(1024 + needs->scratchSharedBytes + product.scratch_slot_bytes() * plan.max_workers());
    plan::setSpaceBytes(plan, plan::TRANSIENT, entry.transient_bytes());
  });
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

/// Only oneDNN has one level for the whole process: that of the first plan with a call for it.
TEST(CpuDevice, PlansOfSeveralLevelsRunInOneProcess) {
  if (!runtime::cpuFeatures().avx512)
    GTEST_SKIP() << "this machine has one level";
  using runtime::CpuLevel;
  std::vector<std::unique_ptr<runtime::Device>> devices;
  for (auto [level, library] : {std::pair(CpuLevel::V3, false), {CpuLevel::V4, false}, {CpuLevel::V3, true},
                                {CpuLevel::V4, false}, {CpuLevel::V3, true}}) {
    auto device = runtime::createCpuDevice(planFor(level, library), {"cpu", 2});
    ASSERT_TRUE(device.ok()) << device.message();
    devices.push_back(device.take());
  }
  const std::vector<float> x(64, 1);
  for (const std::unique_ptr<runtime::Device> &device : devices) {
    setValues(*device, Place::buffer(0, kX), x);
    ASSERT_TRUE(device->run(0).ok());
    EXPECT_EQ(valuesAt<float>(*device, Place::buffer(0, kZ)), std::vector<float>(128, 64));
  }
  auto refused = runtime::createCpuDevice(planFor(CpuLevel::V4, true), {"cpu", 2});
  expectContains(refused.message(), {"test.tplan", "node_matmul", "cpu:v3", "cpu:v4"});
}

TEST(CpuDevice, DevicesLeaveNothing) {
  constexpr int64_t kHeapMargin = 16 << 10;
  for (bool library : {false, true}) {
    const plan::PlanReader reader = planFor(runtime::CpuLevel::V3, library);
    auto runOnce = [&] {
      auto device = runtime::createCpuDevice(reader, {"cpu", 3});
      ASSERT_TRUE(device.ok()) << device.message();
      ASSERT_TRUE((*device)->run(0).ok());
    };
    for (int i = 0; i < 20; ++i)
      runOnce();
    const ProcessResources before = ProcessResources::now();
    for (int i = 0; i < 500; ++i)
      runOnce();
    const ProcessResources after = ProcessResources::now();
    SCOPED_TRACE(testing::Message() << (library ? "oneDNN, " : "") << "before: " << before << "; after: " << after);
    EXPECT_EQ(after.descriptors, before.descriptors);
    EXPECT_EQ(after.mappings, before.mappings);
    EXPECT_LT(after.heapBytes, before.heapBytes + kHeapMargin);
  }
}

/// Neither does the end of an arena there unmap memory that has its address now.
TEST(CpuDevice, AForkedProcessHasNoArenas) {
  constexpr uint64_t bytes = uint64_t(4) << 20;
  auto arena = runtime::Arena::allocate(bytes, "test");
  ASSERT_TRUE(arena.ok()) << arena.message();
  arena->populate(0, bytes);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    void *other = ::mmap(arena->data(), bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    const bool isFree = other == arena->data();
    { runtime::Arena ended = arena.take(); }
    unsigned char state = 0;
    ::_exit(isFree && ::mincore(other, 1, &state) == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  arena->data()[bytes - 1] = 1;
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
  expectContains(refusal(change, name), {"variable 'w'", "weights.bin: cannot open: No such file", "compile with tcc --embed-weights"});
  ASSERT_EQ(::mkfifo((folder.path / "weights.bin").c_str(), 0600), 0);
  expectContains(refusal(change, name), {"variable 'w'", "weights.bin: cannot read: it is not a regular file"});
}

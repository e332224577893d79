//===- RunCompiled.cpp - functions through generated kernels ----*- C++ -*-===//
//
// Ops become kernels, which are compiled into one shared object, loaded, and run tile by tile. Buffers lie between
// inaccessible pages, so that a read or write outside of them is a fault.
//
//===----------------------------------------------------------------------===//
#include "test/support/RunCompiled.h"

#include "compiler/target/cpu/CpuTarget.h"
#include "runtime/plan/KernelAbi.h"
#include "test/support/MachineLevel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>

using namespace mlir;
using tcc::train::HostTensor;

namespace tcc::test {

namespace {

/// Loads a shared object from memory; null, with a failed expectation, if the loader refuses it.
void *loadObject(const std::string &object) {
  static int number = 0;
  int file = memfd_create(("kernels-" + std::to_string(number++)).c_str(), 0);
  EXPECT_EQ(write(file, object.data(), object.size()), ssize_t(object.size()));
  void *library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return library; // the descriptor stays open: a reused number would name the first library again
}

/// Memory of one operand between two inaccessible pages.
class Buffer {
public:
  Buffer(size_t bytes, Placement placement) : bytes(bytes) {
    size_t inner = (bytes + 2 * kMargin + kPage - 1) / kPage * kPage;
    mapped = inner + 2 * kPage;
    base = static_cast<char *>(mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(base, MAP_FAILED);
    first = base + kPage;
    last = first + inner;
    EXPECT_EQ(mprotect(first, inner, PROT_READ | PROT_WRITE), 0);
    std::memset(first, kCanary, inner);
    data = placement == Placement::AfterFence    ? first
           : placement == Placement::BeforeFence ? last - bytes
                                                 : first + kMargin;
  }
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  ~Buffer() { munmap(base, mapped); }

  /// True if the bytes around the operand are unchanged.
  bool isIntact() const {
    auto untouched = [](char byte) { return byte == kCanary; };
    return std::all_of(std::max(first, data - kMargin), data, untouched) &&
           std::all_of(data + bytes, std::min(last, data + bytes + kMargin), untouched);
  }

  char *data = nullptr;

private:
  static constexpr size_t kPage = 4096, kMargin = 256;
  static constexpr char kCanary = char(0xff); // a NaN in every type, so that an invalid read changes the result

  size_t bytes, mapped = 0;
  char *base = nullptr, *first = nullptr, *last = nullptr;
};

} // namespace

std::vector<std::string> testedLevels() { return {"cpu:v3", "cpu:v4"}; }

bool hasInstructionsOf(const std::string &level) {
  return runtime::runsLevel(runtime::cpuFeatures(), *runtime::levelFromName(level));
}

bool machineMultipliesPairs() { return runtime::runsLevel(runtime::cpuFeatures(), runtime::CpuLevel::V4Bf16); }

static target::CodeModel modelOf(const std::string &target, Instructions instructions) {
  std::string level = target.empty() ? machineLevel() : target;
  target::CodeModel model = target::cpu::codeOf(*runtime::levelFromName(level));
  if (instructions == Instructions::Avx2 || !hasInstructionsOf(level)) {
    EXPECT_FALSE(model.multipliesPairs) << "AVX2 has nothing in place of dot products";
    target::CodeModel least = target::cpu::codeOf(runtime::CpuLevel::V3);
    model.processor = least.processor;
    model.features = least.features;
  }
  return model;
}

CompiledFunctions::CompiledFunctions(const std::string &level, Instructions instructions)
    : FunctionKernels(modelOf(level, instructions)) {}

bool CompiledFunctions::load(std::string code) {
  library = loadObject(code);
  return library;
}

bool CompiledFunctions::runKernel(Kernel &kernel, llvm::ArrayRef<const HostTensor *> inputs,
                                  std::vector<HostTensor> &results, Placement placement) {
  auto run = library ? reinterpret_cast<plan::KernelFunction>(dlsym(library, kernel.symbol.c_str())) : nullptr;
  EXPECT_NE(run, nullptr) << kernel.symbol;
  if (!run)
    return false;
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<void *> pointers;
  auto add = [&](size_t bytes) {
    buffers.push_back(std::make_unique<Buffer>(bytes, placement));
    pointers.push_back(buffers.back()->data);
  };
  for (const HostTensor *input : inputs) {
    add(input->sizeBytes());
    std::memcpy(pointers.back(), input->data(), input->sizeBytes());
  }
  llvm::SmallDenseMap<unsigned, unsigned> places = sharedPlaces(kernel, placement);
  for (unsigned index = 0; index < results.size(); ++index)
    if (auto operand = places.find(index); operand != places.end())
      pointers.push_back(pointers[operand->second]);
    else
      add(results[index].sizeBytes());
  // Scratch as in a plan: aligned, and not zero, since other kernels have written it.
  train::LoopKernel loops = kernel.fused() ? kernel.fused().getLoopKernel() : train::LoopKernel();
  size_t scratchBytes = loops ? size_t(loops.getScratchBytes()) : 0;
  Buffer scratch(scratchBytes, Placement::Aligned);
  std::memset(scratch.data, 0xff, scratchBytes);
  // Runs tiles from the last to the first, since their order must not matter.
  for (int64_t tile = kernel.work.tiles; tile-- > 0;)
    run(pointers.data(), tile, tile + 1, scratchBytes ? scratch.data : nullptr);
  EXPECT_TRUE(scratch.isIntact()) << "written outside the scratch";
  for (auto &buffer : buffers)
    EXPECT_TRUE(buffer->isIntact()) << "written outside an operand of " << kernel.op->getName().getStringRef().str();
  for (auto [index, value] : llvm::enumerate(results))
    std::memcpy(value.data(), pointers[inputs.size() + index], value.sizeBytes());
  return true;
}

} // namespace tcc::test

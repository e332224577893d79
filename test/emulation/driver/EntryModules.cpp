//===- EntryModules.cpp - entry points: modules and kernels --------------===//
//
// CUDA Driver API, "Module Management" and "Execution Control". An image is PTX text. Machine code is answered as a
// driver answers an image that has no code for its card, so that the caller falls back to PTX.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/driver/Entry.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>

using namespace tcc::cuda::api;
using namespace tcc::emulation;

namespace {
/// The buffer for the messages of the driver's compiler.
struct Log {
  char *buffer = nullptr;
  size_t bytes = 0;
  void **written = nullptr;

  void write(const std::string &text) {
    if (!buffer || !bytes)
      return;
    size_t count = std::min(text.size(), bytes - 1);
    std::memcpy(buffer, text.data(), count);
    buffer[count] = 0;
    if (written)
      *written = reinterpret_cast<void *>(count + 1);
  }
};

/// The newest version of PTX that a driver's compiler knows (PTX ISA, "Release Notes").
unsigned ptxVersionOf(int driverVersion) {
  return driverVersion >= 13000   ? 90
         : driverVersion >= 12090 ? 88
         : driverVersion >= 12080 ? 87
         : driverVersion >= 12000 ? 80
                                  : 70;
}
} // namespace

TCC_ENTRY cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned optionCount, CUjit_option *options,
                             void **values) {
  TCC_BEGIN;
  if (CUresult forbidden = d.forbiddenInCapture("cuModuleLoadDataEx"))
    return forbidden;
  Log errors;
  for (unsigned i = 0; i < optionCount; ++i) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) {
      errors.buffer = static_cast<char *>(values[i]);
    } else if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
      errors.bytes = reinterpret_cast<size_t>(values[i]);
      errors.written = &values[i];
    } else if (options[i] != CU_JIT_INFO_LOG_BUFFER && options[i] != CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) {
      return d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE,
                      fmt::format("cuModuleLoadDataEx: option {} is not known to the stand-in", int(options[i])));
    }
  }
  auto *text = static_cast<const char *>(image);
  if (!text)
    return d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE, "cuModuleLoadDataEx: the image is a null pointer");
  const bool isText = std::memcmp(text, "\177ELF", 4) != 0;
  if (!d.options.modulesFile.empty())
    std::ofstream(d.options.modulesFile, std::ios::app) << (isText ? "PTX\n" : "machine code\n");
  if (!isText) {
    errors.write("the stand-in runs PTX text, no machine code");
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  auto loaded = Program::load(text, d.options.machine.checked, d.machine.memory());
  d.machine.memory().open(false);
  if (!loaded) {
    errors.write(loaded.message());
    return d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_PTX, loaded.message());
  }
  std::string_view target = (*loaded)->target();
  unsigned architecture = 0;
  auto [end, bad] =
      std::from_chars(target.data() + std::min<size_t>(3, target.size()), target.data() + target.size(), architecture);
  // Code for sm_90a runs on compute capability 9.0 alone, other code on its own and all later ones.
  bool exact = end != target.data() + target.size();
  if (bad != std::errc() || (exact ? architecture != d.options.architecture : architecture > d.options.architecture)) {
    errors.write(fmt::format("the module is for {}, the device is sm_{}", target, d.options.architecture));
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  if ((*loaded)->version() > ptxVersionOf(d.options.version)) {
    errors.write(fmt::format("PTX {}.{} is newer than the driver's compiler", (*loaded)->version() / 10,
                             (*loaded)->version() % 10));
    return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  }
  auto made = std::make_unique<Module>();
  made->program = loaded.take();
  *module = reinterpret_cast<CUmodule>(d.modules.add(std::move(made)));
  return CUDA_SUCCESS;
}

TCC_ENTRY cuModuleUnload(CUmodule module) {
  TCC_BEGIN;
  if (CUresult forbidden = d.forbiddenInCapture("cuModuleUnload"))
    return forbidden;
  if (!d.lookup(d.modules, module, "cuModuleUnload", "module"))
    return CUDA_ERROR_INVALID_HANDLE;
  if (d.queue.isPending([&](const Task &task) { return task.owner == module; }))
    d.report({FaultKind::UseAfterFree, "cuModuleUnload: kernels of the module are still queued"}, CUDA_SUCCESS);
  if (CUresult failed = d.fail(d.queue.finishAll()))
    return failed;
  d.modules.remove(module);
  return CUDA_SUCCESS;
}

TCC_ENTRY cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  TCC_BEGIN;
  Module *from = d.lookup(d.modules, module, "cuModuleGetFunction", "module");
  if (!from)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!from->program->describe(name))
    return CUDA_ERROR_NOT_FOUND;
  auto made = std::make_unique<Function>();
  made->module = from;
  made->name = name;
  *function = reinterpret_cast<CUfunction>(d.functions.add(std::move(made)));
  return CUDA_SUCCESS;
}

namespace {
/// A function whose module is loaded, or null (reported).
Function *loaded(StandIn &d, CUfunction handle, const char *call) {
  Function *one = d.lookup(d.functions, handle, call, "function");
  if (one && !d.modules.find(one->module)) {
    d.report({FaultKind::UseAfterFree, fmt::format("{}: the module of '{}' is unloaded", call, one->name)},
             CUDA_SUCCESS);
    return nullptr;
  }
  return one;
}
} // namespace

TCC_ENTRY cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  TCC_BEGIN;
  Function *one = loaded(d, function, "cuFuncGetAttribute");
  if (!one)
    return CUDA_ERROR_INVALID_HANDLE;
  const Code &code = *one->module->program->describe(one->name);
  const uint32_t *required = code.requiredThreads;
  switch (attribute) {
  case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    *value = static_cast<int>(required[0]       ? required[0] * required[1] * required[2]
                              : code.maxThreads ? code.maxThreads
                                                : 1024);
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
    *value = static_cast<int>(code.sharedBytes);
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
    *value = static_cast<int>(code.localBytes);
    return CUDA_SUCCESS;
  case CU_FUNC_ATTRIBUTE_NUM_REGS:
    *value = 64;
    return CUDA_SUCCESS; // a guess, since only ptxas knows: with 64 registers 1024 threads can run
  }
  return d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE,
                  fmt::format("cuFuncGetAttribute: attribute {} is not known to the stand-in", int(attribute)));
}

TCC_ENTRY cuLaunchKernel(CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
                         unsigned blockY, unsigned blockZ, unsigned sharedBytes, CUstream stream, void **parameters,
                         void **extra) {
  TCC_BEGIN;
  Function *one = loaded(d, function, "cuLaunchKernel");
  if (!one)
    return CUDA_ERROR_INVALID_HANDLE;
  const Code &code = *one->module->program->describe(one->name);
  if (extra || (!parameters && !code.parameters.empty()))
    return d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE,
                    fmt::format("cuLaunchKernel: kernel '{}' takes its {} parameters as an array of pointers",
                                one->name, code.parameters.size()));
  if (code.sharedBytes + uint64_t{sharedBytes} > 48 << 10)
    return d.misuse(
        FaultKind::LaunchLimits, CUDA_ERROR_INVALID_VALUE,
        fmt::format(
            "cuLaunchKernel: kernel '{}' gets {} bytes of shared memory; above 48 KiB it has to be allowed to first",
            one->name, code.sharedBytes + uint64_t{sharedBytes}));
  // Parameter values are copied at the call.
  auto block = std::make_shared<std::vector<std::byte>>(code.parameterBytes);
  for (size_t i = 0; i < code.parameters.size(); ++i) {
    if (!parameters[i])
      return d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE,
                      fmt::format("cuLaunchKernel: parameter {} of kernel '{}' is a null pointer", i, one->name));
    std::memcpy(block->data() + code.parameters[i].offset, parameters[i], code.parameters[i].bytes);
  }
  Launch launch;
  launch.grid = {gridX, gridY, gridZ};
  launch.block = {blockX, blockY, blockZ};
  launch.dynamicSharedBytes = sharedBytes;
  launch.parameters = *block;
  if (auto refused = d.machine.refuse(code, launch))
    return d.report(*refused, CUDA_ERROR_INVALID_VALUE);
  Task task;
  task.what = fmt::format("kernel '{}'", one->name);
  task.owner = one->module;
  Program *program = one->module->program.get();
  task.run = [program, name = one->name, launch, block](uint32_t work) -> std::optional<Fault> {
    auto code = program->compile(name);
    if (!code)
      return Fault{FaultKind::Misuse, code.message()};
    if (++standIn().kernelsRun == standIn().options.kernelFails)
      return Fault{FaultKind::OutOfBounds, fmt::format("kernel '{}', as TCC_EMULATION_KERNEL_FAILS asks", name)};
    Launch now = launch;
    now.work = work;
    std::optional<Fault> fault = standIn().machine.launch(**code, now);
    if (!fault && !standIn().options.trafficFile.empty())
      standIn().recordTraffic((*code)->name);
    return fault;
  };
  return d.enqueue(stream, std::move(task), "cuLaunchKernel");
}

// Never called. cuDNN's own libraries link them, so that its heuristics can be asked on a machine without a driver.
#define TCC_NEVER_CALLED(symbol)                                                                                       \
  extern "C" __attribute__((visibility("default"))) CUresult symbol() { return CUDA_ERROR_NOT_SUPPORTED; }
TCC_NEVER_CALLED(cuModuleLoadData)
TCC_NEVER_CALLED(cuTensorMapEncodeIm2col)
TCC_NEVER_CALLED(cuTensorMapEncodeTiled)
#undef TCC_NEVER_CALLED

//===- Modules.cpp - a plan's kernels on a card --------------------------===//
#include "runtime/cuda/Modules.h"
#include "runtime/plan/JoinedKernels.h"

#include <algorithm>

namespace tcc::cuda {

Expected<PtxNeeds> needsOf(const plan::PlanReader &reader) {
  PtxNeeds needs;
  for (const plan::CodeObject &object : reader.plan().code_objects()) {
    std::span<const std::byte> code = reader.payload(object.payload());
    Expected<PtxNeeds> own = needsOf({reinterpret_cast<const char *>(code.data()), code.size()});
    if (!own)
      return own.status().withContext(reader.path());
    needs = {std::max(needs.version, own->version), std::max(needs.capability, own->capability),
             own->only ? own->only : needs.only};
  }
  return needs;
}

namespace {
/// True if the driver does not accept machine code because it is of a later toolkit or for another card.
bool isCodeRefusal(api::CUresult result) {
  return result == api::CUDA_ERROR_NO_BINARY_FOR_GPU || result == api::CUDA_ERROR_INVALID_IMAGE ||
         result == api::CUDA_ERROR_UNSUPPORTED_PTX_VERSION || result == api::CUDA_ERROR_NOT_SUPPORTED;
}
} // namespace

Modules::~Modules() {
  for (api::CUmodule module : modules)
    (void)driver->moduleUnload(module);
}

Status Modules::load(const plan::PlanReader &reader, const Card &card) {
  for (int i = 0; i < reader.plan().code_objects_size(); ++i)
    if (Status status = loadObject(reader, reader.plan().code_objects(i), card); !status.ok())
      return status.withContext(fmt::format("code object {}", i));
  return Status();
}

api::CUresult Modules::loadImage(const void *image, std::string &log) {
  log.assign(8192, '\0');
  api::CUjit_option options[] = {api::CU_JIT_ERROR_LOG_BUFFER, api::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log.data(), reinterpret_cast<void *>(log.size() - 1)};
  api::CUmodule module = nullptr;
  const api::CUresult result = driver->moduleLoadDataEx(&module, image, 2, options, values);
  if (result == api::CUDA_SUCCESS)
    modules.push_back(module);
  return result;
}

Status Modules::loadObject(const plan::PlanReader &reader, const plan::CodeObject &object, const Card &card) {
  std::string log;
  for (const plan::CodeObject::Assembled &one : object.assembled())
    if (capabilityOf(one.architecture()) == card.capability()) {
      const api::CUresult result = loadImage(reader.payload(one.payload()).data(), log);
      if (result == api::CUDA_SUCCESS)
        return Status();
      // The driver is older than the assembler: use the PTX.
      if (!isCodeRefusal(result))
        return driver.check(result, "loading the kernels");
    }
  std::span<const std::byte> payload = reader.payload(object.payload());
  const std::string text(reinterpret_cast<const char *>(payload.data()), payload.size());
  const api::CUresult result = loadImage(text.c_str(), log);
  if (result != api::CUDA_SUCCESS)
    return error("the CUDA driver (version {}) does not take the kernels: {}{}{}", versionText(driver.version()),
                 driver.textOf(result), log[0] ? ": " : "", log.c_str());
  return Status();
}

Status Modules::find(const plan::KernelCall &call, Step &step) const {
  step.blocks = call.grid().blocks();
  step.threads = call.grid().threads();
  step.tiles = call.tiles();
  step.takesTable = plan::isJoined(call.symbol());
  api::CUresult found = driver->moduleGetFunction(&step.kernel, modules[call.code()], call.symbol().c_str());
  if (found != api::CUDA_SUCCESS)
    return error("code object {} has no kernel '{}': {}; recompile the model with tcc", call.code(), call.symbol(),
                 driver.textOf(found));
  int most = 0;
  if (Status status =
          driver.check(driver->funcGetAttribute(&most, api::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, step.kernel),
                       "asking for a kernel's threads");
      !status.ok())
    return status;
  if (step.threads > static_cast<unsigned>(most))
    return error("kernel '{}' runs with {} threads a block at most, the plan has {}; recompile the model with tcc",
                 call.symbol(), most, step.threads);
  return Status();
}

} // namespace tcc::cuda

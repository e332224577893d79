//===- Step.cpp - an instruction of a plan as work of a stream -----------===//
#include "runtime/cuda/Step.h"

#include <cstring>

namespace tcc::cuda {

namespace {
api::CUresult fill(const Step &step, const DriverLibrary &driver, api::CUstream stream) {
  auto word = [&]<typename Word>(Word word, size_t at) {
    std::memcpy(&word, step.value.data() + at, sizeof word);
    return word;
  };
  api::CUdeviceptr to = step.pointers[0];
  size_t count = step.bytes / step.valueBytes;
  switch (step.valueBytes) {
  case 1:
    return driver->memsetD8Async(to, word(uint8_t(), 0), count, stream);
  case 2:
    return driver->memsetD16Async(to, word(uint16_t(), 0), count, stream);
  case 4:
    return driver->memsetD32Async(to, word(uint32_t(), 0), count, stream);
  default: // 8 bytes: set the lower halves, then the upper ones, as 4-byte words with a stride of 8 bytes
    for (size_t half : {size_t(0), size_t(4)})
      if (api::CUresult result = driver->memsetD2D32Async(to + half, 8, word(uint32_t(), half), 1, count, stream);
          result != api::CUDA_SUCCESS)
        return result;
    return api::CUDA_SUCCESS;
  }
}
} // namespace

Status submit(const Step &step, const DriverLibrary &driver, api::CUstream stream, const CardRanks *ranks) {
  if (step.slices)
    return step.slices->submit(driver, stream);
  if (step.product || step.graph || !step.kernels.empty()) {
    Status status = step.product ? step.product->submit(stream) : step.graph ? step.graph->submit(stream) : Status();
    for (const Step &one : step.kernels)
      if (status.ok())
        status = submit(one, driver, stream, ranks);
    return status;
  }
  if (step.collective) {
    Status status = step.collective->begin(driver, stream, ranks ? ranks->rank() : 0);
    return status.ok() && ranks && !step.collective->isLocal() ? step.collective->submit(*ranks, stream) : status;
  }
  if (step.kernel) {
    std::vector<void *> parameters;
    if (step.takesTable)
      parameters.push_back(const_cast<api::CUdeviceptr *>(step.pointers.data()));
    else
      for (const api::CUdeviceptr &pointer : step.pointers)
        parameters.push_back(const_cast<api::CUdeviceptr *>(&pointer));
    parameters.push_back(const_cast<int64_t *>(&step.tiles));
    parameters.push_back(const_cast<api::CUdeviceptr *>(&step.scratch));
    return driver.check(
        driver->launchKernel(step.kernel, step.blocks, 1, 1, step.threads, 1, 1, 0, stream, parameters.data(), nullptr),
        "launching a kernel");
  }
  if (step.bytes == 0)
    return Status();
  if (step.source->has_copy())
    return driver.check(driver->memcpyDtoDAsync(step.pointers[1], step.pointers[0], step.bytes, stream),
                        "copying memory");
  if (step.source->has_transfer() && step.store)
    return driver.check(
        driver->memcpyDtoHAsync(reinterpret_cast<void *>(step.pointers[1]), step.pointers[0], step.bytes, stream),
        "storing memory on the host");
  if (step.source->has_transfer())
    return driver.check(
        driver->memcpyHtoDAsync(step.pointers[1], reinterpret_cast<const void *>(step.pointers[0]), step.bytes, stream),
        "fetching memory from the host");
  return driver.check(fill(step, driver, stream), "filling memory");
}

} // namespace tcc::cuda

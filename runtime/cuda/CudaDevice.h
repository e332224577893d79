//===- CudaDevice.h - running plans on an NVIDIA card -------------------===//
#ifndef TCC_RUNTIME_CUDA_CUDADEVICE_H
#define TCC_RUNTIME_CUDA_CUDADEVICE_H

#include "runtime/Device.h"

namespace tcc::runtime {

/// Runs plans of targets cuda:… on the card of this rank (DeviceOptions::localRank). Errors: no driver, none new
/// enough, no card, an older architecture than the plan's, too little memory, a plan that does not verify.
Expected<std::unique_ptr<Device>> createCudaDevice(const plan::PlanReader &reader, const DeviceOptions &options = {});

/// Ranks a target: greater for a later architecture. Error: there is no driver, no card, or only one of an earlier
/// architecture.
Expected<uint32_t> rankCudaTarget(const std::string &target);

/// The device "cuda", which is preferred to the processor.
inline DeviceKind cudaDevice() {
  return {.name = "cuda", .create = createCudaDevice, .rank = rankCudaTarget, .preference = 1};
}

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CUDA_CUDADEVICE_H

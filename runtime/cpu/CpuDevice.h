//===- CpuDevice.h - running plans on this machine's cores ---------------===//
#ifndef TCC_RUNTIME_CPU_CPUDEVICE_H
#define TCC_RUNTIME_CPU_CPUDEVICE_H

#include "runtime/Device.h"

namespace tcc::runtime {

class CallMaker;

/// A device whose memory is the host's and whose work is done when a call returns. The number of threads changes no
/// result.
Expected<std::unique_ptr<Device>> createCpuDevice(const plan::PlanReader &reader, const DeviceOptions &options = {});

/// The same, with the executors of its calls from `calls`, which must outlive the device.
Expected<std::unique_ptr<Device>> createCpuDeviceWith(const CallMaker &calls, const plan::PlanReader &reader,
                                                      const DeviceOptions &options = {});

/// Ranks a target: greater for a higher level. Error: this machine lacks the level.
Expected<uint32_t> rankCpuTarget(const std::string &target);

/// The device "cpu".
inline DeviceKind cpuDevice() { return {.name = "cpu", .create = createCpuDevice, .rank = rankCpuTarget}; }

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_CPUDEVICE_H

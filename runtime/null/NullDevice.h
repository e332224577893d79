//===- NullDevice.h - executes nothing, checks everything ----------------===//
#ifndef TCC_RUNTIME_NULL_NULLDEVICE_H
#define TCC_RUNTIME_NULL_NULLDEVICE_H

#include "runtime/Device.h"

namespace tcc::runtime {

/// A device without memory, for plans of every target: it checks ranges, drops writes, reads zeros, and checks the
/// entries that it runs.
Expected<std::unique_ptr<Device>> createNullDevice(const plan::PlanReader &reader, const DeviceOptions &options = {});

/// The device "null".
inline DeviceKind nullDevice() { return {.name = "null", .create = createNullDevice, .runsAnyTarget = true}; }

} // namespace tcc::runtime

#endif // TCC_RUNTIME_NULL_NULLDEVICE_H

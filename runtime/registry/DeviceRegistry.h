//===- DeviceRegistry.h - the devices of this program --------------------===//
#ifndef TCC_RUNTIME_REGISTRY_DEVICEREGISTRY_H
#define TCC_RUNTIME_REGISTRY_DEVICEREGISTRY_H

#include "runtime/Device.h"

#include <vector>

namespace tcc::runtime {

/// Adds a device. A later one of the same name replaces it. Must not run while another thread uses the registry.
void registerDevice(DeviceKind kind);

/// The registered names, sorted; "cpu", "cuda" and "null" are always registered.
std::vector<std::string> deviceNames();

/// Makes the device that `options` names, or else the one of the plan's target. Error: no device has that name, or the
/// factory's. The message lists the registered ones.
Expected<std::unique_ptr<Device>> createDevice(const plan::PlanReader &reader, const DeviceOptions &options = {});

/// The target of a plan to run, for PlanReader::selectTarget: the one that `target` names, else the best that this
/// machine runs: of the device with the greatest preference (a card before the processor), the target of the highest
/// rank. `device` names a device as in DeviceOptions, and limits the choice to its targets; one that runs any target
/// limits nothing. The only target of a plan is not
/// checked; creating its device does that. Error: the plan does not have the target, or none runs here; the message
/// lists the plan's targets.
Expected<uint32_t> chooseTarget(const plan::PlanReader &reader, const std::string &target, const std::string &device);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_REGISTRY_DEVICEREGISTRY_H

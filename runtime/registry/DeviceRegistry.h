//===- DeviceRegistry.h - the devices of this program --------------------===//
#ifndef TCC_RUNTIME_REGISTRY_DEVICEREGISTRY_H
#define TCC_RUNTIME_REGISTRY_DEVICEREGISTRY_H

#include "runtime/Device.h"

#include <vector>

namespace tcc::runtime {

/// Makes a device for a plan: verifies the plan, checks that the device has what the plan asks for (target, kernel ABI,
/// library), allocates, and loads the variables' initial values. Every fault is an error that names its place.
using DeviceFactory = std::function<Expected<std::unique_ptr<Device>>(const plan::PlanReader &, const DeviceOptions &)>;

/// Adds a device. Its name is the part before ':' of the targets that it runs ("cpu" of "cpu:v3"), or another word, to
/// be asked for by name. A later one of the same name takes its place. Not while another thread uses the registry.
void registerDevice(const std::string &name, DeviceFactory factory);

/// The registered names, sorted; "cpu", "cuda" and "null" are always there.
std::vector<std::string> deviceNames();

/// Makes the device that `options` names, or else the one of the plan's target. Error: no device has that name, or the
/// factory's. The message lists the registered ones.
Expected<std::unique_ptr<Device>> createDevice(const plan::PlanReader &reader, const DeviceOptions &options = {});

} // namespace tcc::runtime

#endif // TCC_RUNTIME_REGISTRY_DEVICEREGISTRY_H

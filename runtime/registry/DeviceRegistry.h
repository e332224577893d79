//===- DeviceRegistry.h - the devices of this program --------------------===//
#ifndef TCC_RUNTIME_REGISTRY_DEVICEREGISTRY_H
#define TCC_RUNTIME_REGISTRY_DEVICEREGISTRY_H

#include "runtime/Device.h"

#include <vector>

namespace tcc::runtime {

/// Makes a device for a plan: verifies the plan, checks that the device has what the plan asks for (target, kernel ABI,
/// library), allocates, and loads the variables' initial values. Every fault is an error that names its place.
using DeviceFactory = std::function<Expected<std::unique_ptr<Device>>(const plan::PlanReader &, const DeviceOptions &)>;

/// Ranks a target among those of its device on this machine: greater is better. Error: why the target cannot run here.
using TargetRank = std::function<Expected<uint32_t>(const std::string &target)>;

/// Adds a device. Its name is the part before ':' of the targets that it runs ("cpu" of "cpu:v3"), or another word for
/// a device that is only chosen by name. A later device of the same name replaces it. Must not run while another thread
/// uses the registry. Without `rank`, every target of that name runs.
void registerDevice(const std::string &name, DeviceFactory factory, TargetRank rank = nullptr);

/// The registered names, sorted; "cpu", "cuda" and "null" are always registered.
std::vector<std::string> deviceNames();

/// Makes the device that `options` names, or else the one of the plan's target. Error: no device has that name, or the
/// factory's. The message lists the registered ones.
Expected<std::unique_ptr<Device>> createDevice(const plan::PlanReader &reader, const DeviceOptions &options = {});

/// The target of a plan to run, for PlanReader::selectTarget: the one that `target` names, else the best that this
/// machine runs. A CUDA card is preferred to the processor, and a higher level to a lower one. `device` names a device
/// as in DeviceOptions, and limits the choice to its targets ("null" limits nothing). The only target of a plan is not
/// checked; creating its device does that. Error: the plan does not have the target, or none runs here; the message
/// lists the plan's targets.
Expected<uint32_t> chooseTarget(const plan::PlanReader &reader, const std::string &target, const std::string &device);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_REGISTRY_DEVICEREGISTRY_H

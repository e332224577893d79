//===- DeviceRegistry.h - the devices of this program --------------------===//
#ifndef TCC_RUNTIME_REGISTRY_DEVICEREGISTRY_H
#define TCC_RUNTIME_REGISTRY_DEVICEREGISTRY_H

#include "runtime/Device.h"

#include <vector>

namespace tcc::runtime {

/// Makes a device for a plan: verifies the plan, checks that the device has what the plan asks for (target, kernel ABI,
/// library), allocates, and loads the variables' initial values. Every fault is an error that names its place.
using DeviceFactory = std::function<Expected<std::unique_ptr<Device>>(const plan::PlanReader &, const DeviceOptions &)>;

/// How good a target is on this machine, among those of one device: greater is better. Error: it does not run here, and
/// why.
using TargetRank = std::function<Expected<uint32_t>(const std::string &target)>;

/// Adds a device. Its name is the part before ':' of the targets that it runs ("cpu" of "cpu:v3"), or another word, to
/// be asked for by name. A later one of the same name takes its place. Not while another thread uses the registry.
/// Without `rank` every target of that name runs.
void registerDevice(const std::string &name, DeviceFactory factory, TargetRank rank = nullptr);

/// The registered names, sorted; "cpu", "cuda" and "null" are always there.
std::vector<std::string> deviceNames();

/// Makes the device that `options` names, or else the one of the plan's target. Error: no device has that name, or the
/// factory's. The message lists the registered ones.
Expected<std::unique_ptr<Device>> createDevice(const plan::PlanReader &reader, const DeviceOptions &options = {});

/// The target of a plan to run, for PlanReader::selectTarget: the one that `target` names, else the best that this machine
/// runs. A CUDA card is better than the processor, and of each the highest level. `device` names a device as
/// DeviceOptions does, and limits the choice to its targets ("null" limits nothing). The only target of a plan is not
/// asked whether it runs: its device says that. Error: the plan does not have the target, or none runs here; the message
/// names those that the plan has.
Expected<uint32_t> chooseTarget(const plan::PlanReader &reader, const std::string &target, const std::string &device);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_REGISTRY_DEVICEREGISTRY_H

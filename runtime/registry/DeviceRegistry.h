//===- DeviceRegistry.h - the devices of this program --------------------===//
#ifndef TCC_RUNTIME_REGISTRY_DEVICEREGISTRY_H
#define TCC_RUNTIME_REGISTRY_DEVICEREGISTRY_H

#include "runtime/Device.h"

#include <map>
#include <vector>

namespace tcc::runtime {

/// Devices by name. A program that has one of its own copies standardDevices(), adds it, and passes the copy on
/// (SessionOptions::devices).
class DeviceRegistry {
public:
  /// Adds a device. A later one of the same name replaces it.
  void add(DeviceKind kind);

  /// Sorted.
  std::vector<std::string> names() const;

  /// Makes the device that `options` names, or else the one of the plan's target. Error: no device has that name, or
  /// the factory's. The message lists the known ones.
  Expected<std::unique_ptr<Device>> create(const plan::PlanReader &reader, const DeviceOptions &options = {}) const;

  /// The target of a plan to run, for PlanReader::selectTarget: the one that `target` names, else the best that this
  /// machine runs: of the device with the greatest preference (a card before the processor), the target of the highest
  /// rank. `device` names a device as in DeviceOptions, and limits the choice to its targets; one that runs any target
  /// limits nothing. The only target of a plan is not checked; creating its device does that. Error: the plan does not
  /// have the target, or none runs here; the message lists the plan's targets.
  Expected<uint32_t> chooseTarget(const plan::PlanReader &reader, const std::string &target,
                                  const std::string &device) const;

private:
  /// The device of a name, or of a target's kind; null for an unknown one.
  const DeviceKind *find(std::string_view target) const;
  /// Ranks a target among those of all devices: greater is better.
  using Rank = std::pair<uint32_t, uint32_t>;
  Expected<Rank> rankOf(const std::string &target) const;

  std::map<std::string, DeviceKind, std::less<>> kinds;
};

/// The devices that are linked into every program: "cpu", "cuda" and "null".
const DeviceRegistry &standardDevices();

inline std::vector<std::string> deviceNames(const DeviceRegistry &devices = standardDevices()) {
  return devices.names();
}

inline Expected<std::unique_ptr<Device>> createDevice(const plan::PlanReader &reader, const DeviceOptions &options = {},
                                                      const DeviceRegistry &devices = standardDevices()) {
  return devices.create(reader, options);
}

inline Expected<uint32_t> chooseTarget(const plan::PlanReader &reader, const std::string &target,
                                       const std::string &device, const DeviceRegistry &devices = standardDevices()) {
  return devices.chooseTarget(reader, target, device);
}

} // namespace tcc::runtime

#endif // TCC_RUNTIME_REGISTRY_DEVICEREGISTRY_H

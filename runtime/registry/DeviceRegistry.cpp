//===- DeviceRegistry.cpp - the devices of this program ------------------===//
#include "runtime/registry/DeviceRegistry.h"
#include "runtime/cpu/CpuDevice.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/null/NullDevice.h"
#include "runtime/plan/Targets.h"
#include "support/Advice.h"

#include <fmt/ranges.h>

using namespace tcc;
using namespace tcc::runtime;

void DeviceRegistry::add(DeviceKind kind) {
  const std::string name = kind.name;
  kinds[name] = std::move(kind);
}

std::vector<std::string> DeviceRegistry::names() const {
  std::vector<std::string> names;
  for (const auto &[name, kind] : kinds)
    names.push_back(name);
  return names;
}

const DeviceKind *DeviceRegistry::find(std::string_view target) const {
  auto found = kinds.find(plan::kindOf(target));
  return found == kinds.end() ? nullptr : &found->second;
}

Expected<DeviceRegistry::Rank> DeviceRegistry::rankOf(const std::string &target) const {
  const DeviceKind *device = find(target);
  if (!device)
    return error("this program has no device for {}", target);
  if (!device->rank)
    return Rank(device->preference, 0);
  Expected<uint32_t> rank = device->rank(target);
  if (!rank)
    return rank.status();
  return Rank(device->preference, *rank);
}

Expected<uint32_t> DeviceRegistry::chooseTarget(const plan::PlanReader &reader, const std::string &target,
                                                const std::string &device) const {
  if (!target.empty())
    return plan::findTarget(reader, target);
  const std::vector<std::string> names = plan::targetNames(reader.plan());
  if (names.size() == 1)
    return uint32_t(0);
  const DeviceKind *asked = find(device);
  const bool runsAny = asked && asked->runsAnyTarget;
  std::optional<uint32_t> best;
  Rank bestRank;
  std::string reasons;
  for (uint32_t i = 0; i < names.size(); ++i) {
    if (!device.empty() && !runsAny && plan::kindOf(names[i]) != plan::kindOf(device))
      continue;
    Expected<Rank> rank = rankOf(names[i]);
    if (!rank)
      reasons += "\n  " + rank.message();
    else if (!best || *rank > bestRank) {
      best = i;
      bestRank = *rank;
    }
  }
  if (best)
    return *best;
  if (runsAny)
    return uint32_t(0);
  if (reasons.empty())
    return Status(fmt::format("{}: {} is for {}; compile the model for that device, too",
                              advice::option("device", device), reader.path(), fmt::join(names, ", ")),
                  StatusCode::Usage);
  return error("{}: the plan is for {}, and none of them runs here:{}", reader.path(), fmt::join(names, ", "), reasons);
}

Expected<std::unique_ptr<Device>> DeviceRegistry::create(const plan::PlanReader &reader,
                                                         const DeviceOptions &options) const {
  const std::string &wanted = options.name.empty() ? reader.plan().target() : options.name;
  if (const DeviceKind *device = find(wanted))
    return device->create(reader, options);
  std::string known = fmt::format("{}", fmt::join(names(), ", "));
  if (!options.name.empty())
    return Status(fmt::format("{}: unknown; use one of {}", advice::option("device", options.name), known),
                  StatusCode::Usage);
  return error("{}: the plan is for {}, but this program has the devices {} alone; compile the model for one of them",
               reader.path(), wanted, known);
}

const DeviceRegistry &tcc::runtime::standardDevices() {
  static const DeviceRegistry devices = [] {
    DeviceRegistry made;
    for (DeviceKind kind : {cpuDevice(), cudaDevice(), nullDevice()})
      made.add(std::move(kind));
    return made;
  }();
  return devices;
}

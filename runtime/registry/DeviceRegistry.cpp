//===- DeviceRegistry.cpp - the devices of this program ------------------===//
#include "runtime/registry/DeviceRegistry.h"
#include "runtime/cpu/CpuDevice.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/null/NullDevice.h"
#include "runtime/plan/Targets.h"

#include <fmt/ranges.h>
#include <map>

using namespace tcc;
using namespace tcc::runtime;

namespace {
using Devices = std::map<std::string, DeviceKind, std::less<>>;

/// Starts with the devices that are linked into every program.
Devices &registry() {
  static Devices devices = [] {
    Devices known;
    for (DeviceKind kind : {cpuDevice(), cudaDevice(), nullDevice()})
      known[kind.name] = kind;
    return known;
  }();
  return devices;
}

/// The device of a name, or of a target's kind; null for an unknown one.
const DeviceKind *findDevice(std::string_view target) {
  auto found = registry().find(plan::kindOf(target));
  return found == registry().end() ? nullptr : &found->second;
}

/// Ranks a target among those of all devices: greater is better.
using Rank = std::pair<uint32_t, uint32_t>;
Expected<Rank> rankOf(const std::string &target) {
  const DeviceKind *device = findDevice(target);
  if (!device)
    return error("this program has no device for {}", target);
  if (!device->rank)
    return Rank(device->preference, 0);
  Expected<uint32_t> rank = device->rank(target);
  if (!rank)
    return rank.status();
  return Rank(device->preference, *rank);
}
} // namespace

void tcc::runtime::registerDevice(DeviceKind kind) {
  const std::string name = kind.name;
  registry()[name] = std::move(kind);
}

Expected<uint32_t> tcc::runtime::chooseTarget(const plan::PlanReader &reader, const std::string &target,
                                              const std::string &device) {
  if (!target.empty())
    return plan::findTarget(reader, target);
  const std::vector<std::string> names = plan::targetNames(reader.plan());
  if (names.size() == 1)
    return uint32_t(0);
  const DeviceKind *asked = findDevice(device);
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
    return Status(fmt::format("--device {}: {} is for {}; compile the model for that device, too", device, reader.path(),
                              fmt::join(names, ", ")),
                  StatusCode::Usage);
  return error("{}: the plan is for {}, and none of them runs here:{}", reader.path(), fmt::join(names, ", "), reasons);
}

std::vector<std::string> tcc::runtime::deviceNames() {
  std::vector<std::string> names;
  for (const auto &[name, kind] : registry())
    names.push_back(name);
  return names;
}

Expected<std::unique_ptr<Device>> tcc::runtime::createDevice(const plan::PlanReader &reader,
                                                             const DeviceOptions &options) {
  const std::string &wanted = options.name.empty() ? reader.plan().target() : options.name;
  if (const DeviceKind *device = findDevice(wanted))
    return device->create(reader, options);
  std::string known = fmt::format("{}", fmt::join(deviceNames(), ", "));
  if (!options.name.empty())
    return Status(fmt::format("--device {}: unknown; use one of {}", options.name, known), StatusCode::Usage);
  return error("{}: the plan is for {}, but this program has the devices {} alone; compile the model for one of them",
               reader.path(), wanted, known);
}

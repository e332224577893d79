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
struct Registered {
  DeviceFactory create;
  TargetRank rank;
};

/// Starts with the devices that are linked into every program.
std::map<std::string, Registered> &registry() {
  static std::map<std::string, Registered> devices = {{"cpu", {createCpuDevice, rankCpuTarget}},
                                                      {"cuda", {createCudaDevice, rankCudaTarget}},
                                                      {"null", {createNullDevice, nullptr}}};
  return devices;
}

std::string deviceOf(const std::string &target) { return target.substr(0, target.find(':')); }

/// All ranks of targets within one device are below this.
constexpr uint64_t kBeforeOtherDevices = uint64_t(1) << 32;

/// Ranks a target among those of all devices: greater is better.
Expected<uint64_t> rankOf(const std::string &target) {
  auto found = registry().find(deviceOf(target));
  if (found == registry().end())
    return error("this program has no device for {}", target);
  if (!found->second.rank)
    return uint64_t(0);
  Expected<uint32_t> rank = found->second.rank(target);
  if (!rank)
    return rank.status();
  return *rank + (found->first == "cuda" ? kBeforeOtherDevices : 0);
}
} // namespace

void tcc::runtime::registerDevice(const std::string &name, DeviceFactory factory, TargetRank rank) {
  registry()[name] = {std::move(factory), std::move(rank)};
}

Expected<uint32_t> tcc::runtime::chooseTarget(const plan::PlanReader &reader, const std::string &target,
                                              const std::string &device) {
  if (!target.empty())
    return plan::findTarget(reader, target);
  const std::vector<std::string> names = plan::targetNames(reader.plan());
  if (names.size() == 1)
    return uint32_t(0);
  const std::string wanted = deviceOf(device);
  const bool any = wanted.empty() || wanted == "null";
  std::optional<uint32_t> best;
  uint64_t bestRank = 0;
  std::string reasons;
  for (uint32_t i = 0; i < names.size(); ++i) {
    if (!any && deviceOf(names[i]) != wanted)
      continue;
    Expected<uint64_t> rank = rankOf(names[i]);
    if (!rank)
      reasons += "\n  " + rank.message();
    else if (!best || *rank > bestRank) {
      best = i;
      bestRank = *rank;
    }
  }
  if (best)
    return *best;
  if (wanted == "null")
    return uint32_t(0);
  if (reasons.empty())
    return Status(fmt::format("--device {}: {} is for {}; compile the model for that device, too", device, reader.path(),
                              fmt::join(names, ", ")),
                  kExitUsage);
  return error("{}: the plan is for {}, and none of them runs here:{}", reader.path(), fmt::join(names, ", "), reasons);
}

std::vector<std::string> tcc::runtime::deviceNames() {
  std::vector<std::string> names;
  for (const auto &[name, factory] : registry())
    names.push_back(name);
  return names;
}

Expected<std::unique_ptr<Device>> tcc::runtime::createDevice(const plan::PlanReader &reader,
                                                             const DeviceOptions &options) {
  const std::string &wanted = options.name.empty() ? reader.plan().target() : options.name;
  auto found = registry().find(wanted.substr(0, wanted.find(':')));
  if (found != registry().end())
    return found->second.create(reader, options);
  std::string known = fmt::format("{}", fmt::join(deviceNames(), ", "));
  if (!options.name.empty())
    return Status(fmt::format("--device {}: unknown; use one of {}", options.name, known), kExitUsage);
  return error("{}: the plan is for {}, but this program has the devices {} alone; compile the model for one of them",
               reader.path(), wanted, known);
}

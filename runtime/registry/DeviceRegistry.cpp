//===- DeviceRegistry.cpp - the devices of this program ------------------===//
#include "runtime/registry/DeviceRegistry.h"
#include "runtime/cpu/CpuDevice.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/null/NullDevice.h"

#include <fmt/ranges.h>
#include <map>

using namespace tcc;
using namespace tcc::runtime;

/// Starts with the devices that are linked into every program.
static std::map<std::string, DeviceFactory> &registry() {
  static std::map<std::string, DeviceFactory> devices = {
      {"cpu", createCpuDevice}, {"cuda", createCudaDevice}, {"null", createNullDevice}};
  return devices;
}

void tcc::runtime::registerDevice(const std::string &name, DeviceFactory factory) {
  registry()[name] = std::move(factory);
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
    return found->second(reader, options);
  std::string known = fmt::format("{}", fmt::join(deviceNames(), ", "));
  if (!options.name.empty())
    return Status(fmt::format("--device {}: unknown; use one of {}", options.name, known), kExitUsage);
  return error("{}: the plan is for {}, but this program has the devices {} alone; compile the model for one of them",
               reader.path(), wanted, known);
}

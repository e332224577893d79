//===- HostMemory.cpp - memory that a training run takes on the host -----===//
#include "runtime/state/HostMemory.h"
#include "runtime/plan/Shards.h"
#include "runtime/plan/Spaces.h"
#include "runtime/plan/VirtualRanks.h"
#include "runtime/state/Checkpoint.h"
#include "runtime/state/Weights.h"
#include "support/PlanNames.h"
#include "support/recipe/Transforms.h"

#include <algorithm>
#include <cstdlib>
#include <map>

using namespace tcc;
using namespace tcc::runtime;

std::vector<AveragedParameter> tcc::runtime::averagedParameters(const plan::Plan &plan,
                                                                const plan::Training &training) {
  std::vector<AveragedParameter> result;
  if (!training.has_ema())
    return result;
  std::map<std::string, uint32_t> byName;
  for (int i = 0; i < plan.variables_size(); ++i)
    if (plan.variables(i).role() == plan::EMA)
      byName[plan.variables(i).name()] = static_cast<uint32_t>(i);
  std::vector<bool> written = writtenVariables(plan);
  for (int i = 0; i < plan.variables_size(); ++i) {
    const plan::Variable &variable = plan.variables(i);
    // A parameter that no update changes needs no average: it would equal the parameter.
    if (variable.role() != plan::PARAMETER || !written[static_cast<size_t>(i)] ||
        !plan::isFloatingPoint(variable.type().dtype()))
      continue;
    AveragedParameter one{static_cast<uint32_t>(i), std::nullopt, variable.type(),
                          variable.name() + std::string(states::kEmaSuffix)};
    one.type.set_dtype(variable.type().dtype() == plan::F64 ? plan::F64 : plan::F32);
    if (variable.has_shard()) {
      one.whole = plan::wholeType(variable);
      one.whole->set_dtype(one.type.dtype());
    }
    if (auto found = byName.find(one.name); found != byName.end())
      one.device = found->second;
    result.push_back(std::move(one));
  }
  return result;
}

/// True if data.workers is set or, without that setting, if a transform changes training samples.
static bool hasLoader(const plan::DataSettings &data) {
  if (auto workers = data.settings().find("workers"); workers != data.settings().end())
    return std::strtoul(workers->second.c_str(), nullptr, 10) != 0;
  auto tables = data.settings().find("transform");
  if (tables == data.settings().end())
    return false;
  auto transforms = recipe::parseTransforms(tables->second);
  return transforms &&
         std::any_of(transforms->begin(), transforms->end(), [](const auto &one) { return one.inTraining; });
}

/// Bytes of the inputs of one training call.
static uint64_t batchBytes(const plan::Plan &plan) {
  std::map<std::string, uint64_t> inputs; // each phase reads some of them
  for (const plan::Entry &entry : plan.entries())
    if (const std::string_view base = entries::baseOf(entry.name());
        base == entries::kStep || base == entries::kAccumulateFirst)
      for (const plan::Port &port : entry.inputs())
        inputs[port.name()] =
            std::max(inputs[port.name()], // that of the largest shape
                     plan::tensorBytes(entry.buffers(static_cast<int>(port.buffer())).type()).value_or(0));
  uint64_t bytes = 0;
  for (const auto &[name, size] : inputs)
    bytes += size;
  return bytes;
}

HostMemory tcc::runtime::hostMemoryOf(const plan::Plan &plan, const plan::Training &training,
                                      const plan::DataSettings &data) {
  HostMemory memory;
  memory.kept = plan::hostBytes(plan);
  for (const AveragedParameter &one : averagedParameters(plan, training))
    if (!one.device)
      memory.averages += plan::tensorBytes(one.type).value_or(0);
  uint64_t state = memory.averages;
  for (auto [variable, role] : checkpointedVariables(plan))
    state += plan::tensorBytes(plan.variables(variable).type()).value_or(0);
  // Ranks that write a checkpoint together wait for each other, without staging memory.
  if (plan.training().parallel().ranks() == 0)
    memory.staging = std::min(training.checkpoints().staging_bytes(), state);
  if (hasLoader(data))
    memory.loader = kLoaderBatches * batchBytes(plan);
  if (!training.phases().empty()) // each phase reads the whole window, which is kept in memory
    memory.loader += static_cast<uint64_t>(std::max<int64_t>(training.accumulate(), 1)) *
                     plan::mostVirtualRanks(training) * batchBytes(plan);
  return memory;
}

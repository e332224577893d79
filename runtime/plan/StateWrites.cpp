//===- StateWrites.cpp - which instructions change which variables -------===//
#include "runtime/plan/StateWrites.h"

#include <algorithm>

using namespace tcc;

std::vector<uint32_t> plan::changedVariables(const Entry &entry, const Instruction &instruction) {
  std::vector<uint32_t> result;
  for (const Operand &operand : instruction.operands()) {
    const int variable = entry.buffers(static_cast<int>(operand.buffer())).variable();
    if (operand.write() && variable >= 0 &&
        std::find(result.begin(), result.end(), static_cast<uint32_t>(variable)) == result.end())
      result.push_back(static_cast<uint32_t>(variable));
  }
  return result;
}

bool plan::changesWeights(const Plan &plan, const Entry &entry, const Instruction &instruction) {
  const std::vector<uint32_t> changed = changedVariables(entry, instruction);
  return std::any_of(changed.begin(), changed.end(), [&](uint32_t variable) {
    const VariableRole role = plan.variables(static_cast<int>(variable)).role();
    return role == PARAMETER || role == OPTIMIZER || role == EMA;
  });
}

std::vector<uint32_t> plan::inOrderOfChange(const Plan &plan) {
  std::vector<bool> found(static_cast<size_t>(plan.variables_size()), false);
  std::vector<uint32_t> result;
  auto add = [&](uint32_t variable) {
    if (!found[variable])
      result.push_back(variable);
    found[variable] = true;
  };
  for (const Entry &entry : plan.entries())
    for (const Instruction &instruction : entry.instructions())
      for (uint32_t variable : changedVariables(entry, instruction))
        add(variable);
  for (uint32_t i = 0; i < found.size(); ++i)
    add(i);
  return result;
}

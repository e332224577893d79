//===- WindowState.cpp - what micro-batches change before the update -----===//
#include "runtime/train/WindowState.h"
#include "runtime/plan/DType.h"
#include "runtime/state/Weights.h"

#include <cstring>

using namespace tcc;
using namespace tcc::runtime;

WindowState::WindowState(const plan::Plan &plan, Device &device) {
  std::vector<bool> written = writtenVariables(plan);
  for (int i = 0; i < plan.variables_size(); ++i) {
    const plan::Variable &variable = plan.variables(i);
    auto *data = static_cast<std::byte *>(device.variableData(static_cast<uint32_t>(i)));
    bool byForwardPass = written[static_cast<size_t>(i)] && variable.role() != plan::PARAMETER &&
                         variable.role() != plan::OPTIMIZER && variable.role() != plan::ACCUMULATOR;
    if (data && byForwardPass)
      kept.push_back({data, std::vector<std::byte>(plan::tensorBytes(variable.type()).value_or(0))});
  }
}

void WindowState::save() {
  for (Kept &one : kept)
    std::memcpy(one.copy.data(), one.data, one.copy.size());
}

void WindowState::restore() {
  for (const Kept &one : kept)
    std::memcpy(one.data, one.copy.data(), one.copy.size());
}

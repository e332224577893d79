//===- WindowState.cpp - state that micro-batches change before the update -===//
#include "runtime/train/WindowState.h"
#include "runtime/plan/DType.h"
#include "runtime/state/Weights.h"

using namespace tcc;
using namespace tcc::runtime;

WindowState::WindowState(const plan::Plan &plan, Device &device) : device(device) {
  std::vector<bool> written = writtenVariables(plan);
  for (int i = 0; i < plan.variables_size(); ++i) {
    const plan::Variable &variable = plan.variables(i);
    bool byForwardPass = written[static_cast<size_t>(i)] && variable.role() != plan::PARAMETER &&
                         variable.role() != plan::OPTIMIZER && variable.role() != plan::ACCUMULATOR &&
                         variable.role() != plan::EMA;
    if (byForwardPass)
      kept.push_back({Place::variable(static_cast<uint32_t>(i)),
                      std::vector<std::byte>(plan::tensorBytes(variable.type()).value_or(0))});
  }
}

Status WindowState::save() {
  for (Kept &one : kept)
    if (Status status = device.read(one.place, 0, one.copy); !status.ok())
      return status;
  return Status();
}

Status WindowState::restore() {
  for (const Kept &one : kept)
    if (Status status = device.write(one.place, 0, one.copy); !status.ok())
      return status;
  return Status();
}

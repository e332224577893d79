//===- FiniteState.cpp - is what a checkpoint would hold worth keeping? --===//
#include "runtime/train/FiniteState.h"
#include "runtime/plan/DType.h"
#include "runtime/state/Weights.h"

#include <cstring>

using namespace tcc;
using namespace tcc::runtime;

/// Every bit of the exponent is set in infinities and NaNs alone. The loop has no exit, so that it becomes vectors.
template <typename T> static bool allFinite(const void *data, uint64_t count, T exponent) {
  bool bad = false;
  for (uint64_t i = 0; i < count; ++i) {
    T bits;
    std::memcpy(&bits, static_cast<const char *>(data) + i * sizeof(T), sizeof(T));
    bad |= (bits & exponent) == exponent;
  }
  return !bad;
}

FiniteState::FiniteState(const plan::Plan &plan, Device &device) : plan(plan), device(device) {
  std::vector<bool> written = writtenVariables(plan);
  for (int i = 0; i < plan.variables_size(); ++i)
    if (written[static_cast<size_t>(i)] && plan.variables(i).role() != plan::ACCUMULATOR && isFinite(i))
      checked.push_back(i);
}

bool FiniteState::isFinite(int variable) const {
  const plan::TensorType &type = plan.variables(variable).type();
  const void *data = device.variableData(static_cast<uint32_t>(variable));
  uint64_t count = plan::elementCount(type).value_or(0);
  if (!data)
    return true;
  switch (type.dtype()) {
  case plan::F64:
    return allFinite<uint64_t>(data, count, 0x7ff0000000000000);
  case plan::F32:
    return allFinite<uint32_t>(data, count, 0x7f800000);
  case plan::F16:
    return allFinite<uint16_t>(data, count, 0x7c00);
  case plan::BF16:
    return allFinite<uint16_t>(data, count, 0x7f80);
  default:
    return true;
  }
}

std::optional<std::string> FiniteState::firstBad() const {
  for (int variable : checked)
    if (!isFinite(variable))
      return plan.variables(variable).name();
  return std::nullopt;
}

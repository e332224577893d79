//===- FiniteState.cpp - check that all state is finite -------------------===//
#include "runtime/train/FiniteState.h"
#include "runtime/plan/DType.h"
#include "runtime/state/Weights.h"

#include <algorithm>
#include <cstring>

using namespace tcc;
using namespace tcc::runtime;

/// Only infinities and NaNs have all exponent bits set. The loop has no early exit, so that it is vectorised.
template <typename T> static bool allFinite(std::span<const std::byte> bytes, T exponent) {
  bool bad = false;
  for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
    T bits;
    std::memcpy(&bits, bytes.data() + i * sizeof(T), sizeof(T));
    bad |= (bits & exponent) == exponent;
  }
  return !bad;
}

static bool allFinite(std::span<const std::byte> bytes, plan::DType dtype) {
  switch (dtype) {
  case plan::F64:
    return allFinite<uint64_t>(bytes, 0x7ff0000000000000);
  case plan::F32:
    return allFinite<uint32_t>(bytes, 0x7f800000);
  case plan::F16:
    return allFinite<uint16_t>(bytes, 0x7c00);
  case plan::BF16:
    return allFinite<uint16_t>(bytes, 0x7f80);
  default:
    return true;
  }
}

FiniteState::FiniteState(const plan::Plan &plan, Device &device) : plan(plan), device(device) {
  std::vector<bool> written = writtenVariables(plan);
  for (int i = 0; i < plan.variables_size(); ++i) {
    if (!written[static_cast<size_t>(i)] || plan.variables(i).role() == plan::ACCUMULATOR)
      continue;
    Expected<bool> finite = isFinite(i);
    if (!finite || *finite) // after a read error too: it will be reported at the first checkpoint
      checked.insert(plan.variables(i).name());
  }
}

Expected<bool> FiniteState::isFinite(int variable) const {
  plan::DType dtype = plan.variables(variable).type().dtype();
  if (!plan::isFloatingPoint(dtype))
    return true;
  bool finite = true;
  Status status = device.readPieces(Place::variable(static_cast<uint32_t>(variable)), [&](auto piece) {
    finite = finite && allFinite(piece, dtype);
    return Status();
  });
  return status.ok() ? Expected<bool>(finite) : status;
}

void FiniteState::guard(std::vector<CheckpointTensor> &tensors, uint64_t step) const {
  for (CheckpointTensor &tensor : tensors) {
    plan::DType dtype = tensor.type.dtype();
    if (!plan::isFloatingPoint(dtype) || !checked.contains(tensor.name))
      continue;
    tensor.stream = [inner = std::move(tensor.stream), dtype, name = tensor.name, step](const ByteSink &sink) {
      // In pieces that are still in a core's cache when `sink` reads them.
      constexpr size_t kPieceBytes = 128 << 10;
      return inner([&](std::span<const std::byte> bytes) {
        for (Status status; !bytes.empty();) {
          std::span<const std::byte> piece = bytes.first(std::min(bytes.size(), kPieceBytes));
          bytes = bytes.subspan(piece.size());
          if (!allFinite(piece, dtype))
            return Status(fmt::format("the state after update {} is not finite ('{}'), so it is not kept", step, name),
                          StatusCode::NonFinite);
          if (status = sink(piece); !status.ok())
            return status;
        }
        return Status();
      });
    };
  }
}

//===- Int8.h - floating-point tensors kept as bytes and scales -*- C++ -*-===//
//
// The frozen base of adapters may be stored as i8 elements with one f32 scale for each output channel (adapter.base =
// "int8"). Rounding is symmetric: scale = max|w| / 127 over the elements that share it, q = w / scale to the nearest
// integer, ties to even, and an element's value is q · scale; all in f32. There is no zero point because the weights of
// a channel are centred on 0: it would cost an addition for each element, and a weight of 0 would no longer be 0.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PLAN_INT8_H
#define TCC_RUNTIME_PLAN_INT8_H

#include "runtime/plan/plan.pb.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tcc::plan {

/// Strides into `scales` that give each element its scale: each dim of `scales` is that of `values` or 1. Nothing if
/// they do not fit.
std::optional<std::vector<uint64_t>> scaleStrides(const TensorType &values, const TensorType &scales);

struct RoundedTensor {
  std::vector<int8_t> values; ///< in [−127, 127]
  std::vector<float> scales;
};
/// Rounds floating-point elements. Nothing if an element is infinite or NaN, or if `scales` does not fit.
std::optional<RoundedTensor> roundToInt8(std::span<const std::byte> elements, const TensorType &type,
                                         const TensorType &scales);

/// The values q · scale as elements of `dtype`, a floating-point type.
std::vector<std::byte> widenInt8(std::span<const std::byte> values, const TensorType &type,
                                 std::span<const std::byte> scales, const TensorType &scaleType, DType dtype);

/// The variable with the scales of `variable`; null if `variable` is not stored in 8 or 4 bits.
const Variable *scaleOf(const Plan &plan, const Variable &variable);
/// The variable with the numbers of its nested scales; null if they are not nested.
const Variable *nestedScaleOf(const Plan &plan, const Variable &variable);

} // namespace tcc::plan

#endif // TCC_RUNTIME_PLAN_INT8_H

//===- Int8.cpp - floating-point tensors kept as bytes and scales ---------===//
#include "runtime/plan/Int8.h"
#include "runtime/plan/DType.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace tcc::plan {

std::optional<std::vector<uint64_t>> scaleStrides(const TensorType &values, const TensorType &scales) {
  if (values.dims_size() != scales.dims_size())
    return std::nullopt;
  std::vector<uint64_t> strides(static_cast<size_t>(values.dims_size()), 0);
  uint64_t stride = 1;
  for (int d = values.dims_size(); d-- > 0;) {
    if (scales.dims(d) != values.dims(d) && scales.dims(d) != 1)
      return std::nullopt;
    if (scales.dims(d) == values.dims(d))
      strides[static_cast<size_t>(d)] = stride;
    stride *= static_cast<uint64_t>(scales.dims(d));
  }
  return strides;
}

namespace {
/// Calls visit(element, scale) for the indices of all elements, in order.
template <typename Visit>
void forEachElement(const TensorType &type, const std::vector<uint64_t> &strides, const Visit &visit) {
  const uint64_t count = elementCount(type).value_or(0);
  std::vector<uint64_t> index(strides.size(), 0);
  uint64_t scale = 0;
  for (uint64_t i = 0; i < count; ++i) {
    visit(i, scale);
    for (size_t d = strides.size(); d-- > 0;) {
      scale += strides[d];
      if (++index[d] < static_cast<uint64_t>(type.dims(static_cast<int>(d))))
        break;
      scale -= strides[d] * index[d];
      index[d] = 0;
    }
  }
}
} // namespace

std::optional<RoundedTensor> roundToInt8(std::span<const std::byte> elements, const TensorType &type,
                                         const TensorType &scaleType) {
  const auto strides = scaleStrides(type, scaleType);
  const uint64_t count = elementCount(type).value_or(0);
  if (!strides || elements.size() != count * dtypeBytes(type.dtype()) || !isFloatingPoint(type.dtype()))
    return std::nullopt;
  auto value = [&](uint64_t i) { return static_cast<float>(floatElement(elements.data(), type.dtype(), i)); };
  RoundedTensor rounded{std::vector<int8_t>(count), std::vector<float>(elementCount(scaleType).value_or(0), 0.0F)};
  bool finite = true;
  forEachElement(type, *strides, [&](uint64_t i, uint64_t scale) {
    const float magnitude = std::fabs(value(i));
    finite &= std::isfinite(magnitude);
    rounded.scales[scale] = std::max(rounded.scales[scale], magnitude);
  });
  if (!finite)
    return std::nullopt;
  // A channel of zeros, or of numbers too small for a normal scale, gets the least normal scale.
  for (float &scale : rounded.scales)
    scale = std::max(scale / 127.0F, std::numeric_limits<float>::min());
  forEachElement(type, *strides, [&](uint64_t i, uint64_t scale) {
    const float steps = std::nearbyint(value(i) / rounded.scales[scale]);
    rounded.values[i] = static_cast<int8_t>(std::clamp(steps, -127.0F, 127.0F));
  });
  return rounded;
}

std::vector<std::byte> widenInt8(std::span<const std::byte> values, const TensorType &type,
                                 std::span<const std::byte> scales, const TensorType &scaleType, DType dtype) {
  const uint64_t size = dtypeBytes(dtype);
  std::vector<std::byte> wide(elementCount(type).value_or(0) * size);
  const auto strides = scaleStrides(type, scaleType);
  if (!strides || values.size() * size != wide.size() ||
      scales.size() != elementCount(scaleType).value_or(0) * sizeof(float))
    return wide;
  forEachElement(type, *strides, [&](uint64_t i, uint64_t scale) {
    float factor = 0;
    std::memcpy(&factor, scales.data() + scale * sizeof(float), sizeof(float));
    const float number = static_cast<float>(static_cast<int8_t>(values[i])) * factor;
    fillElements(wide.data() + i * size, dtype, 1, number);
  });
  return wide;
}

static const Variable *variableOf(const Plan &plan, const std::string &name) {
  if (name.empty())
    return nullptr;
  for (const Variable &other : plan.variables())
    if (other.name() == name)
      return &other;
  return nullptr;
}

const Variable *scaleOf(const Plan &plan, const Variable &variable) { return variableOf(plan, variable.scale()); }
const Variable *nestedScaleOf(const Plan &plan, const Variable &variable) {
  return variableOf(plan, variable.nested_scale());
}

} // namespace tcc::plan

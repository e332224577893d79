//===- Quantization.cpp - integers and scales of an exported model -------===//
//
// The formulas are those of frontend/ops/Quantization.cpp, in the same f32 arithmetic, so the exported model rounds
// like the plan.
//
//===----------------------------------------------------------------------===//
#include "runtime/state/Quantization.h"

#include "runtime/plan/PlanFile.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <onnx/onnx-ml.pb.h>
#include <set>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr float kSmallestScale = std::numeric_limits<float>::epsilon();

struct Range {
  double low = 0, high = 0;
};

template <typename T> Range rangeOfType() {
  return {double(std::numeric_limits<T>::min()), double(std::numeric_limits<T>::max())};
}

Range rangeOf(plan::DType type) {
  switch (type) {
  case plan::I8:
    return rangeOfType<int8_t>();
  case plan::U8:
    return rangeOfType<uint8_t>();
  case plan::I16:
    return rangeOfType<int16_t>();
  case plan::U16:
    return rangeOfType<uint16_t>();
  default:
    return rangeOfType<int32_t>();
  }
}

size_t elementsOf(const onnx::TensorProto &tensor) {
  size_t count = 1;
  for (int64_t dim : tensor.dims())
    count *= static_cast<size_t>(dim);
  return count;
}

/// Appends an integer in the model's type.
template <typename T> void append(std::vector<std::byte> &bytes, double value) {
  const T stored = static_cast<T>(value);
  const auto *from = reinterpret_cast<const std::byte *>(&stored);
  bytes.insert(bytes.end(), from, from + sizeof stored);
}

Status appendInteger(std::vector<std::byte> &bytes, int onnxType, double value) {
  switch (onnxType) {
  case onnx::TensorProto::INT8:
    append<int8_t>(bytes, value);
    break;
  case onnx::TensorProto::UINT8:
    append<uint8_t>(bytes, value);
    break;
  case onnx::TensorProto::INT16:
    append<int16_t>(bytes, value);
    break;
  case onnx::TensorProto::UINT16:
    append<uint16_t>(bytes, value);
    break;
  case onnx::TensorProto::INT32:
    append<int32_t>(bytes, value);
    break;
  default:
    return error("its type is {} in the model, no type of quantised values; compile the model again", onnxType);
  }
  return Status();
}

struct OneStep {
  float scale;
  int64_t zeroPoint;
};

OneStep stepFor(float low, float high, Range range) {
  const float least = std::min(low, 0.0f), most = std::max(high, 0.0f);
  const float scale = std::max((most - least) / float(range.high - range.low), kSmallestScale);
  const float zeroPoint = float(range.low) - std::nearbyint(least / scale);
  return {scale, int64_t(std::clamp(zeroPoint, float(range.low), float(range.high)))};
}

OneStep symmetricStep(float low, float high, Range range, float level) {
  return {std::max(std::max(-low, high) / level, kSmallestScale), int64_t((range.low + range.high + 1) / 2)};
}
} // namespace

Requantization::Requantization(const plan::Plan &plan, const onnx::GraphProto &graph, Values values)
    : plan(plan), values(std::move(values)) {
  for (const onnx::TensorProto &tensor : graph.initializer())
    tensors[tensor.name()] = &tensor;
  // An initializer without a variable is a constant of the program, which the export leaves unchanged.
  std::set<std::string> variables;
  for (const plan::Variable &variable : plan.variables())
    variables.insert(variable.name());
  for (const plan::Quantized &one : plan.quantized())
    if (variables.count(one.name()))
      held.push_back(&one);
  for (const plan::Quantized *one : held)
    if (one->type().dtype() != plan::F32)
      quantized[one->name()] = one;
}

Expected<std::vector<float>> Requantization::valuesOf(const std::string &variable) const {
  std::vector<std::byte> bytes;
  Status status = values(variable, [&](std::span<const std::byte> piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    return Status();
  });
  if (!status.ok())
    return status;
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  return out;
}

/// The observed scales of an initializer, or those in the model.
Expected<std::vector<float>> Requantization::scaleOf(const std::string &name) const {
  if (auto found = scales.find(name); found != scales.end())
    return found->second;
  auto found = tensors.find(name);
  if (found == tensors.end() || found->second->data_type() != onnx::TensorProto::FLOAT ||
      found->second->raw_data().size() != elementsOf(*found->second) * sizeof(float))
    return error("the model inside the plan does not hold the scale '{}'; compile the model again", name);
  std::vector<float> out(elementsOf(*found->second));
  std::memcpy(out.data(), found->second->raw_data().data(), out.size() * sizeof(float));
  return out;
}

Expected<Requantization::Steps> Requantization::stepsOfValues(const plan::Quantized &one) const {
  auto x = valuesOf(one.name());
  if (!x)
    return x.status();
  auto tensor = tensors.find(one.scale_name());
  if (tensor == tensors.end())
    return error("the model inside the plan has no scale '{}'; compile the model again", one.scale_name());
  const size_t count = elementsOf(*tensor->second);
  size_t inner = 1;
  for (int d = int(one.axis()) + 1; count > 1 && d < one.type().dims_size(); ++d)
    inner *= static_cast<size_t>(one.type().dims(d));
  std::vector<float> low(count, HUGE_VALF), high(count, -HUGE_VALF);
  for (size_t i = 0; i < x->size(); ++i) {
    const size_t channel = i / inner % count;
    low[channel] = std::min(low[channel], (*x)[i]);
    high[channel] = std::max(high[channel], (*x)[i]);
  }
  const Range range = rangeOf(one.integers());
  Steps made;
  for (size_t i = 0; i < count; ++i) {
    const OneStep step =
        one.level() ? symmetricStep(low[i], high[i], range, float(one.level())) : stepFor(low[i], high[i], range);
    made.scale.push_back(step.scale);
    made.zeroPoint.push_back(step.zeroPoint);
  }
  return made;
}

Status Requantization::prepare() {
  auto scalar = [&](const std::string &name) -> Expected<float> {
    if (name.empty())
      return 0.0f;
    auto x = valuesOf(name);
    if (!x)
      return x.status();
    return x->empty() ? 0.0f : x->front();
  };
  for (const plan::QuantizedRange &range : plan.quantized_ranges()) {
    auto low = scalar(range.low()), high = scalar(range.high());
    if (!low || !high)
      return low ? high.status() : low.status();
    const Range limits = rangeOf(range.type());
    const OneStep step = range.symmetric() ? symmetricStep(std::min(*low, 0.0f), std::max(*high, 0.0f), limits,
                                                           float((limits.high - limits.low) / 2))
                                           : stepFor(*low, *high, limits);
    scales[range.scale_name()] = {step.scale};
    zeroPoints[range.zero_point_name()] = {step.zeroPoint};
  }
  for (const plan::Quantized *each : held) {
    const plan::Quantized &one = *each;
    if (!one.observed()) {
      steps[one.name()] = {{one.scale().begin(), one.scale().end()},
                           {one.zero_point().begin(), one.zero_point().end()}};
    } else if (one.scale_of().empty()) {
      auto made = stepsOfValues(one);
      if (!made)
        return made.status();
      scales[one.scale_name()] = made->scale;
      zeroPoints[one.zero_point_name()] = made->zeroPoint;
      steps[one.name()] = made.take();
    }
  }
  // Biases last, because they need the scales of their operands.
  for (const plan::Quantized *each : held) {
    const plan::Quantized &one = *each;
    if (!one.observed() || one.scale_of().empty())
      continue;
    std::vector<float> product = {1};
    for (const std::string &name : one.scale_of()) {
      auto factor = scaleOf(name);
      if (!factor)
        return factor.status();
      if (factor->empty() || (factor->size() != 1 && product.size() != 1 && factor->size() != product.size()))
        return error("the scale '{}' of the bias '{}' has {} elements; compile the model again", name, one.name(),
                           factor->size());
      product.resize(std::max(product.size(), factor->size()), float(product[0]));
      for (size_t i = 0; i < product.size(); ++i)
        product[i] *= (*factor)[factor->size() == 1 ? 0 : i];
    }
    scales[one.scale_name()] = product;
    steps[one.name()] = {product, std::vector<int64_t>(product.size(), 0)};
  }
  return Status();
}

bool Requantization::makes(const std::string &name) const {
  return quantized.count(name) || scales.count(name) || zeroPoints.count(name);
}

Expected<std::vector<std::byte>> Requantization::bytesOf(const onnx::TensorProto &tensor) const {
  const size_t count = elementsOf(tensor);
  std::vector<std::byte> bytes;
  auto wrong = [&](size_t found) {
    return error("initializer '{}' has {} elements in the model, {} in the plan; compile the model again",
                       tensor.name(), count, found);
  };
  if (auto found = scales.find(tensor.name()); found != scales.end()) {
    if (found->second.size() != count && found->second.size() != 1)
      return wrong(found->second.size());
    for (size_t i = 0; i < count; ++i)
      append<float>(bytes, double(found->second[found->second.size() == 1 ? 0 : i]));
    return bytes;
  }
  if (auto found = zeroPoints.find(tensor.name()); found != zeroPoints.end()) {
    if (found->second.size() != count && found->second.size() != 1)
      return wrong(found->second.size());
    for (size_t i = 0; i < count; ++i)
      if (Status status =
              appendInteger(bytes, tensor.data_type(), double(found->second[found->second.size() == 1 ? 0 : i]));
          !status.ok())
        return status.withContext(tensor.name());
    return bytes;
  }
  const plan::Quantized &one = *quantized.at(tensor.name());
  const Steps &by = steps.at(tensor.name());
  auto x = valuesOf(tensor.name());
  if (!x)
    return x.status();
  if (x->size() != count)
    return wrong(x->size());
  size_t inner = 1;
  for (int d = int(one.axis()) + 1; by.scale.size() > 1 && d < tensor.dims_size(); ++d)
    inner *= static_cast<size_t>(tensor.dims(d));
  const Range range = rangeOf(one.type().dtype());
  for (size_t i = 0; i < count; ++i) {
    const size_t channel = i / inner % by.scale.size();
    const double q = double(std::nearbyint((*x)[i] / by.scale[channel])) + double(by.zeroPoint[channel]);
    if (Status status = appendInteger(bytes, tensor.data_type(), std::clamp(q, range.low, range.high));
        !status.ok())
      return status.withContext(tensor.name());
  }
  return bytes;
}

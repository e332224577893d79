//===- Quantization.cpp - scales and zero points of quantised tensors -----===//
#include "frontend/Quantization.h"

#include "frontend/OnnxLibrary.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <set>

namespace tcc::frontend {

using onnx::TensorProto;

/// Larger constants are no zero points, and are not copied.
static constexpr uint64_t kMostCopyBytes = 1 << 20;

std::optional<IntegerRange> integerRange(int32_t type) {
  switch (type) {
  case TensorProto::INT8:
    return IntegerRange{-128, 127};
  case TensorProto::UINT8:
    return IntegerRange{0, 255};
  case TensorProto::INT16:
    return IntegerRange{-32768, 32767};
  case TensorProto::UINT16:
    return IntegerRange{0, 65535};
  case TensorProto::INT32:
    return IntegerRange{std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
  default:
    return std::nullopt;
  }
}

std::string unreadQuantizedType(int32_t type) {
  const std::string name = onnxTypeName(type);
  if (type == TensorProto::INT4 || type == TensorProto::UINT4)
    return fmt::format("quantised values of type {} are read without --dequantize, and from initializers that "
                       "DequantizeLinear or GatherBlockQuantized reads: store the tensor as one, quantise the model to "
                       "8-bit integers, or export the floating-point model",
                       name);
  if (name.starts_with("FLOAT8") || name.starts_with("FLOAT4") || name.starts_with("INT2") || name == "UINT2")
    return fmt::format(
        "quantised values of type {} are not read, only INT8 and UINT8 (INT32 for biases): quantise the model "
        "to 8-bit integers, or export the floating-point model",
        name);
  return {};
}

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

GraphConstants::GraphConstants(const OnnxFile &file, const onnx::GraphProto &graph) : file(file) {
  for (const onnx::NodeProto &node : graph.node()) {
    if (!canonicalDomain(node.domain()).empty() || node.output_size() != 1)
      continue;
    if (node.op_type() == "Constant")
      addConstant(node);
    else if (node.op_type() == "Cast" || node.op_type() == "Identity")
      addCopy(node);
  }
}

void GraphConstants::addConstant(const onnx::NodeProto &node) {
  OnnxInitializer constant;
  if (const onnx::AttributeProto *value = attributeOf(node, "value"); value && value->has_t()) {
    Expected<std::string> bytes = tensorBytes(value->t());
    if (!bytes)
      return;
    constant.type = value->t().data_type();
    constant.dims.assign(value->t().dims().begin(), value->t().dims().end());
    constant.data = bytes.take();
  } else if (const onnx::AttributeProto *number = attributeOf(node, "value_float")) {
    const float stored = number->f();
    constant.type = TensorProto::FLOAT;
    constant.data.assign(reinterpret_cast<const char *>(&stored), sizeof stored);
  } else {
    return;
  }
  constant.bytes = constant.data.size();
  nodes[node.output(0)] = std::move(constant);
}

void GraphConstants::addCopy(const onnx::NodeProto &node) {
  const int32_t to = int32_t(intAttribute(node, "to", 0));
  const OnnxInitializer *from = find(inputOf(node, 0));
  if (!from || from->bytes > kMostCopyBytes)
    return;
  if (node.op_type() == "Identity") {
    nodes[node.output(0)] = OnnxInitializer(*from);
    return;
  }
  if ((to != TensorProto::INT8 && to != TensorProto::UINT8 && to != TensorProto::INT32))
    return;
  Expected<std::vector<double>> values = numbers(inputOf(node, 0));
  if (!values)
    return;
  OnnxInitializer constant;
  constant.type = to;
  constant.dims = from->dims;
  const IntegerRange range = *integerRange(to);
  for (double value : *values) {
    if (!(value >= double(range.low) && value <= double(range.high)) || value != std::floor(value))
      return;
    const auto stored = int32_t(value);
    constant.data.append(reinterpret_cast<const char *>(&stored), size_t(onnxElementBytes(to))); // little-endian
  }
  constant.bytes = constant.data.size();
  nodes[node.output(0)] = std::move(constant);
}

const OnnxInitializer *GraphConstants::find(const std::string &name) const {
  if (name.empty())
    return nullptr;
  if (auto found = file.initializers.find(name); found != file.initializers.end())
    return &found->second;
  auto found = nodes.find(name);
  return found == nodes.end() ? nullptr : &found->second;
}

template <typename T> static std::vector<double> widened(const std::string &bytes) {
  std::vector<double> out(bytes.size() / sizeof(T));
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = double(value);
  }
  return out;
}

Expected<std::vector<double>> GraphConstants::numbers(const std::string &name) const {
  if (name.empty())
    return error("one of its scales, zero points or weights is missing");
  const OnnxInitializer *constant = find(name);
  if (!constant)
    return error("\"{}\" is computed by the graph; only constant scales, zero points and weights are read", name);
  Expected<std::string> bytes = initializerBytes(*constant);
  if (!bytes)
    return bytes.status();
  switch (constant->type) {
  case TensorProto::FLOAT:
    return widened<float>(*bytes);
  case TensorProto::INT8:
    return widened<int8_t>(*bytes);
  case TensorProto::UINT8:
    return widened<uint8_t>(*bytes);
  case TensorProto::INT16:
    return widened<int16_t>(*bytes);
  case TensorProto::UINT16:
    return widened<uint16_t>(*bytes);
  case TensorProto::INT32:
    return widened<int32_t>(*bytes);
  case TensorProto::INT64:
    return widened<int64_t>(*bytes);
  default:
    return error(
        "\"{}\" is of type {}; scales are read as FLOAT, quantised values as INT8 or UINT8 (INT32 for biases)", name,
        onnxTypeName(constant->type));
  }
}

//===----------------------------------------------------------------------===//
// Quantisers
//===----------------------------------------------------------------------===//

/// At most one dimension is not 1.
static bool isOneAxis(const std::vector<int64_t> &dims) {
  return std::count_if(dims.begin(), dims.end(), [](int64_t size) { return size != 1; }) <= 1;
}

Expected<Quantizer> readQuantizer(const GraphConstants &constants, const std::string &scale,
                                  const std::string &zeroPoint, int64_t axis, int32_t type) {
  Quantizer quantizer;
  quantizer.axis = axis;
  quantizer.type = type;
  if (scale.empty())
    return error("it has no scale");
  Expected<std::vector<double>> scales = constants.numbers(scale);
  if (!scales)
    return error("its scale {}", scales.message());
  if (const int32_t of = constants.find(scale)->type; of != TensorProto::FLOAT)
    return error("its scale \"{}\" is of type {}; scales are read as FLOAT", scale, onnxTypeName(of));
  for (const std::string &name : {scale, zeroPoint})
    if (const OnnxInitializer *constant = constants.find(name); constant && !isOneAxis(constant->dims))
      return error("its {} \"{}\" has the shape [{}]; give one, or one for each index of an axis",
                   name == scale ? "scale" : "zero point", name, fmt::join(constant->dims, ", "));
  quantizer.scale = scales.take();
  for (double value : quantizer.scale)
    if (!(value > 0) || !std::isfinite(value))
      return error("its scale \"{}\" holds {}; scales are finite and above 0", scale, value);
  if (!zeroPoint.empty()) {
    Expected<std::vector<double>> points = constants.numbers(zeroPoint);
    if (!points)
      return error("its zero point {}", points.message());
    quantizer.type = constants.find(zeroPoint)->type;
    for (double value : *points)
      quantizer.zeroPoint.push_back(int64_t(value));
  }
  if (std::string unread = unreadQuantizedType(quantizer.type); !unread.empty())
    return error("{}", unread);
  if (!integerRange(quantizer.type))
    return error("its zero point \"{}\" is of type {}; quantised values are INT8 or UINT8 (INT32 for biases)",
                       zeroPoint, onnxTypeName(quantizer.type));
  if (quantizer.zeroPoint.empty())
    quantizer.zeroPoint.assign(quantizer.scale.size(), 0);
  // A single zero point is repeated for several scales, and a single scale for several zero points.
  const size_t count = std::max(quantizer.scale.size(), quantizer.zeroPoint.size());
  if (count && quantizer.scale.size() == 1)
    quantizer.scale.assign(count, double(quantizer.scale[0]));
  if (count && quantizer.zeroPoint.size() == 1)
    quantizer.zeroPoint.assign(count, int64_t(quantizer.zeroPoint[0]));
  if (!count || quantizer.scale.size() != count || quantizer.zeroPoint.size() != count)
    return error("it has {} scales (\"{}\") and {} zero points (\"{}\"); give as many of both",
                       quantizer.scale.size(), scale, quantizer.zeroPoint.size(), zeroPoint);
  quantizer.given = count;
  // If all are equal, keep one.
  if (std::all_of(quantizer.scale.begin(), quantizer.scale.end(), [&](double s) { return s == quantizer.scale[0]; }) &&
      std::all_of(quantizer.zeroPoint.begin(), quantizer.zeroPoint.end(),
                  [&](int64_t z) { return z == quantizer.zeroPoint[0]; })) {
    quantizer.scale.resize(1);
    quantizer.zeroPoint.resize(1);
  }
  return quantizer;
}

Expected<std::string> dequantizedBytes(const GraphConstants &constants, const std::string &name,
                                       const Quantizer &quantizer) {
  Expected<std::vector<double>> values = constants.numbers(name);
  if (!values)
    return values.status();
  const std::vector<int64_t> &dims = constants.find(name)->dims;
  const int64_t rank = int64_t(dims.size()), axis = quantizer.axis < 0 ? quantizer.axis + rank : quantizer.axis;
  size_t inner = 1;
  const size_t given = std::max(quantizer.given, quantizer.scale.size());
  if (given > 1) {
    if (axis < 0 || axis >= rank || dims[size_t(axis)] != int64_t(given))
      return error("its {} scales do not fit axis {} of \"{}\", whose shape is [{}]", given, quantizer.axis, name,
                   fmt::join(dims, ", "));
    for (size_t i = size_t(axis) + 1; i < dims.size(); ++i)
      inner *= size_t(dims[i]);
  }
  std::string bytes(values->size() * sizeof(float), '\0');
  for (size_t i = 0; i < values->size(); ++i) {
    const size_t channel = quantizer.perAxis() ? i / inner % quantizer.scale.size() : 0;
    // Rounds like DequantizeLinear: the difference is exact, the product is rounded once.
    const float value = float((*values)[i] - double(quantizer.zeroPoint[channel])) * float(quantizer.scale[channel]);
    std::memcpy(&bytes[i * sizeof value], &value, sizeof value);
  }
  return bytes;
}

std::string nameBeforeQuantization(const std::string &name) {
  constexpr std::string_view suffix = "_quantized";
  return name.size() > suffix.size() && name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name;
}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

const std::string &inputOf(const onnx::NodeProto &node, int i) {
  static const std::string none;
  return i < node.input_size() ? node.input(i) : none;
}

const onnx::AttributeProto *attributeOf(const onnx::NodeProto &node, const std::string &name) {
  for (const onnx::AttributeProto &attribute : node.attribute())
    if (attribute.name() == name)
      return &attribute;
  return nullptr;
}

onnx::AttributeProto &newAttribute(onnx::NodeProto &node, const char *name, onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto &attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}

void dropAttribute(onnx::NodeProto &node, const char *name) {
  auto &attributes = *node.mutable_attribute();
  for (int i = attributes.size(); i-- > 0;)
    if (attributes[i].name() == name)
      attributes.DeleteSubrange(i, 1);
}

int64_t intAttribute(const onnx::NodeProto &node, const std::string &name, int64_t otherwise) {
  const onnx::AttributeProto *attribute = attributeOf(node, name);
  return attribute ? attribute->i() : otherwise;
}

bool isQuantizationOp(const onnx::NodeProto &node, const char *op) {
  const std::string domain = canonicalDomain(node.domain());
  return node.op_type() == op && (domain.empty() || domain == "com.microsoft");
}

bool movesElements(const onnx::NodeProto &node) {
  static const std::set<std::string> movers = {
      "ArgMax",         "ArgMin",   "Concat",          "DepthToSpace", "Expand",       "Flatten",   "Gather",
      "GatherElements", "GatherND", "Identity",        "MaxPool",      "Pad",          "ReduceMax", "ReduceMin",
      "Reshape",        "Resize",   "ReverseSequence", "Slice",        "SpaceToDepth", "Split",     "Squeeze",
      "Tile",           "TopK",     "Transpose",       "Unsqueeze"};
  return canonicalDomain(node.domain()).empty() && movers.count(node.op_type());
}

} // namespace tcc::frontend

//===- Dequantize.cpp - a quantised model as a floating-point one ---------===//
//
// One walk over the nodes in order. A tensor of 8 bits has a floating-point counterpart under its own name; ops that only
// move elements stay. A product of integers is kept back until the Mul that gives it its scale: the weight gets what
// that Mul multiplies with, less the scale of the activation.
//
//===----------------------------------------------------------------------===//
#include "frontend/Dequantize.h"

#include "frontend/OnnxLibrary.h"
#include "frontend/Quantization.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <set>

namespace tcc::frontend {
namespace {

using onnx::NodeProto;
using onnx::TensorProto;
using plan::Expected;
using plan::Status;

onnx::AttributeProto &newAttribute(NodeProto &node, const char *name, onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto &attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}

void dropAttribute(NodeProto &node, const char *name) {
  auto &attributes = *node.mutable_attribute();
  for (int i = attributes.size(); i-- > 0;)
    if (attributes[i].name() == name)
      attributes.DeleteSubrange(i, 1);
}

const onnx::AttributeProto *attributeOf(const NodeProto &node, const char *name) {
  for (const onnx::AttributeProto &attribute : node.attribute())
    if (attribute.name() == name)
      return &attribute;
  return nullptr;
}

/// Calls `visit` for every name that the graphs inside a node's attributes read.
void forEachInnerName(NodeProto &node, const std::function<void(std::string &)> &visit) {
  for (onnx::AttributeProto &attribute : *node.mutable_attribute()) {
    if (!attribute.has_g())
      continue;
    for (NodeProto &inner : *attribute.mutable_g()->mutable_node()) {
      for (std::string &input : *inner.mutable_input())
        visit(input);
      forEachInnerName(inner, visit);
    }
    for (onnx::ValueInfoProto &output : *attribute.mutable_g()->mutable_output())
      visit(*output.mutable_name());
  }
}

class Dequantization {
public:
  explicit Dequantization(OnnxFile &file) : file(file), graph(*file.model.mutable_graph()), constants(file) {
    opset = kNewestOpset;
    for (const onnx::OperatorSetIdProto &set : file.model.opset_import())
      if (canonicalDomain(set.domain()).empty())
        opset = set.version();
  }

  Expected<std::vector<std::string>> run();

  using Handler = Status (Dequantization::*)(const NodeProto &);
  static const std::map<std::string, Handler> &handlers();

private:
  /// The floating-point counterpart of an 8-bit value, and how that was quantised.
  struct Real {
    std::string name;
    Quantizer quantizer;
  };
  /// One operand of a product of integers.
  struct Operand {
    std::string value;    ///< floating-point; empty for a constant, whose scale is not known yet
    std::string constant, zeroPoint;
    std::string dynamic;  ///< the scale that the graph computes, where there is one
    double scale = 1;     ///< else a constant one
  };
  struct Product {
    NodeProto node; ///< in floating point, but for operands and result
    Operand a, b;
  };
  /// A product of scales: those that the graph computes, and constants.
  struct Scale {
    std::multiset<std::string> dynamic;
    std::vector<std::string> constant;
  };

  // Names.
  std::string resolve(const std::string &name) const {
    auto found = alias.find(name);
    return found == alias.end() ? name : found->second;
  }
  std::string fresh(const std::string &wanted);
  void collectNames();

  // Values.
  Expected<std::string> weight(const std::string &name, const Quantizer &quantizer);
  Expected<std::string> tensor(const std::string &name, const std::string &scale, const std::string &zeroPoint,
                               int64_t axis = 1);
  std::string fromIntegers(const std::string &name, const Quantizer &quantizer);
  std::string scalar(const std::string &name, double value);
  std::string addInitializer(const std::string &wanted, const std::vector<int64_t> &dims, std::string bytes);
  Expected<Quantizer> quantizerOf(const std::string &scale, const std::string &zeroPoint, int64_t axis,
                                  const std::string &tensor = {}) const;
  std::optional<Expected<Quantizer>> quantizerOfReaders(const std::string &value, int depth = 0) const;

  // Nodes.
  NodeProto floatNode(const NodeProto &node, const char *op, const std::vector<std::string> &inputs) const;
  Status emitLimited(NodeProto node, const NodeProto &from, int scale, int zeroPoint);
  void emitClip(const NodeProto &from, const std::string &x, const std::string &result, const Quantizer &quantizer);
  Status keep(const NodeProto &node);
  Status keepMover(const NodeProto &node);
  bool readsQuantized(const NodeProto &node) const;

  // Handlers.
  Status quantizeLinear(const NodeProto &node);
  Status dequantizeLinear(const NodeProto &node);
  Status dynamicQuantizeLinear(const NodeProto &node);
  Status integerProduct(const NodeProto &node);
  Status castProduct(const NodeProto &node, const Product &product);
  Status mulScale(const NodeProto &node);
  Expected<Operand> operandOf(const std::string &name, const std::string &zeroPoint) const;
  std::optional<Scale> scaleOf(const std::string &name) const;
  Status finishProduct(Product product, const Scale &scale, const std::string &result, const std::string &bias = {});
  Status qLinearConv(const NodeProto &node);
  Status qLinearMatMul(const NodeProto &node);
  Status qGemm(const NodeProto &node);
  Status qLinearBinary(const NodeProto &node);
  Status qLinearUnary(const NodeProto &node);
  Status qLinearSoftmax(const NodeProto &node);
  Status qLinearReduceMean(const NodeProto &node);
  Status qLinearConcat(const NodeProto &node);
  Status qLinearWhere(const NodeProto &node);
  Status matMulIntegerToFloat(const NodeProto &node);
  Status dynamicQuantizeMatMul(const NodeProto &node);
  Status dynamicQuantizeLstm(const NodeProto &node);

  void finishOutputs();
  void dropUnused(const std::set<std::string> &readBefore);
  std::set<std::string> readNames();

  OnnxFile &file;
  onnx::GraphProto &graph;
  GraphConstants constants;
  int64_t opset = 0;
  google::protobuf::RepeatedPtrField<NodeProto> nodes; ///< of the floating-point graph
  std::map<std::string, std::string> alias;
  std::map<std::string, Real> reals;
  std::map<std::string, Operand> dynamic;   ///< by the 8-bit result of DynamicQuantizeLinear
  std::map<std::string, Product> products;  ///< by their int32 result, and its casts
  std::map<std::string, Scale> scales;
  std::map<std::string, std::vector<const NodeProto *>> readers;
  std::map<std::pair<std::string, std::string>, std::string> weights; ///< made of a constant, by name and quantiser
  std::set<std::string> names;
  std::vector<std::string> warnings;
};

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

void Dequantization::collectNames() {
  for (const auto &[name, initializer] : file.initializers)
    names.insert(name);
  for (const onnx::ValueInfoProto &input : graph.input())
    names.insert(input.name());
  for (NodeProto &node : *graph.mutable_node()) {
    for (const std::string &input : node.input())
      readers[input].push_back(&node);
    names.insert(node.input().begin(), node.input().end());
    names.insert(node.output().begin(), node.output().end());
    forEachInnerName(node, [&](std::string &name) { names.insert(name); });
  }
  // A weight may be called as what it was dequantised to: that value goes.
  for (const NodeProto &node : graph.node())
    if (isQuantizationOp(node, "DequantizeLinear") && constants.has(inputOf(node, 0)) && node.output_size())
      names.erase(node.output(0));
}

std::string Dequantization::fresh(const std::string &wanted) {
  std::string name = wanted;
  for (int i = 2; !names.insert(name).second; ++i)
    name = fmt::format("{}_{}", wanted, i);
  return name;
}

std::set<std::string> Dequantization::readNames() {
  std::set<std::string> read;
  for (NodeProto &node : *graph.mutable_node()) {
    read.insert(node.input().begin(), node.input().end());
    forEachInnerName(node, [&](std::string &name) { read.insert(name); });
  }
  for (const onnx::ValueInfoProto &output : graph.output())
    read.insert(output.name());
  return read;
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

std::string Dequantization::addInitializer(const std::string &wanted, const std::vector<int64_t> &dims,
                                           std::string bytes) {
  const std::string name = fresh(wanted);
  OnnxInitializer &initializer = file.initializers[name];
  initializer.type = TensorProto::FLOAT;
  initializer.dims = dims;
  initializer.bytes = bytes.size();
  initializer.data = std::move(bytes);
  TensorProto &bare = *graph.add_initializer();
  bare.set_name(name);
  bare.set_data_type(TensorProto::FLOAT);
  bare.mutable_dims()->Assign(dims.begin(), dims.end());
  return name;
}

std::string Dequantization::scalar(const std::string &name, double value) {
  const float stored = float(value);
  return addInitializer(name, {}, std::string(reinterpret_cast<const char *>(&stored), sizeof stored));
}

Expected<Quantizer> Dequantization::quantizerOf(const std::string &scale, const std::string &zeroPoint, int64_t axis,
                                                const std::string &tensor) const {
  const OnnxInitializer *constant = constants.find(tensor);
  return readQuantizer(constants, scale, zeroPoint, axis, constant ? constant->type : int32_t(TensorProto::UINT8));
}

/// A constant as a floating-point initializer; one for all who read it alike.
Expected<std::string> Dequantization::weight(const std::string &name, const Quantizer &quantizer) {
  const std::string key =
      fmt::format("{} {} {}", fmt::join(quantizer.scale, ","), fmt::join(quantizer.zeroPoint, ","),
                  quantizer.perAxis() ? quantizer.axis : 0);
  std::string &made = weights[{name, key}];
  if (!made.empty())
    return made;
  if (std::string unread = unreadQuantizedType(constants.find(name)->type); !unread.empty())
    return plan::error("{}", unread);
  Expected<std::string> bytes = dequantizedBytes(constants, name, quantizer);
  if (!bytes)
    return bytes.status();
  return made = addInitializer(nameBeforeQuantization(name), constants.find(name)->dims, bytes.take());
}

/// Casts, subtracts and multiplies: integers that come from outside.
std::string Dequantization::fromIntegers(const std::string &name, const Quantizer &quantizer) {
  const std::string result = fresh(name + "_real");
  auto add = [&](const char *op, const std::vector<std::string> &inputs, const std::string &output) -> NodeProto & {
    NodeProto &node = *nodes.Add();
    node.set_op_type(op);
    node.set_name(fmt::format("dequantize/{}/{}", name, op));
    node.mutable_input()->Assign(inputs.begin(), inputs.end());
    node.add_output(output);
    return node;
  };
  const std::string cast = fresh(name + "_cast"), shifted = fresh(name + "_shifted");
  newAttribute(add("Cast", {name}, cast), "to", onnx::AttributeProto::INT).set_i(TensorProto::FLOAT);
  add("Sub", {cast, scalar(name + "_offset", double(quantizer.zeroPoint[0]))}, shifted);
  add("Mul", {shifted, scalar(name + "_step", quantizer.scale[0])}, result);
  return result;
}

/// The floating-point counterpart of a tensor that an op reads with this scale and zero point.
Expected<std::string> Dequantization::tensor(const std::string &name, const std::string &scale,
                                             const std::string &zeroPoint, int64_t axis) {
  Expected<Quantizer> quantizer = quantizerOf(scale, zeroPoint, axis, name);
  if (!quantizer)
    return quantizer.status();
  if (auto real = reals.find(name); real != reals.end()) {
    if (!(real->second.quantizer == *quantizer))
      return plan::error("it reads \"{}\" with another scale or zero point than it was quantised by", name);
    return real->second.name;
  }
  if (constants.has(name))
    return weight(name, *quantizer);
  if (quantizer->perAxis())
    return plan::error("it reads \"{}\", which is no constant, with a scale for each index of an axis; --dequantize takes one "
                       "scale for activations",
                       name);
  const std::string real = fromIntegers(resolve(name), *quantizer);
  reals[name] = {real, *quantizer};
  return real;
}

/// How what is moved to readers is read there: nothing where nobody reads it as a quantised tensor.
std::optional<Expected<Quantizer>> Dequantization::quantizerOfReaders(const std::string &value, int depth) const {
  auto found = readers.find(value);
  if (found == readers.end() || depth > 64)
    return std::nullopt;
  for (const NodeProto *reader : found->second) {
    // In every QLinear op, scale and zero point follow the tensor.
    const bool direct = isQuantizationOp(*reader, "DequantizeLinear") || reader->op_type().starts_with("QLinear") ||
                        reader->op_type() == "QGemm";
    for (int i = 0; i < reader->input_size(); ++i) {
      if (reader->input(i) != value)
        continue;
      if (direct)
        return quantizerOf(inputOf(*reader, i + 1), inputOf(*reader, i + 2), intAttribute(*reader, "axis", 1), {});
      if (movesElements(*reader) && i == 0)
        if (auto further = quantizerOfReaders(reader->output(0), depth + 1))
          return further;
    }
  }
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

/// The node with its name and attributes as an op of the standard; inputs at the end that are empty are left out.
NodeProto Dequantization::floatNode(const NodeProto &node, const char *op,
                                    const std::vector<std::string> &inputs) const {
  NodeProto made = node;
  made.set_op_type(op);
  made.clear_domain();
  made.set_name(nodeName(node));
  made.clear_input();
  size_t count = inputs.size();
  while (count > 0 && inputs[count - 1].empty())
    --count;
  for (size_t i = 0; i < count; ++i)
    made.add_input(inputs[i]);
  return made;
}

/// Limits x to what the quantised tensor holds.
void Dequantization::emitClip(const NodeProto &from, const std::string &x, const std::string &result,
                              const Quantizer &quantizer) {
  const IntegerRange range = *integerRange(quantizer.type);
  auto bound = [&](int64_t q) { return double(q - quantizer.zeroPoint[0]) * quantizer.scale[0]; };
  NodeProto &clip = *nodes.Add();
  clip.set_op_type("Clip");
  clip.set_name(nodeName(from) + "/limit");
  clip.add_input(x);
  clip.add_output(result);
  if (opset < 11) {
    newAttribute(clip, "min", onnx::AttributeProto::FLOAT).set_f(float(bound(range.low)));
    newAttribute(clip, "max", onnx::AttributeProto::FLOAT).set_f(float(bound(range.high)));
  } else {
    clip.add_input(scalar(result + "_min", bound(range.low)));
    clip.add_input(scalar(result + "_max", bound(range.high)));
  }
  reals[result] = {result, quantizer};
}

/// Adds an op whose quantised original has a scale and a zero point for its result at these inputs; without a scale its result
/// was floating-point.
Status Dequantization::emitLimited(NodeProto node, const NodeProto &from, int scale, int zeroPoint) {
  if (inputOf(from, scale).empty()) {
    *nodes.Add() = std::move(node);
    return Status::success();
  }
  Expected<Quantizer> quantizer = quantizerOf(inputOf(from, scale), inputOf(from, zeroPoint), 1);
  if (!quantizer)
    return quantizer.status();
  if (quantizer->perAxis())
    return plan::error("its result has a scale for each index of an axis; --dequantize takes one scale for activations");
  const std::string whole = fresh(from.output(0) + "_unlimited");
  node.set_output(0, whole);
  *nodes.Add() = std::move(node);
  emitClip(from, whole, from.output(0), *quantizer);
  return Status::success();
}

bool Dequantization::readsQuantized(const NodeProto &node) const {
  auto quantised = [&](const std::string &name) {
    return reals.count(name) || dynamic.count(name) || products.count(name);
  };
  bool found = std::any_of(node.input().begin(), node.input().end(), quantised);
  NodeProto copy = node;
  forEachInnerName(copy, [&](std::string &name) { found |= quantised(name); });
  return found;
}

/// An op that moves elements moves the floating-point ones as well.
Status Dequantization::keepMover(const NodeProto &node) {
  NodeProto moved = node;
  std::optional<Quantizer> quantizer;
  const bool joins = node.op_type() == "Concat";
  for (int i = 0; i < (joins ? node.input_size() : 1); ++i) {
    auto real = reals.find(node.input(i));
    if (real == reals.end()) {
      auto read = quantizerOfReaders(node.output(0));
      if (!read)
        return plan::error("it moves the 8-bit values of \"{}\", and nobody says what they stand for", node.input(i));
      if (!*read)
        return read->status();
      if ((*read)->perAxis())
        return plan::error("it moves 8-bit values that are read with a scale for each index of an axis; --dequantize takes one "
                           "scale there");
      Expected<std::string> made = weight(node.input(i), **read);
      if (!made)
        return made.status();
      real = reals.emplace(node.input(i), Real{*made, **read}).first;
    }
    if (quantizer && !(*quantizer == real->second.quantizer))
      return plan::error("it joins tensors of different scales or zero points");
    quantizer = real->second.quantizer;
    moved.set_input(i, real->second.name);
  }
  if (node.op_type() == "Pad") {
    // Without a value it pads with the integer 0, which stands for −zero point·scale.
    auto real = [&](double q) { return (q - double(quantizer->zeroPoint[0])) * quantizer->scale[0]; };
    const std::string value = inputOf(node, 2);
    if (!value.empty() && !constants.has(value))
      return plan::error("it pads with a value that the graph computes");
    double q = 0;
    if (!value.empty()) {
      Expected<std::vector<double>> given = constants.numbers(value);
      if (!given || given->size() != 1)
        return given ? plan::error("it pads with {} values", given->size()) : given.status();
      q = (*given)[0];
    }
    if (opset >= 11 && (!value.empty() || real(q) != 0)) {
      while (moved.input_size() < 3)
        moved.add_input("");
      moved.set_input(2, scalar(node.output(0) + "_padding", real(q)));
    }
  }
  for (int i = 0; i < moved.input_size(); ++i)
    moved.set_input(i, resolve(moved.input(i)));
  const bool orders = node.op_type() == "ArgMax" || node.op_type() == "ArgMin";
  // The second result of MaxPool and TopK are indices.
  const int results = node.op_type() == "Split" ? node.output_size() : orders ? 0 : 1;
  for (int i = 0; i < results; ++i)
    reals[node.output(i)] = {node.output(i), *quantizer};
  *nodes.Add() = std::move(moved);
  return Status::success();
}

/// A node that quantisation did not touch.
Status Dequantization::keep(const NodeProto &node) {
  if (node.op_type() == "Cast" && canonicalDomain(node.domain()).empty())
    if (auto product = products.find(node.input(0)); product != products.end()) {
      if (node.output_size())
        products.emplace(node.output(0), product->second);
      return Status::success();
    }
  if (node.op_type() == "Mul" && canonicalDomain(node.domain()).empty() && node.input_size() == 2 &&
      (products.count(node.input(0)) || products.count(node.input(1)) || scaleOf(node.input(0)) ||
       scaleOf(node.input(1))))
    return mulScale(node);
  const OnnxInitializer *table = node.input_size() ? constants.find(node.input(0)) : nullptr;
  if (movesElements(node) && node.input_size() && node.output_size() &&
      (reals.count(node.input(0)) ||
       (table && (table->type == TensorProto::INT8 || table->type == TensorProto::UINT8) &&
        quantizerOfReaders(node.output(0)))))
    return keepMover(node);
  if (readsQuantized(node))
    return plan::error("it computes with quantised integers in a way that has no floating-point meaning here");
  NodeProto &kept = *nodes.Add();
  kept = node;
  for (std::string &input : *kept.mutable_input())
    input = resolve(input);
  forEachInnerName(kept, [&](std::string &name) { name = resolve(name); });
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Quantisers
//===----------------------------------------------------------------------===//

Status Dequantization::quantizeLinear(const NodeProto &node) {
  if (intAttribute(node, "block_size", 0))
    return plan::error("it quantises in blocks, which is not read; quantise per tensor or per axis");
  int32_t type = int32_t(intAttribute(node, "output_dtype", 0));
  Expected<Quantizer> quantizer = readQuantizer(constants, inputOf(node, 1), inputOf(node, 2), intAttribute(node, "axis", 1),
                                                type ? type : int32_t(TensorProto::UINT8));
  if (!quantizer)
    return quantizer.status();
  const std::string x = resolve(inputOf(node, 0));
  // A weight is within its range.
  if (constants.has(x)) {
    reals[node.output(0)] = {x, *quantizer};
    return Status::success();
  }
  if (quantizer->perAxis())
    return plan::error("it quantises an activation with a scale for each index of an axis; --dequantize takes one scale");
  emitClip(node, x, node.output(0), *quantizer);
  return Status::success();
}

Status Dequantization::dequantizeLinear(const NodeProto &node) {
  if (intAttribute(node, "block_size", 0))
    return plan::error("it dequantises in blocks, which is not read; quantise per tensor or per axis");
  Expected<std::string> real = tensor(inputOf(node, 0), inputOf(node, 1), inputOf(node, 2), intAttribute(node, "axis", 1));
  if (!real)
    return real.status();
  alias[node.output(0)] = *real;
  return Status::success();
}

Status Dequantization::dynamicQuantizeLinear(const NodeProto &node) {
  Operand operand;
  operand.value = resolve(inputOf(node, 0));
  operand.dynamic = node.output_size() > 1 ? node.output(1) : "";
  operand.zeroPoint = node.output_size() > 2 ? node.output(2) : "";
  dynamic[node.output(0)] = operand;
  if (!operand.dynamic.empty())
    scales[operand.dynamic].dynamic.insert(operand.dynamic);
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Products of integers
//===----------------------------------------------------------------------===//

Expected<Dequantization::Operand> Dequantization::operandOf(const std::string &name, const std::string &zeroPoint) const {
  if (auto found = dynamic.find(name); found != dynamic.end()) {
    if (zeroPoint != found->second.zeroPoint)
      return plan::error("it reads \"{}\" with another zero point than it was quantised by", name);
    return found->second;
  }
  Operand operand;
  if (auto real = reals.find(name); real != reals.end()) {
    operand.value = real->second.name;
    operand.scale = real->second.quantizer.scale[0];
    return operand;
  }
  if (!constants.has(name))
    return plan::error("it multiplies \"{}\", which is neither a constant nor the result of QuantizeLinear or "
                       "DynamicQuantizeLinear",
                       name);
  operand.constant = name;
  operand.zeroPoint = zeroPoint;
  return operand;
}

Status Dequantization::integerProduct(const NodeProto &node) {
  Product product;
  Expected<Operand> a = operandOf(inputOf(node, 0), inputOf(node, 2)), b = operandOf(inputOf(node, 1), inputOf(node, 3));
  if (!a || !b)
    return a ? b.status() : a.status();
  product.a = *a;
  product.b = *b;
  product.node = floatNode(node, node.op_type() == "ConvInteger" ? "Conv" : "MatMul", {});
  products.emplace(node.output(0), std::move(product));
  return Status::success();
}

std::optional<Dequantization::Scale> Dequantization::scaleOf(const std::string &name) const {
  auto found = scales.find(name);
  return found == scales.end() ? std::nullopt : std::optional(found->second);
}

/// A product of scales is remembered; that of a product of integers and its scale is what they stand for.
Status Dequantization::mulScale(const NodeProto &node) {
  for (int i : {0, 1}) {
    auto product = products.find(node.input(i));
    if (product == products.end())
      continue;
    const std::string &other = node.input(1 - i);
    std::optional<Scale> scale = scaleOf(other);
    if (!scale && constants.has(other))
      scale = Scale{{}, {other}};
    if (!scale)
      return plan::error("it multiplies the integers that {} computes by \"{}\", which is not their scale",
                         product->second.node.name(), other);
    Status status = finishProduct(product->second, *scale, node.output(0));
    return status.ok() ? status : plan::error("{}: {}", product->second.node.name(), status.message());
  }
  Scale all;
  for (const std::string &input : node.input()) {
    std::optional<Scale> scale = scaleOf(input);
    if (!scale && constants.has(input))
      scale = Scale{{}, {input}};
    if (!scale)
      return plan::error("it multiplies the scale of a tensor by \"{}\", which is no scale", input);
    all.dynamic.insert(scale->dynamic.begin(), scale->dynamic.end());
    all.constant.insert(all.constant.end(), scale->constant.begin(), scale->constant.end());
  }
  scales[node.output(0)] = std::move(all);
  return Status::success();
}

/// Adds the product of floating-point operands: what the integers are multiplied with is the product of the operands'
/// scales, of which a constant's is the part that is left.
Status Dequantization::finishProduct(Product product, const Scale &scale, const std::string &result,
                                     const std::string &bias) {
  std::multiset<std::string> expected;
  double known = 1;
  for (const Operand *operand : {&product.a, &product.b}) {
    if (!operand->dynamic.empty())
      expected.insert(operand->dynamic);
    known *= operand->scale;
  }
  if (expected != scale.dynamic)
    return plan::error("its result is multiplied by other scales than its operands have");
  std::vector<double> rest = {1 / known};
  for (const std::string &name : scale.constant) {
    Expected<std::vector<double>> factor = constants.numbers(name);
    if (!factor)
      return factor.status();
    if (factor->size() != 1 && rest.size() != 1 && factor->size() != rest.size())
      return plan::error("its result is multiplied by scales of {} and {} elements", rest.size(), factor->size());
    const size_t count = std::max(rest.size(), factor->size());
    rest.resize(count, double(rest[0]));
    for (size_t i = 0; i < count; ++i)
      rest[i] *= (*factor)[factor->size() == 1 ? 0 : i];
  }
  const bool conv = product.node.op_type() == "Conv";
  if (product.a.constant.empty() == product.b.constant.empty()) {
    if (!product.a.constant.empty())
      return plan::error("both of its operands are constants");
    if (rest.size() != 1 || std::fabs(rest[0] - 1) > 1e-4)
      return plan::error("its result is multiplied by {} times the scales of its operands", rest[0]);
  }
  for (Operand *operand : {&product.a, &product.b}) {
    if (operand->constant.empty())
      continue;
    if (rest.size() > 1 && operand == &product.a)
      return plan::error("its first operand is a constant with a scale for each index of an axis");
    Quantizer quantizer{rest, {}, conv ? 0 : -1, constants.find(operand->constant)->type};
    if (!operand->zeroPoint.empty()) {
      Expected<std::vector<double>> points = constants.numbers(operand->zeroPoint);
      if (!points)
        return points.status();
      for (double point : *points)
        quantizer.zeroPoint.push_back(int64_t(point));
    }
    if (quantizer.zeroPoint.empty())
      quantizer.zeroPoint.push_back(0);
    const size_t count = std::max(rest.size(), quantizer.zeroPoint.size());
    if (quantizer.scale.size() == 1)
      quantizer.scale.resize(count, double(rest[0]));
    if (quantizer.zeroPoint.size() == 1)
      quantizer.zeroPoint.resize(count, int64_t(quantizer.zeroPoint[0]));
    if (quantizer.scale.size() != count || quantizer.zeroPoint.size() != count)
      return plan::error("its weight has {} scales and {} zero points", quantizer.scale.size(), quantizer.zeroPoint.size());
    Expected<std::string> made = weight(operand->constant, quantizer);
    if (!made)
      return made.status();
    operand->value = *made;
  }
  NodeProto &node = *nodes.Add();
  node = std::move(product.node);
  node.add_input(product.a.value);
  node.add_input(product.b.value);
  node.clear_output();
  if (bias.empty()) {
    node.add_output(result);
    return Status::success();
  }
  const std::string whole = fresh(result + "_product");
  node.add_output(whole);
  NodeProto sum;
  sum.set_op_type("Add");
  sum.set_name(node.name() + "/bias");
  sum.add_input(whole);
  sum.add_input(resolve(bias));
  sum.add_output(result);
  *nodes.Add() = std::move(sum);
  return Status::success();
}

/// com.microsoft: A, B, their scales, their zero points, bias; the result is floating-point.
Status Dequantization::matMulIntegerToFloat(const NodeProto &node) {
  Product product;
  Expected<Operand> a = operandOf(inputOf(node, 0), inputOf(node, 4)), b = operandOf(inputOf(node, 1), inputOf(node, 5));
  if (!a || !b)
    return a ? b.status() : a.status();
  product.a = *a;
  product.b = *b;
  product.node = floatNode(node, "MatMul", {});
  Scale scale;
  for (int i : {2, 3}) {
    std::optional<Scale> part = scaleOf(inputOf(node, i));
    if (part)
      scale.dynamic.insert(part->dynamic.begin(), part->dynamic.end());
    if (part)
      scale.constant.insert(scale.constant.end(), part->constant.begin(), part->constant.end());
    else
      scale.constant.push_back(inputOf(node, i));
  }
  return finishProduct(std::move(product), scale, node.output(0), inputOf(node, 6));
}

/// com.microsoft: A in floating point, B, its scale, its zero point, bias.
Status Dequantization::dynamicQuantizeMatMul(const NodeProto &node) {
  Product product;
  product.a.value = resolve(inputOf(node, 0));
  Expected<Operand> b = operandOf(inputOf(node, 1), inputOf(node, 3));
  if (!b)
    return b.status();
  product.b = *b;
  product.node = floatNode(node, "MatMul", {});
  return finishProduct(std::move(product), Scale{{}, {inputOf(node, 2)}}, node.output(0), inputOf(node, 4));
}

/// com.microsoft: LSTM whose W and R are transposed, one scale for each direction or each of its gates' rows.
Status Dequantization::dynamicQuantizeLstm(const NodeProto &node) {
  std::vector<std::string> inputs;
  for (int i = 0; i < 8; ++i)
    inputs.push_back(resolve(inputOf(node, i)));
  for (int i : {1, 2}) {
    const std::string &name = inputOf(node, i);
    const OnnxInitializer *stored = constants.find(name);
    if (!stored || stored->dims.size() != 3)
      return plan::error("its weight \"{}\" is no constant of 3 dimensions", name);
    const std::string &scale = inputOf(node, i == 1 ? 8 : 10), &zeroPoint = inputOf(node, i == 1 ? 9 : 11);
    Expected<std::vector<double>> values = constants.numbers(name), steps = constants.numbers(scale);
    Expected<std::vector<double>> points =
        zeroPoint.empty() ? Expected<std::vector<double>>(std::vector<double>{0}) : constants.numbers(zeroPoint);
    if (!values || !steps || !points)
      return !values ? values.status() : !steps ? steps.status() : points.status();
    const size_t directions = size_t(stored->dims[0]), columns = size_t(stored->dims[1]), rows = size_t(stored->dims[2]);
    auto fits = [&](size_t count) { return count == 1 || count == directions || count == directions * rows; };
    if (!fits(steps->size()) || !fits(points->size()))
      return plan::error("its weight \"{}\" has {} scales and {} zero points", name, steps->size(), points->size());
    auto at = [&](const std::vector<double> &of, size_t d, size_t r) {
      return of[of.size() == 1 ? 0 : of.size() == directions ? d : d * rows + r];
    };
    std::string bytes(values->size() * sizeof(float), '\0');
    for (size_t d = 0; d < directions; ++d)
      for (size_t c = 0; c < columns; ++c)
        for (size_t r = 0; r < rows; ++r) {
          const double q = (*values)[(d * columns + c) * rows + r];
          const float value = float(q - at(*points, d, r)) * float(at(*steps, d, r));
          std::memcpy(&bytes[((d * rows + r) * columns + c) * sizeof value], &value, sizeof value);
        }
    inputs[size_t(i)] = addInitializer(nameBeforeQuantization(name), {stored->dims[0], stored->dims[2], stored->dims[1]},
                                       std::move(bytes));
  }
  *nodes.Add() = floatNode(node, "LSTM", inputs);
  return Status::success();
}

//===----------------------------------------------------------------------===//
// QLinear ops
//===----------------------------------------------------------------------===//

/// The scale of a bias: those of the operands, multiplied.
static Quantizer biasQuantizer(const Quantizer &x, const Quantizer &w, double factor) {
  Quantizer bias{w.scale, std::vector<int64_t>(w.scale.size(), 0), 0, int32_t(TensorProto::INT32)};
  for (double &scale : bias.scale)
    scale = double(float(float(x.scale[0]) * float(scale)) * float(factor));
  return bias;
}

Status Dequantization::qLinearConv(const NodeProto &node) {
  if (intAttribute(node, "channels_last", 0))
    return plan::error("its channels come last, which has no op of the standard; quantise without onnxruntime's layout "
                       "optimisation");
  Expected<std::string> x = tensor(inputOf(node, 0), inputOf(node, 1), inputOf(node, 2)),
                        w = tensor(inputOf(node, 3), inputOf(node, 4), inputOf(node, 5), 0);
  if (!x || !w)
    return x ? w.status() : x.status();
  std::string bias;
  if (!inputOf(node, 8).empty()) {
    Expected<Quantizer> xs = quantizerOf(inputOf(node, 1), inputOf(node, 2), 1, inputOf(node, 0)),
                        ws = quantizerOf(inputOf(node, 4), inputOf(node, 5), 0, inputOf(node, 3));
    if (!constants.has(inputOf(node, 8)))
      return plan::error("its bias \"{}\" is no constant", inputOf(node, 8));
    Expected<std::string> made = weight(inputOf(node, 8), biasQuantizer(*xs, *ws, 1));
    if (!made)
      return made.status();
    bias = *made;
  }
  NodeProto conv = floatNode(node, "Conv", {*x, *w, bias});
  dropAttribute(conv, "channels_last");
  return emitLimited(std::move(conv), node, 6, 7);
}

Status Dequantization::qLinearMatMul(const NodeProto &node) {
  Expected<std::string> a = tensor(inputOf(node, 0), inputOf(node, 1), inputOf(node, 2), -2),
                        b = tensor(inputOf(node, 3), inputOf(node, 4), inputOf(node, 5), -1);
  if (!a || !b)
    return a ? b.status() : a.status();
  return emitLimited(floatNode(node, "MatMul", {*a, *b}), node, 6, 7);
}

/// com.microsoft: alpha·A·B + C, C in steps of alpha times the scales of A and B.
Status Dequantization::qGemm(const NodeProto &node) {
  const int64_t axis = intAttribute(node, "transB", 0) ? 0 : 1;
  Expected<std::string> a = tensor(inputOf(node, 0), inputOf(node, 1), inputOf(node, 2)),
                        b = tensor(inputOf(node, 3), inputOf(node, 4), inputOf(node, 5), axis);
  if (!a || !b)
    return a ? b.status() : a.status();
  std::string bias;
  if (!inputOf(node, 6).empty()) {
    Expected<Quantizer> as = quantizerOf(inputOf(node, 1), inputOf(node, 2), 1, inputOf(node, 0)),
                        bs = quantizerOf(inputOf(node, 4), inputOf(node, 5), axis, inputOf(node, 3));
    const onnx::AttributeProto *alpha = attributeOf(node, "alpha");
    if (!constants.has(inputOf(node, 6)))
      return plan::error("its bias \"{}\" is no constant", inputOf(node, 6));
    Quantizer quantizer = biasQuantizer(*as, *bs, alpha ? double(alpha->f()) : 1);
    quantizer.axis = -1;
    Expected<std::string> made = weight(inputOf(node, 6), quantizer);
    if (!made)
      return made.status();
    bias = *made;
  }
  return emitLimited(floatNode(node, "Gemm", {*a, *b, bias}), node, 7, 8);
}

Status Dequantization::qLinearBinary(const NodeProto &node) {
  Expected<std::string> a = tensor(inputOf(node, 0), inputOf(node, 1), inputOf(node, 2)),
                        b = tensor(inputOf(node, 3), inputOf(node, 4), inputOf(node, 5));
  if (!a || !b)
    return a ? b.status() : a.status();
  return emitLimited(floatNode(node, node.op_type() == "QLinearAdd" ? "Add" : "Mul", {*a, *b}), node, 6, 7);
}

/// Activations and pools, whose attributes are those of the op without its prefix.
Status Dequantization::qLinearUnary(const NodeProto &node) {
  if (intAttribute(node, "channels_last", 0))
    return plan::error("its channels come last, which has no op of the standard; quantise without onnxruntime's layout "
                       "optimisation");
  Expected<std::string> x = tensor(inputOf(node, 0), inputOf(node, 1), inputOf(node, 2));
  if (!x)
    return x.status();
  NodeProto made = floatNode(node, node.op_type().c_str() + std::strlen("QLinear"), {*x});
  dropAttribute(made, "channels_last");
  return emitLimited(std::move(made), node, 3, 4);
}

Status Dequantization::qLinearSoftmax(const NodeProto &node) {
  Expected<std::string> x = tensor(inputOf(node, 0), inputOf(node, 1), inputOf(node, 2));
  if (!x)
    return x.status();
  const bool then = intAttribute(node, "opset", opset) >= 13, now = opset >= 13;
  if (then != now && intAttribute(node, "axis", -1) != -1)
    return plan::error("it means Softmax of opset {}, the model's is {}: where its axis is not the last they differ",
                       intAttribute(node, "opset", opset), opset);
  NodeProto made = floatNode(node, "Softmax", {*x});
  dropAttribute(made, "opset");
  return emitLimited(std::move(made), node, 3, 4);
}

Status Dequantization::qLinearReduceMean(const NodeProto &node) {
  Expected<std::string> x = tensor(inputOf(node, 0), inputOf(node, 1), inputOf(node, 2));
  if (!x)
    return x.status();
  NodeProto made = floatNode(node, "ReduceMean", {*x});
  if (const onnx::AttributeProto *axes = attributeOf(node, "axes"); axes && opset >= 18) {
    NodeProto &constant = *nodes.Add();
    constant.set_op_type("Constant");
    constant.add_output(fresh(node.output(0) + "_axes"));
    newAttribute(constant, "value_ints", onnx::AttributeProto::INTS).mutable_ints()->CopyFrom(axes->ints());
    made.add_input(constant.output(0));
    dropAttribute(made, "axes");
  }
  return emitLimited(std::move(made), node, 3, 4);
}

/// com.microsoft: scale and zero point of the result, then each tensor with its own.
Status Dequantization::qLinearConcat(const NodeProto &node) {
  std::vector<std::string> inputs;
  for (int i = 2; i + 1 < node.input_size(); i += 3) {
    Expected<std::string> x = tensor(inputOf(node, i), inputOf(node, i + 1), inputOf(node, i + 2));
    if (!x)
      return x.status();
    inputs.push_back(*x);
  }
  return emitLimited(floatNode(node, "Concat", inputs), node, 0, 1);
}

Status Dequantization::qLinearWhere(const NodeProto &node) {
  Expected<std::string> x = tensor(inputOf(node, 1), inputOf(node, 2), inputOf(node, 3)),
                        y = tensor(inputOf(node, 4), inputOf(node, 5), inputOf(node, 6));
  if (!x || !y)
    return x ? y.status() : x.status();
  return emitLimited(floatNode(node, "Where", {resolve(inputOf(node, 0)), *x, *y}), node, 7, 8);
}

const std::map<std::string, Dequantization::Handler> &Dequantization::handlers() {
  using D = Dequantization;
  static const std::map<std::string, Handler> table = {
      {"QuantizeLinear", &D::quantizeLinear},
      {"DequantizeLinear", &D::dequantizeLinear},
      {"DynamicQuantizeLinear", &D::dynamicQuantizeLinear},
      {"ConvInteger", &D::integerProduct},
      {"MatMulInteger", &D::integerProduct},
      {"MatMulIntegerToFloat", &D::matMulIntegerToFloat},
      {"DynamicQuantizeMatMul", &D::dynamicQuantizeMatMul},
      {"DynamicQuantizeLSTM", &D::dynamicQuantizeLstm},
      {"QLinearConv", &D::qLinearConv},
      {"QLinearMatMul", &D::qLinearMatMul},
      {"QGemm", &D::qGemm},
      {"QLinearAdd", &D::qLinearBinary},
      {"QLinearMul", &D::qLinearBinary},
      {"QLinearSigmoid", &D::qLinearUnary},
      {"QLinearLeakyRelu", &D::qLinearUnary},
      {"QLinearAveragePool", &D::qLinearUnary},
      {"QLinearGlobalAveragePool", &D::qLinearUnary},
      {"QLinearSoftmax", &D::qLinearSoftmax},
      {"QLinearReduceMean", &D::qLinearReduceMean},
      {"QLinearConcat", &D::qLinearConcat},
      {"QLinearWhere", &D::qLinearWhere},
  };
  return table;
}

//===----------------------------------------------------------------------===//
// The whole
//===----------------------------------------------------------------------===//

/// A result of the model that was an 8-bit tensor is a floating-point one now; one that was dequantised keeps its name.
void Dequantization::finishOutputs() {
  for (onnx::ValueInfoProto &output : *graph.mutable_output()) {
    if (auto real = reals.find(output.name()); real != reals.end()) {
      output.mutable_type()->mutable_tensor_type()->set_elem_type(TensorProto::FLOAT);
      warnings.push_back(fmt::format("{}: output {} was quantised, and is floating-point now", file.name, output.name()));
      if (real->second.name != output.name())
        alias[output.name()] = real->second.name;
    }
    if (auto other = alias.find(output.name()); other != alias.end() && other->second != output.name()) {
      NodeProto &identity = *nodes.Add();
      identity.set_op_type("Identity");
      identity.set_name("dequantize/" + output.name());
      identity.add_input(other->second);
      identity.add_output(output.name());
    }
  }
}

/// Scales and 8-bit weights that nobody reads any more, and notes of values that are gone or of another type.
void Dequantization::dropUnused(const std::set<std::string> &readBefore) {
  const std::set<std::string> read = readNames();
  auto unused = [&](const std::string &name) { return readBefore.count(name) && !read.count(name); };
  auto erase = [](auto &items, auto &&drop) {
    for (int i = items.size(); i-- > 0;)
      if (drop(items[i]))
        items.DeleteSubrange(i, 1);
  };
  auto byName = [&](const auto &item) { return unused(item.name()); };
  // Older versions of the IR list initializers among the inputs.
  erase(*graph.mutable_input(), [&](const auto &input) { return file.initializers.count(input.name()) && byName(input); });
  std::erase_if(file.initializers, [&](const auto &item) { return unused(item.first); });
  erase(*graph.mutable_initializer(), byName);
  erase(*graph.mutable_node(), [&](const NodeProto &node) {
    return node.op_type() == "Constant" && node.output_size() == 1 && unused(node.output(0));
  });
  graph.clear_value_info();
  graph.clear_quantization_annotation();
}

Expected<std::vector<std::string>> Dequantization::run() {
  collectNames();
  const std::set<std::string> readBefore = readNames();
  std::vector<std::string> problems;
  bool found = false;
  for (const NodeProto &node : graph.node()) {
    const std::string domain = canonicalDomain(node.domain());
    auto handler = handlers().find(node.op_type());
    const bool known = handler != handlers().end() && (domain.empty() || domain == "com.microsoft");
    found |= known;
    Status status = known ? (this->*handler->second)(node) : keep(node);
    if (!status.ok())
      problems.push_back(fmt::format("{}: {} (opset {}): {}", nodeName(node), node.op_type(), opset, status.message()));
  }
  if (problems.size() == 1)
    return plan::error("{}: --dequantize: {}", file.path, problems[0]);
  if (!problems.empty())
    return plan::error("{}: --dequantize: {} of its nodes have no floating-point meaning here:\n  {}", file.path,
                       problems.size(), fmt::join(problems, "\n  "));
  if (!found) {
    warnings.push_back(fmt::format("{}: --dequantize: no node of the model is quantised", file.name));
    return warnings;
  }
  finishOutputs();
  graph.mutable_node()->Swap(&nodes);
  dropUnused(readBefore);
  // What is read and computed by nobody was an integer.
  std::set<std::string> values;
  for (const auto &[name, initializer] : file.initializers)
    values.insert(name);
  for (const onnx::ValueInfoProto &input : graph.input())
    values.insert(input.name());
  for (const NodeProto &node : graph.node()) {
    for (const std::string &input : node.input())
      if (!input.empty() && !values.count(input))
        return plan::error("{}: --dequantize: node {} ({}): it reads \"{}\", a quantised integer or its scale, which the "
                           "floating-point model does not have",
                           file.path, nodeName(node), node.op_type(), input);
    values.insert(node.output().begin(), node.output().end());
  }
  return warnings;
}

} // namespace

bool isDequantized(const std::string &domain, const std::string &op) {
  return (domain.empty() || domain == "com.microsoft") && Dequantization::handlers().count(op);
}

Expected<std::vector<std::string>> dequantize(OnnxFile &file) { return Dequantization(file).run(); }

} // namespace tcc::frontend

//===- Dequantize.cpp - rewrite a quantised model in floating point -------===//
//
// One walk over the nodes in order. An 8-bit tensor is replaced by a floating-point one of the same name; ops that only
// move elements stay. A product of integers is emitted at the Mul that applies its scale: the weight's scale is that
// Mul's factor divided by the activation's scale.
//
//===----------------------------------------------------------------------===//
#include "frontend/Dequantize.h"

#include "frontend/Dequantization.h"
#include "frontend/OnnxLibrary.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>

namespace tcc::frontend {

using onnx::NodeProto;
using onnx::TensorProto;

/// Calls `visit` for every name that the graphs inside a node's attributes read.
static void forEachInnerName(NodeProto &node, const std::function<void(std::string &)> &visit) {
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
  // A weight may take the name of its dequantised value, which disappears.
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

/// A constant as a floating-point initializer, shared by all readers with the same scale and zero point.
Expected<std::string> Dequantization::weight(const std::string &name, const Quantizer &quantizer) {
  const std::string key = fmt::format("{} {} {}", fmt::join(quantizer.scale, ","), fmt::join(quantizer.zeroPoint, ","),
                                      quantizer.perAxis() ? quantizer.axis : 0);
  std::string &made = weights[{name, key}];
  if (!made.empty())
    return made;
  const int32_t type = constants.find(name)->type;
  if (std::string unread = unreadQuantizedType(type); !unread.empty())
    return error("{}", unread);
  if (type != quantizer.type)
    return error("its \"{}\" is of type {}, and what it is dequantised by is for {}", name, onnxTypeName(type),
                 onnxTypeName(quantizer.type));
  Expected<std::string> bytes = dequantizedBytes(constants, name, quantizer);
  if (!bytes)
    return bytes.status();
  return made = addInitializer(nameBeforeQuantization(name), constants.find(name)->dims, bytes.take());
}

/// Emits a cast, a subtraction and a multiplication for integers that are inputs of the model.
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
      return error("it reads \"{}\" with another scale or zero point than it was quantised by", name);
    return real->second.name;
  }
  if (constants.has(name))
    return weight(name, *quantizer);
  if (quantizer->perAxis())
    return error(
        "it reads \"{}\", which is no constant, with a scale for each index of an axis; --dequantize takes one "
        "scale for activations",
        name);
  if (alias.count(name) || floats.count(name))
    return error("it reads \"{}\", which is floating-point, as a quantised tensor", name);
  const std::string real = fromIntegers(resolve(name), *quantizer);
  reals[name] = {real, *quantizer};
  return real;
}

/// The scale and zero point with which a reader, possibly behind ops that move elements, reads a value; nullopt if no
/// reader reads it as a quantised tensor.
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
      const OnnxInitializer *scale = constants.find(inputOf(*reader, i + 1));
      if (direct && scale && scale->type == TensorProto::FLOAT)
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

/// An op of the standard with the node's name and attributes; trailing empty inputs are left out.
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

/// Clips x to the range of the quantised tensor.
void Dequantization::emitClip(const NodeProto &from, const std::string &x, const std::string &result,
                              const Quantizer &quantizer, IntegerRange range) {
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

/// Adds an op whose quantised original has a scale and a zero point for its result at these inputs; the result of QGemm
/// is floating-point without a scale.
Status Dequantization::emitLimited(NodeProto node, const NodeProto &from, int scale, int zeroPoint) {
  if (inputOf(from, scale).empty()) {
    if (from.op_type() != "QGemm")
      return error("it has no scale of its result (input {})", scale);
    floats.insert(from.output(0));
    *nodes.Add() = std::move(node);
    return Status::success();
  }
  Expected<Quantizer> quantizer = quantizerOf(inputOf(from, scale), inputOf(from, zeroPoint), 1);
  if (!quantizer)
    return quantizer.status();
  if (quantizer->perAxis())
    return error(
        "its result has a scale for each index of an axis; --dequantize takes one scale for activations");
  const std::string whole = fresh(from.output(0) + "_unlimited");
  node.set_output(0, whole);
  *nodes.Add() = std::move(node);
  emitClip(from, whole, from.output(0), *quantizer, *integerRange(quantizer->type));
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

/// Keeps an op that moves elements, on the floating-point tensors.
Status Dequantization::keepMover(const NodeProto &node) {
  NodeProto moved = node;
  std::optional<Quantizer> quantizer;
  const bool joins = node.op_type() == "Concat";
  for (int i = 0; i < (joins ? node.input_size() : 1); ++i) {
    auto real = reals.find(node.input(i));
    if (real == reals.end()) {
      auto read = quantizerOfReaders(node.output(0));
      if (!read)
        return error("it moves the 8-bit values of \"{}\", which no node reads with a scale", node.input(i));
      if (!*read)
        return read->status();
      if ((*read)->perAxis())
        return error(
            "it moves 8-bit values that are read with a scale for each index of an axis; --dequantize takes one "
            "scale there");
      Expected<std::string> made = weight(node.input(i), **read);
      if (!made)
        return made.status();
      real = reals.emplace(node.input(i), Real{*made, **read}).first;
    }
    if (quantizer && !(*quantizer == real->second.quantizer))
      return error("it joins tensors of different scales or zero points");
    quantizer = real->second.quantizer;
    moved.set_input(i, real->second.name);
  }
  if (node.op_type() == "Pad") {
    // Without a value, Pad pads with the integer 0, which means −zero point·scale.
    auto real = [&](double q) { return (q - double(quantizer->zeroPoint[0])) * quantizer->scale[0]; };
    const std::string value = inputOf(node, 2);
    if (!value.empty() && !constants.has(value))
      return error("it pads with a value that the graph computes");
    double q = 0;
    if (!value.empty()) {
      Expected<std::vector<double>> given = constants.numbers(value);
      if (!given || given->size() != 1)
        return given ? error("it pads with {} values", given->size()) : given.status();
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
  // The second results of MaxPool and TopK are indices.
  const int results = node.op_type() == "Split" ? node.output_size() : orders ? 0 : 1;
  for (int i = 0; i < results; ++i)
    reals[node.output(i)] = {node.output(i), *quantizer};
  *nodes.Add() = std::move(moved);
  return Status::success();
}

/// Converts a Clip of integers, which torch writes if it uses fewer values than the type has.
Status Dequantization::keepClip(const NodeProto &node) {
  const Real real = reals.at(node.input(0));
  IntegerRange range = *integerRange(real.quantizer.type);
  for (int i : {1, 2}) {
    if (inputOf(node, i).empty())
      continue;
    Expected<std::vector<double>> bound = constants.numbers(node.input(i));
    if (!bound || bound->size() != 1)
      return bound ? error("its bound \"{}\" has {} elements", node.input(i), bound->size()) : bound.status();
    (i == 1 ? range.low : range.high) = int64_t((*bound)[0]);
  }
  emitClip(node, real.name, node.output(0), real.quantizer, range);
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
  if (node.op_type() == "Clip" && canonicalDomain(node.domain()).empty() && node.input_size() > 1 &&
      node.output_size() && reals.count(node.input(0)))
    return keepClip(node);
  if (readsQuantized(node))
    return error("it computes with quantised integers in a way that has no floating-point meaning here");
  NodeProto &kept = *nodes.Add();
  kept = node;
  for (std::string &input : *kept.mutable_input())
    input = resolve(input);
  forEachInnerName(kept, [&](std::string &name) { name = resolve(name); });
  return Status::success();
}

//===----------------------------------------------------------------------===//
// The whole model
//===----------------------------------------------------------------------===//

/// Makes 8-bit outputs of the model floating-point. Outputs that the model dequantised keep their names.
void Dequantization::finishOutputs() {
  for (onnx::ValueInfoProto &output : *graph.mutable_output()) {
    if (auto real = reals.find(output.name()); real != reals.end()) {
      output.mutable_type()->mutable_tensor_type()->set_elem_type(TensorProto::FLOAT);
      warnings.push_back(
          fmt::format("{}: output {} was quantised, and is floating-point now", file.name, output.name()));
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

/// Erases scales and 8-bit weights that are no longer read, and notes on values that were removed or changed their
/// type.
void Dequantization::dropUnused(const std::set<std::string> &readBefore) {
  auto erase = [](auto &items, auto &&drop) {
    const int before = items.size();
    for (int i = items.size(); i-- > 0;)
      if (drop(items[i]))
        items.DeleteSubrange(i, 1);
    return items.size() < before;
  };
  // Repeat, since a copy of a scale or zero point may be read by another copy.
  static const std::set<std::string> copies = {"Constant", "Identity", "Cast"};
  std::set<std::string> read;
  do
    read = readNames();
  while (erase(*graph.mutable_node(), [&](const NodeProto &node) {
    return copies.count(node.op_type()) && node.output_size() == 1 && readBefore.count(node.output(0)) &&
           !read.count(node.output(0));
  }));
  auto unused = [&](const std::string &name) { return readBefore.count(name) && !read.count(name); };
  auto byName = [&](const auto &item) { return unused(item.name()); };
  // Older versions of the IR list initializers among the inputs.
  erase(*graph.mutable_input(),
        [&](const auto &input) { return file.initializers.count(input.name()) && byName(input); });
  std::erase_if(file.initializers, [&](const auto &item) { return unused(item.first); });
  erase(*graph.mutable_initializer(), byName);
  graph.clear_value_info();
  graph.clear_quantization_annotation();
}

/// Renames a weight to the name of its integers if these were removed.
void Dequantization::takeFreeNames() {
  std::map<std::string, std::string> renamed;
  std::set<std::string> taken; // names that nodes compute, which may be read as integers, too
  for (const NodeProto &node : graph.node())
    taken.insert(node.output().begin(), node.output().end());
  for (const auto &[key, made] : weights)
    if (const std::string wanted = nameBeforeQuantization(key.first); made != wanted && made.starts_with(wanted) &&
                                                                      !file.initializers.count(wanted) &&
                                                                      !taken.count(wanted) && key.first == wanted) {
      auto entry = file.initializers.extract(made);
      if (entry.empty())
        continue;
      entry.key() = wanted;
      file.initializers.insert(std::move(entry));
      renamed[made] = wanted;
    }
  auto rename = [&](std::string &name) {
    if (auto found = renamed.find(name); found != renamed.end())
      name = found->second;
  };
  for (TensorProto &tensor : *graph.mutable_initializer())
    rename(*tensor.mutable_name());
  for (NodeProto &node : *graph.mutable_node()) {
    for (std::string &input : *node.mutable_input())
      rename(input);
    forEachInnerName(node, rename);
  }
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
    // Check the node here: the ONNX library's checker only sees the rewritten model.
    // onnxruntime's QuantizeLinear and DequantizeLinear equal those of the standard at any opset.
    const bool standard = known && (domain.empty() || schemaOf("", node.op_type(), kNewestOpset));
    const std::string problem = standard ? schemaProblem(node, domain.empty() ? opset : kNewestOpset) : "";
    Status status = !known                    ? keep(node)
                    : node.output_size() == 0 ? error("it has no output")
                    : !problem.empty()        ? error("{}", problem)
                                              : (this->*handler->second)(node);
    if (!status.ok())
      problems.push_back(fmt::format("{}: {} (opset {}): {}", nodeName(node), node.op_type(), opset, status.message()));
  }
  if (problems.size() == 1)
    return error("{}: --dequantize: {}", file.path, problems[0]);
  if (!problems.empty())
    return error("{}: --dequantize: {} of its nodes have no floating-point meaning here:\n  {}", file.path,
                       problems.size(), fmt::join(problems, "\n  "));
  if (!found) {
    warnings.push_back(fmt::format("{}: --dequantize: no node of the model is quantised", file.name));
    return warnings;
  }
  finishOutputs();
  graph.mutable_node()->Swap(&nodes);
  dropUnused(readBefore);
  takeFreeNames();
  // A value that is read but no longer computed was an integer or a scale.
  std::set<std::string> values;
  for (const auto &[name, initializer] : file.initializers)
    values.insert(name);
  for (const onnx::ValueInfoProto &input : graph.input())
    values.insert(input.name());
  for (const NodeProto &node : graph.node()) {
    for (const std::string &input : node.input())
      if (!input.empty() && !values.count(input))
        return error(
            "{}: --dequantize: node {} ({}): it reads \"{}\", a quantised integer or its scale, which the "
            "floating-point model does not have",
            file.path, nodeName(node), node.op_type(), input);
    values.insert(node.output().begin(), node.output().end());
  }
  for (const onnx::ValueInfoProto &output : graph.output())
    if (!values.count(output.name()))
      return error(
          "{}: --dequantize: output \"{}\" is a quantised integer or a scale, which the floating-point model does "
          "not have",
          file.path, output.name());
  return warnings;
}

bool isDequantized(const std::string &domain, const std::string &op) {
  return (domain.empty() || domain == "com.microsoft") && Dequantization::handlers().count(op);
}

Expected<std::vector<std::string>> dequantize(OnnxFile &file) {
  for (const auto &[name, initializer] : file.initializers)
    if (initializer.inFourBits())
      return error("{}: --dequantize: initializer \"{}\": {}", file.path, name,
                   unreadQuantizedType(initializer.packedType));
  return Dequantization(file).run();
}

} // namespace tcc::frontend

//===- InputDimensions.cpp - bind the dimensions of graph inputs ----------===//
#include "frontend/InputDimensions.h"

#include "frontend/Dimensions.h"

#include <fmt/format.h>

namespace tcc::frontend {


namespace {

/// Names for a message.
std::string list(const std::set<std::string> &names) {
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

/// True for a name that --dim can bind; false for an expression of names.
bool isSymbol(const std::string &text) {
  return !isPlaceholder(text) && dimensionNames(text) == std::set<std::string>{text};
}

/// True for placeholders that --dim cannot bind. The numbered ones of tf2onnx are unique names, so it can.
bool isUnnamed(const std::string &text) { return isPlaceholder(text) && !text.starts_with("unk__"); }

/// Drops the shapes that graphs inside nodes declare for their values.
void dropInnerHints(google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes) {
  for (onnx::NodeProto &node : nodes)
    for (onnx::AttributeProto &attribute : *node.mutable_attribute())
      if (attribute.has_g()) {
        attribute.mutable_g()->clear_value_info();
        dropInnerHints(*attribute.mutable_g()->mutable_node());
      }
}

} // namespace

void takeHints(onnx::GraphProto &graph, std::map<std::string, std::vector<int64_t>> &hints) {
  auto take = [&](onnx::ValueInfoProto &value) {
    if (!value.type().has_tensor_type() || !value.type().tensor_type().has_shape())
      return;
    std::vector<int64_t> dims;
    for (const auto &dim : value.type().tensor_type().shape().dim())
      dims.push_back(dim.has_dim_value() && dim.dim_value() >= 0 ? dim.dim_value() : -1);
    hints.emplace(value.name(), std::move(dims));
    value.mutable_type()->mutable_tensor_type()->clear_shape();
  };
  for (onnx::ValueInfoProto &value : *graph.mutable_output())
    take(value);
  for (onnx::ValueInfoProto &value : *graph.mutable_value_info())
    take(value);
  dropInnerHints(*graph.mutable_node());
}

Status bindDimensions(const OnnxFile &file, const PrepareOptions &options, onnx::GraphProto &graph,
                      std::vector<std::string> &unbound) {
  std::map<std::string, int64_t> dims = options.dims;
  std::map<std::string, std::string> boundBy;
  std::set<std::string> names, inputs;
  bool reshaped = false;
  for (onnx::ValueInfoProto &input : *graph.mutable_input()) {
    if (file.initializers.count(input.name()))
      continue;
    inputs.insert(input.name());
    if (!input.type().has_tensor_type()) {
      unbound.push_back(fmt::format("input {}: no tensor; sequences, maps and optional inputs are not supported",
                                    input.name()));
      continue;
    }
    onnx::TypeProto_Tensor &type = *input.mutable_type()->mutable_tensor_type();
    auto given = options.shapes.find(input.name());
    if (given == options.shapes.end()) {
      if (!type.has_shape())
        unbound.push_back(fmt::format("input {}: no shape: give it with --shape {}=…", input.name(), input.name()));
      for (const onnx::TensorShapeProto_Dimension &dim : type.shape().dim())
        for (const std::string &name : dimensionNames(dim.dim_param()))
          if (!isUnnamed(name))
            names.insert(name);
      continue;
    }
    const std::vector<int64_t> &shape = given->second;
    if (type.has_shape() && type.shape().dim_size() != int(shape.size()))
      return error("{}: --shape {}: {} dimensions given, the model has {}", file.path, input.name(), shape.size(),
                         type.shape().dim_size());
    if (!type.has_shape())
      for (size_t i = 0; i < shape.size(); ++i)
        type.mutable_shape()->add_dim();
    for (size_t i = 0; i < shape.size(); ++i) {
      onnx::TensorShapeProto_Dimension &dim = *type.mutable_shape()->mutable_dim(int(i));
      if (shape[i] < 1)
        return error("{}: --shape {}: dimension {} is {}; dimensions are at least 1", file.path, input.name(), i,
                           shape[i]);
      if (dim.has_dim_param() && isSymbol(dim.dim_param())) {
        names.insert(dim.dim_param());
        auto [entry, inserted] = dims.emplace(dim.dim_param(), shape[i]);
        if (!inserted && entry->second != shape[i])
          return error("{}: --shape {}: dimension {} ({}) is {}, but {} elsewhere", file.path, input.name(), i,
                             dim.dim_param(), shape[i], entry->second);
      } else {
        reshaped |= dim.has_dim_value() && dim.dim_value() >= 0 && dim.dim_value() != shape[i];
        for (const std::string &name : dimensionNames(dim.dim_param()))
          if (!isUnnamed(name))
            names.insert(name);
      }
      dim.set_dim_value(shape[i]);
    }
  }
  for (const auto &[name, shape] : options.shapes)
    if (!inputs.count(name))
      return error("{}: --shape {}: the model has no such input; it has {}", file.path, name, list(inputs));
  for (const auto &[name, size] : options.dims) {
    if (!names.count(name))
      return error("{}{}: no input has a dimension called {}; the model's dimensions are: {}{}", options.dimsPlace,
                   file.path, name, list(names),
                   name == "batch" ? "; --batch N changes the batch of an export that has it fixed" : "");
    if (size < 1)
      return error("{}{}: dimension {} is {}; dimensions are at least 1", options.dimsPlace, file.path, name, size);
  }
  auto substitute = [&](onnx::ValueInfoProto &value) {
    if (!value.type().has_tensor_type() || !value.type().tensor_type().has_shape())
      return;
    for (auto &dim : *value.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim())
      if (dim.has_dim_param())
        if (std::optional<int64_t> size = dimensionValue(dim.dim_param(), dims))
          dim.set_dim_value(*size);
  };
  for (onnx::ValueInfoProto &input : *graph.mutable_input()) {
    if (file.initializers.count(input.name()))
      continue;
    if (!input.type().has_tensor_type())
      continue;
    substitute(input);
    int axis = 0;
    for (const auto &dim : input.type().tensor_type().shape().dim()) {
      if (dim.has_dim_param() && !isUnnamed(dim.dim_param()))
        unbound.push_back(fmt::format("input {}, axis {}: {}", input.name(), axis, dim.dim_param()));
      else if (!dim.has_dim_value() || dim.dim_value() < 0)
        unbound.push_back(fmt::format("input {}, axis {}: without a name", input.name(), axis));
      ++axis;
    }
  }
  // The file's declarations of inner values do not hold for other shapes.
  if (reshaped)
    graph.clear_value_info();
  for (onnx::ValueInfoProto &value : *graph.mutable_value_info())
    substitute(value);
  for (onnx::ValueInfoProto &value : *graph.mutable_output()) {
    substitute(value);
    if (reshaped && value.type().has_tensor_type())
      value.mutable_type()->mutable_tensor_type()->clear_shape();
  }
  return Status::success();
}

Status unboundError(const OnnxFile &file, const std::vector<std::string> &unbound) {
  std::string text;
  for (const std::string &line : unbound)
    text += "\n  " + line;
  return error("{}: dimensions without a value:{}\nbind them with --dim NAME=N, model.dims in the recipe, or --shape "
                     "INPUT=AxBxC",
                     file.path, text);
}

} // namespace tcc::frontend

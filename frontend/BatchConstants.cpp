//===- BatchConstants.cpp - constants that contain the batch size ----------===//
#include "frontend/BatchConstants.h"

#include "frontend/Limits.h"
#include "frontend/OnnxFile.h"
#include "frontend/OnnxLibrary.h"
#include "frontend/Weights.h"

#include <onnx/defs/schema.h>
#include <onnx/shape_inference/implementation.h>

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <optional>
#include <set>

namespace tcc::frontend {

using Dims = std::vector<int64_t>;

Dims dimsOf(const onnx::ValueInfoProto &value) {
  Dims dims;
  for (const auto &dim : value.type().tensor_type().shape().dim())
    dims.push_back(dim.has_dim_value() ? dim.dim_value() : -1);
  return dims;
}

namespace {

/// Rounds of shape inference and correction; each round corrects all constants that it finds.
constexpr int kMostRounds = 32;

using ShapeMap = std::map<std::string, Dims>;

/// Shapes of all values, as far as the ONNX library infers them.
ShapeMap inferShapes(onnx::ModelProto model) {
  ShapeMap shapes;
  try {
    onnx::ShapeInferenceOptions options(/*check_type=*/false, /*strict_mode=*/0, /*data_prop=*/true);
    onnx::shape_inference::InferShapes(model, onnx::OpSchemaRegistry::Instance(), options);
  } catch (const std::exception &) {
    // If inference fails, the shapes that the model holds are used.
  }
  const onnx::GraphProto &graph = model.graph();
  for (const onnx::TensorProto &tensor : graph.initializer())
    shapes[tensor.name()] = Dims(tensor.dims().begin(), tensor.dims().end());
  for (const auto *values : {&graph.input(), &graph.value_info(), &graph.output()})
    for (const onnx::ValueInfoProto &value : *values)
      if (value.type().tensor_type().has_shape())
        shapes[value.name()] = dimsOf(value);
  return shapes;
}

class BatchCheck {
public:
  BatchCheck(const onnx::ModelProto &exported, const std::map<std::string, Dims> &shapes) : model(exported) {
    forgetShapes();
    before = inferShapes(model);
    for (onnx::ValueInfoProto &input : *model.mutable_graph()->mutable_input()) {
      auto given = shapes.find(input.name());
      if (given == shapes.end() || given->second.empty() || dimsOf(input).size() != given->second.size())
        continue;
      auto &first = *input.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0);
      if (first.has_dim_value() && first.dim_value() != given->second[0]) {
        oldBatch = first.dim_value();
        newBatch = given->second[0];
        first.set_dim_value(newBatch);
      }
    }
    for (const onnx::NodeProto &node : model.graph().node())
      if (node.op_type() == "Constant" && node.attribute_size() == 1 && node.output_size() > 0 &&
          node.attribute(0).has_t())
        constants[node.output(0)] = &node.attribute(0).t();
    for (const onnx::TensorProto &tensor : model.graph().initializer())
      constants[tensor.name()] = &tensor;
    for (const onnx::ValueInfoProto &input : model.graph().input())
      if (shapes.count(input.name()))
        varying.insert(input.name());
    noteVarying();
  }

  /// The same shapes for another batch size along these axes of the inputs.
  BatchCheck(const onnx::ModelProto &exported, const std::map<std::string, int64_t> &axes, int64_t batch)
      : BatchCheck(exported, {}) {
    oldBatch = batch;
    newBatch = 3 * batch;
    for (onnx::ValueInfoProto &input : *model.mutable_graph()->mutable_input())
      if (auto axis = axes.find(input.name()); axis != axes.end()) {
        auto &shape = *input.mutable_type()->mutable_tensor_type()->mutable_shape();
        shape.mutable_dim(int(axis->second))->set_dim_value(newBatch);
        varying.insert(input.name());
      }
    noteVarying();
  }

  /// The axis of each output that grew from the old batch size to the new one, if no other axis changed.
  std::map<std::string, int64_t> grownOutputs() {
    (void)run();
    std::map<std::string, int64_t> grown;
    for (const onnx::ValueInfoProto &output : model.graph().output()) {
      const Dims old = find(before, output.name()), now = find(after, output.name());
      int64_t found = -1, changes = 0;
      for (size_t i = 0; i < old.size() && old.size() == now.size(); ++i)
        if (old[i] != now[i]) {
          ++changes;
          found = old[i] == oldBatch && now[i] == newBatch ? int64_t(i) : -1;
        }
      if (changes == 1 && found >= 0)
        grown[output.name()] = found;
    }
    return grown;
  }

  std::vector<std::string> run() {
    if (!newBatch)
      return {};
    for (int round = 0; round < kMostRounds; ++round) {
      after = inferShapes(model);
      const size_t found = lines.size();
      for (int i = 0; i < model.graph().node_size(); ++i)
        check(i);
      if (lines.size() == found)
        break;
    }
    return lines;
  }

private:
  void noteVarying() {
    for (const onnx::NodeProto &node : model.graph().node())
      if (std::any_of(node.input().begin(), node.input().end(), [&](auto &name) { return varying.count(name) != 0; }))
        varying.insert(node.output().begin(), node.output().end());
  }

  void forgetShapes() {
    model.mutable_graph()->clear_value_info();
    for (onnx::ValueInfoProto &output : *model.mutable_graph()->mutable_output())
      if (output.type().has_tensor_type())
        output.mutable_type()->mutable_tensor_type()->clear_shape();
  }

  static Dims find(const ShapeMap &shapes, const std::string &name) {
    auto found = shapes.find(name);
    return found == shapes.end() ? Dims() : found->second;
  }

  std::optional<Dims> integers(const std::string &name) const {
    auto found = constants.find(name);
    if (found == constants.end() || found->second->data_type() != onnx::TensorProto::INT64)
      return std::nullopt;
    Expected<std::string> bytes = tensorBytes(*found->second);
    if (!bytes)
      return std::nullopt;
    Dims values(bytes->size() / sizeof(int64_t));
    std::memcpy(values.data(), bytes->data(), bytes->size());
    return values;
  }

  /// Reports a node, and makes it read `corrected` instead, so that the nodes behind it can be checked.
  void report(int i, const std::string &text, int input, const Dims &corrected) {
    onnx::NodeProto &node = *model.mutable_graph()->mutable_node(i);
    if (!reported.insert(i).second)
      return;
    lines.push_back(fmt::format("node {} ({}): {}", nodeName(node), node.op_type(), text));
    if (corrected.empty())
      return;
    const std::string name = fmt::format("batch/{}", i);
    onnx::TensorProto &tensor = *model.mutable_graph()->add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(onnx::TensorProto::INT64);
    tensor.add_dims(int64_t(corrected.size()));
    for (int64_t value : corrected)
      tensor.add_int64_data(value);
    node.set_input(input, name);
  }

  void check(int i) {
    const onnx::NodeProto &node = model.graph().node(i);
    const std::string &op = node.op_type();
    if (reported.count(i) || node.input_size() == 0)
      return;
    if (op == "Reshape" && node.input_size() == 2)
      return checkReshape(i, node);
    if (op == "Concat")
      return checkConcat(i, node);
    if (op == "LSTM" || op == "GRU" || op == "RNN")
      for (int k = 5; k < std::min(node.input_size(), 7); ++k)
        if (Dims state = find(after, node.input(k)), x = find(after, node.input(0));
            state.size() == 3 && x.size() == 3 && state[1] == oldBatch && x[1] == newBatch)
          report(i, fmt::format("its initial state {} is for a batch of {}", node.input(k), oldBatch), k, {});
  }

  void checkReshape(int i, const onnx::NodeProto &node) {
    std::optional<Dims> target = integers(node.input(1));
    const Dims old = find(before, node.input(0)), now = find(after, node.input(0));
    if (!target || target->empty() || old == now || old.size() != now.size() ||
        std::count_if(now.begin(), now.end(), [](int64_t d) { return d < 0; }))
      return;
    const std::string text =
        fmt::format("{} = [{}] holds the batch of {}", node.input(1), fmt::join(*target, ", "), oldBatch);
    int64_t fixed = 1;
    const int64_t count = int64_t(std::min<uint64_t>(saturatingProduct(now), std::numeric_limits<int64_t>::max()));
    size_t free = target->size();
    for (size_t d = 0; d < target->size(); ++d) {
      int64_t dim = (*target)[d];
      if (dim < 0)
        free = d;
      else
        fixed = int64_t(std::min<uint64_t>(saturatingProduct(Dims{fixed, dim == 0 && d < now.size() ? now[d] : dim}),
                                           std::numeric_limits<int64_t>::max()));
    }
    Dims corrected = *target;
    if (free < target->size()) {
      // The −1 absorbs the new batch size. That is correct unless the first axis holds the old one as a number.
      if (free == 0 || target->front() != oldBatch)
        return;
      corrected.front() = newBatch;
      return report(i, text, 1, corrected);
    }
    if (fixed == count)
      return;
    // Scale the first axis that is a multiple of the batch size.
    for (int64_t &dim : corrected)
      if (fixed > 0 && count % fixed == 0 && oldBatch > 0 && dim % oldBatch == 0) {
        dim *= count / fixed;
        break;
      }
    report(i, text, 1, corrected);
  }

  void checkConcat(int i, const onnx::NodeProto &node) {
    bool grown = false;
    std::vector<std::string> stuck;
    for (const std::string &input : node.input()) {
      const Dims old = find(before, input), now = find(after, input);
      if (!varying.count(input) && (now.empty() || now[0] == oldBatch)) {
        stuck.push_back(now.empty() ? input : fmt::format("{} = [{}]", input, fmt::join(now, ", ")));
        continue;
      }
      if (old.empty() || now.empty())
        return;
      grown |= old[0] == oldBatch && now[0] == newBatch;
      if (old == now && now[0] == oldBatch)
        stuck.push_back(fmt::format("{} = [{}]", input, fmt::join(now, ", ")));
    }
    for (const onnx::AttributeProto &attribute : node.attribute())
      if (attribute.name() == "axis" && attribute.i() == 0)
        return;
    if (grown && !stuck.empty())
      report(i,
             fmt::format("{} {} for a batch of {}", fmt::join(stuck, ", "), stuck.size() == 1 ? "is" : "are", oldBatch),
             0, {});
  }

  onnx::ModelProto model;
  ShapeMap before, after;
  std::map<std::string, const onnx::TensorProto *> constants;
  std::set<std::string> varying; ///< values that depend on an input whose shape changed
  std::set<int> reported;
  std::vector<std::string> lines;
  int64_t oldBatch = 0, newBatch = 0;
};
} // namespace

std::vector<std::string> bakedConstants(const onnx::ModelProto &model, const std::map<std::string, Dims> &shapes) {
  return shapes.empty() ? std::vector<std::string>() : BatchCheck(model, shapes).run();
}

std::map<std::string, int64_t> sampledOutputs(const onnx::ModelProto &model, const std::map<std::string, int64_t> &axes,
                                              int64_t batch) {
  return BatchCheck(model, axes, batch).grownOutputs();
}

} // namespace tcc::frontend

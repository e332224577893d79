//===- InnerWeights.cpp - weights in Constant nodes, branches and functions -===//
#include "frontend/InnerWeights.h"

#include "frontend/OnnxLibrary.h"
#include "frontend/Weights.h"
#include "runtime/plan/ModelNotes.h"

#include <algorithm>
#include <fmt/format.h>

namespace tcc::frontend {
namespace {


/// As many bytes as the largest element type has: the ONNX checker requires them for a scalar.
constexpr const char *kPlaceholder = "00000000";

const std::string *noteOf(const onnx::TensorProto &tensor) {
  for (const onnx::StringStringEntryProto &note : tensor.metadata_props())
    if (note.key() == plan::kWeightNote)
      return &note.value();
  return nullptr;
}

void dropNote(onnx::TensorProto &tensor) {
  auto &notes = *tensor.mutable_metadata_props();
  for (int i = notes.size(); i-- > 0;)
    if (notes[i].key() == plan::kWeightNote)
      notes.DeleteSubrange(i, 1);
}

onnx::AttributeProto *valueOf(onnx::NodeProto &node) {
  if (node.op_type() != "Constant" || !canonicalDomain(node.domain()).empty() || node.output_size() != 1)
    return nullptr;
  for (onnx::AttributeProto &attribute : *node.mutable_attribute())
    if (attribute.name() == "value" && attribute.has_t() && attribute.ref_attr_name().empty())
      return &attribute;
  return nullptr;
}

/// Calls `visit(nodes, initializers, home)` for the graphs inside of these nodes; `initializers` is null for a
/// function's.
template <typename Nodes, typename Visit>
Status forEachScope(Nodes &nodes, google::protobuf::RepeatedPtrField<onnx::TensorProto> *initializers,
                    const std::string &home, const Visit &visit) {
  if (Status status = visit(nodes, initializers, home); !status.ok())
    return status;
  for (onnx::NodeProto &node : nodes)
    for (onnx::AttributeProto &attribute : *node.mutable_attribute())
      if (attribute.has_g()) {
        onnx::GraphProto &graph = *attribute.mutable_g();
        const std::string inner =
            fmt::format("{}{}/{}", home.empty() ? "" : home + "/", nodeName(node), attribute.name());
        if (Status status = forEachScope(*graph.mutable_node(), graph.mutable_initializer(), inner, visit);
            !status.ok())
          return status;
      }
  return Status::success();
}

/// Visits the scopes of a model; the outermost graph's initializers are left out.
template <typename Visit> Status forEachScope(onnx::ModelProto &model, const Visit &visit) {
  if (Status status = forEachScope(*model.mutable_graph()->mutable_node(), nullptr, "", visit); !status.ok())
    return status;
  for (onnx::FunctionProto &function : *model.mutable_functions())
    if (Status status = forEachScope(*function.mutable_node(), nullptr, function.name(), visit); !status.ok())
      return status;
  return Status::success();
}

/// Calls `visit` for the tensors of inner graphs and Constant nodes.
template <typename Visit> Status forEachTensor(onnx::ModelProto &model, const Visit &visit) {
  return forEachScope(model, [&](auto &nodes, auto *initializers, const std::string &) -> Status {
    for (int i = 0; initializers && i < initializers->size(); ++i)
      if (Status status = visit(*initializers->Mutable(i)); !status.ok())
        return status;
    for (onnx::NodeProto &node : nodes)
      if (onnx::AttributeProto *value = valueOf(node))
        if (Status status = visit(*value->mutable_t()); !status.ok())
          return status;
    return Status::success();
  });
}

class Taking {
public:
  explicit Taking(OnnxFile &file) : file(file) {
    for (const onnx::ValueInfoProto &input : file.model.graph().input())
      taken.insert(input.name());
    for (const auto &[name, tie] : file.ties)
      taken.insert(name);
  }

  Status run() {
    return forEachScope(file.model, [&](auto &nodes, auto *initializers, const std::string &home) -> Status {
      for (int i = 0; initializers && i < initializers->size(); ++i) {
        onnx::TensorProto &tensor = *initializers->Mutable(i);
        if (Status status = take(tensor, tensor.name(), home, "the graph of " + home); !status.ok())
          return status.withContext(fmt::format("{}: initializer \"{}\" of {}", file.path, tensor.name(), home));
      }
      for (onnx::NodeProto &node : nodes)
        if (onnx::AttributeProto *value = valueOf(node))
          if (Status status =
                  take(*value->mutable_t(), node.output(0), home, "a Constant node");
              !status.ok())
            return status.withContext(fmt::format("{}: node {}", file.path, nodeName(node)));
      return Status::success();
    });
  }

private:
  Status take(onnx::TensorProto &tensor, const std::string &value, const std::string &scope, const std::string &home) {
    if (!isFloatType(tensor.data_type()) || tensor.dims().empty() ||
        std::count(tensor.dims().begin(), tensor.dims().end(), 0))
      return Status::success();
    std::string name = value;
    for (int number = 1; file.initializers.count(name) || taken.count(name) || name.empty() || name == "forward";
         ++number)
      name =
          fmt::format("{}{}{}", scope.empty() ? "" : scope + "/", value, number > 1 ? fmt::format("#{}", number) : "");
    auto initializer = takeTensor(tensor, file.folder);
    if (!initializer)
      return initializer.status();
    initializer->home = home;
    file.initializers.emplace(name, initializer.take());
    tensor.set_raw_data(kPlaceholder);
    onnx::StringStringEntryProto &note = *tensor.add_metadata_props();
    note.set_key(plan::kWeightNote);
    note.set_value(name);
    return Status::success();
  }

  OnnxFile &file;
  std::set<std::string> taken; ///< names of values other than initializers
};

/// Replaces Constant nodes by Identity in place; Identity nodes for initializers come before all nodes.
void readWeights(google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes,
                 google::protobuf::RepeatedPtrField<onnx::TensorProto> *initializers) {
  for (onnx::NodeProto &node : nodes) {
    for (onnx::AttributeProto &attribute : *node.mutable_attribute())
      if (attribute.has_g())
        readWeights(*attribute.mutable_g()->mutable_node(), attribute.mutable_g()->mutable_initializer());
    onnx::AttributeProto *value = valueOf(node);
    const std::string *weight = value ? noteOf(value->t()) : nullptr;
    if (!weight)
      continue;
    node.set_op_type("Identity");
    node.add_input(*weight);
    node.clear_attribute();
  }
  google::protobuf::RepeatedPtrField<onnx::TensorProto> others;
  google::protobuf::RepeatedPtrField<onnx::NodeProto> reads; // Identity nodes first, then all other nodes
  for (int i = 0; initializers && i < initializers->size(); ++i) {
    onnx::TensorProto &tensor = *initializers->Mutable(i);
    const std::string *weight = noteOf(tensor);
    if (!weight) {
      others.Add()->Swap(&tensor);
      continue;
    }
    onnx::NodeProto &read = *reads.Add();
    read.set_op_type("Identity");
    read.set_name(tensor.name());
    read.add_input(*weight);
    read.add_output(tensor.name());
  }
  if (!initializers)
    return;
  initializers->Swap(&others);
  for (onnx::NodeProto &node : nodes)
    reads.Add()->Swap(&node);
  nodes.Swap(&reads);
}

} // namespace

Status takeInnerWeights(OnnxFile &file) { return Taking(file).run(); }

void readInnerWeights(onnx::GraphProto &graph) { readWeights(*graph.mutable_node(), nullptr); }
void readInnerWeights(onnx::FunctionProto &function) { readWeights(*function.mutable_node(), nullptr); }

Status restoreInnerWeights(const OnnxFile &file, const std::set<std::string> &variables, uint64_t smallBytes,
                           onnx::ModelProto &model) {
  auto restore = [&](onnx::TensorProto &tensor) -> Status {
    const std::string *note = noteOf(tensor);
    if (!note)
      return Status::success();
    const std::string name = *note;
    const OnnxInitializer &initializer = file.initializers.at(name);
    const bool variable = variables.count(name) != 0;
    tensor.clear_raw_data();
    if (!variable)
      dropNote(tensor);
    if (variable && initializer.bytes > smallBytes)
      return Status::success();
    auto bytes = initializerBytes(initializer);
    if (!bytes)
      return bytes.status();
    tensor.set_raw_data(bytes.take());
    return Status::success();
  };
  return forEachTensor(model, restore);
}

void makeInnerWeightsScalars(onnx::ModelProto &model) {
  (void)forEachTensor(model, [](onnx::TensorProto &tensor) {
    if (noteOf(tensor))
      tensor.clear_dims();
    return Status::success();
  });
}

} // namespace tcc::frontend

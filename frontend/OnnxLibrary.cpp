//===- OnnxLibrary.cpp - the official library's part of the import --------===//
#include "frontend/OnnxLibrary.h"

#include <onnx/checker.h>
#include <onnx/defs/schema.h>
#include <onnx/inliner/inliner.h>
#include <onnx/shape_inference/implementation.h>

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <set>

namespace tcc::frontend {
namespace {

using plan::Expected;
using plan::Status;

/// Initializers up to this size are shown to shape inference, which computes with them.
constexpr uint64_t kVisibleBytes = 64 * 1024;

/// Runs a part of the ONNX library; what it throws becomes an error.
template <typename Function> Status guarded(const std::string &path, const char *stage, Function &&function) {
  try {
    function();
    return Status::success();
  } catch (const std::exception &exception) {
    std::string text = exception.what();
    while (!text.empty() && (text.back() == '\n' || text.back() == ' '))
      text.pop_back();
    return plan::error("{}: {}: {}", path, stage, text);
  } catch (...) {
    return plan::error("{}: {}: the ONNX library failed without a reason", path, stage);
  }
}

/// Puts what the library's algorithms need to know of the initializers back: values of the small ones, types of the others
/// (as graph inputs).
void showInitializers(const OnnxFile &file, onnx::GraphProto &graph) {
  std::set<std::string> inputs;
  for (const onnx::ValueInfoProto &input : graph.input())
    inputs.insert(input.name());
  graph.clear_initializer();
  for (const auto &[name, initializer] : file.initializers) {
    if (initializer.bytes <= kVisibleBytes && !initializer.external()) {
      onnx::TensorProto &tensor = *graph.add_initializer();
      tensor.set_name(name);
      tensor.set_data_type(initializer.type);
      for (int64_t dim : initializer.dims)
        tensor.add_dims(dim);
      tensor.set_raw_data(initializer.data);
    }
    // Every one is an input too: versions of the IR before 4 ask for it, later ones allow it.
    if (inputs.count(name))
      continue;
    onnx::ValueInfoProto &input = *graph.add_input();
    input.set_name(name);
    onnx::TypeProto_Tensor &type = *input.mutable_type()->mutable_tensor_type();
    type.set_elem_type(initializer.type);
    type.mutable_shape();
    for (int64_t dim : initializer.dims)
      type.mutable_shape()->add_dim()->set_dim_value(dim);
  }
}

Status checkVersions(const OnnxFile &file, std::map<std::string, int64_t> &opsets) {
  const onnx::ModelProto &model = file.model;
  if (model.ir_version() > onnx::Version::IR_VERSION)
    return plan::error("{}: made for ONNX IR version {}; this build reads up to {}: export it with an older version of onnx",
                       file.path, model.ir_version(), int(onnx::Version::IR_VERSION));
  if (model.ir_version() < 1)
    return plan::error("{}: no ONNX IR version: not an ONNX model, or truncated", file.path);
  for (const onnx::OperatorSetIdProto &set : model.opset_import())
    opsets[canonicalDomain(set.domain())] = set.version();
  auto standard = opsets.find("");
  if (standard == opsets.end())
    return Status::success();
  if (standard->second < kOldestOpset || standard->second > kNewestOpset)
    return plan::error("{}: opset {} is outside of what this version reads, {} to {}: export it with an opset in between",
                       file.path, standard->second, kOldestOpset, kNewestOpset);
  return Status::success();
}

std::string helpFor(const std::string &domain, const std::string &op) {
  static const std::set<std::string> control = {"If", "Loop", "Scan", "SequenceMap"};
  static const std::set<std::string> text = {"StringNormalizer", "TfIdfVectorizer", "StringConcat", "StringSplit",
                                             "RegexFullMatch", "ImageDecoder"};
  if (domain.empty()) {
    if (control.count(op))
      return "control flow that depends on data has no static plan; export with constant conditions and trip counts, or "
             "fold them (onnxsim)";
    if (op.find("Quantize") != op.npos || op.find("Integer") != op.npos || op.starts_with("QLinear"))
      return "quantised models are not trained; export the floating-point model";
    if (text.count(op))
      return "do this in the data's preparation, outside of the model";
    if (op == "NonZero" || op == "Unique" || op == "NonMaxSuppression" || op == "Compress")
      return "its output's shape depends on data; leave it out of the trained part of the model";
    return "not supported by this version yet; express it by other ops, or export with another opset";
  }
  if (domain.starts_with("ai.onnx.preview.training"))
    return "the optimizer is tcc's part: export the forward graph alone";
  if (domain == "ai.onnx.ml")
    return "classical machine-learning ops are not trained; export the neural part alone";
  return "not a standard ONNX op; export it as a model-local function, or with standard ops";
}

const onnx::OpSchema *schemaOf(const std::string &domain, const std::string &op, int64_t version) {
  return onnx::OpSchemaRegistry::Schema(op, int(version), domain);
}

bool hasBody(const onnx::OpSchema *schema) {
  return schema && (schema->HasFunction() || schema->HasContextDependentFunction());
}

/// Calls `visit(node, prefix)` for every node of the graph and of the functions it can reach.
template <typename Visit> void forEachNode(const onnx::ModelProto &model, Visit &&visit) {
  for (const onnx::NodeProto &node : model.graph().node())
    visit(node, std::string());
  for (const onnx::FunctionProto &function : model.functions())
    for (const onnx::NodeProto &node : function.node())
      visit(node, function.name() + "/");
}

/// Ops that neither the table, nor a function of the model, nor a body in the schema covers.
std::vector<UnsupportedOp> findUnsupported(const onnx::ModelProto &model, const std::map<std::string, int64_t> &opsets,
                                           const PrepareOptions &options, bool bodiesCount) {
  std::set<std::pair<std::string, std::string>> functions;
  for (const onnx::FunctionProto &function : model.functions())
    functions.emplace(canonicalDomain(function.domain()), function.name());
  std::vector<UnsupportedOp> result;
  forEachNode(model, [&](const onnx::NodeProto &node, const std::string &prefix) {
    std::string domain = canonicalDomain(node.domain());
    if (functions.count({domain, node.op_type()}))
      return;
    auto found = opsets.find(domain);
    int64_t version = found == opsets.end() ? (domain.empty() ? kNewestOpset : 1) : found->second;
    if (options.knows(domain, node.op_type(), version))
      return;
    if (bodiesCount && hasBody(schemaOf(domain, node.op_type(), version)))
      return;
    UnsupportedOp op{prefix + nodeName(node), node.op_type(), domain, version, helpFor(domain, node.op_type())};
    if (domain.empty() && !schemaOf(domain, node.op_type(), version))
      op.help = fmt::format("opset {} has no such op", version);
    result.push_back(std::move(op));
  });
  return result;
}

/// Writes out the attributes that a call leaves to their defaults: the inliner does not know these.
void addDefaults(onnx::NodeProto &node, const onnx::OpSchema &schema) {
  // In the order of names, whatever the order of the schema's map.
  std::map<std::string, onnx::AttributeProto> defaults;
  for (const auto &[name, attribute] : schema.attributes())
    if (attribute.default_value.has_name())
      defaults.emplace(name, attribute.default_value);
  for (const onnx::AttributeProto &given : node.attribute())
    defaults.erase(given.name());
  for (const auto &[name, value] : defaults)
    *node.add_attribute() = value;
}

/// Replaces calls of standard ops that the table lacks by the bodies in their schemas. Where the library cannot, the calls
/// stay, and its reason goes into `problems` by op.
void inlineBodies(const std::string &path, onnx::ModelProto &model, const std::map<std::string, int64_t> &opsets,
                  const PrepareOptions &options, std::map<std::string, std::string> &problems) {
  // Bodies may call ops with bodies in turn; a chain of more than a few does not exist in the standard.
  for (int round = 0; round < 8; ++round) {
    std::set<std::pair<std::string, std::string>> calls;
    for (onnx::NodeProto &node : *model.mutable_graph()->mutable_node()) {
      std::string domain = canonicalDomain(node.domain());
      auto version = opsets.find(domain);
      if (version == opsets.end() || problems.count(node.op_type()) ||
          options.knows(domain, node.op_type(), version->second))
        continue;
      const onnx::OpSchema *schema = schemaOf(domain, node.op_type(), version->second);
      if (!hasBody(schema))
        continue;
      addDefaults(node, *schema);
      calls.emplace(domain, node.op_type());
    }
    if (calls.empty())
      return;
    for (const auto &call : calls) {
      onnx::ModelProto attempt = model;
      Status status = guarded(path, "inlining", [&] {
        auto set = onnx::inliner::FunctionIdSet::Create({call});
        onnx::inliner::InlineSelectedFunctions(attempt, *set, nullptr);
      });
      if (status.ok())
        model.Swap(&attempt);
      else
        problems[call.second] = "not supported in this form by this version yet (optional inputs left out, or types that "
                                "are not known)";
    }
  }
}

/// Names for a message.
std::string list(const std::set<std::string> &names) {
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

/// Binds the dimensions of the graph inputs, and of all values that name them.
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
    if (!input.type().has_tensor_type())
      return plan::error("{}: input {} is no tensor; sequences, maps and optional inputs are not supported", file.path,
                         input.name());
    onnx::TypeProto_Tensor &type = *input.mutable_type()->mutable_tensor_type();
    auto given = options.shapes.find(input.name());
    if (given == options.shapes.end()) {
      if (!type.has_shape())
        return plan::error("{}: input {} has no shape: give it with --shape {}=…", file.path, input.name(), input.name());
      for (const onnx::TensorShapeProto_Dimension &dim : type.shape().dim())
        if (dim.has_dim_param() && !dim.dim_param().empty())
          names.insert(dim.dim_param());
      continue;
    }
    const std::vector<int64_t> &shape = given->second;
    if (type.has_shape() && type.shape().dim_size() != int(shape.size()))
      return plan::error("{}: --shape {}: {} dimensions given, the model has {}", file.path, input.name(), shape.size(),
                         type.shape().dim_size());
    if (!type.has_shape())
      for (size_t i = 0; i < shape.size(); ++i)
        type.mutable_shape()->add_dim();
    for (size_t i = 0; i < shape.size(); ++i) {
      onnx::TensorShapeProto_Dimension &dim = *type.mutable_shape()->mutable_dim(int(i));
      if (shape[i] < 1)
        return plan::error("{}: --shape {}: dimension {} is {}; dimensions are at least 1", file.path, input.name(), i,
                           shape[i]);
      if (dim.has_dim_param() && !dim.dim_param().empty()) {
        names.insert(dim.dim_param());
        auto [entry, inserted] = dims.emplace(dim.dim_param(), shape[i]);
        if (!inserted && entry->second != shape[i])
          return plan::error("{}: --shape {}: dimension {} ({}) is {}, but {} elsewhere", file.path, input.name(), i,
                             dim.dim_param(), shape[i], entry->second);
      } else {
        reshaped |= dim.dim_value() != shape[i];
      }
      dim.set_dim_value(shape[i]);
    }
  }
  for (const auto &[name, shape] : options.shapes)
    if (!inputs.count(name))
      return plan::error("{}: --shape {}: the model has no such input; it has {}", file.path, name, list(inputs));
  for (const auto &[name, size] : options.dims) {
    if (!names.count(name))
      return plan::error("{}{}: no input has a dimension called {}; the model's dimensions are: {}", options.dimsPlace,
                         file.path, name, list(names));
    if (size < 1)
      return plan::error("{}{}: dimension {} is {}; dimensions are at least 1", options.dimsPlace, file.path, name, size);
  }
  auto substitute = [&](onnx::ValueInfoProto &value) {
    if (!value.type().has_tensor_type() || !value.type().tensor_type().has_shape())
      return;
    for (auto &dim : *value.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim())
      if (dim.has_dim_param())
        if (auto found = dims.find(dim.dim_param()); found != dims.end())
          dim.set_dim_value(found->second);
  };
  for (onnx::ValueInfoProto &input : *graph.mutable_input()) {
    if (file.initializers.count(input.name()))
      continue;
    substitute(input);
    int axis = 0;
    for (const auto &dim : input.type().tensor_type().shape().dim()) {
      if (dim.has_dim_param() && !dim.dim_param().empty())
        unbound.push_back(fmt::format("input {}, axis {}: {}", input.name(), axis, dim.dim_param()));
      else if (!dim.has_dim_value() || dim.dim_value() < 0)
        unbound.push_back(fmt::format("input {}, axis {}: without a name", input.name(), axis));
      else if (dim.dim_value() == 0)
        return plan::error("{}: input {} has no elements: its axis {} is 0", file.path, input.name(), axis);
      ++axis;
    }
  }
  // What the file says of inner values no longer holds under other shapes; inference says it anew.
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
  return plan::error("{}: dimensions without a value:{}\nbind them with --dim NAME=N, model.dims in the recipe, or --shape "
                     "INPUT=AxBxC",
                     file.path, text);
}

} // namespace

std::string canonicalDomain(const std::string &domain) { return domain == "ai.onnx" ? std::string() : domain; }

std::string nodeName(const onnx::NodeProto &node) {
  if (!node.name().empty())
    return node.name();
  return fmt::format("{} → {}", node.op_type(), node.output_size() ? node.output(0) : "nothing");
}

std::string describe(const UnsupportedOp &op) {
  return fmt::format("{}: {}{} (opset {}): {}", op.node, op.domain.empty() ? "" : op.domain + "::", op.op, op.opset,
                     op.help);
}

Expected<PreparedModel> prepareModel(const OnnxFile &file, const PrepareOptions &options) {
  PreparedModel prepared;
  if (Status status = checkVersions(file, prepared.opsets); !status.ok())
    return status;
  onnx::ModelProto model = file.model;
  for (onnx::NodeProto &node : *model.mutable_graph()->mutable_node())
    if (node.domain() == "ai.onnx")
      node.clear_domain();
  showInitializers(file, *model.mutable_graph());

  prepared.unsupported = findUnsupported(model, prepared.opsets, options, true);
  Status checked = guarded(file.path, "the ONNX checker refuses the model", [&] {
    // A missing shape is common, and found out by the import itself.
    onnx::ModelProto shaped = model;
    for (auto *values : {shaped.mutable_graph()->mutable_input(), shaped.mutable_graph()->mutable_output()})
      for (onnx::ValueInfoProto &value : *values)
        if (value.type().has_tensor_type())
          value.mutable_type()->mutable_tensor_type()->mutable_shape();
    onnx::checker::check_model(shaped, /*full_check=*/false, /*skip_opset_compatibility_check=*/true);
  });
  // The checker stops at the first op it does not know; the list of them all says more.
  if (!prepared.unsupported.empty()) {
    prepared.graph = model.graph();
    return prepared;
  }
  if (!checked.ok())
    return checked;
  if (Status status = guarded(file.path, "inlining the model's functions",
                              [&] { onnx::inliner::InlineLocalFunctions(model, /*convert_version=*/false); });
      !status.ok())
    return status;
  if (Status status = bindDimensions(file, options, *model.mutable_graph(), prepared.unbound); !status.ok())
    return status;
  if (!prepared.unbound.empty() && options.requireBound)
    return unboundError(file, prepared.unbound);
  // Strict first, which finds the most; some functions of the standard fail it by themselves, so that a failure is one
  // only if the lenient mode agrees. The importer checks every node's shapes again.
  auto infer = [&](int strictness) {
    return guarded(file.path, "shape inference", [&] {
      onnx::ShapeInferenceOptions settings(/*check_type=*/true, strictness, /*data_prop=*/true);
      onnx::shape_inference::InferShapes(model, onnx::OpSchemaRegistry::Instance(), settings);
    });
  };
  if (!infer(1).ok())
    if (Status status = infer(0); !status.ok())
      return status;
  std::map<std::string, std::string> problems;
  inlineBodies(file.path, model, prepared.opsets, options, problems);
  // A call that is left has a function of another opset than the model's; it is listed as unsupported.
  model.clear_functions();
  prepared.unsupported = findUnsupported(model, prepared.opsets, options, false);
  for (UnsupportedOp &op : prepared.unsupported)
    if (auto found = problems.find(op.op); found != problems.end())
      op.help = found->second;
  prepared.graph.Swap(model.mutable_graph());
  prepared.graph.clear_initializer();
  return prepared;
}

} // namespace tcc::frontend

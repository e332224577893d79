//===- OnnxLibrary.cpp - checker, inliner and shape inference of ONNX -----===//
#include "frontend/OnnxLibrary.h"

#include "frontend/BatchAxis.h"
#include "frontend/BatchConstants.h"
#include "frontend/Dequantize.h"
#include "frontend/Dimensions.h"
#include "frontend/InnerWeights.h"
#include "frontend/Isolation.h"
#include "frontend/Limits.h"
#include "frontend/Weights.h"
#include "support/Status.h"
#include "support/TerminalText.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <onnx/checker.h>
#include <onnx/defs/function.h>
#include <onnx/defs/schema.h>
#include <onnx/inliner/inliner.h>
#include <onnx/onnx_pb.h>
#include <onnx/shape_inference/implementation.h>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>

namespace tcc::frontend {

namespace {

// If each function calls another one twice, every level of calls doubles the model. So the size after inlining is
// computed before anything is inlined, in one visit of each function.

/// Domain, name and overload.
using Key = std::tuple<std::string, std::string, std::string>;
using Functions = std::map<Key, const onnx::FunctionProto *>;

Functions functionsOf(const onnx::ModelProto &model) {
  Functions functions;
  for (const onnx::FunctionProto &function : model.functions())
    functions.emplace(Key(canonicalDomain(function.domain()), function.name(), function.overload()), &function);
  return functions;
}

const onnx::FunctionProto *calledBy(const Functions &functions, const onnx::NodeProto &node) {
  auto found = functions.find(Key(canonicalDomain(node.domain()), node.op_type(), node.overload()));
  return found == functions.end() ? nullptr : found->second;
}

/// Nodes and bytes after inlining; both saturate instead of wrapping.
struct Size {
  uint64_t nodes = 0, bytes = 0;
  size_t depth = 0; ///< of calls
  void add(const Size &other) {
    if (__builtin_add_overflow(nodes, other.nodes, &nodes))
      nodes = ~uint64_t(0);
    if (__builtin_add_overflow(bytes, other.bytes, &bytes))
      bytes = ~uint64_t(0);
    depth = std::max(depth, other.depth + 1);
  }
};

class Expansion {
public:
  Expansion(const std::string &path, const onnx::ModelProto &model)
      : path(path), model(model), functions(functionsOf(model)) {}

  Status check() {
    Expected<Size> whole = sizeOf(model.graph().node(), 0);
    if (!whole)
      return whole.status();
    if (whole->nodes > uint64_t(kMostNodes))
      return error("{}: inlining its functions gives more than {} nodes, the most that are supported; nested calls "
                   "multiply nodes",
                         path, kMostNodes);
    if (whole->bytes > kMostInlinedBytes)
      return error("{}: inlining its functions adds more than {} MiB to the model, the most that is supported; make "
                   "their constants inputs",
                         path, kMostInlinedBytes >> 20);
    return Status::success();
  }

private:
  template <typename Nodes> Expected<Size> sizeOf(const Nodes &nodes, size_t depth) {
    Size size;
    for (const onnx::NodeProto &node : nodes) {
      ++size.nodes;
      if (const onnx::FunctionProto *function = calledBy(functions, node)) {
        Expected<Size> inner = sizeOf(*function, depth + 1);
        if (!inner)
          return inner.status();
        size.add(*inner);
      }
      for (const onnx::AttributeProto &attribute : node.attribute())
        if (attribute.has_g()) {
          Expected<Size> inner = sizeOf(attribute.g().node(), depth);
          if (!inner)
            return inner.status();
          size.nodes = std::max(size.nodes, size.nodes + inner->nodes);
          size.bytes = std::max(size.bytes, size.bytes + inner->bytes);
          size.depth = std::max(size.depth, inner->depth);
        }
    }
    return size;
  }

  Expected<Size> sizeOf(const onnx::FunctionProto &function, size_t depth) {
    auto [entry, inserted] = known.emplace(&function, std::nullopt);
    if (!inserted && !entry->second)
      return error("{}: function {} calls itself", path, function.name());
    if (inserted) {
      if (depth > kDeepestNesting)
        return tooDeep(function);
      Expected<Size> inner = sizeOf(function.node(), depth);
      if (!inner)
        return inner.status();
      inner->add({0, function.ByteSizeLong(), 0});
      entry->second = *inner;
    }
    if (depth + entry->second->depth > kDeepestNesting + 1)
      return tooDeep(function);
    return *entry->second;
  }

  Status tooDeep(const onnx::FunctionProto &function) const {
    return error("{}: function {}: functions call each other more than {} deep", path, function.name(),
                 kDeepestNesting);
  }

  const std::string &path;
  const onnx::ModelProto &model;
  const Functions functions;
  std::map<const onnx::FunctionProto *, std::optional<Size>> known; ///< nothing while it is being counted
};

template <typename Nodes> void addDefaults(Nodes &nodes, const Functions &functions) {
  for (onnx::NodeProto &node : nodes) {
    for (onnx::AttributeProto &attribute : *node.mutable_attribute())
      if (attribute.has_g())
        addDefaults(*attribute.mutable_g()->mutable_node(), functions);
    const onnx::FunctionProto *function = calledBy(functions, node);
    if (!function)
      continue;
    for (const onnx::AttributeProto &attribute : function->attribute_proto()) {
      bool given = std::any_of(node.attribute().begin(), node.attribute().end(),
                               [&](const onnx::AttributeProto &one) { return one.name() == attribute.name(); });
      if (!given)
        *node.add_attribute() = attribute;
    }
  }
}

/// Errors: functions that call themselves, are nested deeper than kDeepestNesting, or make more than kMostNodes nodes
/// or kMostInlinedBytes bytes of the model.
Status checkFunctionExpansion(const std::string &path, const onnx::ModelProto &model) {
  return Expansion(path, model).check();
}

/// Adds the default attributes that calls of the model's functions omit, in the graph and in functions.
void addFunctionDefaults(onnx::ModelProto &model) {
  // Look defaults up in a copy, since the loop changes nodes of functions.
  const onnx::ModelProto copy = [&] {
    onnx::ModelProto functionsOnly;
    *functionsOnly.mutable_functions() = model.functions();
    return functionsOnly;
  }();
  const Functions functions = functionsOf(copy);
  addDefaults(*model.mutable_graph()->mutable_node(), functions);
  for (onnx::FunctionProto &function : *model.mutable_functions())
    addDefaults(*function.mutable_node(), functions);
}

/// Lists names for a message.
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

/// Moves the declared shapes of values that the graph's nodes compute into `hints`.
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

/// Binds the dimensions of the graph inputs, and of all values that name them; `unbound` gets those without a value,
/// one line each. Errors: a shape or a dimension that does not fit the inputs.
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

/// The error that lists unbound dimensions.
Status unboundError(const OnnxFile &file, const std::vector<std::string> &unbound) {
  std::string text;
  for (const std::string &line : unbound)
    text += "\n  " + line;
  return error("{}: dimensions without a value:{}\nbind them with --dim NAME=N, model.dims in the recipe, or --shape "
                     "INPUT=AxBxC",
                     file.path, text);
}

} // namespace

const onnx::OpSchema *schemaOf(const std::string &domain, const std::string &op, int64_t version) {
  return onnx::OpSchemaRegistry::Schema(op, int(std::clamp<int64_t>(version, 0, std::numeric_limits<int>::max())),
                                        domain);
}

std::string schemaProblem(const onnx::NodeProto &node, int64_t opset) {
  const onnx::OpSchema *schema = schemaOf("", node.op_type(), opset);
  if (!schema)
    return fmt::format("it is none of opset {}", opset);
  const int inputs = node.input_size();
  if (inputs < schema->min_input() || inputs > schema->max_input())
    return fmt::format("it has {} inputs, and takes {}{}", inputs, schema->min_input(),
                       schema->min_input() == schema->max_input() ? "" : fmt::format(" to {}", schema->max_input()));
  for (int i = 0; i < inputs; ++i) {
    const auto &formal = schema->inputs()[std::min(size_t(i), schema->inputs().size() - 1)];
    if (node.input(i).empty() && formal.GetOption() == onnx::OpSchema::Single)
      return fmt::format("its input {} ({}) is missing", i, formal.GetName());
  }
  for (const onnx::AttributeProto &attribute : node.attribute()) {
    auto known = schema->attributes().find(attribute.name());
    if (known == schema->attributes().end())
      return fmt::format("it has no attribute {}", attribute.name());
    if (attribute.type() != known->second.type)
      return fmt::format("its attribute {} is of type {}, not {}", attribute.name(),
                         onnx::AttributeProto::AttributeType_Name(attribute.type()),
                         onnx::AttributeProto::AttributeType_Name(known->second.type));
  }
  return {};
}

namespace {

/// Initializers up to this size are shown to shape inference, which computes with them.
constexpr uint64_t kVisibleBytes = 64 * 1024;

/// Limits on the library's time and memory for a model; most models need milliseconds.
IsolationLimits limitsFor(const google::protobuf::Message &message) {
  IsolationLimits limits;
  limits.cpuSeconds += unsigned(message.ByteSizeLong() >> 17);
  return limits;
}

std::string libraryProblem(const IsolatedResult &result) {
  if (result.kind == IsolatedResult::Ended)
    return fmt::format("the ONNX library {} here; the model is damaged or malicious", result.text);
  // Its lines are one message: "why\n\n==> Context: where\n".
  std::string text;
  std::istringstream lines(result.text);
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(" =>");
    if (begin != std::string::npos)
      text += (text.empty() ? "" : "; ") + line.substr(begin, line.find_last_not_of(' ') + 1 - begin);
  }
  return text;
}

/// Runs a part of the ONNX library on a model; exceptions and crashes become errors.
IsolatedResult onModel(const PrepareOptions &options, const onnx::ModelProto &model,
                       const std::function<void(onnx::ModelProto &)> &part) {
  return callIsolated(options.isolate, limitsFor(model), [&] {
    onnx::ModelProto changed = model;
    part(changed);
    return changed.SerializeAsString();
  });
}

/// Gives the initializers that the library's algorithms need back to the graph: the values of small ones, and the types
/// of all (as graph inputs).
void showInitializers(const OnnxFile &file, onnx::GraphProto &graph) {
  std::set<std::string> inputs;
  for (const onnx::ValueInfoProto &input : graph.input())
    inputs.insert(input.name());
  graph.clear_initializer();
  for (const auto &[name, initializer] : file.initializers) {
    if (!initializer.home.empty())
      continue;
    if (initializer.bytes <= kVisibleBytes && !initializer.external()) {
      onnx::TensorProto &tensor = *graph.add_initializer();
      tensor.set_name(name);
      tensor.set_data_type(initializer.declaredType());
      for (int64_t dim : initializer.declaredDims())
        tensor.add_dims(dim);
      tensor.set_raw_data(initializer.data);
    }
    // Every initializer is an input, too: versions of the IR before 4 require it, later ones allow it.
    if (inputs.count(name))
      continue;
    onnx::ValueInfoProto &input = *graph.add_input();
    input.set_name(name);
    onnx::TypeProto_Tensor &type = *input.mutable_type()->mutable_tensor_type();
    type.set_elem_type(initializer.declaredType());
    type.mutable_shape();
    for (int64_t dim : initializer.declaredDims())
      type.mutable_shape()->add_dim()->set_dim_value(dim);
  }
}

std::string helpFor(const std::string &domain, const std::string &op) {
  static const std::set<std::string> text = {"StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch",
                                             "ImageDecoder"};
  if (isDequantized(domain, op))
    return "convert the quantised model to floating point with --dequantize";
  if (domain == "com.microsoft" &&
      (op.ends_with("NBits") || op.ends_with("Bnb4") || op.find("BlockQuantized") != op.npos))
    return "of the ops on weights of 4 bits, MatMulNBits, GatherBlockQuantized and DequantizeLinear are read; quantise "
           "to one of these, or export the floating-point model";
  if (domain.empty()) {
    if (op.find("Optional") != op.npos)
      return "optional values are not supported; give the value itself, and leave out what may be absent";
    if (text.count(op))
      return "do this when preparing the data, outside the model";
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

bool hasBody(const onnx::OpSchema *schema) {
  return schema && (schema->HasFunction() || schema->HasContextDependentFunction());
}

/// Calls `visit(node, prefix)` for every node of a graph and of the graphs in it.
template <typename Nodes, typename Visit>
void forEachNode(const Nodes &nodes, const std::string &prefix, Visit &&visit) {
  for (const onnx::NodeProto &node : nodes) {
    visit(node, prefix);
    for (const onnx::AttributeProto &attribute : node.attribute())
      if (attribute.has_g())
        forEachNode(attribute.g().node(), prefix, visit);
  }
}

/// Nodes whose ops changed between `version` and the oldest opset that is read, or that `version` does not have.
template <typename Nodes> std::vector<std::string> changedSince(const Nodes &nodes, int64_t version) {
  std::vector<std::string> changed;
  auto visit = [&](const onnx::NodeProto &node, const std::string &) {
    if (!canonicalDomain(node.domain()).empty())
      return;
    const onnx::OpSchema *then = schemaOf("", node.op_type(), version),
                         *now = schemaOf("", node.op_type(), kOldestOpset);
    if (now && (!then || then->SinceVersion() != now->SinceVersion()))
      changed.push_back(fmt::format("{} ({})", nodeName(node), node.op_type()));
  };
  forEachNode(nodes, "", visit);
  return changed;
}

/// The version by which to read nodes of opset `version`: an opset older than the oldest supported one is read as that,
/// if none of the nodes' ops changed in between. `whose` is the model, or one of its functions.
template <typename Nodes>
Expected<int64_t> readableVersion(const std::string &whose, const Nodes &nodes, int64_t version) {
  std::vector<std::string> changed;
  if (version >= 1 && version < kOldestOpset) {
    changed = changedSince(nodes, version);
    if (changed.empty())
      return kOldestOpset;
  }
  if (version >= kOldestOpset && version <= kNewestOpset)
    return version;
  std::string more = changed.size() > 1 ? fmt::format(" and {} more", changed.size() - 1) : std::string();
  return error("{}: opset {} is outside of what this version reads, {} to {}{}: export it with an opset in between, or "
                     "convert it with onnx.version_converter.convert_version(model, 17)",
                     whose, version, kOldestOpset, kNewestOpset,
                     changed.empty() ? "" : fmt::format("; since then {}{} changed", changed.front(), more));
}

Status checkVersions(const OnnxFile &file, std::map<std::string, int64_t> &opsets) {
  const onnx::ModelProto &model = file.model;
  if (model.ir_version() > onnx::Version::IR_VERSION)
    return error(
        "{}: it has ONNX IR version {}, and this build reads up to {}; export it with an older version of onnx",
        file.path, model.ir_version(), int(onnx::Version::IR_VERSION));
  if (model.ir_version() < 1)
    return error("{}: not an ONNX model, or truncated: it has no ONNX IR version", file.path);
  for (const onnx::OperatorSetIdProto &set : model.opset_import())
    opsets[canonicalDomain(set.domain())] = set.version();
  auto standard = opsets.find("");
  if (standard == opsets.end())
    return Status::success();
  Expected<int64_t> version = readableVersion(file.path, model.graph().node(), standard->second);
  if (!version)
    return version.status();
  standard->second = *version;
  return Status::success();
}

/// "ai.onnx" is another spelling of the domain without a name.
template <typename Nodes> void useShortDomains(Nodes &nodes) {
  for (onnx::NodeProto &node : nodes) {
    if (node.domain() == "ai.onnx")
      node.clear_domain();
    for (onnx::AttributeProto &attribute : *node.mutable_attribute())
      if (attribute.has_g())
        useShortDomains(*attribute.mutable_g()->mutable_node());
  }
}

/// Adds the domain com.microsoft to ops that ONNX Runtime's optimiser writes without one (SimplifiedLayerNormalization,
/// and LayerNormalization before the standard had it).
void useContributedDomain(onnx::ModelProto &model, int64_t version, const PrepareOptions &options) {
  constexpr const char *kContributed = "com.microsoft";
  bool moved = false;
  for (onnx::NodeProto &node : *model.mutable_graph()->mutable_node())
    if (node.domain().empty() && !schemaOf("", node.op_type(), version) &&
        options.knows(kContributed, node.op_type(), 1)) {
      node.set_domain(kContributed);
      moved = true;
    }
  for (const onnx::OperatorSetIdProto &set : model.opset_import())
    moved &= set.domain() != kContributed;
  if (moved) {
    onnx::OperatorSetIdProto &set = *model.add_opset_import();
    set.set_domain(kContributed);
    set.set_version(1);
  }
}

/// Ops that neither the table, nor a function of the model, nor a body in the schema covers.
std::vector<UnsupportedOp> findUnsupported(const onnx::ModelProto &model, const std::map<std::string, int64_t> &opsets,
                                           const PrepareOptions &options) {
  std::set<std::pair<std::string, std::string>> functions;
  for (const onnx::FunctionProto &function : model.functions())
    functions.emplace(canonicalDomain(function.domain()), function.name());
  std::vector<UnsupportedOp> result;
  auto visit = [&](const onnx::NodeProto &node, const std::string &prefix) {
    std::string domain = canonicalDomain(node.domain());
    if (functions.count({domain, node.op_type()}))
      return;
    auto found = opsets.find(domain);
    int64_t version = found == opsets.end() ? (domain.empty() ? kNewestOpset : 1) : found->second;
    if (options.knows(domain, node.op_type(), version) || hasFunctionBody(domain, node.op_type(), version))
      return;
    result.push_back(unsupportedOp(node, version));
    result.back().node = prefix + result.back().node;
  };
  forEachNode(model.graph().node(), "", visit);
  for (const onnx::FunctionProto &function : model.functions())
    forEachNode(function.node(), function.name() + "/", visit);
  return result;
}

} // namespace

std::string canonicalDomain(const std::string &domain) { return domain == "ai.onnx" ? std::string() : domain; }

std::string nodeName(const onnx::NodeProto &node) {
  if (!node.name().empty())
    return oneLine(node.name());
  return oneLine(fmt::format("{} → {}", node.op_type(), node.output_size() ? node.output(0) : "nothing"));
}

UnsupportedOp unsupportedOp(const onnx::NodeProto &node, int64_t opset) {
  const std::string domain = canonicalDomain(node.domain());
  UnsupportedOp op{nodeName(node), node.op_type(), domain, opset, helpFor(domain, node.op_type())};
  if (domain.empty() && !schemaOf(domain, node.op_type(), opset))
    op.help = fmt::format("opset {} has no such op", opset);
  return op;
}

Status listedProblems(const std::string &path, const std::vector<std::string> &lines) {
  std::string text;
  for (const std::string &line : lines)
    text += "\n  " + line;
  return error("{}: {} of its nodes are not supported:{}", path, lines.size(), text);
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

bool hasFunctionBody(const std::string &domain, const std::string &op, int64_t opset) {
  return hasBody(schemaOf(domain, op, opset));
}

namespace {

using Attributes = std::map<std::string, onnx::AttributeProto>;

/// Replaces references to a function's attributes by the call's values; removes attributes that the call omits.
template <typename Nodes> void bindAttributes(Nodes &nodes, const Attributes &given) {
  for (onnx::NodeProto &node : nodes) {
    google::protobuf::RepeatedPtrField<onnx::AttributeProto> bound;
    for (onnx::AttributeProto &attribute : *node.mutable_attribute()) {
      if (!attribute.ref_attr_name().empty()) {
        auto found = given.find(attribute.ref_attr_name());
        if (found == given.end())
          continue;
        onnx::AttributeProto &out = *bound.Add();
        out = found->second;
        out.set_name(attribute.name());
        out.clear_ref_attr_name();
        continue;
      }
      if (attribute.has_g())
        bindAttributes(*attribute.mutable_g()->mutable_node(), given);
      bound.Add()->Swap(&attribute);
    }
    node.mutable_attribute()->Swap(&bound);
  }
}

} // namespace

onnx::FunctionProto bindFunction(const onnx::FunctionProto &function, const onnx::NodeProto &call) {
  Attributes given;
  for (const onnx::AttributeProto &attribute : function.attribute_proto())
    given[attribute.name()] = attribute;
  for (const onnx::AttributeProto &attribute : call.attribute())
    given[attribute.name()] = attribute;
  onnx::FunctionProto bound = function;
  bindAttributes(*bound.mutable_node(), given);
  return bound;
}

std::map<std::string, int64_t> opsetsOf(const onnx::FunctionProto &function) {
  std::map<std::string, int64_t> opsets;
  for (const onnx::OperatorSetIdProto &set : function.opset_import())
    opsets[canonicalDomain(set.domain())] = set.version();
  return opsets;
}

Expected<onnx::FunctionProto> functionBody(const onnx::NodeProto &node, int64_t opset,
                                           const std::vector<onnx::TypeProto> &types, bool isolate) {
  const onnx::OpSchema *schema = schemaOf(canonicalDomain(node.domain()), node.op_type(), opset);
  // Add omitted attributes with their defaults, in the order of names.
  onnx::NodeProto call = node;
  Attributes defaults;
  for (const auto &[name, attribute] : schema->attributes())
    if (attribute.default_value.has_name())
      defaults.emplace(name, attribute.default_value);
  for (const onnx::AttributeProto &given : node.attribute())
    defaults.erase(given.name());
  onnx::FunctionProto body;
  bool built = false;
  if (schema->HasFunction()) {
    for (const auto &[name, value] : defaults)
      *call.add_attribute() = value;
    if (const onnx::FunctionProto *fixed = schema->GetFunction(int(opset))) {
      body = bindFunction(*fixed, call);
      built = true;
    }
  } else {
    IsolatedResult made = callIsolated(isolate, limitsFor(node), [&] {
      onnx::FunctionProto function;
      onnx::FunctionBodyBuildContextImpl context(call, types);
      // An empty text means that no body was built.
      return schema->BuildContextDependentFunction(context, function, int(opset)) ? "+" + function.SerializeAsString()
                                                                                  : "";
    });
    if (made.kind != IsolatedResult::Returned)
      return error("its function cannot be built: {}", libraryProblem(made));
    built = !made.text.empty() && body.ParseFromString(made.text.substr(1));
  }
  if (!built)
    return error("not supported in this form by this version yet; express it by other ops");
  // A body states the opset that it is written in; if it does not, the model's applies.
  bool versioned = false;
  for (const onnx::OperatorSetIdProto &set : body.opset_import())
    versioned |= canonicalDomain(set.domain()).empty();
  if (!versioned) {
    onnx::OperatorSetIdProto &set = *body.add_opset_import();
    set.set_version(opset);
  }
  if (schema->HasFunction())
    return body;
  Attributes given = defaults;
  for (const onnx::AttributeProto &attribute : node.attribute())
    given[attribute.name()] = attribute;
  bindAttributes(*body.mutable_node(), given);
  return body;
}

std::string describe(const UnsupportedOp &op) {
  return fmt::format("{}: {}{} (opset {}): {}", op.node, op.domain.empty() ? "" : op.domain + "::", op.op, op.opset,
                     op.help);
}

/// Finds the outputs' sample axes of an export whose inputs have no symbols.
static void findSampledOutputs(const OnnxFile &file, const PrepareOptions &options, const onnx::ModelProto &model,
                               PreparedModel &prepared) {
  std::map<std::string, int64_t> axes;
  int64_t batch = 0;
  for (const onnx::ValueInfoProto &input : model.graph().input()) {
    const auto &shape = input.type().tensor_type().shape();
    if (file.initializers.count(input.name()) || !input.type().has_tensor_type())
      continue;
    auto given = options.batchAxis.find(input.name());
    const int64_t axis = given != options.batchAxis.end() ? given->second : sampleAxis(input, size_t(shape.dim_size()));
    if (axis < 0 || axis >= shape.dim_size())
      continue;
    const auto &dim = shape.dim(int(axis));
    if (!dim.has_dim_value() || dim.dim_value() < 1)
      return;
    batch = batch ? batch : dim.dim_value();
    if (dim.dim_value() == batch)
      axes[input.name()] = axis;
  }
  if (axes.empty())
    return;
  IsolatedResult found = callIsolated(options.isolate, limitsFor(model), [&] {
    std::string text;
    for (const auto &[name, axis] : sampledOutputs(model, axes, batch))
      text += fmt::format("{} {}\n", axis, name);
    return text;
  });
  if (found.kind != IsolatedResult::Returned)
    return;
  std::istringstream lines(found.text);
  for (std::string line; std::getline(lines, line);)
    if (const size_t space = line.find(' '); space != line.npos)
      prepared.sampledOutputs[line.substr(space + 1)] = std::atoll(line.c_str());
}

Expected<PreparedModel> prepareModel(const OnnxFile &file, const PrepareOptions &options) {
  PreparedModel prepared;
  if (Status status = checkVersions(file, prepared.opsets); !status.ok())
    return status;
  onnx::ModelProto model = file.model;
  useShortDomains(*model.mutable_graph()->mutable_node());
  for (onnx::FunctionProto &function : *model.mutable_functions()) {
    useShortDomains(*function.mutable_node());
    for (onnx::OperatorSetIdProto &set : *function.mutable_opset_import()) {
      set.set_domain(canonicalDomain(set.domain()));
      if (!set.domain().empty())
        continue;
      Expected<int64_t> version =
          readableVersion(fmt::format("{}: function {}", file.path, function.name()), function.node(), set.version());
      if (!version)
        return version.status();
      set.set_version(*version);
    }
  }
  for (onnx::OperatorSetIdProto &set : *model.mutable_opset_import()) {
    set.set_domain(canonicalDomain(set.domain()));
    set.set_version(prepared.opsets.at(set.domain()));
  }
  auto standard = prepared.opsets.find("");
  useContributedDomain(model, standard == prepared.opsets.end() ? kNewestOpset : standard->second, options);
  showInitializers(file, *model.mutable_graph());
  insertTies(file, *model.mutable_graph());
  StopMarks stops(file, options.stopGradient, options.stopPlace);
  if (Status status = stops.mark(model); !status.ok())
    return status;

  prepared.unsupported = findUnsupported(model, prepared.opsets, options);
  if (model.training_info_size())
    prepared.warnings.push_back(fmt::format("{}: its training_info is ignored: loss and optimizer come from the recipe",
                                            file.name));
  if (Status status = checkFunctionExpansion(file.path, model); !status.ok())
    return status;
  IsolatedResult checked = callIsolated(options.isolate, limitsFor(model), [&] {
    // Do not require shapes: a missing one is common, and the import computes it.
    onnx::ModelProto shaped = model;
    makeInnerWeightsScalars(shaped);
    for (auto *values : {shaped.mutable_graph()->mutable_input(), shaped.mutable_graph()->mutable_output()})
      for (onnx::ValueInfoProto &value : *values)
        if (value.type().has_tensor_type())
          value.mutable_type()->mutable_tensor_type()->mutable_shape();
    onnx::checker::check_model(shaped, /*full_check=*/false, /*skip_opset_compatibility_check=*/true);
    return std::string();
  });
  // The checker stops at the first unknown op; the list of all of them is more useful.
  const bool complete = prepared.unsupported.empty();
  if (checked.kind == IsolatedResult::Ended || (checked.kind == IsolatedResult::Threw && complete))
    return error("{}: the ONNX checker refuses the model: {}", file.path, libraryProblem(checked));
  addFunctionDefaults(model);
  if (model.functions_size() > 0) {
    IsolatedResult inlined = onModel(options, model, [](onnx::ModelProto &one) {
      onnx::inliner::InlineLocalFunctions(one, /*convert_version=*/false);
    });
    if (inlined.kind != IsolatedResult::Returned)
      return error("{}: inlining the model's functions: {}", file.path, libraryProblem(inlined));
    if (!model.ParseFromString(inlined.text))
      return error("{}: inlining the model's functions: the graphs inside its nodes are nested too deep", file.path);
  }
  if (Status status = stops.finish(model); !status.ok())
    return status;
  prepared.stoppedInitializers = stops.initializers;
  // In a child process, since bakedConstants runs the library's shape inference several times. One line per constant.
  IsolatedResult baked = callIsolated(options.isolate && !options.shapes.empty(), limitsFor(model), [&] {
    return fmt::format("{}", fmt::join(bakedConstants(model, options.shapes), "\n  "));
  });
  if (baked.kind == IsolatedResult::Returned && !baked.text.empty())
    return error("{}: --shape cannot change the batch, which constants of the graph hold:\n  {}\nexport it with a "
                       "dynamic batch (dynamic_shapes=({{0: \"batch\"}},))",
                       file.path, baked.text);
  findSampledOutputs(file, options, model, prepared);
  if (Status status = bindDimensions(file, options, *model.mutable_graph(), prepared.unbound); !status.ok())
    return status;
  if (!prepared.unbound.empty() && options.requireBound) {
    Status unbound = unboundError(file, prepared.unbound);
    if (complete)
      return unbound;
    std::vector<std::string> lines;
    for (const UnsupportedOp &op : prepared.unsupported)
      lines.push_back(describe(op));
    return error("{}\n{}", listedProblems(file.path, lines).message(), unbound.message());
  }
  // Strict mode finds the most problems, but some functions of the standard fail it by themselves, so only a failure in
  // lenient mode, too, is an error. The importer checks every node's shapes again.
  // If the library crashes or does not end, the importer's own checks remain, and name the node.
  // Shapes that the file declares are hidden from the library, and compared with those that the importer computes: they
  // may be wrong. ONNX's inference may be wrong, too: for a Resize of 3 by the float nearest to 10/3 it finds 9
  // elements, but onnxruntime and torch give 10.
  takeHints(*model.mutable_graph(), prepared.hints);
  const auto declared = model.graph().output();
  IsolatedResult inferred;
  for (int strictness : {1, 0}) {
    inferred = onModel(options, model, [&](onnx::ModelProto &one) {
      onnx::ShapeInferenceOptions settings(/*check_type=*/true, strictness, /*data_prop=*/true);
      onnx::shape_inference::InferShapes(one, onnx::OpSchemaRegistry::Instance(), settings);
    });
    if (inferred.kind != IsolatedResult::Threw)
      break;
  }
  if (inferred.kind == IsolatedResult::Threw && complete)
    return error("{}: shape inference: {}", file.path, libraryProblem(inferred));
  if (inferred.kind == IsolatedResult::Returned)
    model.ParseFromString(inferred.text);
  else if (inferred.kind == IsolatedResult::Ended)
    prepared.warnings.push_back(fmt::format("{}: shape inference of the ONNX library {} and is skipped; the importer "
                                            "computes the shapes itself",
                                            file.name, inferred.text));
  // A call that was not inlined has a function of another opset than the model's: the importer reads its body by that.
  prepared.functions.assign(model.functions().begin(), model.functions().end());
  for (onnx::FunctionProto &function : prepared.functions)
    readInnerWeights(function);
  prepared.graph.Swap(model.mutable_graph());
  readInnerWeights(prepared.graph);
  *prepared.graph.mutable_output() = declared;
  prepared.graph.clear_initializer();
  return prepared;
}

} // namespace tcc::frontend

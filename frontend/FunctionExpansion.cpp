//===- FunctionExpansion.cpp - the size of a model after inlining ---------===//
#include "frontend/FunctionExpansion.h"

#include "frontend/Limits.h"
#include "frontend/OnnxLibrary.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

namespace tcc::frontend {
namespace {


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
  Expansion(const std::string &path, const onnx::ModelProto &model) : path(path), model(model), functions(functionsOf(model)) {}

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
    return error("{}: function {}: functions call each other more than {} deep", path, function.name(), kDeepestNesting);
  }

  const std::string &path;
  const onnx::ModelProto &model;
  const Functions functions;
  std::map<const onnx::FunctionProto *, std::optional<Size>> known; ///< nothing: being counted
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

} // namespace

Status checkFunctionExpansion(const std::string &path, const onnx::ModelProto &model) {
  return Expansion(path, model).check();
}

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

} // namespace tcc::frontend

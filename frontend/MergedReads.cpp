//===- MergedReads.cpp - which equal weight each node reads ---------------===//
#include "frontend/MergedReads.h"

#include "frontend/Contents.h"
#include "frontend/FoldedWeights.h"
#include "frontend/OnnxLibrary.h"
#include "frontend/TorchNotes.h"
#include "frontend/TorchOps.h"
#include "frontend/WeightNames.h"
#include "frontend/Weights.h"

#include <algorithm>
#include <cctype>
#include <cmath>

namespace tcc::frontend {
namespace {

using Names = std::vector<std::string>;

bool contains(const Names &names, const std::string &name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string lastPart(const std::string &name) {
  return name.substr(name.rfind('.') == name.npos ? 0 : name.rfind('.') + 1);
}

/// The nodes of one call of torch's graph.
struct Call {
  TracedCall traced;
  std::vector<int> nodes;
};

class Reading {
public:
  explicit Reading(const OnnxFile &file) : file(file), graph(file.model.graph()), state(file.state) {}

  Expected<MergedReads> run() {
    if (state.empty())
      return std::move(result);
    collect();
    if (!file.stateIsWhole)
      completeState();
    // If a call names an initializer's own part of the state, some node reads the initializer as that part.
    for (const Call &call : calls)
      for (const std::string &value : call.traced.values)
        if (auto known = state.find(value); known != state.end())
          named.insert(known->second.name);
    for (const Call &call : calls)
      if (Status status = read(call); !status.ok())
        return status;
    for (const auto &[name, dropped] : unread)
      if (!found.count(name))
        result.dropped.push_back(dropped);
    for (const auto &[value, part] : state)
      if (part.kind == "PARAMETER" && isLost(part.name) && !found.count(part.name) && !unread.count(part.name))
        result.lost.push_back(part.name);
    return std::move(result);
  }

private:
  void collect() {
    std::map<std::string, size_t> numbers;
    for (int i = 0; i < graph.node_size(); ++i) {
      for (const std::string &output : graph.node(i).output())
        makers[output] = i;
      TracedCall traced = tracedCall(graph.node(i));
      if (traced.text.empty())
        continue;
      auto [at, fresh] = numbers.try_emplace(traced.text, calls.size());
      if (fresh)
        calls.push_back({traced, {}});
      calls[at->second].nodes.push_back(i);
    }
    for (const auto &[name, initializer] : file.initializers) {
      stored.insert(name);
      stored.insert(initializer.foldedFrom.begin(), initializer.foldedFrom.end());
      if (!isFloatType(initializer.type))
        continue;
      const FoldSources sources = foldSources(file, initializer);
      Names &own = owners[name];
      own = sources.parameters;
      own.insert(own.end(), sources.buffers.begin(), sources.buffers.end());
      if (file.stateKinds.count(name))
        own.push_back(name);
    }
  }

  /// Reconstructs the module's state if the file does not list it: from the sources of folded values, and from the
  /// parameters that calls name. The dots in such a name are known only up to the calling module's path.
  void completeState() {
    auto valueOf = [](const std::string &prefix, std::string name) {
      std::replace_if(name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '_');
      return prefix + name;
    };
    for (const std::string &name : stored)
      if (!isInventedName(name) && torchOp(name) == TorchOp::None)
        state.try_emplace(valueOf("p_", name), OnnxState{name, isBufferName(name) ? "BUFFER" : "PARAMETER"});
    for (const Call &call : calls) {
      const Names scopes = scopesOf(graph.node(call.nodes.front()));
      const std::string module = scopes.size() > 1 ? scopes[scopes.size() - 2] : std::string();
      for (const std::string &value : call.traced.values)
        if (value.starts_with("p_") && !state.count(value)) {
          const std::string prefix = valueOf("p_", module.empty() ? module : module + ".");
          const bool inside = !module.empty() && value.starts_with(prefix);
          state[value] = {inside ? module + "." + value.substr(prefix.size()) : value.substr(2), "PARAMETER"};
        }
    }
  }

  bool isLost(const std::string &part) const { return !stored.count(part); }

  Status read(const Call &call) {
    std::map<std::string, std::vector<std::pair<int, int>>> reads; // by initializer
    std::set<std::string> outside, inside;
    for (int i : call.nodes)
      inside.insert(graph.node(i).output().begin(), graph.node(i).output().end());
    for (int i : call.nodes)
      for (int k = 0; k < graph.node(i).input_size(); ++k) {
        const std::string &input = graph.node(i).input(k);
        if (isFused(graph.node(i), operationOf(call)))
          continue;
        auto owner = owners.find(input);
        if (owner != owners.end() && !owner->second.empty())
          reads[input].emplace_back(i, k);
        else if (!input.empty() && !inside.count(input) && !file.initializers.count(input) && !isConstant(input))
          outside.insert(input);
      }
    Names states, others; // each once, in order
    for (const std::string &value : call.traced.values) {
      auto known = state.find(value);
      const std::string &name = known == state.end() ? value : known->second.name;
      Names &names = known == state.end() ? others : states;
      if (!contains(names, name))
        names.push_back(name);
    }
    std::set<std::string> here;
    for (const auto &[name, places] : reads)
      if (Status status = assign(call, name, places, states, others, outside, here); !status.ok())
        return status;
    for (size_t at = 0; at < states.size(); ++at)
      if (isLost(states[at]) && !here.count(states[at]) && kindOf(states[at]) == "PARAMETER" &&
          torchOp(operationOf(call)) != TorchOp::Makes)
        unread.try_emplace(states[at], DroppedParameter{states[at], nodeName(graph.node(call.nodes.back())),
                                                        whyDropped(call, states, at)});
    found.insert(here.begin(), here.end());
    return Status::success();
  }

  /// "aten.linear.default" → "linear".
  static std::string operationOf(const Call &call) {
    const std::string &target = call.traced.target;
    const size_t begin = target.starts_with("aten.") ? 5 : 0;
    return target.substr(begin, target.find('.', begin) - begin);
  }

  static bool isProduct(const std::string &operation) {
    return operation == "linear" || operation.find("conv") == 0 || operation == "_convolution" || operation == "addmm";
  }

  DroppedParameter::Why whyDropped(const Call &call, const Names &states, size_t at) const {
    const std::string operation = operationOf(call);
    if (operation.find("norm") != std::string::npos)
      return DroppedParameter::Folded;
    const bool last = operation == "addmm" ? at == 0 : at > 0 && at + 1 == states.size();
    return isProduct(operation) && (last || lastPart(states[at]).find("bias") != std::string::npos)
               ? DroppedParameter::Zero
               : DroppedParameter::Merged;
  }

  /// True if the node is a product but its note names another operation: other calls were fused into it.
  static bool isFused(const onnx::NodeProto &node, const std::string &operation) {
    static const std::set<std::string> products = {"MatMul", "Gemm", "Conv", "ConvTranspose"};
    static const std::set<std::string> others = {"mm", "matmul", "bmm", "baddbmm", "mv", "einsum", "bilinear",
                                                 "scaled_dot_product_attention"};
    return products.count(node.op_type()) && !isProduct(operation) && !others.count(operation);
  }

  Status assign(const Call &call, const std::string &name, const std::vector<std::pair<int, int>> &places,
                const Names &states, const Names &others, const std::set<std::string> &outside,
                std::set<std::string> &here) {
    if (contains(others, name)) // a folded value, which the call reads under its own name
      return Status::success();
    const Names &own = owners.at(name);
    Names candidates, lost;
    for (const std::string &part : states) {
      if (isLost(part))
        lost.push_back(part);
      if (isLost(part) || contains(own, part))
        candidates.push_back(part);
    }
    auto add = [&](std::pair<int, int> place, const std::string &part, const std::string &computed) {
      if (!part.empty())
        here.insert(part);
      if (!contains(own, part))
        result.reads.push_back({place.first, place.second, part, computed});
    };
    if (candidates.size() > lost.size()) { // the call also names the initializer's own part
      if (places.size() == candidates.size())
        for (size_t i = 0; i < places.size(); ++i)
          add(places[i], candidates[i], "");
      return Status::success();
    }
    if (!lost.empty()) {
      Names alike;
      for (const std::string &part : lost)
        for (const std::string &owner : own)
          if (lastPart(part) == lastPart(owner) && !contains(alike, part))
            alike.push_back(part);
      const Names &chosen = alike.empty() || lost.size() == places.size() ? lost : alike;
      if (chosen.size() == 1 || chosen.size() >= places.size())
        for (size_t i = 0; i < places.size(); ++i)
          add(places[i], chosen[chosen.size() == 1 ? 0 : i], "");
      return Status::success();
    }
    Expected<bool> literal = isLiteral(call, file.initializers.at(name));
    if (!literal)
      return literal.status();
    for (std::pair<int, int> place : places) {
      if (*literal) {
        add(place, "", "");
        continue;
      }
      // The note of a product may be that of a call fused into it, which does not name the product's weight.
      const std::string &op = graph.node(place.first).op_type();
      const bool product = op == "MatMul" || op == "Gemm" || op == "Conv" || op == "ConvTranspose";
      const bool known = std::any_of(own.begin(), own.end(), [&](auto &part) { return named.count(part) != 0; });
      if (product || !known)
        continue;
      if (others.size() <= outside.size()) {
        add(place, "", "");
        continue;
      }
      // The call has an argument that no node computes: either a view of the parameter, which the exporter left out, or
      // a value that the exporter computed from another parameter.
      for (const std::string &value : others)
        if (const TorchOp op = torchOp(value);
            !outside.count(value) && (op == TorchOp::Computes || op == TorchOp::Makes) && !makers.count(value)) {
          add(place, "", op == TorchOp::Makes ? "" : value);
          break;
        }
    }
    return Status::success();
  }

  /// True if the initializer is a literal among the call's arguments.
  Expected<bool> isLiteral(const Call &call, const OnnxInitializer &initializer) const {
    if (call.traced.numbers.empty() || initializer.absent || initializer.bytes != onnxElementBytes(initializer.type))
      return false;
    Expected<double> value = onlyElement(initializer);
    if (!value)
      return value.status();
    const double tolerance = onnxElementBytes(initializer.type) > 2 ? 1e-6 : 1e-2; // for rounding to its type
    return std::any_of(call.traced.numbers.begin(), call.traced.numbers.end(),
                       [&](double number) { return std::fabs(number - *value) <= tolerance * std::fabs(number); });
  }

  bool isConstant(const std::string &value) const {
    auto maker = makers.find(value);
    return maker != makers.end() && graph.node(maker->second).op_type() == "Constant";
  }

  std::string kindOf(const std::string &part) const {
    auto kind = file.stateKinds.find(part);
    return kind == file.stateKinds.end() ? "PARAMETER" : kind->second;
  }

  const OnnxFile &file;
  const onnx::GraphProto &graph;
  std::map<std::string, OnnxState> state;
  std::vector<Call> calls;
  std::map<std::string, int> makers;           ///< by value: the node that computes it
  /// State that the file has; that a call names; that a node reads as another.
  std::set<std::string> stored, named, found;
  std::map<std::string, Names> owners;         ///< the state of each initializer
  std::map<std::string, DroppedParameter> unread;
  MergedReads result;
};

} // namespace

Expected<MergedReads> mergedReads(const OnnxFile &file) { return Reading(file).run(); }

bool isNoted(const OnnxFile &file, const onnx::NodeProto &node) {
  return !file.state.empty() && !tracedCall(node).text.empty();
}

} // namespace tcc::frontend

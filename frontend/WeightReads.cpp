//===- WeightReads.cpp - the nodes that read each initializer -------------===//
#include "frontend/WeightReads.h"

#include "frontend/OnnxLibrary.h"

#include <algorithm>
#include <fmt/format.h>

namespace tcc::frontend {
namespace {

using Ops = std::set<std::string>;

/// Longest chain of ops through which a value is traced back.
constexpr int kDeepest = 8;

bool isNorm(const std::string &op) {
  static const Ops norms = {"LayerNormalization",    "RMSNormalization",   "SimplifiedLayerNormalization",
                            "InstanceNormalization", "GroupNormalization", "BatchNormalization"};
  return norms.count(op) != 0;
}

/// True for W, R, B and P of a recurrent layer. They are weights although exporters reorder their gates, merge two
/// biases into one, and note many values as their sources.
bool isRecurrentWeight(const onnx::NodeProto &node, int input) {
  static const Ops layers = {"LSTM", "GRU", "RNN"};
  return layers.count(node.op_type()) && ((input >= 1 && input <= 3) || input == 7);
}

/// True for operands that are weights, whatever their names.
bool isWeightOperand(const onnx::NodeProto &node, int input) {
  static const Ops later = {"MatMul", "Gemm", "Conv", "ConvTranspose", "PRelu", "FusedMatMul"};
  const std::string &op = node.op_type();
  return isRecurrentWeight(node, input) || (op == "Gather" && input == 0) || (later.count(op) && input >= 1) ||
         (op == "MatMul" && input == 0) || (op.find("Normalization") != std::string::npos && input >= 1);
}

bool isProduct(const std::string &op) {
  static const Ops products = {"MatMul", "Gemm", "Conv", "ConvTranspose", "FusedMatMul", "Einsum"};
  return products.count(op) != 0;
}

class Walk {
public:
  Walk(const OnnxFile &file, const UseOfInput &useOfInput) : file(file), useOfInput(useOfInput) {
    for (const auto &[name, initializer] : file.initializers) {
      sources[name] = {name};
      all[name];
    }
  }

  /// Visits a graph and the graphs inside its nodes. Sibling graphs may reuse names; the maps then hold those of the
  /// graph that is being visited.
  void visit(const onnx::GraphProto &graph) {
    static const Ops roots = {"Sqrt", "Log", "Pow", "Reciprocal"};
    Ops rooted; // values whose root or logarithm is taken
    for (const onnx::NodeProto &node : graph.node())
      if (roots.count(node.op_type()) && node.input_size() > 0)
        rooted.insert(node.input(0));
    for (const onnx::NodeProto &node : graph.node()) {
      const bool moves = moveSources(node);
      for (int i = 0; i < node.input_size(); ++i)
        if (auto found = sources.find(node.input(i)); found != sources.end()) {
          for (const std::string &source : found->second)
            if (moves && (i == 0 || node.op_type() == "Concat"))
              passBy(node, source);
            else
              note(node, i, source, rooted);
        }
      for (const std::string &output : node.output())
        producers[output] = &node;
      for (const onnx::AttributeProto &attribute : node.attribute())
        if (attribute.has_g())
          visit(attribute.g());
    }
  }

  std::map<std::string, WeightReads> take() {
    for (auto &[name, reads] : all)
      if (reads.node.empty())
        reads.node = passers[name];
    return std::move(all);
  }

private:
  /// True if the node's results consist of elements of initializers.
  bool moveSources(const onnx::NodeProto &node) {
    const bool joins = node.op_type() == "Concat";
    if ((!joins && !movesElements(node.op_type())) || node.input_size() == 0)
      return false;
    std::set<std::string> moved;
    for (int i = 0; i < (joins ? node.input_size() : 1); ++i) {
      auto found = sources.find(node.input(i));
      if (found == sources.end())
        return false;
      moved.insert(found->second.begin(), found->second.end());
    }
    for (const std::string &output : node.output())
      sources[output] = moved;
    return true;
  }

  void passBy(const onnx::NodeProto &node, const std::string &source) {
    if (std::string &first = passers[source]; first.empty())
      first = nodeName(node);
  }

  void note(const onnx::NodeProto &node, int i, const std::string &source, const Ops &rooted) {
    WeightReads &reads = all[source];
    const std::string &op = node.op_type();
    auto use = [&](const char *name) {
      if (std::find(reads.uses.begin(), reads.uses.end(), name) == reads.uses.end())
        reads.uses.push_back(name);
    };
    if (reads.node.empty())
      reads.node = nodeName(node);
    if (op == "Gather" && i == 0)
      use("embedding");
    if (isNorm(op) && i >= 1)
      use("norm");
    if (i == 2 && (isNorm(op) || op == "Conv" || op == "ConvTranspose" || op == "Gemm"))
      use("bias");
    reads.statistic |= op == "BatchNormalization" && i >= 3;
    // An addend with one element per feature: exporters write a linear layer's bias so.
    if (op == "Add" && file.initializers.at(source).dims.size() == 1)
      use("bias");
    noteVector(node, i, source, reads);
    reads.weight |= isWeightOperand(node, i);
    const InputUse kind = useOfInput ? useOfInput(node, i) : InputUse::Value;
    reads.fourBits |= kind == InputUse::FourBits;
    reads.steps |= kind == InputUse::Steps;
    if (kind == InputUse::WhenCompiling || kind == InputUse::Steps) {
      reads.number = true;
      reads.reader = fmt::format("input {} of {}", i, nodeName(node));
    }
    reads.recurrent |= isRecurrentWeight(node, i);
    reads.state |= (i == 5 || i == 6) && isRecurrentWeight(node, 1);
    reads.epsilon |=
        (op == "Add" || op == "Max") && node.output_size() > 0 && rooted.count(node.output(0));
    const bool scales = op == "Mul" || op == "Div" || op == "Pow";
    reads.scale |= scales;
    reads.other |= !scales;
  }

  /// Recognises biases, and the scale and shift of norms that are decomposed into separate ops.
  void noteVector(const onnx::NodeProto &node, int i, const std::string &source, WeightReads &reads) {
    const std::string &op = node.op_type();
    if (node.input_size() != 2 || (op != "Add" && op != "Sub" && op != "Mul"))
      return;
    int wide = 0;
    for (int64_t dim : file.initializers.at(source).dims)
      wide += dim > 1;
    if (wide != 1)
      return;
    const std::string &rest = node.input(1 - i);
    if (op == "Mul")
      reads.normScale |= isNormalised(rest, kDeepest) || isInverseRoot(rest, kDeepest);
    else
      reads.bias |= (op == "Add" && comesFromProduct(rest)) || isScaledNorm(rest);
  }

  /// The node that computes a value, behind ops that move elements; null for inputs and initializers.
  const onnx::NodeProto *producerOf(std::string value) const {
    for (int depth = kDeepest; depth > 0; --depth) {
      auto found = producers.find(value);
      if (found == producers.end())
        return nullptr;
      if (!movesElements(found->second->op_type()))
        return found->second;
      value = found->second->input(0);
    }
    return nullptr;
  }

  bool comesFromProduct(const std::string &value) const {
    const onnx::NodeProto *node = producerOf(value);
    return node && isProduct(node->op_type());
  }

  /// True for a root, possibly with a small number added.
  bool isRoot(const std::string &value, int depth) const {
    const onnx::NodeProto *node = producerOf(value);
    if (!node || depth == 0)
      return false;
    if ((node->op_type() == "Add" || node->op_type() == "Max" || node->op_type() == "Clip"))
      return std::any_of(node->input().begin(), node->input().end(),
                         [&](const std::string &input) { return isRoot(input, depth - 1); });
    return node->op_type() == "Sqrt";
  }

  /// True for 1 ÷ a root, possibly multiplied by other factors.
  bool isInverseRoot(const std::string &value, int depth) const {
    const onnx::NodeProto *node = producerOf(value);
    if (!node || depth == 0)
      return false;
    if (node->op_type() == "Reciprocal")
      return isRoot(node->input(0), depth - 1);
    if (node->op_type() == "Div" && !producerOf(node->input(0)))
      return isRoot(node->input(1), depth - 1);
    return node->op_type() == "Mul" &&
           std::any_of(node->input().begin(), node->input().end(),
                       [&](const std::string &input) { return isInverseRoot(input, depth - 1); });
  }

  /// True for x ÷ √…, x · (1 ÷ √…), or the result of a normalisation op.
  bool isNormalised(const std::string &value, int depth) const {
    const onnx::NodeProto *node = producerOf(value);
    if (!node || depth == 0)
      return false;
    if (node->op_type() == "Div")
      return isRoot(node->input(1), depth - 1);
    return node->op_type() == "Mul" ? isInverseRoot(value, depth)
                                    : node->op_type().find("Normalization") != std::string::npos;
  }

  /// True for a normalised value, possibly multiplied by a vector of weights.
  bool isScaledNorm(const std::string &value) const {
    if (isNormalised(value, kDeepest))
      return true;
    const onnx::NodeProto *node = producerOf(value);
    return node && node->op_type() == "Mul" &&
           std::any_of(node->input().begin(), node->input().end(), [&](const std::string &input) {
             auto found = sources.find(input);
             return found != sources.end() &&
                    std::any_of(found->second.begin(), found->second.end(),
                                [&](const std::string &name) { return all.at(name).normScale; });
           });
  }

  const OnnxFile &file;
  const UseOfInput &useOfInput;
  std::map<std::string, std::set<std::string>> sources; ///< by value: the initializers that its elements come from
  std::map<std::string, const onnx::NodeProto *> producers;
  std::map<std::string, std::string> passers; ///< a node that moves an initializer's elements
  std::map<std::string, WeightReads> all;
};

} // namespace

bool movesElements(const std::string &op) {
  static const Ops movers = {"Identity", "Cast",  "CastLike", "Reshape", "Transpose",    "Squeeze",         "Unsqueeze",
                             "Flatten",  "Slice", "Split",    "Expand",  "StopGradient", "DequantizeLinear"};
  return movers.count(op) != 0;
}

std::map<std::string, WeightReads> weightReads(const OnnxFile &file, const onnx::GraphProto &graph,
                                               const UseOfInput &useOfInput) {
  Walk walk(file, useOfInput);
  walk.visit(graph);
  return walk.take();
}

} // namespace tcc::frontend

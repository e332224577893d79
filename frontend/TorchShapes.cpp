//===- TorchShapes.cpp - reconstruct the torch shapes of parameters -------===//
//
// An initializer under a parameter's own name is stored with torch's shape. One that the exporter computed (a folded
// value, or one with an invented name) may not be: the reader's note of the traced call tells which matrix torch
// multiplied by ("aten.linear" with the parameter itself, "aten.matmul" with its transpose), and so does a value that
// is named after a torch operation ("t"). Without these, a computed matrix that is read as a factor is taken for a
// linear layer's weight, [features of the result, features of the input], and a warning says so.
//
//===----------------------------------------------------------------------===//
#include "frontend/TorchShapes.h"

#include "frontend/OnnxFile.h"
#include "frontend/OnnxLibrary.h"
#include "frontend/TorchNotes.h"
#include "frontend/Weights.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <optional>
#include <set>

namespace tcc::frontend {
namespace {

/// A matrix of the file, seen through transposes and casts.
struct Alias {
  std::string initializer;
  bool swapped = false;
};

/// Facts about an initializer that follow from the nodes that read it.
struct Reading {
  int recurrentInput = 0;        ///< 1 to 3, or 7: W, R, B, P of a recurrent layer
  bool slope = false;            ///< the slope of PRelu, which is a vector in torch
  std::string product;           ///< a node that multiplies by it
  std::optional<int> resultAxis; ///< the stored axis that becomes features of the product's result
  /// Whether it is stored transposed, by the notes of the product.
  std::optional<bool> transposed;
};

int64_t intAttribute(const onnx::NodeProto &node, const char *name) {
  for (const onnx::AttributeProto &attribute : node.attribute())
    if (attribute.name() == name)
      return attribute.i();
  return 0;
}

bool swapsTwo(const onnx::NodeProto &node) {
  for (const onnx::AttributeProto &attribute : node.attribute())
    if (attribute.name() == "perm")
      return attribute.ints_size() == 2 && attribute.ints(0) == 1 && attribute.ints(1) == 0;
  return true; // the default reverses the axes
}

/// True if the module's matrix in the traced call is [result, input], false if [input, result]; nullopt if the notes do
/// not tell.
std::optional<bool> resultFirst(const onnx::NodeProto &node) {
  const TracedCall call = tracedCall(node);
  const bool linear = call.target.starts_with("aten.linear.");
  size_t weight = 0;
  if (linear || call.target.starts_with("aten.matmul.") || call.target.starts_with("aten.mm."))
    weight = 1;
  else if (call.target.starts_with("aten.addmm."))
    weight = 2;
  if (!weight || weight >= call.arguments.size() || !call.arguments[weight].starts_with("%"))
    return std::nullopt;
  const std::string name = call.arguments[weight].substr(1);
  if (name.starts_with("p_"))
    return linear;
  return isTransposition(name) ? std::optional(!linear) : std::nullopt;
}

class Readings {
public:
  Readings(const OnnxFile &file, const onnx::GraphProto &graph) : file(file) {
    for (const auto &[name, initializer] : file.initializers)
      aliases[name] = {name, false};
    for (const auto &[value, name] : file.rounded)
      aliases[value] = {name, false};
    visit(graph);
  }

  const Reading &of(const std::string &name) { return readings[name]; }

private:
  void visit(const onnx::GraphProto &graph) {
    for (const onnx::NodeProto &node : graph.node()) {
      for (int i = 0; i < node.input_size(); ++i)
        if (auto found = aliases.find(node.input(i)); found != aliases.end())
          note(node, i, found->second);
      const std::string &op = node.op_type();
      const bool views = op == "Cast" || op == "CastLike" || op == "Identity" || op == "StopGradient";
      if (auto found = node.input_size() ? aliases.find(node.input(0)) : aliases.end();
          found != aliases.end() && node.output_size() && (views || (op == "Transpose" && swapsTwo(node)))) {
        Alias alias = found->second;
        alias.swapped ^= op == "Transpose";
        if (views || file.initializers.at(alias.initializer).dims.size() == 2)
          aliases[node.output(0)] = alias;
      }
      for (const onnx::AttributeProto &attribute : node.attribute())
        if (attribute.has_g())
          visit(attribute.g());
    }
  }

  void note(const onnx::NodeProto &node, int input, const Alias &alias) {
    static const std::set<std::string> recurrent = {"LSTM", "GRU", "RNN"};
    static const std::set<std::string> products = {"MatMul", "Gemm", "FusedMatMul", "TransposeMatMul", "FusedGemm",
                                                   "GemmFastGelu"};
    Reading &reading = readings[alias.initializer];
    const std::string &op = node.op_type();
    if (recurrent.count(op) && ((input >= 1 && input <= 3) || input == 7))
      reading.recurrentInput = input;
    reading.slope |= op == "PRelu" && input == 1;
    if (!products.count(op) || input > 1 || file.initializers.at(alias.initializer).dims.size() != 2)
      return;
    const bool flag = intAttribute(node, input ? "transB" : "transA") != 0;
    const int axis = int((input == 1) != (flag != alias.swapped));
    if (reading.product.empty()) {
      reading.product = nodeName(node);
      reading.resultAxis = axis;
    } else if (reading.resultAxis != axis) {
      reading.resultAxis.reset();
    }
    if (std::optional<bool> first = input == 1 ? resultFirst(node) : std::nullopt; first && !reading.transposed)
      reading.transposed = *first == (axis == 1);
  }

  const OnnxFile &file;
  std::map<std::string, Alias> aliases;
  std::map<std::string, Reading> readings;
};

std::string shapeText(const std::vector<int64_t> &dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

/// The shapes of W, R, B and P of a recurrent layer: for each direction, torch has a matrix for the input's gates, one
/// for the state's, and two vectors of biases.
TorchShape recurrentShape(const std::vector<int64_t> &dims, int input) {
  TorchShape shape;
  shape.count = dims.front();
  shape.dims.assign(dims.begin() + 1, dims.end());
  if (input == 3 && shape.dims.size() == 1 && shape.dims[0] % 2 == 0) {
    shape.count *= 2;
    shape.dims[0] /= 2;
  }
  return shape;
}

TorchShape shapeOf(const std::string &name, const OnnxInitializer &initializer, const Reading &reading) {
  const std::vector<int64_t> &dims = initializer.dims;
  const size_t rank = dims.size();
  TorchShape shape = TorchShape::asStored(dims);
  if (reading.recurrentInput && rank >= 2)
    return recurrentShape(dims, reading.recurrentInput);
  auto transpose = [&] {
    std::swap(shape.dims[0], shape.dims[1]);
    shape.transposed = true;
  };
  if (rank == 2 && reading.transposed) {
    if (*reading.transposed)
      transpose();
    return shape;
  }
  const bool computed = initializer.computed || !initializer.foldedFrom.empty() || isInventedName(name);
  if (!computed || rank < 2)
    return shape;
  if (rank == 2 && !initializer.foldedFrom.empty() && isTransposition(name)) {
    transpose();
    return shape;
  }
  auto isUnit = [](int64_t extent) { return extent == 1; };
  std::vector<int64_t> wide;
  std::remove_copy_if(dims.begin(), dims.end(), std::back_inserter(wide), isUnit);
  const bool hasUnits = wide.size() < rank, vector = reading.product.empty() && hasUnits && wide.size() <= 1;
  const bool unsqueezed = withoutNumber(name) == "unsqueeze";
  if (vector || (rank > 2 && wide.size() == 2 && unsqueezed)) {
    shape.dims = wide.empty() ? std::vector<int64_t>{1} : wide;
    if (rank == 2 && !reading.slope && !unsqueezed)
      shape.assumption = fmt::format("a vector {}, though it is stored as {}", shapeText(shape.dims), shapeText(dims));
    return shape;
  }
  if (rank > 2) {
    if (hasUnits && wide.size() == 2)
      shape.assumption = fmt::format("{}, as it is stored, and no matrix", shapeText(dims));
    return shape;
  }
  if (reading.resultAxis == 1)
    transpose();
  shape.assumption = shape.transposed ? fmt::format("{}, the transpose of the stored matrix that {} reads",
                                                    shapeText(shape.dims), reading.product)
                                      : fmt::format("{}, as it is stored", shapeText(shape.dims));
  return shape;
}

} // namespace

std::map<std::string, TorchShape> torchShapes(const OnnxFile &file, const onnx::GraphProto &graph) {
  Readings readings(file, graph);
  std::map<std::string, TorchShape> shapes;
  for (const auto &[name, initializer] : file.initializers)
    shapes[name] = shapeOf(name, initializer, readings.of(name));
  return shapes;
}

} // namespace tcc::frontend

//===- FakeQuantize.cpp - quantisation-aware training ---------------------===//
//
// A source of quantised values is a constant of the file or a QuantizeLinear. If all its readers, possibly behind ops
// that move elements, dequantise it by the same scales, the source itself becomes the rounded floating-point value and
// its DequantizeLinear nodes become Identity. Otherwise each QuantizeLinear–DequantizeLinear pair is rewritten alone.
//
//===----------------------------------------------------------------------===//
#include "frontend/FakeQuantize.h"

#include "frontend/OnnxLibrary.h"
#include "frontend/Quantization.h"
#include "frontend/Weights.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>

namespace tcc::frontend {
namespace {

using onnx::NodeProto;
using onnx::TensorProto;

/// Longest chain of ops that move elements that is followed.
constexpr int kMostMoves = 64;

void setInt(NodeProto &node, const char *name, int64_t value) {
  dropAttribute(node, name);
  newAttribute(node, name, onnx::AttributeProto::INT).set_i(value);
}

void setText(NodeProto &node, const char *name, const std::string &value) {
  newAttribute(node, name, onnx::AttributeProto::STRING).set_s(value);
}

/// The middle of a type's integers, the zero point of a symmetric tensor.
int64_t middleOf(int32_t type) {
  const IntegerRange range = *integerRange(type);
  return (range.low + range.high + 1) / 2;
}
bool isSymmetric(const Quantizer &quantizer) {
  return std::all_of(quantizer.zeroPoint.begin(), quantizer.zeroPoint.end(),
                     [&](int64_t z) { return z == middleOf(quantizer.type); });
}

/// The scale, zero point and axis by which a node reads or writes quantised values.
struct Steps {
  std::string scale, zeroPoint;
  int64_t axis = 1;
};
Steps stepsOf(const NodeProto &node) { return {inputOf(node, 1), inputOf(node, 2), intAttribute(node, "axis", 1)}; }

/// Removes this pass's attributes, which no file may contain.
template <typename Nodes> void dropAttributes(Nodes &nodes) {
  using namespace fake_quantize;
  for (NodeProto &node : nodes) {
    if (node.op_type() == "DequantizeLinear")
      for (const char *name : {kType, kLeast, kMost, kObserve, kLow, kHigh, kSymmetric, kLevel})
        dropAttribute(node, name);
    for (onnx::AttributeProto &attribute : *node.mutable_attribute())
      if (attribute.has_g())
        dropAttributes(*attribute.mutable_g()->mutable_node());
  }
}

class Rewriting {
public:
  Rewriting(OnnxFile &file, onnx::GraphProto &graph, const ModelSettings &settings)
      : file(file), graph(graph), settings(settings), constants(file, graph) {}

  std::vector<std::string> run();
  bool rewroteAny() const { return any; }

private:
  void index(onnx::GraphProto &part);
  bool isPart(const NodeProto &node, const char *op) const {
    return canonicalDomain(node.domain()).empty() && node.op_type() == op && node.input_size() > 1 &&
           node.output_size() > 0 && !intAttribute(node, "block_size", 0);
  }
  bool same(const Steps &a, const Steps &b) const;
  bool isPerAxis(const Steps &steps) const {
    const OnnxInitializer *scale = constants.find(steps.scale);
    return !scale || scale->bytes > uint64_t(onnxElementBytes(scale->type));
  }
  bool collect(const std::string &value, const Steps &steps, std::vector<NodeProto *> &ends, int depth = 0);
  void passOn(const std::vector<NodeProto *> &ends, const std::string &weight);
  void roundWeight(const std::string &name);
  void roundActivation(NodeProto &node);
  NodeProto *limitOf(const NodeProto &node);

  // Observed ranges.
  bool observes(const Steps &steps, bool symmetric);
  void observeRange(NodeProto &node, const Quantizer &quantizer);
  void observeWeight(NodeProto &node, const std::string &name, const Quantizer &quantizer);
  std::vector<std::string> factorsOf(const NodeProto &bias) const;
  void roundBiases();
  std::string observedScale(const std::string &value, const std::string &otherwise) const;
  void addState(const std::string &name, double value);

  OnnxFile &file;
  onnx::GraphProto &graph;
  const ModelSettings &settings;
  GraphConstants constants;
  std::vector<NodeProto *> nodes;
  std::map<std::string, std::vector<NodeProto *>> readers;
  std::map<std::string, NodeProto *> producers;
  std::set<std::string> outputs;             ///< of the graph and those inside its nodes
  std::vector<NodeProto> front;              ///< nodes to insert before all others
  std::map<std::string, NodeProto *> biases; ///< biases with derived scales, and the node that reads each
  std::map<const NodeProto *, std::vector<NodeProto>> before; ///< nodes to insert before these
  std::set<const NodeProto *> outermost;
  std::map<std::string, std::string> observedWeights; ///< by weight: the value that holds its scale
  std::vector<std::string> warnings;
  bool any = false;
};

void Rewriting::index(onnx::GraphProto &part) {
  for (const onnx::ValueInfoProto &output : part.output())
    outputs.insert(output.name());
  for (NodeProto &node : *part.mutable_node()) {
    nodes.push_back(&node);
    for (const std::string &input : node.input())
      readers[input].push_back(&node);
    for (const std::string &output : node.output())
      producers[output] = &node;
    for (onnx::AttributeProto &attribute : *node.mutable_attribute())
      if (attribute.has_g())
        index(*attribute.mutable_g());
  }
}

bool Rewriting::same(const Steps &a, const Steps &b) const {
  if (a.scale == b.scale && a.zeroPoint == b.zeroPoint)
    return a.axis == b.axis || !isPerAxis(a);
  Expected<Quantizer> first = readQuantizer(constants, a.scale, a.zeroPoint, a.axis, TensorProto::UINT8),
                      second = readQuantizer(constants, b.scale, b.zeroPoint, b.axis, TensorProto::UINT8);
  return first && second && *first == *second;
}

/// Collects the DequantizeLinear nodes that read a value, possibly moved; false if another op reads it, or one reads it
/// with other scales.
bool Rewriting::collect(const std::string &value, const Steps &steps, std::vector<NodeProto *> &ends, int depth) {
  if (outputs.count(value) || depth > kMostMoves)
    return false;
  for (NodeProto *reader : readers[value]) {
    if (std::count(reader->input().begin(), reader->input().end(), value) != 1 || reader->input(0) != value)
      return false;
    if (isPart(*reader, "DequantizeLinear")) {
      // Behind a movement the axis of the scales may be another one.
      if (!same(steps, stepsOf(*reader)) || (depth > 0 && isPerAxis(steps)))
        return false;
      ends.push_back(reader);
      continue;
    }
    static const std::set<std::string> others = {"ArgMax", "ArgMin", "Concat", "Pad"};
    if (!movesElements(*reader) || others.count(reader->op_type()))
      return false;
    const int results = reader->op_type() == "Split" ? reader->output_size() : std::min(1, reader->output_size());
    for (int i = 0; i < results; ++i)
      if (!collect(reader->output(i), steps, ends, depth + 1))
        return false;
  }
  return true;
}

/// Turns DequantizeLinear nodes into Identity, since their input is floating-point now.
void Rewriting::passOn(const std::vector<NodeProto *> &ends, const std::string &weight) {
  for (NodeProto *end : ends) {
    while (end->input_size() > 1)
      end->mutable_input()->RemoveLast();
    end->set_op_type("Identity");
    end->clear_attribute();
    if (!weight.empty())
      file.rounded[end->output(0)] = weight;
  }
}

/// Makes an 8-bit constant (32-bit: a bias) a floating-point initializer, with one rounding node that all readers
/// share.
void Rewriting::roundWeight(const std::string &name) {
  const auto found = file.initializers.find(name);
  const OnnxInitializer stored = found->second;
  NodeProto *first = nullptr;
  for (NodeProto *reader : readers[name])
    if (!first && isPart(*reader, "DequantizeLinear") && reader->input(0) == name)
      first = reader;
  std::vector<NodeProto *> ends;
  // Search through ops that move elements: the first DequantizeLinear gives the scales.
  std::function<void(const std::string &, int)> search = [&](const std::string &value, int depth) {
    for (NodeProto *reader : readers[value])
      if (isPart(*reader, "DequantizeLinear") && reader->input(0) == value)
        first = first ? first : reader;
      else if (movesElements(*reader) && reader->input(0) == value && reader->output_size() && depth < kMostMoves)
        search(reader->output(0), depth + 1);
  };
  if (!first)
    search(name, 0);
  if (!first)
    return;
  const Steps steps = stepsOf(*first);
  Expected<Quantizer> quantizer = readQuantizer(constants, steps.scale, steps.zeroPoint, steps.axis, stored.type);
  auto leave = [&](const std::string &why) {
    warnings.push_back(fmt::format("{}: {} is not trained: {}", file.name, name, why));
  };
  if (!quantizer)
    return leave(fmt::format("node {}: {}", nodeName(*first), quantizer.message()));
  if (!collect(name, steps, ends))
    return leave("nodes read it as integers, or with different scales");
  Expected<std::string> bytes = dequantizedBytes(constants, name, *quantizer);
  if (!bytes)
    return leave(fmt::format("node {}: {}", nodeName(*first), bytes.message()));
  OnnxQuantized &kept = file.quantized[name];
  kept.stored = stored;
  kept.scale.assign(quantizer->scale.begin(), quantizer->scale.end());
  kept.zeroPoint = quantizer->zeroPoint;
  if (isPerAxis(steps)) // even if all of its initial scales are equal
    kept.axis = quantizer->axis < 0 ? quantizer->axis + int64_t(stored.dims.size()) : quantizer->axis;
  kept.scaleName = steps.scale;
  kept.zeroPointName = steps.zeroPoint;

  const std::string result = name + "/rounded";
  NodeProto node = *first;
  node.set_op_type("DequantizeLinear");
  node.set_input(0, name);
  node.clear_output();
  node.add_output(result);
  node.set_name(nodeName(*first));
  setInt(node, fake_quantize::kType, stored.type);
  const bool bias = stored.type == TensorProto::INT32;
  if (settings.quantize == "observe" && bias && observes(steps, true)) {
    // roundBiases rounds it in front of its reader, after the scales that it depends on.
    kept.scaleOf = factorsOf(*first);
    kept.observed = !kept.scaleOf.empty();
    if (kept.observed)
      biases[name] = readers[first->output(0)].front();
  } else if (settings.quantize == "observe" && !bias && observes(steps, isSymmetric(*quantizer))) {
    observeWeight(node, name, *quantizer);
  }
  OnnxInitializer &initializer = found->second;
  initializer.type = TensorProto::FLOAT;
  initializer.bytes = bytes->size();
  initializer.data = bytes.take();
  initializer.file.clear();
  initializer.offset = 0;
  file.rounded[result] = name;
  for (NodeProto *reader : readers[name])
    for (std::string &input : *reader->mutable_input())
      if (input == name)
        input = result;
  passOn(ends, name);
  if (kept.observed && bias) {
    node.set_op_type("Identity");
    node.clear_attribute();
    while (node.input_size() > 1)
      node.mutable_input()->RemoveLast();
  }
  front.push_back(std::move(node));
  any = true;
}

/// Rewrites a QuantizeLinear and the DequantizeLinear nodes behind it.
void Rewriting::roundActivation(NodeProto &node) {
  const Steps steps = stepsOf(node);
  int32_t type = int32_t(intAttribute(node, "output_dtype", 0));
  const OnnxInitializer *point = constants.find(steps.zeroPoint);
  type = point ? point->type : type ? type : int32_t(TensorProto::UINT8);
  if (!integerRange(type) || (!steps.zeroPoint.empty() && !point))
    return; // the importer reports the unsupported type
  std::vector<NodeProto *> ends;
  NodeProto *limit = limitOf(node);
  const bool whole = collect(limit ? limit->output(0) : node.output(0), steps, ends) && !ends.empty();
  if (!whole) {
    ends.clear();
    for (NodeProto *reader : readers[node.output(0)])
      if (isPart(*reader, "DequantizeLinear") && reader->input(0) == node.output(0) && same(steps, stepsOf(*reader)))
        ends.push_back(reader);
  }
  const std::string weight = file.initializers.count(node.input(0)) ? node.input(0) : "";
  Expected<Quantizer> quantizer = readQuantizer(constants, steps.scale, steps.zeroPoint, steps.axis, type);
  auto round = [&](NodeProto &made) {
    made.set_op_type("DequantizeLinear");
    made.set_input(0, node.input(0));
    setInt(made, fake_quantize::kType, type);
    if (limit) {
      auto bound = [&](int i, const char *name) {
        if (!inputOf(*limit, i).empty())
          setInt(made, name, int64_t((*constants.numbers(limit->input(i)))[0]));
      };
      bound(1, fake_quantize::kLeast);
      bound(2, fake_quantize::kMost);
    } else if (settings.quantize == "observe" && quantizer && observes(steps, isSymmetric(*quantizer))) {
      if (weight.empty())
        observeRange(made, *quantizer);
      else
        observeWeight(made, weight, *quantizer);
    }
    if (!weight.empty())
      file.rounded[made.output(0)] = weight;
    any = true;
  };
  if (whole) {
    round(node);
    passOn(ends, weight);
    if (limit)
      passOn({limit}, weight);
    return;
  }
  limit = nullptr;
  for (NodeProto *end : ends)
    round(*end);
}

/// The Clip that torch writes if it uses fewer integers than the type has (0 to 127 of UINT8), if it is the only reader
/// of the result.
NodeProto *Rewriting::limitOf(const NodeProto &node) {
  const std::vector<NodeProto *> &all = readers[node.output(0)];
  if (all.size() != 1 || outputs.count(node.output(0)))
    return nullptr;
  NodeProto *clip = all.front();
  if (clip->op_type() != "Clip" || !canonicalDomain(clip->domain()).empty() || clip->input_size() < 2 ||
      clip->input(0) != node.output(0) || clip->output_size() == 0)
    return nullptr;
  for (int i : {1, 2})
    if (!inputOf(*clip, i).empty())
      if (Expected<std::vector<double>> bound = constants.numbers(clip->input(i)); !bound || bound->size() != 1)
        return nullptr;
  return clip;
}

//===----------------------------------------------------------------------===//
// Observed ranges
//===----------------------------------------------------------------------===//

/// True if the scales can be observed: the export can write new ones only into initializers.
bool Rewriting::observes(const Steps &steps, bool symmetric) {
  // The table also lists tensors of Constant nodes, which are no initializers of the model.
  auto held = [&](const std::string &name) {
    const auto &all = file.model.graph().initializer();
    return std::any_of(all.begin(), all.end(), [&](const TensorProto &tensor) { return tensor.name() == name; });
  };
  bool own = true;
  for (const NodeProto *reader : readers[steps.zeroPoint])
    if (std::count(reader->input().begin(), reader->input().end(), steps.zeroPoint))
      own &= inputOf(*reader, 1) == steps.scale && inputOf(*reader, 2) == steps.zeroPoint;
  // A symmetric zero point never changes, so it need not be an initializer.
  if (held(steps.scale) && (symmetric || (held(steps.zeroPoint) && own)))
    return true;
  const std::string text =
      fmt::format("{}: model.quantize = \"observe\": scale {} {} and stays fixed", file.name, steps.scale,
                  !held(steps.scale)       ? "is no initializer"
                  : !held(steps.zeroPoint) ? "has no zero point among the initializers"
                                           : fmt::format("shares its zero point {} with others", steps.zeroPoint));
  if (std::find(warnings.begin(), warnings.end(), text) == warnings.end())
    warnings.push_back(text);
  return false;
}

void Rewriting::addState(const std::string &name, double value) {
  const float stored = float(value);
  OnnxInitializer &state = file.initializers[name];
  state.type = TensorProto::FLOAT;
  state.data.assign(reinterpret_cast<const char *>(&stored), sizeof stored);
  state.bytes = sizeof stored;
}

/// Adds state for an observed range, which starts as the range of the file's scale and zero point. An end at 0 stays
/// fixed, since a Relu may have been folded into it.
void Rewriting::observeRange(NodeProto &node, const Quantizer &quantizer) {
  if (isPerAxis(stepsOf(node))) {
    warnings.push_back(
        fmt::format("{}: node {}: model.quantize = \"observe\": an activation with a scale for each index of an "
                    "axis keeps its scales",
                    file.name, nodeName(node)));
    return;
  }
  const Steps steps = stepsOf(node);
  auto known = std::find_if(file.ranges.begin(), file.ranges.end(),
                            [&](const OnnxObservedRange &range) { return range.scaleName == steps.scale; });
  if (known == file.ranges.end()) {
    const IntegerRange limits = *integerRange(quantizer.type);
    OnnxObservedRange range{steps.scale, steps.zeroPoint, "", "", quantizer.type, isSymmetric(quantizer)};
    auto state = [&](const char *end, int64_t q) -> std::string {
      if (q == quantizer.zeroPoint[0])
        return "";
      const std::string name = steps.scale + end;
      addState(name, double(q - quantizer.zeroPoint[0]) * quantizer.scale[0]);
      return name;
    };
    range.low = state("/low", limits.low);
    range.high = state("/high", limits.high);
    known = file.ranges.insert(file.ranges.end(), range);
  }
  setText(node, fake_quantize::kObserve, "range");
  node.add_output(node.output(0) + "/scale");
  setText(node, fake_quantize::kLow, known->low);
  setText(node, fake_quantize::kHigh, known->high);
  setInt(node, fake_quantize::kSymmetric, known->symmetric);
}

/// Observes a weight's scale. A symmetric weight keeps the integer of its largest element: quantisers leave some
/// integers unused on purpose.
void Rewriting::observeWeight(NodeProto &node, const std::string &name, const Quantizer &quantizer) {
  OnnxQuantized &kept = file.quantized[name];
  const Steps steps = stepsOf(node);
  if (kept.stored.dims.empty() && kept.stored.bytes == 0) { // the file stores it as floating point
    kept.stored = file.initializers.at(name);
    kept.scale.assign(quantizer.scale.begin(), quantizer.scale.end());
    kept.zeroPoint = quantizer.zeroPoint;
    if (isPerAxis(steps))
      kept.axis = quantizer.axis < 0 ? quantizer.axis + int64_t(kept.stored.dims.size()) : quantizer.axis;
    kept.scaleName = steps.scale;
    kept.zeroPointName = steps.zeroPoint;
  }
  kept.observed = true;
  kept.type = quantizer.type;
  const int64_t middle = middleOf(quantizer.type);
  const bool symmetric = isSymmetric(quantizer);
  if (symmetric) {
    kept.level = integerRange(quantizer.type)->high - middle;
    if (integerRange(kept.stored.type)) {
      int64_t largest = 0;
      if (Expected<std::vector<double>> values = constants.numbers(name))
        for (double q : *values)
          largest = std::max(largest, int64_t(std::fabs(q - double(middle))));
      if (largest)
        kept.level = std::min(kept.level, largest);
    }
    setInt(node, fake_quantize::kLevel, kept.level);
  }
  setText(node, fake_quantize::kObserve, "values");
  observedWeights[name] = name + "/scale";
  while (node.output_size() < 2)
    node.add_output("");
  node.set_output(1, observedWeights[name]);
  setInt(node, fake_quantize::kSymmetric, symmetric);
}

/// The two scales whose product is a bias's scale: those of the operands of the node that adds the bias. Empty if these
/// do not match.
std::vector<std::string> Rewriting::factorsOf(const NodeProto &bias) const {
  auto users = readers.find(bias.output(0));
  if (users == readers.end() || users->second.size() != 1 || readers.at(bias.input(0)).size() != 1)
    return {};
  for (const NodeProto *user : users->second) {
    if (user->input_size() < 3 || user->input(2) != bias.output(0) || !outermost.count(user))
      continue;
    std::vector<std::string> factors;
    std::vector<double> product = {1};
    for (int i : {0, 1}) {
      auto made = producers.find(user->input(i));
      // A weight's DequantizeLinear may be Identity by now; file.quantized has its scale.
      std::string scale;
      if (auto weight = file.rounded.find(user->input(i));
          weight != file.rounded.end() && file.quantized.count(weight->second))
        scale = file.quantized.at(weight->second).scaleName;
      else if (made != producers.end() && isPart(*made->second, "DequantizeLinear"))
        scale = inputOf(*made->second, 1);
      Expected<std::vector<double>> values = constants.numbers(scale);
      if (scale.empty() || !values || !file.initializers.count(scale))
        return {};
      factors.push_back(scale);
      const size_t count = std::max(product.size(), values->size());
      if (values->size() != count && values->size() != 1)
        return {};
      product.resize(count, double(product[0]));
      for (size_t k = 0; k < count; ++k)
        product[k] *= (*values)[values->size() == 1 ? 0 : k];
    }
    Expected<std::vector<double>> own = constants.numbers(inputOf(bias, 1));
    if (!own)
      return {};
    for (size_t k = 0; k < std::max(own->size(), product.size()); ++k) {
      const double expected = product[product.size() == 1 ? 0 : std::min(k, product.size() - 1)],
                   given = (*own)[own->size() == 1 ? 0 : std::min(k, own->size() - 1)];
      if (std::fabs(given - expected) > 1e-3 * expected)
        return {};
    }
    return factors;
  }
  return {};
}

/// The value that holds the observed scale by which `value` was rounded; `otherwise` if its scale is fixed.
std::string Rewriting::observedScale(const std::string &value, const std::string &otherwise) const {
  std::string name = value;
  for (int moves = 0; moves < kMostMoves; ++moves) {
    auto weight = file.rounded.find(name);
    if (weight != file.rounded.end() && observedWeights.count(weight->second))
      return observedWeights.at(weight->second);
    auto made = producers.find(name);
    if (made == producers.end() || made->second->input_size() == 0)
      break;
    if (attributeOf(*made->second, fake_quantize::kType))
      return made->second->output_size() > 1 ? made->second->output(1) : otherwise;
    name = made->second->input(0);
  }
  return otherwise;
}

void Rewriting::roundBiases() {
  for (const auto &[name, user] : biases) {
    const OnnxQuantized &kept = file.quantized.at(name);
    NodeProto scale, node;
    scale.set_op_type("Mul");
    scale.set_name(nodeName(*user) + "/bias_scale");
    for (int i : {0, 1})
      scale.add_input(observedScale(user->input(i), kept.scaleOf[size_t(i)]));
    scale.add_output(name + "/scale");
    node.set_op_type("DequantizeLinear");
    node.set_name(nodeName(*user));
    node.add_input(user->input(2));
    node.add_input(scale.output(0));
    node.add_output(name + "/in_steps");
    newAttribute(node, "axis", onnx::AttributeProto::INT).set_i(kept.axis);
    setInt(node, fake_quantize::kType, kept.stored.type);
    user->set_input(2, node.output(0));
    file.rounded[node.output(0)] = name;
    before[user] = {scale, node};
  }
}

std::vector<std::string> Rewriting::run() {
  dropAttributes(*graph.mutable_node());
  index(graph);
  for (const NodeProto &node : graph.node())
    outermost.insert(&node);
  std::vector<std::string> names;
  for (const auto &[name, initializer] : file.initializers)
    if (integerRange(initializer.type) && !initializer.inFourBits() && !file.ties.count(name) && !readers[name].empty())
      names.push_back(name);
  for (const NodeProto *node : nodes)
    if (const OnnxInitializer *constant = constants.find(inputOf(*node, 0));
        isPart(*node, "DequantizeLinear") && constant && integerRange(constant->type) && !constant->dims.empty() &&
        !file.initializers.count(node->input(0)))
      warnings.push_back(
          fmt::format("{}: {} is not trained: only integers in initializers are trained, and this is the result "
                      "of a node",
                      file.name, node->input(0)));
  for (const std::string &name : names)
    roundWeight(name);
  for (NodeProto *node : nodes)
    if (isPart(*node, "QuantizeLinear"))
      roundActivation(*node);
  roundBiases();
  // Rounding nodes come first, since a weight may be read before its former DequantizeLinear; only Constant nodes,
  // which may hold its scales, come before them.
  google::protobuf::RepeatedPtrField<NodeProto> all, others;
  for (NodeProto &node : *graph.mutable_node()) {
    if (auto found = before.find(&node); found != before.end())
      for (NodeProto &first : found->second)
        others.Add()->Swap(&first);
    (node.op_type() == "Constant" ? all : others).Add()->Swap(&node);
  }
  for (NodeProto &node : front)
    all.Add()->Swap(&node);
  for (NodeProto &node : others)
    all.Add()->Swap(&node);
  graph.mutable_node()->Swap(&all);
  return std::move(warnings);
}

} // namespace

void dropFakeQuantize(onnx::FunctionProto &function) { dropAttributes(*function.mutable_node()); }

Expected<std::vector<std::string>> fakeQuantize(OnnxFile &file, onnx::GraphProto &graph, const ModelSettings &settings,
                                                const std::map<std::string, std::string> &where) {
  Rewriting rewriting(file, graph, settings);
  std::vector<std::string> warnings = rewriting.run();
  if (settings.quantize == "observe" && !rewriting.rewroteAny()) {
    auto place = where.find("model.quantize");
    return error(
        "{}model.quantize = \"observe\": {} has no pair of QuantizeLinear and DequantizeLinear; quantise it with "
        "onnxruntime's quantize_static(…, quant_format=QuantFormat.QDQ), or take model.quantize out of the "
        "recipe",
        place == where.end() ? std::string() : place->second + ": ", file.name);
  }
  return warnings;
}

} // namespace tcc::frontend

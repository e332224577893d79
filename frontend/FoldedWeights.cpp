//===- FoldedWeights.cpp - initializers computed from weights -------------===//
#include "frontend/FoldedWeights.h"

#include "frontend/TorchNotes.h"
#include "frontend/TorchOps.h"
#include "frontend/WeightNames.h"
#include "frontend/Weights.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tcc::frontend {
namespace {

using Names = std::vector<std::string>;

std::set<std::string> valuesOf(const onnx::GraphProto &graph) {
  std::set<std::string> values;
  for (const onnx::NodeProto &node : graph.node())
    values.insert(node.output().begin(), node.output().end());
  return values;
}

/// Collects the readers of initializers, including those in graphs inside nodes.
void collectReaders(const onnx::GraphProto &graph, const OnnxFile &file,
                    std::map<std::string, std::vector<std::pair<const onnx::NodeProto *, int>>> &readers) {
  for (const onnx::NodeProto &node : graph.node()) {
    for (int i = 0; i < node.input_size(); ++i)
      if (file.initializers.count(node.input(i)))
        readers[node.input(i)].emplace_back(&node, i);
    for (const onnx::AttributeProto &attribute : node.attribute())
      if (attribute.has_g())
        collectReaders(attribute.g(), file, readers);
  }
}

bool isRecurrent(const onnx::NodeProto &node) {
  return node.op_type() == "LSTM" || node.op_type() == "GRU" || node.op_type() == "RNN";
}

/// True if the traced calls of all readers only move a weight's elements. Needed for invented names, which do not tell
/// how a value was computed.
bool readersOnlyMove(const std::vector<std::pair<const onnx::NodeProto *, int>> &readers) {
  return std::all_of(readers.begin(), readers.end(), [](const auto &read) {
    const onnx::NodeProto &node = *read.first;
    if (isRecurrent(node))
      return true;
    const TracedCall call = tracedCall(node);
    if (!call.target.empty())
      return translationMovesWeights(call.target, call.text);
    if (const std::string operation = lastScope(node); !operation.empty())
      return translationMovesWeights(withoutNumber(operation), "");
    return true; // no notes: a tool removed them
  });
}

/// True if two slices along an axis are equal, or if all elements of a tensor with several axes are equal, so that one
/// axis may be a repetition.
bool repeats(const OnnxInitializer &initializer, const std::string &bytes) {
  const size_t size = size_t(onnxElementBytes(initializer.type));
  size_t wide = 0;
  for (int64_t dim : initializer.dims)
    wide += dim > 1;
  if (isSplat(bytes, size))
    return wide > 1;
  size_t inner = bytes.size();
  for (int64_t dim : initializer.dims) {
    const size_t outerStep = inner, outer = bytes.size() / std::max<size_t>(1, outerStep);
    inner /= size_t(std::max<int64_t>(1, dim));
    std::set<std::string> slices;
    for (int64_t at = 0; at < dim; ++at) {
      std::string slice;
      for (size_t o = 0; o < outer; ++o)
        slice.append(bytes, o * outerStep + size_t(at) * inner, inner);
      if (!slices.insert(std::move(slice)).second)
        return true;
    }
  }
  return false;
}

/// True if every element of `bytes` occurs in `of`.
bool hasElementsOf(const std::string &bytes, const std::string &of, size_t size) {
  std::set<std::string> elements;
  for (size_t at = 0; at + size <= of.size(); at += size)
    elements.insert(of.substr(at, size));
  for (size_t at = 0; at + size <= bytes.size(); at += size)
    if (!elements.count(bytes.substr(at, size)))
      return false;
  return true;
}

class Folds {
public:
  Folds(const OnnxFile &file, const onnx::GraphProto &graph) : file(file), values(valuesOf(graph)) {
    collectReaders(graph, file, readers);
  }

  Expected<std::map<std::string, std::string>> run() {
    std::map<std::string, std::string> functions;
    for (const auto &[name, initializer] : file.initializers) {
      if (initializer.foldedFrom.empty() || !isFloatType(initializer.type))
        continue;
      const FoldSources sources = foldSources(file, initializer, values);
      if (sources.parameters.empty())
        continue;
      Expected<std::string> done = whatWasDone(name, initializer, sources);
      if (!done)
        return done.status();
      if (!done->empty())
        functions[name] = *done;
    }
    return functions;
  }

private:
  /// Says how an initializer was computed from weights; empty if their elements were only moved.
  Expected<std::string> whatWasDone(const std::string &name, const OnnxInitializer &initializer,
                                    const FoldSources &sources) {
    const std::string of = fmt::format(" of {}", fmt::join(sources.parameters, ", "));
    std::set<std::string> state(sources.parameters.begin(), sources.parameters.end()), operations;
    state.insert(sources.buffers.begin(), sources.buffers.end());
    bool makes = false, joins = false, mayRepeat = false;
    Names steps = initializer.foldedFrom;
    steps.push_back(name);
    for (const std::string &step : steps) {
      if (state.count(step) || isInventedName(step) || (step != name && values.count(step)))
        continue;
      const TorchOp op = torchOp(step);
      makes |= op == TorchOp::Makes;
      joins |= op == TorchOp::Joins;
      mayRepeat |= op == TorchOp::Repeats;
      if (op == TorchOp::Computes || (op == TorchOp::None && file.stateIsWhole && step != name))
        operations.insert(withoutNumber(step));
    }
    if (!operations.empty())
      return fmt::format("{}{}", fmt::join(operations, ", "), of);
    const auto &reads = readers[name];
    const bool recurrent =
        std::any_of(reads.begin(), reads.end(), [](const auto &read) { return isRecurrent(*read.first); });
    if (joins && makes && !recurrent)
      return fmt::format("constants joined to elements{}", of);
    if (sources.parameters.size() + sources.buffers.size() > 1 && !joins && !recurrent)
      return fmt::format("a value{}", of);
    if (isInventedName(name) && !readersOnlyMove(reads))
      return fmt::format("a value{}", of);
    if (initializer.absent || recurrent)
      return std::string();
    const OnnxInitializer *source = sourceOf(sources, initializer);
    if (!mayRepeat && !source)
      return std::string();
    Expected<std::string> bytes = initializerBytes(initializer);
    if (!bytes)
      return bytes.status();
    if (mayRepeat && repeats(initializer, *bytes))
      return fmt::format("repeated elements{}", of);
    if (!source)
      return std::string();
    Expected<std::string> original = initializerBytes(*source);
    if (!original)
      return original.status();
    return hasElementsOf(*bytes, *original, size_t(onnxElementBytes(initializer.type))) ? std::string()
                                                                                        : fmt::format("a value{}", of);
  }

  /// The parameter that it was computed from, if there is only one and the file has it in the same type; null for large
  /// ones.
  const OnnxInitializer *sourceOf(const FoldSources &sources, const OnnxInitializer &initializer) const {
    constexpr uint64_t kMostBytes = 4ull << 20;
    auto source = file.initializers.find(sources.parameters.front());
    return sources.parameters.size() == 1 && source != file.initializers.end() && !source->second.absent &&
                   source->second.type == initializer.type && source->second.bytes <= kMostBytes &&
                   initializer.bytes <= kMostBytes
               ? &source->second
               : nullptr;
  }

  const OnnxFile &file;
  std::set<std::string> values;
  std::map<std::string, std::vector<std::pair<const onnx::NodeProto *, int>>> readers;
};

} // namespace

FoldSources foldSources(const OnnxFile &file, const OnnxInitializer &initializer,
                        const std::set<std::string> &values) {
  FoldSources sources;
  for (const std::string &source : initializer.foldedFrom) {
    auto known = file.stateKinds.find(source);
    if (known != file.stateKinds.end()) {
      if (known->second == "PARAMETER" || known->second == "BUFFER")
        (known->second == "BUFFER" ? sources.buffers : sources.parameters).push_back(source);
      continue;
    }
    if (file.stateIsWhole || isInventedName(source) || torchOp(source) != TorchOp::None || values.count(source))
      continue;
    (isBufferName(source) ? sources.buffers : sources.parameters).push_back(source);
  }
  return sources;
}

std::string foldedParameter(const OnnxFile &file, const OnnxInitializer &initializer,
                            const std::set<std::string> &values) {
  const FoldSources sources = foldSources(file, initializer, values);
  const Names &names = sources.parameters.empty() ? sources.buffers : sources.parameters;
  return names.size() == 1 ? names.front() : std::string();
}

Expected<std::map<std::string, std::string>> foldedFunctions(const OnnxFile &file, const onnx::GraphProto &graph) {
  return Folds(file, graph).run();
}

} // namespace tcc::frontend

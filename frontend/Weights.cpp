//===- Weights.cpp - undo merged and transposed weights of exporters ------===//
#include "frontend/Weights.h"

#include "frontend/FoldedWeights.h"
#include "frontend/OnnxLibrary.h"
#include "frontend/TorchNotes.h"
#include "frontend/TorchOps.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <optional>
#include <tuple>

namespace tcc::frontend {
namespace {


/// Most pairs named in one message.
constexpr size_t kNamed = 6;
/// Permutations are tried up to this rank.
constexpr size_t kMostRank = 4;

std::string withoutDigits(const std::string &name) {
  std::string text;
  for (char c : name)
    if (c < '0' || c > '9')
      text += c;
  return text;
}

std::string listed(const std::vector<std::string> &items) {
  const size_t shown = items.size() <= kNamed + 1 ? items.size() : kNamed;
  std::string text = fmt::format("{}", fmt::join(items.begin(), items.begin() + long(shown), ", "));
  return shown < items.size() ? fmt::format("{} and {} more", text, items.size() - shown) : text;
}

/// "/layers.0/lin_1/MatMul" → "/layers.0/lin": the module of a node, as torch's older exporter names it. A call of a
/// module that is called several times has its number after the name.
std::string moduleOf(const std::string &node) {
  std::string path = node.substr(0, node.rfind('/') == node.npos ? 0 : node.rfind('/'));
  size_t end = path.size();
  while (end > 0 && path[end - 1] >= '0' && path[end - 1] <= '9')
    --end;
  if (end < path.size() && end > 1 && path[end - 1] == '_')
    path.resize(end - 1);
  return path;
}

/// The module whose code made a node, by the newer exporter's notes: "l.norm1".
std::string scopeOf(const onnx::NodeProto &node) {
  const std::vector<std::string> names = scopesOf(node);
  return names.size() >= 2 ? names[names.size() - 2] : std::string();
}

/// The name of a node's input in the module that owns it.
std::string partName(const onnx::NodeProto &node, int input, const std::string &otherwise) {
  const std::string &op = node.op_type();
  static constexpr const char *kNorm[] = {"", "weight", "bias", "running_mean", "running_var"};
  if (op.find("Normalization") != op.npos && input >= 1 && input <= 4)
    return kNorm[input];
  if (input == 2 && (op == "Conv" || op == "ConvTranspose" || op == "Gemm"))
    return "bias";
  if (op == "PRelu" && input == 1)
    return "weight";
  return op == "Add" && otherwise.find("bias") == otherwise.npos ? "bias" : otherwise;
}

class Restoration {
public:
  Restoration(OnnxFile &file, const ModelSettings &settings)
      : file(file), graph(*file.model.mutable_graph()), settings(settings) {
    for (const onnx::NodeProto &node : graph.node())
      values.insert(node.output().begin(), node.output().end());
  }

  Expected<Restored> run() {
    result.file = file.name;
    if (Status status = splitIdentities(); !status.ok())
      return status;
    if (Status status = splitCalls(); !status.ok())
      return status;
    if (Status status = splitScopes(); !status.ok())
      return status;
    if (Status status = findCopies(); !status.ok())
      return status;
    return std::move(result);
  }

private:
  const OnnxInitializer *weight(const std::string &name) const {
    auto found = file.initializers.find(name);
    return found != file.initializers.end() && isFloatType(found->second.type) ? &found->second : nullptr;
  }

  Expected<bool> allEqual(const OnnxInitializer &initializer) {
    if (initializer.absent)
      return false;
    Expected<std::string> bytes = initializerBytes(initializer);
    if (!bytes)
      return bytes.status();
    const size_t element = size_t(onnxElementBytes(initializer.type));
    return bytes->size() == element || isSplat(*bytes, element);
  }

  /// Adds an initializer with the value of another.
  OnnxInitializer &addCopy(const std::string &of, const std::string &name) {
    OnnxInitializer copy = file.initializers.at(of);
    copy.computed |= !copy.foldedFrom.empty() || isInventedName(of);
    copy.foldedFrom.clear();
    OnnxInitializer &added = file.initializers.emplace(name, copy).first->second;
    onnx::TensorProto &tensor = *graph.add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(copy.type);
    for (int64_t dim : copy.dims)
      tensor.add_dims(dim);
    result.split.push_back({name, of, fmt::format("{} (was {})", name, of)});
    return added;
  }

  /// The modules that read a value, by node names of the older exporter.
  std::set<std::string> readersOf(const std::string &name) const {
    std::set<std::string> modules;
    for (const onnx::NodeProto &node : graph.node())
      if (node.op_type() != "Identity" && std::count(node.input().begin(), node.input().end(), name))
        modules.insert(moduleOf(node.name()));
    return modules;
  }

  /// True if Identity(of) → name is a merge of two weights; false if it is one weight with two names.
  Expected<bool> isMerge(const std::string &of, const std::string &name) {
    if (isInventedName(name)) // a folded weight: merged if different modules read the two
      return readersOf(of) != readersOf(name);
    Expected<bool> constant = allEqual(file.initializers.at(of));
    if (!constant)
      return constant.status();
    // Names of copied layers differ in numbers alone; other equal weights are tied.
    return *constant || (withoutDigits(of) == withoutDigits(name) && of != name);
  }

  Status splitIdentities() {
    std::set<std::string> outputs;
    for (const onnx::ValueInfoProto &output : graph.output())
      outputs.insert(output.name());
    auto &nodes = *graph.mutable_node();
    std::vector<int> gone;
    for (int i = 0; i < nodes.size(); ++i) {
      const onnx::NodeProto &node = nodes[i];
      if (node.op_type() != "Identity" || node.input_size() != 1 || node.output_size() != 1 || !weight(node.input(0)) ||
          outputs.count(node.output(0)) || file.initializers.count(node.output(0)) || !exportedStop(node).empty())
        continue;
      const std::string of = node.input(0), name = node.output(0);
      Expected<bool> merge = isMerge(of, name);
      if (!merge)
        return merge.status();
      if (settings.merged != "keep" && (*merge || settings.merged == "split")) {
        addCopy(of, name);
        gone.push_back(i);
      } else if (*merge) {
        result.left.push_back({name, of, fmt::format("{} = {}", name, of)});
      } else if (!isInventedName(name) && settings.merged != "keep") {
        result.kept.push_back({name, of, fmt::format("{} = {}", name, of)});
      }
    }
    for (auto at = gone.rbegin(); at != gone.rend(); ++at)
      nodes.DeleteSubrange(*at, 1);
    return Status::success();
  }

  /// Splits weights whose readers' notes tell which of several equal weights, or which constant, they read.
  Status splitCalls() {
    Expected<MergedReads> merged = mergedReads(file);
    if (!merged)
      return merged.status();
    result.dropped = merged->dropped;
    result.lost = merged->lost;
    for (const DroppedParameter &dropped : merged->dropped)
      if (dropped.why == DroppedParameter::Merged)
        result.refusals.push_back(
            fmt::format("{} is gone: the exporter merged what reads it (node {}) with what reads an "
                        "equal weight",
                        dropped.name, dropped.node));
    for (const MergedRead &read : merged->reads) {
      const std::string name = graph.node(read.node).input(read.input);
      const std::string part = !read.state.empty() ? read.state : !read.computed.empty() ? read.computed : "constant";
      // A folded weight is not the parameter itself, so it gets a name of its own.
      const bool folded = !file.initializers.at(name).foldedFrom.empty() || isInventedName(name);
      const std::string own = read.state.empty() ? fmt::format("{}/{}", name, part)
                              : folded           ? fmt::format("{}/{}", part, name)
                                                 : part;
      if (settings.merged == "keep") {
        result.left.push_back({own, name, fmt::format("{} = {}", own, name)});
        continue;
      }
      if (!file.initializers.count(own)) {
        if (values.count(own))
          continue;
        OnnxInitializer &copy = addCopy(name, own);
        auto kind = file.stateKinds.find(read.state);
        copy.kind = read.state.empty() || folded ? "" : kind == file.stateKinds.end() ? "PARAMETER" : kind->second;
        if (folded && !read.state.empty())
          copy.foldedFrom = {read.state};
        if (read.state.empty())
          copy.code = nodeName(graph.node(read.node));
        if (!read.computed.empty() && !merged->lost.empty())
          result.refusals.push_back(
              fmt::format("node {} reads a value that the exporter computed ({}) and stored as {}, which was equal; "
                          "it may come from {}, which nothing else in the file mentions",
                          nodeName(graph.node(read.node)), read.computed, name, listed(merged->lost)));
      }
      if (file.initializers.at(own).dims == file.initializers.at(name).dims)
        graph.mutable_node(read.node)->set_input(read.input, own);
    }
    return Status::success();
  }

  /// Splits weights that nodes of several modules read, unless they are tied: those whose elements are all equal, and
  /// those of copied layers, whose modules' names differ in numbers alone.
  Status splitScopes() {
    std::map<std::string, std::vector<std::pair<int, int>>> readers; // (node, input) by initializer
    for (int i = 0; i < graph.node_size(); ++i)
      for (int k = 0; k < graph.node(i).input_size(); ++k)
        if (weight(graph.node(i).input(k)) && !isNoted(file, graph.node(i)))
          readers[graph.node(i).input(k)].emplace_back(i, k);
    for (const auto &[name, uses] : readers) {
      const OnnxInitializer &initializer = file.initializers.at(name);
      // A value that the exporter computed from no parameter is a constant, even if several modules read it.
      if (uses.size() < 2 || torchOp(name) != TorchOp::None ||
          (!initializer.foldedFrom.empty() && foldedParameter(file, initializer, values).empty()))
        continue;
      Expected<bool> constant = allEqual(initializer);
      if (!constant)
        return constant.status();
      const std::string origin = originOf(name);
      const std::string part = origin.substr(origin.rfind('.') == origin.npos ? 0 : origin.rfind('.') + 1);
      bool norms = true, scoped = true;
      for (auto [i, k] : uses) {
        norms &= graph.node(i).op_type().find("Normalization") != std::string::npos && k >= 1;
        scoped &= !scopeOf(graph.node(i)).empty();
      }
      if (!scoped) {
        if (norms && *constant && initializer.foldedFrom.empty())
          result.doubtful.push_back({name, name, name});
        continue;
      }
      // The nodes of the module that gave the name keep it.
      const std::string owner = origin.substr(0, origin.size() - std::min(origin.size(), part.size() + 1));
      for (auto [i, k] : uses) {
        const std::string scope = scopeOf(graph.node(i));
        // A module may read a parameter of a module inside it: compare only as many path components as the reader has.
        size_t cut = 0;
        for (long names = 1 + std::count(scope.begin(), scope.end(), '.'); names > 0 && cut != owner.npos; --names)
          cut = owner.find('.', cut + (cut > 0));
        const std::string outer = owner.substr(0, cut), inner = cut == owner.npos ? "" : owner.substr(cut);
        const bool copied = !owner.empty() && withoutDigits(scope) == withoutDigits(outer);
        if (origin.empty() || scope == outer || scope.starts_with(owner + ".") || (!*constant && !copied))
          continue;
        const std::string parameter = copied ? fmt::format("{}{}.{}", scope, inner, part)
                                             : fmt::format("{}.{}", scope, partName(graph.node(i), k, part));
        // A folded weight is not the parameter itself, so it gets a name of its own.
        const std::string own = isInventedName(name) ? parameter + "/" + name : parameter;
        if (own == name)
          continue;
        if (settings.merged == "keep") {
          result.left.push_back({own, name, fmt::format("{} = {}", own, name)});
          continue;
        }
        if (!file.initializers.count(own)) {
          addCopy(name, own);
          if (own != parameter)
            file.initializers.at(own).foldedFrom = {parameter};
        }
        if (file.initializers.at(own).dims == file.initializers.at(name).dims)
          graph.mutable_node(i)->set_input(k, own);
      }
    }
    return Status::success();
  }

  //===--------------------------------------------------------------------===//
  // Copies
  //===--------------------------------------------------------------------===//

  /// The element at a position, as bits.
  Expected<uint64_t> element(const OnnxInitializer &initializer, uint64_t position) {
    const uint64_t size = onnxElementBytes(initializer.type);
    OnnxInitializer part = initializer;
    part.bytes = size;
    part.offset += position * size;
    if (!initializer.external()) {
      uint64_t value = 0;
      std::memcpy(&value, initializer.data.data() + position * size, size);
      return value;
    }
    Expected<std::string> bytes = initializerBytes(part);
    if (!bytes)
      return bytes.status();
    uint64_t value = 0;
    std::memcpy(&value, bytes->data(), size);
    return value;
  }

  /// The permutation of axes that turns `of` into `copy`, empty if they are equal; nullopt if there is none.
  static std::optional<std::vector<int64_t>> permutationOf(const OnnxInitializer &of, const std::string &ofBytes,
                                                           const OnnxInitializer &copy, const std::string &copyBytes) {
    if (ofBytes == copyBytes)
      return std::vector<int64_t>{};
    const size_t rank = of.dims.size(), size = size_t(onnxElementBytes(of.type));
    if (rank != copy.dims.size() || rank < 2 || rank > kMostRank)
      return std::nullopt;
    std::vector<int64_t> permutation(rank), strides(rank, 1);
    std::iota(permutation.begin(), permutation.end(), 0);
    for (size_t d = rank - 1; d-- > 0;)
      strides[d] = strides[d + 1] * of.dims[d + 1];
    while (std::next_permutation(permutation.begin(), permutation.end())) {
      bool fits = true;
      for (size_t d = 0; d < rank; ++d)
        fits &= copy.dims[d] == of.dims[size_t(permutation[d])];
      std::vector<int64_t> index(rank, 0);
      for (size_t at = 0; fits && at < copyBytes.size(); at += size) {
        int64_t source = 0;
        for (size_t d = 0; d < rank; ++d)
          source += index[d] * strides[size_t(permutation[d])];
        fits = !std::memcmp(copyBytes.data() + at, ofBytes.data() + size_t(source) * size, size);
        for (size_t d = rank; d-- > 0 && ++index[d] == copy.dims[d];)
          index[d] = 0;
      }
      if (fits)
        return permutation;
    }
    return std::nullopt;
  }

  /// The parameter behind an initializer; empty if unknown.
  std::string originOf(const std::string &name) const {
    std::string folded = foldedParameter(file, file.initializers.at(name), values);
    return !folded.empty() ? folded : isInventedName(name) ? std::string() : name;
  }

  /// True if two initializers with equal values may be one weight; false for copied layers, whose names differ in
  /// numbers alone.
  bool mayBeOne(const std::string &a, const std::string &b) const {
    std::string first = originOf(a), second = originOf(b);
    return first.empty() || second.empty()
               ? !(first.empty() && second.empty() && withoutDigits(a) == withoutDigits(b) &&
                   file.initializers.at(a).dims == file.initializers.at(b).dims)
               : first == second || withoutDigits(first) != withoutDigits(second);
  }

  /// Finds initializers with the same elements under permuted axes. A permutation keeps the first and the last element
  /// in place, so these select the few initializers to compare.
  Status findCopies() {
    std::map<std::tuple<int32_t, std::vector<int64_t>, uint64_t, uint64_t>, std::vector<std::string>> alike;
    for (const auto &[name, initializer] : file.initializers) {
      uint64_t count = initializer.bytes / std::max<uint64_t>(1, onnxElementBytes(initializer.type));
      if (!weight(name) || initializer.absent || initializer.dims.size() < 2 || count < 4)
        continue;
      std::vector<int64_t> extents;
      for (int64_t dim : initializer.dims)
        if (dim != 1)
          extents.push_back(dim);
      std::sort(extents.begin(), extents.end());
      Expected<uint64_t> first = element(initializer, 0), last = element(initializer, count - 1);
      if (!first || !last)
        return first ? last.status() : first.status();
      alike[{initializer.type, extents, *first, *last}].push_back(name);
    }
    for (auto &[key, names] : alike) {
      // Weights under their own names come first, so that the others become their copies.
      std::stable_sort(names.begin(), names.end(), [&](const std::string &a, const std::string &b) {
        return isInventedName(a) < isInventedName(b);
      });
      std::vector<std::pair<std::string, std::string>> leaders; // name, bytes
      for (const std::string &name : names.size() > 1 ? names : std::vector<std::string>()) {
        const OnnxInitializer &copy = file.initializers.at(name);
        Expected<std::string> bytes = initializerBytes(copy);
        if (!bytes)
          return bytes.status();
        if (isSplat(*bytes, size_t(onnxElementBytes(copy.type))))
          continue;
        bool found = false;
        for (const auto &[leader, leaderBytes] : leaders) {
          const OnnxInitializer &of = file.initializers.at(leader);
          std::optional<std::vector<int64_t>> permutation = permutationOf(of, leaderBytes, copy, *bytes);
          if (!permutation || !mayBeOne(leader, name))
            continue;
          std::string text = fmt::format("{} is {}{}", name, leader, permutation->empty() ? "" : " transposed");
          if (settings.tie) {
            file.ties[name] = {leader, *permutation, copy};
            file.initializers.erase(name);
          }
          (settings.tie ? result.tied : result.apart).push_back({name, leader, text});
          found = true;
          break;
        }
        if (!found)
          leaders.emplace_back(name, bytes.take());
      }
    }
    result.nothingTied = settings.tie && result.tied.empty();
    return Status::success();
  }

  OnnxFile &file;
  onnx::GraphProto &graph;
  const ModelSettings &settings;
  std::set<std::string> values; ///< names that nodes compute
  Restored result;
};

} // namespace

bool isFloatType(int32_t type) {
  return type == onnx::TensorProto::FLOAT || type == onnx::TensorProto::DOUBLE || type == onnx::TensorProto::FLOAT16 ||
         type == onnx::TensorProto::BFLOAT16;
}

bool isSplat(const std::string &bytes, size_t element) {
  return bytes.size() > element && !std::memcmp(bytes.data(), bytes.data() + element, bytes.size() - element);
}

Expected<Restored> restoreWeights(OnnxFile &file, const ModelSettings &settings) {
  return Restoration(file, settings).run();
}

std::vector<std::string> Restored::lines(const std::function<bool(const std::string &)> &trained) const {
  std::vector<std::string> lines;
  auto say = [&](const std::vector<Pair> &pairs, const char *before, const char *after) {
    std::vector<std::string> texts;
    for (const Pair &pair : pairs)
      if (trained(pair.name) || trained(pair.of))
        texts.push_back(pair.text);
    if (!texts.empty())
      lines.push_back(fmt::format("{}: {}: {}{}", file, before, listed(texts), after));
  };
  say(kept, "weights stored once under two names are trained as one",
      "; if they are not tied in the model, --set model.merged=split gives each its own");
  say(doubtful, "several normalisations read the same parameter, whose elements are all equal",
      "; if the exporter merged equal weights, they are trained as one: export again without merging (optimize=False)");
  say(split, "the exporter stored equal weights as one; each is its own again",
      "; --set model.merged=keep leaves them one");
  say(left, "equal weights that the exporter stored as one are trained as one (model.merged)", "");
  for (auto [why, text] :
       {std::pair(DroppedParameter::Zero, "biases of zeros that the exporter dropped are not trained"),
        std::pair(DroppedParameter::Folded,
                  "normalisations that the exporter folded into the layer before are not trained")}) {
    std::vector<std::string> names;
    for (const DroppedParameter &parameter : dropped)
      if (parameter.why == why)
        names.push_back(parameter.name);
    if (!names.empty())
      lines.push_back(fmt::format("{}: {}: {}; export with torch.onnx.export(…, optimize=False) to train them", file,
                                  text, listed(names)));
  }
  say(apart, "the exporter stored weights twice, and the copies are trained apart",
      "; if the model shares them, --set model.tie=true ties them again");
  std::vector<std::string> texts;
  for (const Pair &pair : tied)
    texts.push_back(pair.text);
  if (!texts.empty())
    lines.push_back(fmt::format("{}: tied (model.tie): {}", file, listed(texts)));
  if (nothingTied)
    lines.push_back(fmt::format("{}: model.tie found no weight that is stored twice", file));
  return lines;
}

void insertTies(const OnnxFile &file, onnx::GraphProto &graph) {
  for (const auto &[name, tie] : file.ties) {
    auto front = [&] {
      onnx::NodeProto *node = graph.add_node();
      for (int i = graph.node_size() - 1; i > 0; --i)
        graph.mutable_node()->SwapElements(i, i - 1);
      node->set_name("tie/" + name);
      return node;
    };
    const bool reshaped = tie.permutation.empty() && tie.copy.dims != file.initializers.at(tie.of).dims;
    onnx::NodeProto &node = *front();
    node.set_op_type(!tie.permutation.empty() ? "Transpose" : reshaped ? "Reshape" : "Identity");
    node.add_input(tie.of);
    node.add_output(name);
    if (!tie.permutation.empty()) {
      onnx::AttributeProto &axes = *node.add_attribute();
      axes.set_name("perm");
      axes.set_type(onnx::AttributeProto::INTS);
      for (int64_t axis : tie.permutation)
        axes.add_ints(axis);
    }
    if (reshaped) {
      node.add_input("tie/" + name + "/shape");
      onnx::NodeProto &constant = *front();
      constant.set_op_type("Constant");
      constant.add_output("tie/" + name + "/shape");
      onnx::AttributeProto &value = *constant.add_attribute();
      value.set_name("value");
      value.set_type(onnx::AttributeProto::TENSOR);
      value.mutable_t()->set_data_type(onnx::TensorProto::INT64);
      value.mutable_t()->add_dims(int64_t(tie.copy.dims.size()));
      for (int64_t dim : tie.copy.dims)
        value.mutable_t()->add_int64_data(dim);
    }
    auto &inputs = *graph.mutable_input();
    for (int i = inputs.size(); i-- > 0;)
      if (inputs[i].name() == name)
        inputs.DeleteSubrange(i, 1);
  }
}

} // namespace tcc::frontend

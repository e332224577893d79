//===- Parameters.cpp - which initializers are trained --------------------===//
#include "frontend/Parameters.h"

#include "frontend/Contents.h"
#include "frontend/OnnxLibrary.h"
#include "frontend/TorchNames.h"
#include "frontend/Weights.h"
#include "support/NearestName.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace tcc::frontend {
namespace {


bool selects(const std::string &glob, const std::string &name, const InitializerRole &role) {
  if (glob.starts_with("@"))
    return std::find(role.uses.begin(), role.uses.end(), glob.substr(1)) != role.uses.end();
  return matchesGlob(glob, name) || (!role.display.empty() && matchesGlob(glob, role.display)) ||
         (!role.torchName.empty() && matchesGlob(glob, role.torchName));
}

class Decision {
public:
  Decision(const OnnxFile &file, const onnx::GraphProto &graph, const ModelSettings &settings,
           const std::map<std::string, std::string> &where, const ReadWhenCompiling &readWhenCompiling)
      : file(file), graph(graph), settings(settings), where(where), readWhenCompiling(readWhenCompiling) {}

  Expected<Roles> run() {
    describe();
    if (Status status = chooseDefaults(); !status.ok())
      return status;
    nameInTorch(file, graph, roles.initializers);
    if (Status status = applyRecipe(); !status.ok())
      return status;
    return std::move(roles);
  }

private:
  void describe() {
    std::set<std::string> values;
    for (const onnx::NodeProto &node : graph.node())
      values.insert(node.output().begin(), node.output().end());
    std::map<std::string, TorchShape> shapes = torchShapes(file, graph);
    reads = weightReads(file, graph, readWhenCompiling);
    for (const auto &[name, initializer] : file.initializers) {
      InitializerRole &role = roles.initializers[name];
      role.display = foldedParameter(initializer, values);
      if (reads.at(name).recurrent && role.display.empty())
        role.display = onlyScopedName(initializer);
      role.torch = shapes.at(name);
      role.node = reads.at(name).node;
      if (role.torch.dims.size() == 1)
        role.uses.push_back("1d");
      role.uses.insert(role.uses.end(), reads.at(name).uses.begin(), reads.at(name).uses.end());
      role.lifted = reads.at(name).statistic;
    }
  }

  /// The one source with a scope in its name ("rnn.weight_ih_l0"), which values of a graph have not.
  static std::string onlyScopedName(const OnnxInitializer &initializer) {
    std::string found;
    for (const std::string &source : initializer.foldedFrom) {
      if (isInventedName(source) || source.find('.') == source.npos)
        continue;
      if (!found.empty())
        return {};
      found = source;
    }
    return found;
  }

  /// What a product or a norm reads too stays a weight; who must know it says so.
  bool isNumber(const std::string &name) {
    return reads.at(name).number && !reads.at(name).weight;
  }

  Status chooseDefaults() {
    // torch.onnx's notes name every parameter; then what has none is a constant it lifted.
    for (const auto &[name, initializer] : file.initializers)
      described |= initializer.kind == "PARAMETER" || !initializer.foldedFrom.empty();
    std::vector<std::string> doubtful;
    for (const auto &[name, initializer] : file.initializers) {
      InitializerRole &role = roles.initializers[name];
      const bool statistic = role.lifted;
      Expected<std::string> sign = liftedSign(name, initializer, role);
      if (!sign)
        return error("{}: initializer \"{}\": {}", file.path, name, sign.message());
      role.lifted = !sign->empty();
      role.sign = role.lifted ? *sign : trainedSign(name, initializer, role);
      const bool noWeight = !initializer.home.empty() && role.lifted && !statistic;
      if (!isFloatType(initializer.type) || (initializer.dims.empty() && !statistic) || isNumber(name) || noWeight ||
          initializer.fixed)
        role.role = initializer.bytes <= kConstantBytes ? Role::Constant : Role::Frozen;
      else
        role.role = role.lifted ? Role::Frozen : Role::Parameter;
      if (role.doubtful)
        doubtful.push_back(role.node.empty() ? name : fmt::format("{} (read by {})", name, role.node));
    }
    for (const OnnxObservedRange &range : file.ranges)
      for (const std::string &state : {range.low, range.high})
        if (!state.empty()) {
          roles.initializers[state].role = Role::Frozen;
          roles.initializers[state].sign = "observed range of the values quantised by " + range.scaleName;
        }
    warnOfFrozenResults();
    if (!doubtful.empty() && !settings.trainable)
      roles.warnings.push_back(fmt::format(
          "{}: initializers are trained, though nothing says whether they are weights or constants: {}; choose with "
          "model.trainable or model.frozen in the recipe",
          file.name, fmt::join(doubtful, ", ")));
    return Status::success();
  }

  /// An exporter that computes with constant inputs (an initial state of zeros) may leave a result in a weight's place:
  /// it holds what the weights were, and does not follow them.
  void warnOfFrozenResults() {
    std::set<std::string> weights;
    for (const auto &[name, initializer] : file.initializers)
      if (const InitializerRole &role = roles.initializers[name]; role.role == Role::Parameter)
        weights.insert(role.display.empty() ? name : role.display);
    for (const auto &[name, initializer] : file.initializers) {
      if (!roles.initializers[name].lifted || !isFloatType(initializer.type))
        continue;
      std::vector<std::string> sources;
      for (const std::string &source : initializer.foldedFrom)
        if (weights.count(source))
          sources.push_back(source);
      if (!sources.empty())
        roles.warnings.push_back(
            fmt::format("{}: the exporter computed {} from {}, and it does not follow their training; export with "
                        "torch.onnx.export(…, optimize=False)",
                        file.name, name, fmt::join(sources, ", ")));
    }
  }

  /// Why an initializer is no weight; empty where it may be one.
  Expected<std::string> liftedSign(const std::string &name, const OnnxInitializer &initializer,
                                   const InitializerRole &role) {
    if (initializer.fixed)
      return std::string("a fixed input");
    if (!isFloatType(initializer.type))
      return std::string("no floating-point type");
    if (role.lifted)
      return fmt::format("running statistic of {}", role.node);
    if (initializer.dims.empty())
      return std::string("a single number of rank 0");
    if (isNumber(name))
      return fmt::format("{}, which is read at compile time", reads.at(name).reader);
    if (initializer.kind == "PARAMETER")
      return std::string();
    if (!initializer.kind.empty())
      return fmt::format("the exporter notes it as {}", initializer.kind);
    const WeightReads &read = reads.at(name);
    if (!initializer.home.empty() && isInventedName(name) && file.model.producer_name() == "pytorch")
      return std::string("a number of the model's code: torch stores parameters as initializers");
    if (read.recurrent)
      return std::string();
    if (role.display.empty() && isBufferName(name))
      return std::string("its name says that it is no weight");
    if (read.state && isInventedName(name) && !initializer.absent) {
      Expected<std::string> bytes = initializerBytes(initializer);
      if (!bytes)
        return bytes.status();
      if (bytes->find_first_not_of('\0') == std::string::npos)
        return std::string("an initial state of zeros");
    }
    Expected<std::string> contents = constantContents(initializer, read.weight);
    if (!contents)
      return contents.status();
    if (!contents->empty())
      return fmt::format("it holds {}", *contents);
    if (!role.display.empty())
      return std::string();
    if (!initializer.foldedFrom.empty())
      return std::string("folded from values that are no single parameter, by the exporter's notes");
    if (described && isInventedName(name))
      return std::string("the exporter's notes name no parameter for it");
    const uint64_t count = initializer.bytes / onnxElementBytes(initializer.type);
    if (isInventedName(name) && count == 1 && read.scale && !read.other)
      return std::string("a single number that scales");
    if (isInventedName(name) && count == 1 && read.epsilon)
      return std::string("a single number that keeps a root or a logarithm away from 0");
    if (!initializer.home.empty() && !isReadAsWeight(name, initializer))
      return std::string("a constant that nothing reads as a weight");
    return std::string();
  }

  /// What is no initializer is a weight only where its readers or its name say so.
  bool isReadAsWeight(const std::string &name, const OnnxInitializer &initializer) const {
    const WeightReads &read = reads.at(name);
    return read.weight || read.bias || read.normScale ||
           isParameterName(name, initializer.bytes / onnxElementBytes(initializer.type));
  }

  std::string trainedSign(const std::string &name, const OnnxInitializer &initializer, InitializerRole &role) {
    if (initializer.kind == "PARAMETER")
      return "the exporter notes it as PARAMETER";
    if (!role.display.empty())
      return "folded from " + role.display + ", by the exporter's notes";
    const bool inner = !initializer.home.empty();
    if (!inner && !isInventedName(name))
      return "floating-point, with a name of its own";
    const std::string where = inner ? ", stored in " + initializer.home : "";
    const WeightReads &read = reads.at(name);
    if (read.weight || read.bias || read.normScale || std::count(role.uses.begin(), role.uses.end(), "bias"))
      return fmt::format("read as a weight by {}{}", role.node, where);
    if (inner)
      return "named like a weight" + where;
    role.doubtful = true;
    return "doubtful: neither name, notes nor values tell";
  }

  std::string place(const std::string &key) const {
    auto found = where.find(key);
    return found == where.end() ? std::string() : found->second + ": ";
  }

  Status noMatch(const std::string &key, const std::string &glob, const std::string &extra = {}) const {
    std::vector<std::string> names;
    for (const auto &[name, role] : roles.initializers)
      names.push_back(name);
    return error("{}{}: \"{}\" matches no {}initializer of {}; {}", place(key), key, glob, extra, file.name,
                       nearestOrSome(glob, names));
  }

  Status applyRecipe() {
    if (settings.trainable) {
      std::set<std::string> chosen;
      for (const std::string &glob : *settings.trainable) {
        bool any = false;
        for (auto &[name, role] : roles.initializers) {
          const OnnxInitializer &initializer = file.initializers.at(name);
          bool exact = glob == name || (!role.display.empty() && glob == role.display);
          if (exact && !isFloatType(initializer.type))
            return error("{}model.trainable: {} is not floating-point and cannot be trained",
                               place("model.trainable"), name);
          if (!exact && (role.role != Role::Parameter || !selects(glob, name, role)))
            continue;
          any = true;
          chosen.insert(name);
        }
        if (!any)
          return noMatch("model.trainable", glob, "trainable ");
      }
      for (auto &[name, role] : roles.initializers) {
        if (chosen.count(name)) {
          role.role = Role::Parameter;
          role.sign = "chosen by model.trainable";
        } else if (role.role == Role::Parameter) {
          role.role = Role::Frozen;
          role.sign = "left out by model.trainable";
        }
      }
    }
    for (const std::string &glob : settings.frozen) {
      bool any = false;
      for (auto &[name, role] : roles.initializers) {
        if (!selects(glob, name, role))
          continue;
        any = true;
        if (role.role == Role::Parameter) {
          role.role = Role::Frozen;
          role.sign = fmt::format("model.frozen: {}", glob);
        }
      }
      if (!any)
        return noMatch("model.frozen", glob);
    }
    return Status::success();
  }

  const OnnxFile &file;
  const onnx::GraphProto &graph;
  const ModelSettings &settings;
  const std::map<std::string, std::string> &where;
  const ReadWhenCompiling &readWhenCompiling;
  std::map<std::string, WeightReads> reads;
  bool described = false;
  Roles roles;
};

} // namespace

Expected<Roles> decideRoles(const OnnxFile &file, const onnx::GraphProto &graph, const ModelSettings &settings,
                            const std::map<std::string, std::string> &where,
                            const ReadWhenCompiling &readWhenCompiling) {
  return Decision(file, graph, settings, where, readWhenCompiling).run();
}

} // namespace tcc::frontend

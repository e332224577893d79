//===- Parameters.cpp - which initializers are trained --------------------===//
#include "frontend/Parameters.h"

#include "frontend/Contents.h"
#include "frontend/FoldedWeights.h"
#include "frontend/OnnxLibrary.h"
#include "frontend/TorchOps.h"
#include "frontend/TorchParameters.h"
#include "frontend/WeightNames.h"
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
           const std::map<std::string, std::string> &where, const UseOfInput &useOfInput)
      : file(file), graph(graph), settings(settings), where(where), useOfInput(useOfInput) {}

  Expected<Roles> run() {
    if (Status status = describe(); !status.ok())
      return status;
    if (Status status = chooseDefaults(); !status.ok())
      return status;
    nameInTorch(file, graph, roles.initializers);
    if (Status status = applyRecipe(); !status.ok())
      return status;
    for (auto &[name, role] : roles.initializers)
      if (role.role == Role::Parameter)
        role.list = List::Trained;
    warnOfDoubts();
    return std::move(roles);
  }

private:
  Status describe() {
    std::set<std::string> values;
    for (const onnx::NodeProto &node : graph.node())
      values.insert(node.output().begin(), node.output().end());
    std::map<std::string, TorchShape> shapes = torchShapes(file, graph);
    reads = weightReads(file, graph, useOfInput);
    auto functions = foldedFunctions(file, graph);
    if (!functions)
      return functions.status();
    for (const auto &[name, initializer] : file.initializers) {
      InitializerRole &role = roles.initializers[name];
      const FoldSources sources = foldSources(file, initializer, values);
      role.display = foldedParameter(file, initializer, values);
      if (reads.at(name).recurrent && role.display.empty() && !file.stateIsWhole)
        role.display = onlyScopedName(initializer);
      role.sources = sources.parameters;
      buffers[name] = sources.buffers;
      if (auto found = functions->find(name); found != functions->end())
        role.function = found->second;
      role.torch = shapes.at(name);
      role.node = reads.at(name).node;
      if (role.torch.dims.size() == 1)
        role.uses.push_back("1d");
      role.uses.insert(role.uses.end(), reads.at(name).uses.begin(), reads.at(name).uses.end());
      role.lifted = reads.at(name).statistic;
    }
    return Status::success();
  }

  /// The only source whose name has a scope ("rnn.weight_ih_l0"); names of a graph's values have no scope.
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

  /// True if the initializer is read at compile time and not also as a weight, by a product or a norm.
  bool isNumber(const std::string &name) {
    return reads.at(name).number && !reads.at(name).weight;
  }

  Status chooseDefaults() {
    // If torch.onnx's notes are present they name every parameter, so an initializer without one is a lifted constant.
    described = file.stateIsWhole;
    for (const auto &[name, initializer] : file.initializers)
      described |= initializer.kind == "PARAMETER" || !initializer.foldedFrom.empty();
    for (const auto &[name, initializer] : file.initializers) {
      InitializerRole &role = roles.initializers[name];
      if (initializer.inFourBits() || (reads.at(name).fourBits && initializer.type == onnx::TensorProto::UINT8)) {
        role.role = Role::Frozen;
        role.list = List::Frozen;
        role.fourBits = true;
        role.sign = "stored in 4 bits";
        continue;
      }
      const bool statistic = role.lifted;
      Expected<Sign> sign = untrainedSign(name, initializer, role);
      if (!sign)
        return error("{}: initializer \"{}\": {}", file.path, name, sign.message());
      role.lifted = !sign->text.empty();
      role.list = sign->list;
      role.sign = role.lifted ? sign->text : trainedSign(name, initializer, role);
      const bool noWeight = !initializer.home.empty() && role.lifted && !statistic;
      const bool number = initializer.dims.empty() && role.lifted && !statistic && role.function.empty();
      if (!isFloatType(initializer.type) || number || isNumber(name) || noWeight || initializer.fixed)
        role.role = initializer.bytes <= kConstantBytes ? Role::Constant : Role::Frozen;
      else
        role.role = role.lifted ? Role::Frozen : Role::Parameter;
    }
    for (const OnnxObservedRange &range : file.ranges)
      for (const std::string &state : {range.low, range.high})
        if (!state.empty()) {
          InitializerRole &role = roles.initializers[state];
          role.role = Role::Frozen;
          role.list = List::Buffer;
          role.sign = "observed range of the values quantised by " + range.scaleName;
        }
    return Status::success();
  }

  void warnOfDoubts() {
    std::vector<std::string> doubtful;
    bool computed = false;
    for (const auto &[name, role] : roles.initializers)
      if (role.doubtful && role.role == Role::Parameter) {
        computed |= isInventedName(name) && file.model.producer_name() == "pytorch" && !described;
        doubtful.push_back(role.node.empty() ? name : fmt::format("{} (read by {})", name, role.node));
      }
    if (!doubtful.empty() && !settings.trainable)
      roles.warnings.push_back(
          fmt::format("{}: initializers are trained, though nothing says whether they are weights, buffers or "
                      "constants: {}; choose "
                      "with model.trainable or model.frozen in the recipe{}",
                      file.name, fmt::join(doubtful, ", "),
                      computed ? "; torch's older exporter also stores what it computed from weights: export with "
                                 "do_constant_folding=False"
                               : ""));
  }

  /// The reason why an initializer is no weight, and its list; the text is empty if it may be a weight.
  struct Sign {
    List list = List::Constant;
    std::string text;
  };

  Expected<Sign> untrainedSign(const std::string &name, const OnnxInitializer &initializer,
                               const InitializerRole &role) {
    if (initializer.fixed)
      return Sign{List::Constant, "a fixed input"};
    if (!isFloatType(initializer.type))
      return Sign{List::Constant, "no floating-point type"};
    if (!initializer.code.empty())
      return Sign{List::Constant, "a constant of the code of " + initializer.code};
    if (role.lifted)
      return Sign{List::Buffer, fmt::format("running statistic of {}", role.node)};
    if (isNumber(name))
      return Sign{List::Constant, fmt::format("{}, {}", reads.at(name).reader,
                                              reads.at(name).steps ? "scales or zero points of quantised values"
                                                                   : "which is read at compile time")};
    if (initializer.kind == "PARAMETER")
      return Sign();
    if (!initializer.kind.empty())
      return Sign{initializer.kind == "BUFFER" ? List::Buffer : List::Constant,
                  "the exporter notes it as " + initializer.kind};
    if (!initializer.home.empty() && isInventedName(name) && file.model.producer_name() == "pytorch")
      return Sign{List::Constant, "a number of the model's code: torch stores parameters as initializers"};
    if (!role.function.empty())
      return Sign{List::Frozen, fmt::format("computed by the exporter, {}: training it would train another model",
                                            role.function)};
    if (file.stateIsWhole && !role.sources.empty())
      return Sign();
    if (const std::vector<std::string> &from = buffers.at(name); role.sources.empty() && !from.empty())
      return Sign{List::Buffer,
                  fmt::format("computed from buffers, by the exporter's notes: {}", fmt::join(from, ", "))};
    if (auto kind = file.stateKinds.find(name); file.stateIsWhole && kind != file.stateKinds.end())
      return kind->second == "PARAMETER" ? Sign() : Sign{List::Buffer, "the exporter notes it as " + kind->second};
    const WeightReads &read = reads.at(name);
    if (read.recurrent && !(file.stateIsWhole && !initializer.foldedFrom.empty()))
      return Sign();
    if (read.state && isInventedName(name) && !initializer.absent) {
      Expected<std::string> bytes = initializerBytes(initializer);
      if (!bytes)
        return bytes.status();
      if (bytes->find_first_not_of('\0') == std::string::npos)
        return Sign{List::Constant, "an initial state of zeros"};
    }
    Expected<std::string> contents = constantContents(initializer, read.weight);
    if (!contents)
      return contents.status();
    if (!contents->empty())
      return Sign{List::Constant, fmt::format("it holds {}", *contents)};
    if (role.display.empty() && isBufferName(name))
      return Sign{List::Buffer, "its name says that it is no weight"};
    if (!role.sources.empty())
      return Sign();
    if (!initializer.foldedFrom.empty())
      return Sign{List::Constant, "folded from values that are no single parameter, by the exporter's notes"};
    const bool invented = isInventedName(name) || torchOp(name) != TorchOp::None;
    if (described && (isInventedName(name) || initializer.dims.empty()))
      return Sign{List::Constant, "the exporter's notes name no parameter for it"};
    if (initializer.dims.empty() && (invented || (file.model.producer_name() != "pytorch" && !hasModuleName(name))))
      return Sign{List::Constant, "a single number of rank 0"};
    const uint64_t count = initializer.bytes / onnxElementBytes(initializer.type);
    if (isInventedName(name) && count == 1 && read.scale && !read.other)
      return Sign{List::Constant, "a single number that scales"};
    if (isInventedName(name) && count == 1 && read.epsilon)
      return Sign{List::Constant, "a single number that keeps a root or a logarithm away from 0"};
    if (!initializer.home.empty() && !isReadAsWeight(name, initializer))
      return Sign{List::Constant, "a constant that nothing reads as a weight"};
    return Sign();
  }

  /// True if readers or name indicate a weight. A tensor that is no initializer is trained only then.
  bool isReadAsWeight(const std::string &name, const OnnxInitializer &initializer) const {
    const WeightReads &read = reads.at(name);
    return read.weight || read.bias || read.normScale ||
           isParameterName(name, initializer.bytes / onnxElementBytes(initializer.type));
  }

  std::string trainedSign(const std::string &name, const OnnxInitializer &initializer, InitializerRole &role) {
    auto noted = file.stateKinds.find(name);
    if (initializer.kind == "PARAMETER" || (file.stateIsWhole && noted != file.stateKinds.end()))
      return "the exporter notes it as PARAMETER";
    if (!role.display.empty())
      return "folded from " + role.display + ", by the exporter's notes";
    if (!role.sources.empty())
      return fmt::format("the elements of {}, by the exporter's notes", fmt::join(role.sources, ", "));
    const bool inner = !initializer.home.empty();
    const std::string where = inner ? ", stored in " + initializer.home : "";
    const WeightReads &read = reads.at(name);
    const bool asWeight =
        read.weight || read.bias || read.normScale || std::count(role.uses.begin(), role.uses.end(), "bias");
    if (!inner && !isInventedName(name)) {
      // torch's older exporter stores parameters and registered buffers alike.
      const uint64_t count = initializer.bytes / std::max<uint64_t>(1, onnxElementBytes(initializer.type));
      role.doubtful = file.model.producer_name() == "pytorch" && !asWeight &&
                      (described || (!read.recurrent && !isParameterName(name, count)));
      return role.doubtful ? "doubtful: floating-point, with a name of its own, which a buffer has too"
                           : "floating-point, with a name of its own";
    }
    // Invented names of the older exporter: read inside a module they usually are transposed weights of linear layers;
    // read outside of modules they are values that the model's own code computed.
    const bool ownCode = !inner && !described && file.model.producer_name() == "pytorch" && role.node.rfind('/') == 0;
    if (asWeight && !ownCode)
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

  /// True if a glob matches the initializer or a parameter that it was computed from.
  static bool selectsSource(const std::string &glob, const std::string &name, const InitializerRole &role) {
    return selects(glob, name, role) ||
           std::any_of(role.sources.begin(), role.sources.end(),
                       [&](const std::string &source) { return matchesGlob(glob, source); });
  }

  Status applyRecipe() {
    std::set<std::string> refused; // initializers computed from parameters and stored in their place
    for (auto &[name, role] : roles.initializers)
      if (role.list == List::Frozen && !role.function.empty() && !settings.trainable)
        refused.insert(name);
    if (settings.trainable) {
      std::set<std::string> chosen;
      for (const std::string &glob : *settings.trainable) {
        bool any = false;
        for (auto &[name, role] : roles.initializers) {
          const OnnxInitializer &initializer = file.initializers.at(name);
          const bool function = !role.function.empty();
          const bool exact = glob == name || (!role.display.empty() && glob == role.display && !function);
          if (exact && !isFloatType(initializer.type))
            return error("{}model.trainable: {} is not floating-point and cannot be trained",
                               place("model.trainable"), name);
          if (!exact && function && role.list == List::Frozen && selectsSource(glob, name, role)) {
            any = true;
            refused.insert(name);
          }
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
          refused.erase(name);
        } else if (role.role == Role::Parameter) {
          role.role = Role::Frozen;
          role.list = List::Frozen;
          role.sign = "left out by model.trainable";
        }
      }
    }
    for (const std::string &glob : settings.frozen) {
      bool any = false;
      for (auto &[name, role] : roles.initializers) {
        if (!selects(glob, name, role) && (role.function.empty() || !selectsSource(glob, name, role)))
          continue;
        any = true;
        if (role.role == Role::Parameter || refused.erase(name)) {
          role.role = Role::Frozen;
          role.list = List::Frozen;
          role.sign = fmt::format("model.frozen: {}", glob);
        }
      }
      if (!any)
        return noMatch("model.frozen", glob);
    }
    for (const std::string &name : refused) {
      const InitializerRole &role = roles.initializers.at(name);
      roles.refusals.push_back(fmt::format(
          "{}{}: {}", name, role.node.empty() ? "" : fmt::format(" (read by {})", role.node), role.function));
    }
    return Status::success();
  }

  const OnnxFile &file;
  const onnx::GraphProto &graph;
  const ModelSettings &settings;
  const std::map<std::string, std::string> &where;
  const UseOfInput &useOfInput;
  std::map<std::string, WeightReads> reads;
  std::map<std::string, std::vector<std::string>> buffers; ///< by initializer: buffers that it was computed from
  bool described = false;
  Roles roles;
};

} // namespace

const char *listName(List list) {
  static constexpr const char *kNames[] = {"trained", "frozen", "buffer", "constant"};
  return kNames[size_t(list)];
}

Expected<Roles> decideRoles(const OnnxFile &file, const onnx::GraphProto &graph, const ModelSettings &settings,
                            const std::map<std::string, std::string> &where, const UseOfInput &useOfInput) {
  return Decision(file, graph, settings, where, useOfInput).run();
}

bool isTrained(const Roles &roles, const std::string &name) {
  auto found = roles.initializers.find(name);
  return found != roles.initializers.end() && found->second.role == Role::Parameter;
}

std::vector<std::string> refusalsOf(const Restored &restored, const Roles &roles) {
  std::vector<std::string> refusals = restored.refusals;
  refusals.insert(refusals.end(), roles.refusals.begin(), roles.refusals.end());
  return refusals;
}

} // namespace tcc::frontend

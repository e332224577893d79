//===- Parameters.cpp - which initializers are trained --------------------===//
#include "frontend/Parameters.h"

#include "frontend/OnnxLibrary.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <set>

namespace tcc::frontend {
namespace {

using plan::Expected;
using plan::Status;

bool isFloat(int32_t type) {
  return type == onnx::TensorProto::FLOAT || type == onnx::TensorProto::DOUBLE || type == onnx::TensorProto::FLOAT16 ||
         type == onnx::TensorProto::BFLOAT16;
}

/// "val_12", "val_12/shape": names that exporters invent for constants.
bool isInventedName(const std::string &name) {
  for (std::string_view prefix : {"val_", "onnx::", "_tensor_constant", "c_lifted_tensor", "const_", "Constant_", "/"})
    if (name.starts_with(prefix))
      return true;
  return name.empty() || std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// The parameter that an initializer was folded from: the only name among its sources that is no invented one and no value
/// of the graph.
std::string foldedParameter(const OnnxInitializer &initializer, const std::set<std::string> &values) {
  std::string found;
  for (const std::string &source : initializer.foldedFrom) {
    if (isInventedName(source))
      continue;
    if (!found.empty() || values.count(source))
      return {};
    found = source;
  }
  return found;
}

void addUse(InitializerRole &role, const char *use) {
  if (std::find(role.uses.begin(), role.uses.end(), use) == role.uses.end())
    role.uses.push_back(use);
}

/// What one node says about an initializer that is its input number `i`.
void noteUse(const onnx::NodeProto &node, int i, InitializerRole &role) {
  const std::string &op = node.op_type();
  static const std::set<std::string> norms = {"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization",
                                              "InstanceNormalization", "GroupNormalization", "BatchNormalization"};
  if (role.node.empty())
    role.node = nodeName(node);
  if (op == "Gather" && i == 0)
    addUse(role, "embedding");
  if (norms.count(op) && i >= 1)
    addUse(role, "norm");
  if (i == 2 && (norms.count(op) || op == "Conv" || op == "ConvTranspose" || op == "Gemm"))
    addUse(role, "bias");
  if (op == "BatchNormalization" && i >= 3)
    role.lifted = true;
}

/// Distance for "nearest names"; case counts less than letters.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row.back();
}

std::string nearest(const std::string &glob, const std::map<std::string, InitializerRole> &roles) {
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const auto &[name, role] : roles)
    ranked.emplace_back(distance(glob, name), name);
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min<size_t>(3, ranked.size()); ++i)
    names.push_back(ranked[i].second);
  return names.empty() ? "none: the model has no initializers" : fmt::format("{}", fmt::join(names, ", "));
}

bool selects(const std::string &glob, const std::string &name, const InitializerRole &role) {
  if (glob.starts_with("@"))
    return std::find(role.uses.begin(), role.uses.end(), glob.substr(1)) != role.uses.end();
  return matchesGlob(glob, name) || (!role.display.empty() && matchesGlob(glob, role.display));
}

class Decision {
public:
  Decision(const OnnxFile &file, const onnx::GraphProto &graph, const ModelSettings &settings,
           const std::map<std::string, std::string> &where)
      : file(file), graph(graph), settings(settings), where(where) {}

  Expected<Roles> run() {
    describe();
    chooseDefaults();
    if (Status status = applyRecipe(); !status.ok())
      return status;
    return std::move(roles);
  }

private:
  void describe() {
    std::set<std::string> values;
    for (const onnx::NodeProto &node : graph.node())
      values.insert(node.output().begin(), node.output().end());
    for (const onnx::NodeProto &node : file.model.graph().node())
      values.insert(node.output().begin(), node.output().end());
    for (const auto &[name, initializer] : file.initializers) {
      InitializerRole &role = roles.initializers[name];
      role.display = foldedParameter(initializer, values);
      if (initializer.dims.size() == 1)
        role.uses.push_back("1d");
    }
    for (const onnx::NodeProto &node : graph.node()) {
      for (int i = 0; i < node.input_size(); ++i) {
        auto found = roles.initializers.find(node.input(i));
        if (found == roles.initializers.end())
          continue;
        noteUse(node, i, found->second);
        // An addend with one element for each feature, as exporters write a linear layer's bias.
        if (node.op_type() == "Add" && file.initializers.at(node.input(i)).dims.size() == 1)
          addUse(found->second, "bias");
      }
    }
  }

  void chooseDefaults() {
    // torch.onnx's notes name every parameter; then what has none is a constant it lifted.
    bool described = false;
    for (const auto &[name, initializer] : file.initializers)
      described |= initializer.kind == "PARAMETER" || !initializer.foldedFrom.empty();
    std::vector<std::string> doubtful;
    for (const auto &[name, initializer] : file.initializers) {
      InitializerRole &role = roles.initializers[name];
      if (!isFloat(initializer.type) || initializer.dims.empty()) {
        role.role = initializer.bytes <= kConstantBytes ? Role::Constant : Role::Frozen;
        role.lifted = true;
        continue;
      }
      bool named = initializer.kind == "PARAMETER" || !role.display.empty();
      if (!initializer.kind.empty() && initializer.kind != "PARAMETER")
        role.lifted = true;
      if (described && !named && initializer.kind.empty() && (isInventedName(name) || !initializer.foldedFrom.empty()))
        role.lifted = true;
      role.role = role.lifted ? Role::Frozen : Role::Parameter;
      if (!role.lifted && !named && isInventedName(name))
        doubtful.push_back(name);
    }
    if (!doubtful.empty() && !settings.trainable)
      roles.warnings.push_back(fmt::format(
          "{}: trained, though their names do not say whether they are weights or constants: {}; choose with "
          "model.trainable or model.frozen in the recipe",
          file.name, fmt::join(doubtful, ", ")));
  }

  std::string place(const std::string &key) const {
    auto found = where.find(key);
    return found == where.end() ? std::string() : found->second + ": ";
  }

  Status noMatch(const std::string &key, const std::string &glob, const std::string &extra = {}) const {
    return plan::error("{}{}: \"{}\" matches no {}initializer of {}; nearest: {}", place(key), key, glob, extra, file.name,
                       nearest(glob, roles.initializers));
  }

  Status applyRecipe() {
    if (settings.trainable) {
      std::set<std::string> chosen;
      for (const std::string &glob : *settings.trainable) {
        bool any = false;
        for (auto &[name, role] : roles.initializers) {
          const OnnxInitializer &initializer = file.initializers.at(name);
          bool exact = glob == name || (!role.display.empty() && glob == role.display);
          if (exact && !isFloat(initializer.type))
            return plan::error("{}model.trainable: {} is not floating-point and cannot be trained",
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
        if (chosen.count(name))
          role.role = Role::Parameter;
        else if (role.role == Role::Parameter)
          role.role = Role::Frozen;
      }
    }
    for (const std::string &glob : settings.frozen) {
      bool any = false;
      for (auto &[name, role] : roles.initializers) {
        if (!selects(glob, name, role))
          continue;
        any = true;
        if (role.role == Role::Parameter)
          role.role = Role::Frozen;
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
  Roles roles;
};

} // namespace

Expected<Roles> decideRoles(const OnnxFile &file, const onnx::GraphProto &graph, const ModelSettings &settings,
                            const std::map<std::string, std::string> &where) {
  return Decision(file, graph, settings, where).run();
}

} // namespace tcc::frontend

//===- ParameterGroups.cpp - assign parameters to optimizer groups --------===//
//
// Patterns are globs on the initializer's name (or the exporter's name for it) and selectors (@bias @norm @embedding
// @1d) on its readers. A glob that matches nothing is an error, probably a typo; a selector may match nothing, since it
// also makes sense for a model without such parameters.
//
//===----------------------------------------------------------------------===//
#include "passes/training/ParameterGroups.h"

#include "compiler/dialect/WeightFacts.h"
#include "passes/Common.h"
#include "support/NearestName.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <set>

using namespace mlir;

namespace tcc::train {

static constexpr const char *kSelectors[] = {"@bias", "@norm", "@embedding", "@1d"};

static bool isSelector(const std::string &pattern) { return !pattern.empty() && pattern.front() == '@'; }

bool matchesPattern(const std::string &pattern, VariableOp variable) {
  const std::optional<WeightFacts> known = weightFacts(variable);
  if (pattern == "@1d")
    return known ? known->torch.dims.size() <= 1 : cast<RankedTensorType>(variable.getType()).getRank() <= 1;
  if (isSelector(pattern))
    return known && llvm::is_contained(known->uses, pattern.substr(1));
  return llvm::any_of(namesOf(variable), [&](const std::string &name) { return matchesGlob(pattern, name); });
}

std::vector<std::string> namesOf(VariableOp variable) {
  std::vector<std::string> names{variable.getSymName().str()};
  if (const std::optional<WeightFacts> known = weightFacts(variable))
    for (const std::string &other : {known->display, known->torchName})
      if (!other.empty() && !llvm::is_contained(names, other))
        names.push_back(other);
  return names;
}

bool matchesAnyPattern(const std::vector<std::string> &patterns, VariableOp variable) {
  return llvm::any_of(patterns, [&](const std::string &pattern) { return matchesPattern(pattern, variable); });
}

Status checkPatterns(const std::vector<std::string> &patterns, const std::string &where, const std::string &key,
                     llvm::ArrayRef<VariableOp> variables) {
  for (const std::string &pattern : patterns) {
    if (isSelector(pattern)) {
      if (std::find(std::begin(kSelectors), std::end(kSelectors), pattern) == std::end(kSelectors))
        return error("{}{}: unknown selector `{}`; known: {}", where, key, pattern, fmt::join(kSelectors, ", "));
      continue;
    }
    if (llvm::any_of(variables, [&](VariableOp variable) { return matchesPattern(pattern, variable); }))
      continue;
    std::vector<std::string> known;
    for (VariableOp variable : variables)
      known.push_back(variable.getSymName().str());
    return error("{}{}: `{}` matches no parameter; {}", where, key, pattern, nearestOrSome(pattern, known));
  }
  return Status::success();
}

namespace {

/// The layer of each parameter, and the learning rate scale that follows from it.
class LayerDecay {
public:
  LayerDecay(const Recipe &recipe, llvm::ArrayRef<VariableOp> all, llvm::ArrayRef<std::string> readOrder)
      : recipe(recipe), settings(recipe.optimizer.layerDecay) {
    if (!settings)
      return;
    for (VariableOp variable : all)
      if (std::optional<int64_t> layer = layerOf(variable))
        count = std::max(count, *layer + 1);
    std::map<std::string, VariableOp> byName;
    for (VariableOp variable : all)
      byName[variable.getSymName().str()] = variable;
    for (const std::string &name : readOrder) {
      auto variable = byName.find(name);
      if (variable == byName.end() || layerOf(variable->second))
        break;
      before.insert(name);
    }
  }

  Status check() const {
    if (settings && count == 0)
      return error("{}optimizer.layer_decay: no parameter's name contains `{}` with a number",
                         recipe.at("optimizer.layer_decay"), settings->pattern);
    return Status::success();
  }

  double rateScale(VariableOp variable) const {
    if (!settings)
      return 1;
    if (std::optional<int64_t> layer = layerOf(variable))
      return std::pow(settings->rate, double(count - 1 - *layer));
    return settings->beforeFirst && before.count(variable.getSymName().str()) ? std::pow(settings->rate, double(count))
                                                                              : 1;
  }

  /// "layer 3", "before the first layer", or empty.
  std::string describe(VariableOp variable) const {
    if (!settings)
      return "";
    if (std::optional<int64_t> layer = layerOf(variable))
      return fmt::format("layer {}", *layer);
    return settings->beforeFirst && before.count(variable.getSymName().str()) ? "before the first layer" : "";
  }

private:
  /// The number at the pattern's {}, in the initializer's name or the exporter's name for it.
  std::optional<int64_t> layerOf(VariableOp variable) const {
    for (const std::string &name : namesOf(variable))
      if (std::optional<int64_t> layer = numberIn(name))
        return layer;
    return std::nullopt;
  }

  std::optional<int64_t> numberIn(const std::string &name) const {
    const size_t hole = settings->pattern.find("{}");
    const std::string head = settings->pattern.substr(0, hole), tail = settings->pattern.substr(hole + 2);
    for (size_t at = name.find(head); at != name.npos; at = name.find(head, at + 1)) {
      const size_t begin = at + head.size();
      size_t end = begin;
      while (end < name.size() && end - begin < 9 && name[end] >= '0' && name[end] <= '9')
        ++end;
      if (end > begin && name.compare(end, tail.size(), tail) == 0)
        return std::stoll(name.substr(begin, end - begin));
    }
    return std::nullopt;
  }

  const Recipe &recipe;
  const std::optional<LayerDecaySettings> &settings;
  int64_t count = 0;
  std::set<std::string> before; ///< read before the first layer
};

} // namespace

Expected<std::vector<ParameterGroup>>
groupParameters(llvm::ArrayRef<VariableOp> parameters, llvm::ArrayRef<VariableOp> others, const Recipe &recipe,
                double weightDecay, llvm::ArrayRef<std::string> readOrder) {
  const OptimizerSettings &settings = recipe.optimizer;
  std::vector<VariableOp> all(parameters.begin(), parameters.end());
  all.insert(all.end(), others.begin(), others.end());
  Status status =
      checkPatterns(settings.decayExempt, recipe.at("optimizer.decay_exempt"), "optimizer.decay_exempt", all);
  for (const OptimizerGroupSettings &group : settings.groups)
    if (status.ok())
      status = checkPatterns(group.match, group.where.empty() ? "" : group.where + ": ", "optimizer.group.match", all);
  LayerDecay layers(recipe, all, readOrder);
  if (status.ok())
    status = layers.check();
  if (!status.ok())
    return status;

  std::vector<ParameterGroup> groups{{"default", 1, weightDecay, {}}};
  for (VariableOp parameter : parameters) {
    const OptimizerGroupSettings *given = nullptr;
    for (const OptimizerGroupSettings &candidate : settings.groups)
      if (!given && matchesAnyPattern(candidate.match, parameter))
        given = &candidate;
    bool exempt = matchesAnyPattern(settings.decayExempt, parameter);
    double lrScale = (given ? given->lrScale : 1) * layers.rateScale(parameter);
    double decay = given && given->weightDecay ? *given->weightDecay : exempt ? 0 : weightDecay;
    std::string name = given    ? fmt::format("{}", fmt::join(given->match, ", "))
                       : exempt ? "no weight decay"
                                : "default";
    if (std::string layer = layers.describe(parameter); !layer.empty() && layers.rateScale(parameter) != 1)
      name = name == "default" ? layer : layer + ": " + name;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const ParameterGroup &candidate) {
      return candidate.lrScale == lrScale && candidate.weightDecay == decay;
    });
    if (group == groups.end())
      group = groups.insert(groups.end(), {name, lrScale, decay, {}});
    group->parameters.push_back(parameter.getSymName().str());
  }
  if (groups.front().parameters.empty() && groups.size() > 1)
    groups.erase(groups.begin());
  return groups;
}

Expected<std::vector<VariableOp>> matchingParameters(llvm::ArrayRef<VariableOp> parameters,
                                                     const std::vector<std::string> &patterns, const std::string &where,
                                                     const std::string &key) {
  if (Status status = checkPatterns(patterns, where, key, parameters); !status.ok())
    return status;
  std::vector<VariableOp> found;
  for (VariableOp parameter : parameters)
    if (matchesAnyPattern(patterns, parameter))
      found.push_back(parameter);
  return found;
}

} // namespace tcc::train

//===- RecipePhases.cpp - [[phase]]: several optimizers in one recipe ------===//
//
// Each phase is a recipe of its own: the whole recipe, with the phase's loss, optimizer, schedule and clipping in place
// of its tables. So every key means the same in a phase as outside, and omitted keys are inherited.
//
//===----------------------------------------------------------------------===//
#include "compiler/recipe/RecipeStores.h"
#include "support/NearestName.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tcc::recipe {
namespace {

constexpr size_t kMostPhases = 8;
const std::vector<std::string> kKeys = {"name",     "loss",  "parameters", "optimizer",
                                        "schedule", "every", "clip_norm",  "clip_value"};

Status readName(const toml::node &node, std::string &name) {
  if (Status status = readString(node, name); !status.ok())
    return status;
  if (!isName(name))
    return error("\"{}\" is no name: give 1 to {} letters, digits, `_` and `-`", name, kLongestName);
  return Status();
}

/// Records the places of a phase's keys under the names that these keys have outside a phase.
void notePlaces(Recipe &phase, const toml::table &table, const std::string &prefix, const std::string &base) {
  for (const auto &[key, value] : table) {
    const std::string name = prefix.empty() ? std::string(key.str()) : prefix + "." + std::string(key.str());
    const toml::source_position begin = key.source().begin;
    phase.where[name] = begin.line ? fmt::format("{}:{}:{}", phase.file, begin.line, begin.column) : base;
    if (const toml::table *below = value.as_table())
      notePlaces(phase, *below, name, base);
  }
}

/// The recipe's tables, replaced by those of the phase.
toml::table tablesOf(const toml::table &whole, const toml::table &phase) {
  toml::table result = whole;
  result.erase("phase");
  auto own = [&](const char *key) -> toml::table & {
    if (!result.get(key) || !result[key].is_table())
      result.insert_or_assign(key, toml::table());
    return *result[key].as_table();
  };
  if (const toml::node *loss = phase.get("loss")) {
    if (loss->is_table())
      result.insert_or_assign("loss", *loss->as_table());
    else
      own("loss").insert_or_assign("output", *loss);
  }
  if (const toml::table *optimizer = phase["optimizer"].as_table()) {
    toml::table &into = own("optimizer");
    const std::string before = into["kind"].value_or(std::string("adamw"));
    // Another kind of optimizer gives its numbers another meaning, so a phase with another kind inherits only the
    // groups.
    if (const auto kind = (*optimizer)["kind"].value<std::string>(); kind && *kind != before) {
      toml::table kept;
      for (const char *key : {"decay_exempt", "group", "layer_decay"})
        if (const toml::node *node = into.get(key))
          kept.insert(key, *node);
      into = kept;
    }
    for (const auto &[key, value] : *optimizer)
      into.insert_or_assign(key.str(), value);
  }
  if (const toml::table *schedule = phase["schedule"].as_table())
    result.insert_or_assign("schedule", *schedule);
  for (const char *key : {"clip_norm", "clip_value"})
    if (const toml::node *node = phase.get(key))
      own("train").insert_or_assign(key, *node);
  return result;
}

Expected<Recipe> readPhase(const Recipe &recipe, const toml::table &whole, const toml::table &table, size_t number,
                           const std::string &place) {
  for (const auto &[key, value] : table)
    if (std::find(kKeys.begin(), kKeys.end(), key.str()) == kKeys.end()) {
      const std::string near = nearestName(std::string(key.str()), kKeys);
      return error("unknown key {}; {}a phase has {}", std::string(key.str()),
                   near.empty() ? "" : "the nearest is " + near + ", ", fmt::join(kKeys, ", "));
    }
  Recipe phase;
  phase.file = recipe.file;
  phase.where = recipe.where;
  phase.where["model.trainable"] = place;
  notePlaces(phase, table, "", place);
  if (auto found = phase.where.find("loss"); found != phase.where.end())
    phase.where.try_emplace("loss.output", found->second);
  for (const char *key : {"clip_norm", "clip_value"})
    if (table.contains(key))
      phase.where[std::string("train.") + key] = place;
  auto read = [&](const char *key, auto reader) -> Status {
    const toml::node *node = table.get(key);
    if (!node)
      return error("it has no `{}`", key);
    return reader(*node).withContext(key);
  };
  if (Status status = read("name", [&](const toml::node &node) { return readName(node, phase.phase); }); !status.ok())
    return status;
  if (Status status =
          read("parameters", [&](const toml::node &node) { return readStrings(node, phase.phaseParameters); });
      !status.ok())
    return status;
  if (!table.contains("loss") || (!table["loss"].is_string() && !table["loss"].is_table()))
    return error("it has no `loss`: the name of a scalar graph output, or a table as [loss]");
  for (const char *key : {"optimizer", "schedule"})
    if (table.contains(key) && !table[key].is_table())
      return expected("a table", *table.get(key)).withContext(key);
  if (const toml::node *every = table.get("every")) {
    if (Status status = check(integer(1, int64_t(1) << 31), *every); !status.ok())
      return status.withContext("every");
    phase.phaseEvery = *every->value<int64_t>();
  }
  const toml::table tables = tablesOf(whole, table);
  if (Status status = applyTable(phase, tables); !status.ok())
    return status;
  if (const toml::table *loss = table["loss"].as_table())
    for (const char *key : {"name", "scale"})
      if (loss->contains(key))
        return error("loss.{} belongs to one of several losses ([[loss]]), and a phase has one; remove it", key);
  if (number > 0)
    phase.training.mutable_evaluation()->clear_metrics(); // evaluations compute the first phase's loss
  for (auto finish : {finishOptimizer, finishLossAndSchedule})
    if (Status status = finish(phase); !status.ok())
      return status;
  return phase;
}

} // namespace

Status finishPhases(Recipe &recipe, const toml::table &merged) {
  const toml::node *node = merged.get("phase");
  if (!node)
    return Status();
  const toml::array *array = node->as_array();
  if (!array || array->empty() ||
      !std::all_of(array->begin(), array->end(), [](const toml::node &n) { return n.is_table(); }))
    return error("{}phase: expected tables, each begun by [[phase]]", recipe.at("phase"));
  if (array->size() > kMostPhases)
    return error("{}phase: {} phases, at most {} are supported", recipe.at("phase"), array->size(), kMostPhases);
  if (merged.contains("loss"))
    return error("{}[loss] and [[phase]] exclude each other: each phase names its loss", recipe.at("loss"));
  if (recipe.averagesOnDevice())
    return error("{}train.ema.on = \"device\" does not go with [[phase]]; use \"host\"", recipe.at("train.ema.on"));
  if (!recipe.train.outputs.empty())
    return error("{}train.outputs does not go with [[phase]]: remove it, and compute a batch's outputs by predict",
                 recipe.at("train.outputs"));
  bool always = false;
  for (const toml::node &element : *array) {
    const toml::source_position begin = element.source().begin;
    const bool fromFile = recipe.at("phase") != "--set: ";
    const std::string place =
        fromFile ? fmt::format("{}:{}:{}", recipe.file, begin.line, begin.column) : std::string("--set");
    auto phase = readPhase(recipe, merged, *element.as_table(), recipe.phases.size(), place);
    if (!phase)
      return phase.status().withContext(fmt::format("{}: phase {}", place, recipe.phases.size() + 1));
    if (phase->training.schedule().kind() == "plateau")
      return error("{}phase {}: schedule.kind \"plateau\" does not go with [[phase]]: one metric says nothing of each "
                   "phase's rate; use another schedule.kind, such as \"exponential\"",
                   phase->at("schedule.kind").empty() ? place + ": " : phase->at("schedule.kind"),
                   recipe.phases.size() + 1);
    for (const Recipe &other : recipe.phases)
      if (other.phase == phase->phase)
        return error("{}: two phases are called \"{}\"; their losses and states have that name, so give each its own",
                     place, phase->phase);
    always |= phase->phaseEvery == 1;
    recipe.phases.push_back(phase.take());
  }
  if (!always)
    return error("{}phase: no phase runs at every step; let the most frequent one have every = 1", recipe.at("phase"));
  // Evaluations compute the first phase's loss, and the losses of other phases that are graph outputs.
  Recipe &first = recipe.phases.front();
  auto &metrics = *first.training.mutable_evaluation()->mutable_metrics();
  for (const Recipe &other : recipe.phases)
    if (const std::string &output = other.loss.output;
        !output.empty() && output != first.loss.output &&
        std::find(metrics.begin(), metrics.end(), output) == metrics.end())
      *metrics.Add() = output;
  recipe.loss = first.loss;
  *recipe.training.mutable_evaluation()->mutable_metrics() = metrics;
  return Status();
}

} // namespace tcc::recipe

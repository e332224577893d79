//===- Recipe.cpp - reads recipes and --set -------------------------------===//
//
// The file and every --set become TOML tables; the tables are merged, then walked against the table of keys
// (support/recipe/Keys.h), which checks each value. The place of each key is kept for messages, here and later.
//
//===----------------------------------------------------------------------===//
#include "compiler/recipe/Recipe.h"

#include "compiler/recipe/RecipeStores.h"
#include "support/RegularFile.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <sstream>

namespace tcc {
namespace {

/// Most bytes of a recipe.
constexpr size_t kMostRecipeBytes = size_t(1) << 20;

/// Later values replace earlier ones; tables are merged key by key.
void merge(toml::table &base, const toml::table &over) {
  for (const auto &[key, value] : over) {
    toml::node *existing = base.get(key.str());
    if (existing && existing->is_table() && value.is_table())
      merge(*existing->as_table(), *value.as_table());
    else
      base.insert_or_assign(key.str(), value);
  }
}

std::string join(const std::string &prefix, std::string_view name) {
  return prefix.empty() ? std::string(name) : fmt::format("{}.{}", prefix, name);
}

/// Records the place of each key and section of `table`.
void notePlaces(Recipe &recipe, const toml::table &table, const std::string &prefix, const std::string &fixedPlace) {
  for (const auto &[key, value] : table) {
    std::string name = join(prefix, key.str());
    if (!fixedPlace.empty())
      recipe.where[name] = fixedPlace;
    else
      recipe.where[name] = fmt::format("{}:{}:{}", recipe.file, key.source().begin.line, key.source().begin.column);
    if (const toml::table *below = value.as_table())
      notePlaces(recipe, *below, name, fixedPlace);
  }
}

} // namespace

/// Stores a value that was checked in the plan's messages, or where only the compiler reads it.
static Status store(Recipe &recipe, const recipe::Key &key, const toml::node &value) {
  if (key.places.empty())
    return recipe::allStores().at(key.name)(recipe, value);
  const bool fromFile = recipe.at(key.name) != "--set: ";
  return plan::storeSetting(key, value, recipe.training, recipe.data, [&](const toml::node &table) {
    const toml::source_position begin = table.source().begin;
    return fromFile ? fmt::format("table at {}:{}:{}: ", recipe.file, begin.line, begin.column) : std::string();
  });
}

Recipe::Recipe() {
  for (const char *section : {"optimizer", "schedule", "train", "evaluate"})
    plan::storePresets(section, training);
}

Status recipe::applyTable(Recipe &recipe, const toml::table &table, const std::string &prefix) {
  for (const auto &[entry, value] : table) {
    std::string name = join(prefix, entry.str());
    if (name == "loss" && value.is_array())
      continue; // finishLosses reads them all together
    const std::string place = recipe.at(name);
    if (const recipe::Key *key = recipe::findKey(name)) {
      Status status = recipe::check(key->values, value);
      if (status.ok())
        status = store(recipe, *key, value);
      if (!status.ok())
        return error("{}{}: {}", place, name, status.message());
    } else if (recipe::isSection(name)) {
      if (!value.is_table())
        return error("{}{}: expected a table, found {}", place, name, recipe::typeName(value));
      if (Status status = applyTable(recipe, *value.as_table(), name); !status.ok())
        return status;
    } else {
      return error("{}unknown key {}; {}", place, name, recipe::hintFor(name));
    }
  }
  return Status::success();
}

std::string Recipe::at(const std::string &key) const {
  auto found = where.find(key);
  return found == where.end() ? std::string() : found->second + ": ";
}

Expected<Recipe> readRecipe(const std::string &path, const std::vector<std::string> &settings) {
  Recipe recipe;
  recipe.file = path;
  toml::table merged;
  if (!path.empty()) {
    Expected<std::string> text = readWhole(path, kMostRecipeBytes);
    if (!text)
      return text.status();
    Expected<toml::table> parsed = parseToml(*text, path);
    if (!parsed)
      return parsed.status();
    merged = parsed.take();
    notePlaces(recipe, merged, "", "");
  }
  for (const std::string &setting : settings) {
    Expected<toml::table> table = recipe::parseSetting(setting);
    if (!table)
      return table.status();
    if (merged["loss"].is_array() && (*table)["loss"].is_table())
      return error("--set {}: the recipe has several losses ([[loss]]), and one key cannot say which it means; change "
                   "the recipe, or replace all of them with --set 'loss=[{{ … }}, {{ … }}]'",
                   setting);
    notePlaces(recipe, *table, "", setting.starts_with("model.fix.") ? "--fix" : "--set");
    merge(merged, *table);
  }
  if (Status status = recipe::applyTable(recipe, merged); !status.ok())
    return status;
  if (Status status = recipe::finishLosses(recipe, merged); !status.ok())
    return status;
  if (Status status = recipe::finishOptimizer(recipe); !status.ok())
    return status;
  if (Status status = recipe::finishLossAndSchedule(recipe); !status.ok())
    return status;
  if (Status status = recipe::finishPhases(recipe, merged); !status.ok())
    return status;
  if (Status status = recipe::finishStages(recipe, merged); !status.ok())
    return status;
  if (Status status = recipe::finishTraining(recipe); !status.ok())
    return status;
  recipe::finishPadding(recipe);
  std::ostringstream text;
  text << merged;
  recipe.text = text.str();
  return recipe;
}

Status applySettings(Recipe &recipe, const std::vector<std::string> &settings) {
  for (const std::string &setting : settings) {
    Expected<toml::table> table = recipe::parseSetting(setting);
    if (!table)
      return table.status();
    if (Status status = recipe::applyTable(recipe, *table); !status.ok())
      return status;
  }
  return Status::success();
}

bool matchesGlob(const std::string &glob, const std::string &name) {
  return fnmatch(glob.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
}

} // namespace tcc

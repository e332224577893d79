//===- Recipe.cpp - reads recipes and --set -------------------------------===//
//
// The file and every --set become TOML tables; the tables are merged, then walked against the table of keys
// (RecipeKeys.cpp), which checks each value. Where a key came from is kept beside it, for messages here and later.
//
//===----------------------------------------------------------------------===//
#include "compiler/Recipe.h"

#include "compiler/RecipeKeys.h"
#include "compiler/RecipeText.h"
#include "runtime/plan/NearestName.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <fnmatch.h>
#include <sstream>

namespace tcc {
namespace {

using plan::Expected;
using plan::Status;

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

const recipe::Key *findKey(std::string_view name) {
  for (const recipe::Key &key : recipe::allKeys())
    if (key.name == name)
      return &key;
  return nullptr;
}

/// True if some key lies below the table `name`.
bool isSection(std::string_view name) {
  return std::any_of(recipe::allKeys().begin(), recipe::allKeys().end(), [&](const recipe::Key &key) {
    return key.name.size() > name.size() && key.name.starts_with(name) && key.name[name.size()] == '.';
  });
}

/// What to write instead of an unknown key: the key that was meant, or all that its table takes.
std::string hintFor(std::string_view name) {
  const size_t dot = name.rfind('.');
  const std::string_view table = dot == name.npos ? "" : name.substr(0, dot);
  const std::string_view given = name.substr(dot == name.npos ? 0 : dot + 1);
  std::string best;
  size_t bestDistance = ~size_t(0);
  auto offer = [&](const std::string &key, std::optional<size_t> distance, size_t penalty) {
    if (distance && *distance + penalty < bestDistance) {
      bestDistance = *distance + penalty;
      best = key;
    }
  };
  std::vector<std::string> tables, inTable;
  for (const recipe::Key &key : recipe::allKeys()) {
    const size_t keyDot = key.name.find('.');
    const std::string_view keyTable = std::string_view(key.name).substr(0, keyDot);
    const std::string_view last = std::string_view(key.name).substr(keyDot + 1);
    offer(key.name, table == keyTable ? plan::nameDistance(given, last) : plan::nameDistance(name, key.name), 0);
    offer(key.name, plan::nameDistance(given, last), 2); // without its table, or in the wrong one
    for (const std::string &other : key.elsewhere)
      offer(key.name, plan::nameDistance(other.find('.') == other.npos ? given : name, other), 1);
    if (!key.set)
      continue;
    if (tables.empty() || tables.back() != keyTable)
      tables.emplace_back(keyTable);
    if (table == keyTable)
      inTable.emplace_back(last);
  }
  if (std::string near = table.empty() ? plan::nearestName(name, tables) : ""; !near.empty())
    return fmt::format("the nearest known one is [{}]", near);
  if (!best.empty())
    return fmt::format("the nearest known one is {}", best);
  if (!inTable.empty())
    return fmt::format("[{}] takes {}", table, fmt::join(inTable, ", "));
  std::sort(tables.begin(), tables.end());
  tables.erase(std::unique(tables.begin(), tables.end()), tables.end());
  return fmt::format("a recipe has the tables {}", fmt::join(tables, ", "));
}

std::string join(const std::string &prefix, std::string_view name) {
  return prefix.empty() ? std::string(name) : fmt::format("{}.{}", prefix, name);
}

/// Notes where each key and section of `table` stands.
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

Status applyTable(Recipe &recipe, const toml::table &table, const std::string &prefix) {
  for (const auto &[entry, value] : table) {
    std::string name = join(prefix, entry.str());
    const std::string place = recipe.at(name);
    if (const recipe::Key *key = findKey(name)) {
      if (!key->set)
        return plan::error("{}{} is not supported by this version yet; remove it", place, name);
      if (Status status = key->set(recipe, value); !status.ok())
        return plan::error("{}{}: {}", place, name, status.message());
    } else if (isSection(name)) {
      if (!value.is_table())
        return plan::error("{}{}: expected a table, found {}", place, name, recipe::typeName(value));
      if (Status status = applyTable(recipe, *value.as_table(), name); !status.ok())
        return status;
    } else {
      return plan::error("{}unknown key {}; {}", place, name, hintFor(name));
    }
  }
  return Status::success();
}

/// KEY=VALUE as a table. A value that is no TOML value is taken as a string.
Expected<toml::table> parseSetting(const std::string &setting) {
  size_t equals = setting.find('=');
  if (equals == std::string::npos || equals == 0)
    return Status(fmt::format("--set {}: expected KEY=VALUE, such as optimizer.lr=3e-4", setting), plan::kExitUsage);
  std::string key = setting.substr(0, equals), value = setting.substr(equals + 1);
  if (Status status = plan::checkTomlText(key + " = " + value, "--set " + key); !status.ok())
    return status;
  Expected<toml::table> parsed = plan::parseToml(key + " = " + value);
  if (parsed)
    return parsed;
  value.erase(0, value.find_first_not_of(" \t"));
  value.erase(value.find_last_not_of(" \t") + 1);
  const bool bare = value.empty() || std::string_view("[{\"'").find(value[0]) == std::string_view::npos;
  if (bare) {
    std::string quoted;
    for (char c : value)
      quoted += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    if (Expected<toml::table> asString = plan::parseToml(key + " = \"" + quoted + "\""))
      return asString;
  }
  return plan::error("--set {}: {}", setting, parsed.message());
}

} // namespace

std::string Recipe::at(const std::string &key) const {
  auto found = where.find(key);
  return found == where.end() ? std::string() : found->second + ": ";
}

Expected<Recipe> readRecipe(const std::string &path, const std::vector<std::string> &settings) {
  Recipe recipe;
  recipe.file = path;
  toml::table merged;
  if (!path.empty()) {
    Expected<std::string> text = recipe::readRecipeFile(path);
    if (!text)
      return text.status();
    Expected<toml::table> parsed = plan::parseToml(*text, path);
    if (!parsed)
      return parsed.status();
    merged = parsed.take();
    notePlaces(recipe, merged, "", "");
  }
  for (const std::string &setting : settings) {
    Expected<toml::table> table = parseSetting(setting);
    if (!table)
      return table.status();
    notePlaces(recipe, *table, "", setting.starts_with("model.fix.") ? "--fix" : "--set");
    merge(merged, *table);
  }
  if (Status status = applyTable(recipe, merged, ""); !status.ok())
    return status;
  if (Status status = recipe::finishOptimizer(recipe); !status.ok())
    return status;
  if (Status status = recipe::finishLossAndSchedule(recipe); !status.ok())
    return status;
  std::ostringstream text;
  text << merged;
  recipe.text = text.str();
  return recipe;
}

Status applySettings(Recipe &recipe, const std::vector<std::string> &settings) {
  for (const std::string &setting : settings) {
    Expected<toml::table> table = parseSetting(setting);
    if (!table)
      return table.status();
    if (Status status = applyTable(recipe, *table, ""); !status.ok())
      return status;
  }
  return Status::success();
}

bool matchesGlob(const std::string &glob, const std::string &name) {
  return fnmatch(glob.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
}

} // namespace tcc

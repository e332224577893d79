//===- KeyTexts.cpp - messages, settings and documentation of recipe keys -===//
#include "support/NearestName.h"
#include "support/recipe/Keys.h"

#include <algorithm>
#include <fmt/ranges.h>

namespace tcc::recipe {

std::string hintFor(std::string_view name) {
  const size_t dot = name.rfind('.');
  const std::string_view table = dot == name.npos ? "" : name.substr(0, dot);
  const std::string_view given = name.substr(dot == name.npos ? 0 : dot + 1);
  for (const char *batch : {"batch", "batch_size", "train_batch_size", "per_device_train_batch_size", "micro_batch_size"})
    if (given == batch)
      return "a batch is a dimension of the graph: give tcc --batch N, or model.dims = { batch = N }";
  for (const char *epochs : {"epochs", "max_epochs", "num_epochs", "n_epochs", "num_train_epochs"})
    if (given == epochs)
      return "epochs belong to a run: give trun --epochs N";
  std::string best;
  size_t bestDistance = ~size_t(0);
  auto offer = [&](const std::string &key, std::optional<size_t> distance, size_t penalty) {
    if (distance && *distance + penalty < bestDistance) {
      bestDistance = *distance + penalty;
      best = key;
    }
  };
  std::vector<std::string> tables, inTable;
  for (const Key &key : allKeys()) {
    const size_t keyDot = key.name.find('.');
    const std::string_view keyTable = std::string_view(key.name).substr(0, keyDot);
    const std::string_view last = std::string_view(key.name).substr(keyDot + 1);
    offer(key.name, table == keyTable ? nameDistance(given, last) : nameDistance(name, key.name), 0);
    offer(key.name, nameDistance(given, last), 2); // without its table, or in the wrong one
    for (const std::string &other : key.elsewhere)
      offer(key.name, nameDistance(other.find('.') == other.npos ? given : name, other), 1);
    if (key.change == Change::Later)
      continue;
    if (tables.empty() || tables.back() != keyTable)
      tables.emplace_back(keyTable);
    if (table == keyTable)
      inTable.emplace_back(last);
  }
  if (std::string near = table.empty() ? nearestName(name, tables) : ""; !near.empty())
    return fmt::format("the nearest known one is [{}]", near);
  if (!best.empty())
    return fmt::format("the nearest known one is {}", best);
  if (!inTable.empty())
    return fmt::format("[{}] takes {}", table, fmt::join(inTable, ", "));
  std::sort(tables.begin(), tables.end());
  tables.erase(std::unique(tables.begin(), tables.end()), tables.end());
  return fmt::format("a recipe has the tables {}", fmt::join(tables, ", "));
}

Expected<toml::table> parseSetting(const std::string &setting) {
  size_t equals = setting.find('=');
  if (equals == std::string::npos || equals == 0)
    return Status(fmt::format("--set {}: expected KEY=VALUE, such as optimizer.lr=3e-4", setting), kExitUsage);
  std::string key = setting.substr(0, equals), value = setting.substr(equals + 1);
  if (Status status = checkTomlText(key + " = " + value, "--set " + key); !status.ok())
    return status;
  Expected<toml::table> parsed = parseToml(key + " = " + value);
  if (parsed)
    return parsed;
  value.erase(0, value.find_first_not_of(" \t"));
  value.erase(value.find_last_not_of(" \t") + 1);
  const bool bare = value.empty() || std::string_view("[{\"'").find(value[0]) == std::string_view::npos;
  if (bare) {
    std::string quoted;
    for (char c : value)
      quoted += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    if (Expected<toml::table> asString = parseToml(key + " = \"" + quoted + "\""))
      return asString;
  }
  return error("--set {}: {}", setting, parsed.message());
}

std::string keysTable() {
  std::string text = "| key | values | default | `trun --set` | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const Key &key : allKeys()) {
    if (key.change == Change::Later)
      continue;
    // A preset that is a TOML value is code.
    bool literal = !key.preset.empty() && parseToml("v = " + key.preset).ok();
    text += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.name, describe(key.values),
                        literal ? "`" + key.preset + "`" : key.preset, key.change == Change::Recompile ? "" : "yes",
                        key.meaning);
  }
  return text;
}

} // namespace tcc::recipe

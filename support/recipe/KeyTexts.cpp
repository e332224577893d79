//===- KeyTexts.cpp - messages, settings and documentation of recipe keys -===//
#include "support/Advice.h"
#include "support/Json.h"
#include "support/NearestName.h"
#include "support/recipe/Keys.h"
#include "support/recipe/Kinds.h"

#include <algorithm>
#include <fmt/ranges.h>

namespace tcc::recipe {

std::string hintFor(std::string_view name) {
  const size_t dot = name.rfind('.');
  const std::string_view table = dot == name.npos ? "" : name.substr(0, dot);
  const std::string_view given = name.substr(dot == name.npos ? 0 : dot + 1);
  for (const char *batch :
       {"batch", "batch_size", "train_batch_size", "per_device_train_batch_size", "micro_batch_size"})
    if (given == batch)
      return fmt::format("a batch is a dimension of the graph: give {}, or model.dims = {{ batch = N }}",
                         advice::compile("batch", "N"));
  for (const char *epochs : {"epochs", "max_epochs", "num_epochs", "n_epochs", "num_train_epochs"})
    if (given == epochs)
      return fmt::format("epochs belong to a run: give {}", advice::run("epochs", "N"));
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
    return Status(fmt::format("{}: expected KEY=VALUE, such as optimizer.lr=3e-4", advice::option("set", setting)),
                  StatusCode::Usage);
  std::string key = setting.substr(0, equals), value = setting.substr(equals + 1);
  if (Status status = checkTomlText(key + " = " + value, advice::option("set", key)); !status.ok())
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
  return error("{}: {}", advice::option("set", setting), parsed.message());
}

std::string keysTable() {
  std::string text = "| key | values | default | `trun --set` | meaning |\n| --- | --- | --- | --- | --- |\n";
  for (const Key &key : allKeys()) {
    // A preset that is a TOML value is code.
    bool literal = !key.preset.empty() && parseToml("v = " + key.preset).ok();
    text += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.name, describe(key.values),
                        literal ? "`" + key.preset + "`" : key.preset, key.change == Change::Recompile ? "" : "yes",
                        key.meaning);
  }
  return text;
}

std::vector<std::string> kindsOf(const Key &key) {
  const std::string section = key.name.substr(0, key.name.find('.')), last(key.lastName());
  std::vector<std::string> names, all;
  if (section == "loss" && last != "kind" && last != "output") {
    names = lossesWithKey(last), all = lossKindNames();
  } else if (section == "schedule" && last != "kind") {
    names = schedulesWithKey(last), all = scheduleKindNames();
    std::erase_if(names, [&](const std::string &name) {
      const auto &refused = findScheduleKind(name)->refuses;
      return std::find(refused.begin(), refused.end(), last) != refused.end();
    });
  } else if (section == "optimizer") {
    all = optimizerKindNames();
    for (const OptimizerKind &kind : optimizerKinds()) {
      constexpr std::string_view kNumbers = "optimizer.numbers.";
      const bool numbers = !key.places.empty() && key.places.front().starts_with(kNumbers);
      const bool owned = std::any_of(optimizerKinds().begin(), optimizerKinds().end(), [&](const OptimizerKind &other) {
        return other.flags.contains(last) || other.keys.contains(last);
      });
      if ((!numbers && !owned) || (numbers && kind.numbers.contains(key.places.front().substr(kNumbers.size()))) ||
          kind.flags.contains(last) || kind.keys.contains(last))
        names.push_back(kind.name);
    }
  }
  return names == all ? std::vector<std::string>() : names;
}

namespace {
using json = nlohmann::ordered_json;

json numberSchema(const Range &range) {
  json schema = {{"type", "number"}};
  if (range.low != -kInfinity)
    schema[range.openLow ? "exclusiveMinimum" : "minimum"] = range.low;
  if (range.high != kInfinity)
    schema[range.openHigh ? "exclusiveMaximum" : "maximum"] = range.high;
  return schema;
}

json integerSchema(const Values &values) {
  json schema = {{"type", "integer"}};
  if (values.least != std::numeric_limits<int64_t>::min())
    schema["minimum"] = values.least;
  if (values.most != kMostInteger)
    schema["maximum"] = values.most;
  return schema;
}

json listOf(json items, size_t count = 0) {
  json schema = {{"type", "array"}, {"items", std::move(items)}};
  if (count)
    schema["minItems"] = count, schema["maxItems"] = count;
  return schema;
}

json tableOf(json values) { return {{"type", "object"}, {"additionalProperties", std::move(values)}}; }
json eitherOf(std::vector<json> schemas) { return {{"anyOf", std::move(schemas)}}; }

/// The values in the words of JSON Schema; for values with a format of their own, an empty schema, which any value
/// fits.
json schemaOf(const Values &values) {
  using Type = Values::Type;
  const json text = {{"type", "string"}};
  switch (values.type) {
  case Type::Flag:
    return {{"type", "boolean"}};
  case Type::Integer:
    return integerSchema(values);
  case Type::Number: {
    std::vector<json> schemas = {numberSchema(values.range)};
    if (values.also)
      schemas.push_back({{"const", *values.also}});
    if (!values.words.empty())
      schemas.push_back({{"enum", values.words}});
    return schemas.size() == 1 ? schemas.front() : eitherOf(schemas);
  }
  case Type::Text:
    return text;
  case Type::Choice:
    return {{"enum", values.words}};
  case Type::Texts:
    return eitherOf({text, listOf(text)});
  case Type::Numbers:
    return values.count ? listOf(numberSchema(values.range), values.count)
                        : eitherOf({numberSchema(values.range), listOf(numberSchema(values.range))});
  case Type::Integers:
    return listOf(integerSchema(values));
  case Type::IntegerTable:
    return tableOf(integerSchema(values));
  case Type::TextTable:
    return tableOf(text);
  default:
    return json::object();
  }
}

/// A TOML value of a preset as JSON; nothing for words.
std::optional<json> presetJson(const Key &key) {
  const auto parsed = key.preset.empty() ? Expected<toml::table>(Status("none")) : parseToml("v = " + key.preset);
  if (!parsed)
    return std::nullopt;
  const toml::node &node = *parsed->get("v");
  if (node.is_string())
    return json(*node.value<std::string>());
  if (node.is_boolean())
    return json(*node.value<bool>());
  if (node.is_integer())
    return json(*node.value<int64_t>());
  if (node.is_array())
    return json::array(); // lists are empty where they are a default
  return json(*node.value<double>());
}
} // namespace

std::string keysJson(std::span<const Key *const> keys) {
  json list = json::array();
  for (const Key *key : keys) {
    json entry = {{"key", key->name}, {"schema", schemaOf(key->values)}, {"values", describe(key->values)}};
    if (const auto preset = presetJson(*key))
      entry["default"] = *preset;
    else if (!key->preset.empty())
      entry["default_text"] = key->preset;
    entry["trun"] = key->change == Change::RunTime;
    entry["meaning"] = key->meaning;
    if (const auto kinds = kindsOf(*key); !kinds.empty())
      entry["kinds"] = kinds;
    if (!key->with.empty())
      entry["needs"] = key->neededKey();
    if (!key->elsewhere.empty())
      entry["elsewhere"] = key->elsewhere;
    list.push_back(std::move(entry));
  }
  return jsonText(list, 1);
}

} // namespace tcc::recipe

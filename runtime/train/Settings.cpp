//===- Settings.cpp - settings that need no compilation -------------------===//
#include "runtime/train/Settings.h"
#include "runtime/plan/SettingFields.h"
#include "support/Advice.h"
#include "support/Json.h"
#include "support/ShortText.h"

#include <algorithm>
#include <fmt/format.h>
#include <sstream>

using namespace tcc;
using namespace tcc::runtime;

namespace {
Status usage(std::string text) { return Status(std::move(text), StatusCode::Usage); }

/// The setting as it was given.
std::string given(const std::string &setting) { return advice::option("set", setting); }

Status recompile(const std::string &setting, const std::string &why) {
  return usage(fmt::format("{}: {}; recompile with {}", given(setting), why, advice::compile("set", setting)));
}

/// The key of KEY=VALUE.
std::string nameOf(const std::string &setting) {
  const std::string name = setting.substr(0, setting.find('='));
  return name.substr(0, name.find_last_not_of(' ') + 1);
}

bool listed(const plan::Training &training, const std::string &suffix) {
  return std::any_of(training.scalars().begin(), training.scalars().end(), [&](const std::string &name) {
    return name == suffix || (name.starts_with('g') && name.ends_with("." + suffix));
  });
}

/// A key's setting, of which `trun` has checked the value.
struct Setting {
  const std::string &text; ///< as given
  const recipe::Key &key;
  const toml::node &value;
};

/// Refuses a value that no kernel of the plan would read: the plan lists none of the key's scalars.
Status checkIsRead(const Setting &setting, const plan::Training &before, const plan::Training &after,
                   const plan::DataSettings &data) {
  const recipe::Key &key = setting.key;
  auto isListed = [&](const std::string &scalar) { return listed(before, scalar); };
  if (key.scalars.empty() || std::any_of(key.scalars.begin(), key.scalars.end(), isListed) ||
      plan::settingTexts(key, before, data) == plan::settingTexts(key, after, data))
    return Status();
  return recompile(setting.text, fmt::format("the plan was compiled without {}", key.lacking));
}

/// Changes the decay of the groups that have the optimizer's. Groups with a decay of their own (0 if exempt) keep it.
Status followWeightDecay(const Setting &setting, const plan::Training &before, plan::Training &after) {
  auto decayOf = [](const plan::Training &training) {
    const auto found = training.optimizer().numbers().find("weight_decay");
    return found == training.optimizer().numbers().end() ? 0.0 : found->second;
  };
  const double old = decayOf(before), value = decayOf(after);
  for (int g = 0; g < after.optimizer().groups_size(); ++g) {
    plan::OptimizerGroup &group = *after.mutable_optimizer()->mutable_groups(g);
    if (group.weight_decay() != old || (old == 0 && group.name() != "default"))
      continue;
    const std::string prefix = fmt::format("g{}.", g);
    if (!listed(before, prefix + "weight_decay") && !listed(before, prefix + "decay") && value != 0)
      return recompile(setting.text, fmt::format("group '{}' was compiled without weight decay", group.name()));
    group.set_weight_decay(value);
  }
  return Status();
}

Status checkSchedule(const Setting &setting, const plan::Training &before, plan::Training &after) {
  if (after.schedule().kind() == "one_cycle" && !listed(before, "momentum") && !listed(before, "beta1"))
    return recompile(setting.text, "one_cycle cycles momentum, which the plan was compiled without");
  return Status();
}

Status checkAverages(const Setting &setting, const plan::Training &before, plan::Training &after) {
  if (before.ema().on_device() == after.ema().on_device())
    return Status();
  return recompile(setting.text, before.ema().on_device() ? "the plan's kernels average, on the device"
                                                          : "the plan was compiled without averages on the device");
}

Status checkLossScale(const Setting &setting, const plan::Training &before, plan::Training &) {
  if (!before.has_loss_scale())
    return recompile(setting.text, "the plan was compiled without loss scaling");
  if (!before.loss_scale().dynamic() && setting.key.name != "train.loss_scale.init_scale")
    return usage(fmt::format("{}: the plan's loss scale is fixed; recompile with {}", given(setting.text),
                             advice::compileSet("train.loss_scale.kind", "dynamic")));
  return Status();
}

/// A further check or adjustment after a change of these keys.
struct Rule {
  std::string_view keys; ///< a key, or a section and its dot
  Status (*apply)(const Setting &, const plan::Training &before, plan::Training &after);
};
constexpr Rule kRules[] = {{"optimizer.weight_decay", followWeightDecay},
                           {"schedule.kind", checkSchedule},
                           {"train.ema.", checkAverages},
                           {"train.loss_scale.", checkLossScale}};

/// Converts JSON to TOML, which has the same values except null.
void appendJson(toml::array &array, const nlohmann::json &value);
void insertJson(toml::table &table, const std::string &key, const nlohmann::json &value);
template <typename Add> void addJson(const nlohmann::json &value, Add add) {
  if (value.is_object()) {
    toml::table inner;
    for (const auto &[key, element] : value.items())
      insertJson(inner, key, element);
    add(std::move(inner));
  } else if (value.is_array()) {
    toml::array inner;
    for (const nlohmann::json &element : value)
      appendJson(inner, element);
    add(std::move(inner));
  } else if (value.is_boolean()) {
    add(value.get<bool>());
  } else if (value.is_number_integer()) {
    add(value.get<int64_t>());
  } else if (value.is_number()) {
    add(value.get<double>());
  } else {
    add(value.is_string() ? value.get<std::string>() : jsonText(value));
  }
}
void appendJson(toml::array &array, const nlohmann::json &value) {
  addJson(value, [&](auto &&element) { array.push_back(std::forward<decltype(element)>(element)); });
}
void insertJson(toml::table &table, const std::string &key, const nlohmann::json &value) {
  addJson(value, [&](auto &&element) { table.insert_or_assign(key, std::forward<decltype(element)>(element)); });
}

/// The transforms of a setting, a list of tables in TOML or in JSON, as `v` of a table.
Expected<toml::table> parseTransforms(const std::string &setting, const std::string &text) {
  auto parsed = parseToml("v = " + text);
  if (parsed)
    return parsed;
  auto json = parseJson(text, "JSON");
  if (!json || !json->is_array())
    return usage(fmt::format("{}: neither TOML ({}) nor JSON ({}); such as data.transform='[{{ kind = "
                             "\"horizontal_flip\" }}]'",
                             given(shortened(setting)), parsed.message(), json ? "it is no list" : json.message()));
  toml::table table;
  insertJson(table, "v", *json);
  return table;
}

/// The value of an entry of a table, such as data.map.x or data.missing.age, as a table of that entry alone. Names of
/// inputs and columns may contain dots and other characters that TOML requires in quotes. A single word is a text.
toml::table entryTable(const recipe::Key &key, const std::string &entry, const std::string &text) {
  auto parsed = parseToml("v = " + text);
  const toml::node *value = parsed ? parsed->get("v") : nullptr;
  toml::table table;
  if (value && (value->is_string() || key.values.type == recipe::Values::Type::ColumnRules))
    table.insert(entry, *value);
  else
    table.insert(entry, text);
  return table;
}

Status applyOne(const std::string &setting, plan::Training &training, plan::DataSettings &data);

/// Stores a value, if the plan can follow it.
Status store(const Setting &setting, plan::Training &training, plan::DataSettings &data) {
  plan::Training after = training;
  if (Status status = plan::storeSetting(setting.key, setting.value, after, data); !status.ok())
    return usage(fmt::format("{}: {}", given(setting.text), status.message()));
  if (Status status = checkIsRead(setting, training, after, data); !status.ok())
    return status;
  for (const Rule &rule : kRules)
    if (rule.keys.ends_with('.') ? setting.key.name.starts_with(rule.keys) : setting.key.name == rule.keys)
      if (Status status = rule.apply(setting, training, after); !status.ok())
        return status;
  training = std::move(after);
  return Status();
}

/// `TABLE={key=value}` is a setting for each of the table's keys.
Status applyTable(const std::string &name, const toml::table &table, plan::Training &training,
                  plan::DataSettings &data) {
  for (const auto &[key, value] : table) {
    std::ostringstream text;
    value.visit([&](const auto &one) { text << one; });
    if (Status status = applyOne(fmt::format("{}.{}={}", name, key.str(), text.str()), training, data); !status.ok())
      return status;
  }
  return Status();
}

Status applyOne(const std::string &setting, plan::Training &training, plan::DataSettings &data) {
  size_t equals = setting.find('=');
  if (equals == std::string::npos || equals == 0)
    return usage(fmt::format("{}: expected KEY=VALUE, such as optimizer.lr=3e-4", given(setting)));
  const std::string name = nameOf(setting);
  std::string text = setting.substr(std::min(setting.find_first_not_of(' ', equals + 1), setting.size()));
  const recipe::Key *key = recipe::findKey(name);
  if (const recipe::Key *table = key ? nullptr : recipe::findTableOf(name)) {
    if (table->change == recipe::Change::Recompile)
      return recompile(setting, fmt::format("{} is compiled into the plan", table->name));
    return store({setting, *table, entryTable(*table, name.substr(table->name.size() + 1), text)}, training, data);
  }
  if (!key && recipe::isSection(name)) {
    auto parsed = recipe::parseSetting(setting);
    if (!parsed)
      return usage(parsed.message());
    const toml::node *node = parsed->at_path(name).node();
    if (!node || !node->is_table())
      return usage(fmt::format("{}: {} is a table, such as {}={{ KEY = VALUE }}", given(setting), name, name));
    return applyTable(name, *node->as_table(), training, data);
  }
  if (!key)
    return usage(fmt::format("{}: unknown key {}; {}", given(setting), name, recipe::hintFor(name)));
  auto parsed = key->values.type == recipe::Values::Type::Transforms ? parseTransforms(setting, text)
                                                                     : recipe::parseSetting(setting);
  if (!parsed)
    return usage(parsed.message());
  const toml::node *node =
      key->values.type == recipe::Values::Type::Transforms ? parsed->get("v") : parsed->at_path(name).node();
  if (!node)
    return usage(fmt::format("{}: expected KEY=VALUE, such as optimizer.lr=3e-4", given(setting)));
  if (Status status = recipe::check(key->values, *node); !status.ok())
    return usage(fmt::format("{}: {}", given(setting), status.message()));
  if (key->change == recipe::Change::Recompile)
    return recompile(setting, fmt::format("{} is compiled into the plan", name));
  if (!training.phases().empty() &&
      (name.starts_with("optimizer.") || name.starts_with("schedule.") || name == "train.clip_norm"))
    return recompile(setting, "the plan has several optimizers ([[phase]])");
  return store({setting, *key, *node}, training, data);
}
} // namespace

Status tcc::runtime::applySettings(const std::vector<std::string> &settings, plan::Training &training,
                                         plan::DataSettings &data) {
  for (const std::string &setting : settings) {
    // With stages the plan's own list of scalars is empty, so settings are checked against those of the stages.
    for (int i = 0; i < training.stages_size(); ++i)
      if (Status status = applyOne(setting, *training.mutable_stages(i)->mutable_training(), data); !status.ok())
        return status;
    const auto scalars = training.scalars();
    if (training.stages_size() != 0)
      *training.mutable_scalars() = training.stages(0).training().scalars();
    Status status = applyOne(setting, training, data);
    *training.mutable_scalars() = scalars;
    if (!status.ok())
      return status;
  }
  for (const std::string &setting : settings)
    if (const recipe::Key *key = recipe::findKey(nameOf(setting));
        key && !key->with.empty() && !plan::hasSetting(recipe::keyOf(key->neededKey()), training, data))
      return usage(fmt::format("{}: {} needs {}", given(setting), key->name, key->with));
  if (training.has_ema())
    plan::storePresets("train.ema", training);
  return Status();
}

std::vector<std::string> tcc::runtime::mergeSettings(const std::vector<std::string> &run,
                                                     const std::vector<std::string> &given, const std::string &prefix) {
  std::vector<std::string> merged;
  for (const std::string &setting : run)
    if (setting.starts_with(prefix) && std::none_of(given.begin(), given.end(), [&](const std::string &other) {
          return nameOf(other) == nameOf(setting);
        }))
      merged.push_back(setting);
  merged.insert(merged.end(), given.begin(), given.end());
  return merged;
}

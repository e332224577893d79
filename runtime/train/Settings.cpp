//===- Settings.cpp - settings that need no compilation -------------------===//
#include "runtime/train/Settings.h"
#include "runtime/plan/DType.h"
#include "support/Json.h"
#include "support/PlanNames.h"
#include "support/ShortText.h"
#include "support/recipe/ColumnRules.h"
#include "support/recipe/Keys.h"
#include "support/recipe/Kinds.h"
#include "support/recipe/Transforms.h"

#include <algorithm>
#include <fmt/format.h>
#include <sstream>

using namespace tcc;
using namespace tcc::runtime;

namespace {
Status usage(std::string text) { return Status(std::move(text), kExitUsage); }

Status recompile(const std::string &setting, const std::string &why) {
  return usage(fmt::format("--set {}: {}; recompile with tcc --set {}", setting, why, setting));
}

bool listed(const plan::Training &training, const std::string &suffix) {
  return std::any_of(training.scalars().begin(), training.scalars().end(), [&](const std::string &name) {
    return name == suffix || (name.starts_with('g') && name.ends_with("." + suffix));
  });
}

Status setOptimizer(const std::string &setting, const std::string &name, const toml::node &node,
                    plan::Training &training) {
  auto &numbers = *training.mutable_optimizer()->mutable_numbers();
  if (name == "betas") {
    if (!listed(training, "beta1"))
      return recompile(setting, "the plan's optimizer has no betas");
    numbers["beta1"] = *(*node.as_array())[0].value<double>();
    numbers["beta2"] = *(*node.as_array())[1].value<double>();
    return Status();
  }
  const double value = *node.value<double>();
  if (name == "weight_decay") {
    double old = numbers.contains(name) ? numbers[name] : 0;
    bool any = listed(training, "weight_decay") || listed(training, "decay");
    if (!any && value != 0)
      return recompile(setting, "the plan was compiled without weight decay");
    // Groups with a decay of their own (0 if exempt) keep it.
    for (int g = 0; g < training.optimizer().groups_size(); ++g) {
      plan::OptimizerGroup &group = *training.mutable_optimizer()->mutable_groups(g);
      if (group.weight_decay() != old || (old == 0 && group.name() != "default"))
        continue;
      std::string prefix = fmt::format("g{}.", g);
      if (!listed(training, prefix + "weight_decay") && !listed(training, prefix + "decay") && value != 0)
        return recompile(setting, fmt::format("group '{}' was compiled without weight decay", group.name()));
      group.set_weight_decay(value);
    }
  } else if (name == "momentum" && !listed(training, "momentum") && value != numbers["momentum"]) {
    return recompile(setting, "the plan was compiled without momentum");
  } else if (name == "dampening" && !listed(training, "one_minus_dampening") && value != numbers["dampening"]) {
    return recompile(setting, "the plan was compiled without dampening");
  } else if (name == "eps" && !listed(training, "eps")) {
    return recompile(setting, "the plan's optimizer has no eps, or has it compiled in");
  } else if (name == "alpha" && !listed(training, "alpha")) {
    return recompile(setting, "the plan's optimizer has no alpha");
  } else if (name == "lr_decay" && !listed(training, "decayed_lr")) {
    return recompile(setting, "the plan's optimizer has no lr_decay");
  }
  numbers[name] = value;
  return Status();
}

Status setSchedule(const std::string &setting, const std::string &name, const toml::node &node,
                   plan::Training &training) {
  plan::Schedule &schedule = *training.mutable_schedule();
  auto &numbers = *schedule.mutable_numbers();
  const std::string word = node.value_or(std::string());
  if (name == "kind") {
    if (word == "one_cycle" && !listed(training, "momentum") && !listed(training, "beta1"))
      return recompile(setting, "one_cycle cycles momentum, which the plan was compiled without");
    schedule.set_kind(word);
  } else if (name == "per") {
    schedule.set_per(word);
  } else if (name == "warmup_from") {
    schedule.set_warmup_from(word);
  } else if (name == "floor") {
    numbers["floor_clamp"] = word == "clamp";
  } else if (name == "mode") {
    numbers["mode_max"] = word == "max";
  } else if (name == "threshold_mode") {
    numbers["threshold_abs"] = word == "abs";
  } else if (name == "milestones") {
    for (int i = 0; numbers.erase(fmt::format("milestone.{}", i)); ++i)
      ;
    for (size_t i = 0; i < node.as_array()->size(); ++i)
      numbers[fmt::format("milestone.{}", i)] = *(*node.as_array())[i].value<double>();
  } else {
    numbers[name] = *node.value<double>();
  }
  return Status();
}

void setCheckpoints(const std::string &name, const toml::node &node, plan::Checkpoints &checkpoints) {
  if (name == "keep_best")
    checkpoints.set_keep_best(*node.value<bool>());
  else if (name == "staging_bytes")
    checkpoints.set_staging_bytes(node.is_string() ? ~uint64_t(0) : static_cast<uint64_t>(*node.value<double>()));
  else if (name == "every_minutes")
    checkpoints.set_every_minutes(*node.value<double>());
  else
    checkpoints.set_keep(static_cast<uint64_t>(*node.value<int64_t>()));
}

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

/// A list of tables, in TOML or in JSON.
Status setTransforms(const std::string &setting, const std::string &text, plan::DataSettings &data) {
  toml::table table;
  if (auto parsed = parseToml("v = " + text)) {
    table = parsed.take();
  } else {
    auto json = parseJson(text, "JSON");
    if (!json || !json->is_array())
      return usage(fmt::format("--set {}: neither TOML ({}) nor JSON ({}); such as data.transform='[{{ kind = "
                               "\"horizontal_flip\" }}]'",
                               shortened(setting), parsed.message(), json ? "it is no list" : json.message()));
    insertJson(table, "v", *json);
  }
  const toml::node &tables = *table.get("v");
  if (auto transforms = recipe::readTransforms(tables); !transforms)
    return usage(fmt::format("--set {}: {}", setting, transforms.message()));
  (*data.mutable_settings())["transform"] = recipe::transformsText(tables);
  return Status();
}

/// Sets data.categories.COLUMN, data.missing.COLUMN or data.columns.COLUMN. A single word is a text.
Status setColumnRule(const std::string &setting, const std::string &table, const std::string &column,
                     const std::string &text, plan::DataSettings &data) {
  auto parsed = parseToml("v = " + text);
  const toml::value<std::string> word(text);
  const toml::node &rule = parsed && parsed->get("v") ? *parsed->get("v") : static_cast<const toml::node &>(word);
  auto kept = recipe::columnRuleText(table, rule);
  if (!kept)
    return usage(fmt::format("--set {}: {}", setting, kept.message()));
  (*data.mutable_settings())[fmt::format("{}.{}", table, column)] = kept.take();
  return Status();
}

Status setEma(const std::string &setting, const std::string &name, const toml::node &node, plan::Training &training) {
  plan::Ema &ema = *training.mutable_ema();
  if (name == "decay")
    ema.set_decay(*node.value<double>());
  else if (name == "every")
    ema.set_every(static_cast<uint64_t>(*node.value<int64_t>()));
  else if (name == "warmup")
    ema.set_warmup(static_cast<uint64_t>(*node.value<int64_t>()));
  else if (ema.on_device() != (*node.value<std::string>() == "device"))
    return recompile(setting, ema.on_device() ? "the plan's kernels average, on the device"
                                              : "the plan was compiled without averages on the device");
  return Status();
}

Status setLossScale(const std::string &setting, const std::string &name, const toml::node &node,
                    plan::Training &training) {
  if (!training.has_loss_scale())
    return recompile(setting, "the plan was compiled without loss scaling");
  plan::LossScale &scale = *training.mutable_loss_scale();
  if (name == "init_scale")
    scale.set_init_scale(*node.value<double>());
  else if (!scale.dynamic())
    return usage(fmt::format("--set {}: the plan's loss scale is fixed; recompile with tcc --set "
                             "train.loss_scale.kind=dynamic", setting));
  else if (name == "growth_factor")
    scale.set_growth_factor(*node.value<double>());
  else if (name == "backoff_factor")
    scale.set_backoff_factor(*node.value<double>());
  else
    scale.set_growth_interval(static_cast<uint64_t>(*node.value<int64_t>()));
  return Status();
}

void setEvaluation(const std::string &name, const toml::node &node, plan::Evaluation &evaluation) {
  if (name == "best")
    evaluation.set_best(*node.value<std::string>());
  else if (name == "stop.metric")
    evaluation.set_stop_metric(*node.value<std::string>());
  else if (name == "stop.patience")
    evaluation.set_stop_patience(static_cast<uint64_t>(*node.value<int64_t>()));
  else
    evaluation.set_stop_min_change(*node.value<double>());
}

Status applyOne(const std::string &setting, plan::Training &training, plan::DataSettings &data);

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
    return usage(fmt::format("--set {}: expected KEY=VALUE, such as optimizer.lr=3e-4", setting));
  std::string name = setting.substr(0, equals);
  name.erase(name.find_last_not_of(' ') + 1);
  std::string text = setting.substr(std::min(setting.find_first_not_of(' ', equals + 1), setting.size()));
  // Names of inputs may contain dots and other characters that TOML requires in quotes.
  if (constexpr std::string_view kMap = "data.map."; name.starts_with(kMap)) {
    auto quoted = parseToml("v = " + text);
    (*data.mutable_map())[name.substr(kMap.size())] = quoted ? (*quoted)["v"].value_or(text) : text;
    return Status();
  }
  for (std::string_view table : {"categories", "missing", "columns"})
    if (std::string start = fmt::format("data.{}.", table); name.starts_with(start))
      return setColumnRule(setting, std::string(table), name.substr(start.size()), text, data);
  const recipe::Key *key = recipe::findKey(name);
  if (!key)
    if (const recipe::Key *table = recipe::findTableOf(name))
      return recompile(setting, fmt::format("{} is compiled into the plan", table->name));
  if (!key && recipe::isSection(name)) {
    auto parsed = recipe::parseSetting(setting);
    if (!parsed)
      return usage(parsed.message());
    const toml::node *node = parsed->at_path(name).node();
    if (!node || !node->is_table())
      return usage(fmt::format("--set {}: {} is a table, such as {}={{ KEY = VALUE }}", setting, name, name));
    return applyTable(name, *node->as_table(), training, data);
  }
  if (!key)
    return usage(fmt::format("--set {}: unknown key {}; {}", setting, name, recipe::hintFor(name)));
  if (key->change == recipe::Change::Later)
    return usage(fmt::format("--set {}: {} is not supported by this version yet", setting, name));
  std::string part = name.substr(name.find('.') + 1);
  if (name == "data.transform")
    return setTransforms(setting, text, data);
  auto parsed = recipe::parseSetting(setting);
  if (!parsed)
    return usage(parsed.message());
  const toml::node *node = parsed->at_path(name).node();
  if (!node)
    return usage(fmt::format("--set {}: expected KEY=VALUE, such as optimizer.lr=3e-4", setting));
  if (Status status = recipe::check(key->values, *node); !status.ok())
    return usage(fmt::format("--set {}: {}", setting, status.message()));
  if (name == "train.ema.on")
    return setEma(setting, "on", *node, training);
  if (key->change == recipe::Change::Recompile)
    return recompile(setting, fmt::format("{} is compiled into the plan", name));
  if (!training.phases().empty() &&
      (name.starts_with("optimizer.") || name.starts_with("schedule.") || name == "train.clip_norm"))
    return recompile(setting, "the plan has several optimizers ([[phase]])");
  if (name.starts_with("optimizer."))
    return setOptimizer(setting, part, *node, training);
  if (name.starts_with("schedule."))
    return setSchedule(setting, part, *node, training);
  if (constexpr std::string_view kEma = "train.ema."; name.starts_with(kEma))
    return setEma(setting, name.substr(kEma.size()), *node, training);
  if (constexpr std::string_view kScale = "train.loss_scale."; name.starts_with(kScale))
    return setLossScale(setting, name.substr(kScale.size()), *node, training);
  if (constexpr std::string_view kEvaluate = "evaluate."; name.starts_with(kEvaluate)) {
    setEvaluation(name.substr(kEvaluate.size()), *node, *training.mutable_evaluation());
    return Status();
  }
  if (name.starts_with("checkpoint.")) {
    setCheckpoints(part, *node, *training.mutable_checkpoints());
  } else if (name == "train.seed") {
    training.set_seed(static_cast<uint64_t>(*node->value<int64_t>()));
  } else if (name == "train.clip_norm") {
    if (!listed(training, "clip_norm"))
      return recompile(setting, "the plan was compiled without clipping");
    training.set_clip_norm(*node->value<double>());
  } else if (recipe::isColumnTable(part)) {
    return node->is_table() ? applyTable(name, *node->as_table(), training, data)
                            : usage(fmt::format("--set {}: {} is a table of columns: --set {}.COLUMN=…", setting, name, name));
  } else if (const toml::table *columns = node->as_table()) {
    for (const auto &[input, column] : *columns)
      (*data.mutable_map())[std::string(input.str())] = column.value_or(std::string());
  } else {
    (*data.mutable_settings())[part] = recipe::plainText(*node);
  }
  return Status();
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
  if (training.has_ema() && !training.ema().has_decay())
    return usage("--set train.ema: it has no decay; give train.ema.decay, such as 0.999");
  return Status();
}

std::vector<std::string> tcc::runtime::mergeSettings(const std::vector<std::string> &run,
                                                     const std::vector<std::string> &given, const std::string &prefix) {
  auto keyOf = [](const std::string &setting) {
    std::string key = setting.substr(0, setting.find('='));
    return key.substr(0, key.find_last_not_of(' ') + 1);
  };
  std::vector<std::string> merged;
  for (const std::string &setting : run)
    if (setting.starts_with(prefix) && std::none_of(given.begin(), given.end(), [&](const std::string &other) {
          return keyOf(other) == keyOf(setting);
        }))
      merged.push_back(setting);
  merged.insert(merged.end(), given.begin(), given.end());
  return merged;
}

namespace {
/// True if some entry's target has the shape of the scores without their class axis. (Entries may differ in
/// dimensions.)
bool isShapeOfTarget(const plan::Plan &plan, const plan::TensorType &scores, int classAxis) {
  std::vector<int64_t> dims(scores.dims().begin(), scores.dims().end());
  dims.erase(dims.begin() + classAxis);
  for (const plan::Entry &entry : plan.entries())
    for (const plan::Port &port : entry.inputs()) {
      const auto &target = entry.buffers(static_cast<int>(port.buffer())).type().dims();
      if (port.name() == plan.training().target() && std::equal(dims.begin(), dims.end(), target.begin(), target.end()))
        return true;
    }
  return false;
}
} // namespace

std::optional<int64_t> tcc::runtime::classesOf(const plan::Plan &plan) {
  auto recipe = parseToml(plan.recipe());
  // With several losses there is no single number: each loss has its own range in the plan.
  if (!isClassification(plan.training().loss_kind()) || !recipe || plan.training().losses_size() != 0)
    return std::nullopt;
  auto given = recipe->at_path("loss.of");
  std::string of = (given.is_array() ? given[0] : given).value_or(std::string());
  int64_t axis = recipe->at_path("loss.class_axis").value_or(int64_t(1));
  for (const plan::Entry &entry : plan.entries()) {
    if (entry.name() != entries::kPredict)
      continue;
    const plan::TensorType *scores = nullptr;
    int candidates = 0;
    for (const plan::Port &port : entry.outputs()) {
      const plan::TensorType &type = entry.buffers(static_cast<int>(port.buffer())).type();
      if (of.empty() ? plan::isFloatingPoint(type.dtype()) : port.name() == of) {
        scores = &type;
        ++candidates;
      }
    }
    if (candidates != 1)
      return std::nullopt;
    int64_t position = axis < 0 ? axis + scores->dims_size() : axis;
    if (position >= 0 && position < scores->dims_size() && isShapeOfTarget(plan, *scores, static_cast<int>(position)))
      return scores->dims(static_cast<int>(position));
  }
  return std::nullopt;
}

std::optional<int64_t> tcc::runtime::ignoreIndexOf(const plan::Plan &plan) {
  if (!isClassification(plan.training().loss_kind()))
    return std::nullopt;
  auto recipe = parseToml(plan.recipe());
  if (recipe)
    for (const char *key : {"loss.ignore_index", "loss[0].ignore_index"})
      if (auto value = recipe->at_path(key).value<int64_t>())
        return *value;
  return -100;
}

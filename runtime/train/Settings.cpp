//===- Settings.cpp - what --set may change without compiling ------------===//
#include "runtime/train/Settings.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/NearestName.h"
#include "runtime/plan/Toml.h"
#include "runtime/train/Schedule.h"

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
const std::vector<std::string> kRunTime = {"optimizer.lr",
                                           "optimizer.betas",
                                           "optimizer.eps",
                                           "optimizer.weight_decay",
                                           "optimizer.momentum",
                                           "optimizer.dampening",
                                           "optimizer.alpha",
                                           "optimizer.lr_decay",
                                           "schedule.kind",
                                           "schedule.warmup_steps",
                                           "schedule.total_steps",
                                           "schedule.min_lr_scale",
                                           "schedule.per",
                                           "schedule.warmup_from",
                                           "schedule.floor",
                                           "schedule.step_size",
                                           "schedule.milestones",
                                           "schedule.gamma",
                                           "schedule.power",
                                           "schedule.pct_start",
                                           "schedule.div_factor",
                                           "schedule.final_div_factor",
                                           "schedule.base_momentum",
                                           "schedule.max_momentum",
                                           "train.seed",
                                           "train.clip_norm",
                                           "checkpoint.every_minutes",
                                           "checkpoint.keep",
                                           "checkpoint.keep_best",
                                           "data.tokens",
                                           "data.windows",
                                           "data.last",
                                           "data.eval_split",
                                           "data.format",
                                           "data.max_bad",
                                           "data.transform"};
const std::vector<std::string> kCompiled = {"model.dims",
                                            "model.trainable",
                                            "model.frozen",
                                            "model.tie",
                                            "model.merged",
                                            "model.batch_norm",
                                            "model.quantize",
                                            "model.dropout",
                                            "evaluate.dims",
                                            "predict.dims",
                                            "loss.output",
                                            "loss.kind",
                                            "loss.of",
                                            "loss.target",
                                            "loss.class_axis",
                                            "loss.shift",
                                            "loss.ignore_index",
                                            "loss.label_smoothing",
                                            "loss.weight",
                                            "loss.pos_weight",
                                            "loss.reduction",
                                            "loss.delta",
                                            "loss.beta",
                                            "loss.log_target",
                                            "loss.margin",
                                            "loss.eps",
                                            "loss.p",
                                            "loss.swap",
                                            "loss.full",
                                            "loss.log_input",
                                            "loss.alpha",
                                            "loss.gamma",
                                            "loss.smooth",
                                            "loss.input",
                                            "loss.time_axis",
                                            "loss.blank",
                                            "loss.zero_infinity",
                                            "loss.input_lengths",
                                            "loss.target_lengths",
                                            "loss.max_target_length",
                                            "optimizer.kind",
                                            "optimizer.nesterov",
                                            "optimizer.centered",
                                            "optimizer.initial_accumulator_value",
                                            "optimizer.amsgrad",
                                            "optimizer.maximize",
                                            "optimizer.ns_steps",
                                            "optimizer.ns_coefficients",
                                            "optimizer.adjust_lr_fn",
                                            "optimizer.decay_exempt",
                                            "optimizer.group",
                                            "optimizer.layer_decay",
                                            "train.accumulate",
                                            "train.clip_value",
                                            "train.precision",
                                            "train.ema",
                                            "compiler.fuse",
                                            "compiler.attention"};

plan::Status usage(std::string text) { return plan::Status(std::move(text), plan::kExitUsage); }

plan::Status recompile(const std::string &setting, const std::string &why) {
  return usage(fmt::format("--set {}: {}; recompile with tcc --set {}", setting, why, setting));
}

bool listed(const plan::Training &training, const std::string &suffix) {
  return std::any_of(training.scalars().begin(), training.scalars().end(), [&](const std::string &name) {
    return name == suffix || (name.starts_with('g') && name.ends_with("." + suffix));
  });
}

struct Value {
  std::string text; ///< a word or a quoted string
  std::optional<double> number;
  std::vector<double> list;
};

Value parseValue(const std::string &text) {
  Value value{text, std::nullopt, {}};
  auto parsed = plan::parseToml("v = " + text);
  if (!parsed)
    return value;
  const toml::table &table = *parsed;
  const toml::node *node = table.get("v");
  if (!node)
    return value;
  if (auto word = node->value<std::string>())
    value.text = *word;
  if (node->is_integer() || node->is_floating_point())
    value.number = node->value<double>();
  if (const toml::array *array = node->as_array())
    for (const toml::node &item : *array)
      if (auto number = item.value<double>())
        value.list.push_back(*number);
  return value;
}

plan::Status setOptimizer(const std::string &setting, const std::string &name, const Value &value,
                          plan::Training &training) {
  auto &numbers = *training.mutable_optimizer()->mutable_numbers();
  if (name == "betas") {
    if (value.list.size() != 2)
      return usage(fmt::format("--set {}: betas are two numbers, e.g. [0.9, 0.999]", setting));
    if (!listed(training, "beta1"))
      return recompile(setting, "the plan's optimizer has no betas");
    numbers["beta1"] = value.list[0];
    numbers["beta2"] = value.list[1];
    return plan::Status();
  }
  if (!value.number || !std::isfinite(*value.number))
    return usage(fmt::format("--set {}: a number is needed", setting));
  if (name == "weight_decay") {
    double old = numbers.contains(name) ? numbers[name] : 0;
    bool any = listed(training, "weight_decay") || listed(training, "decay");
    if (!any && *value.number != 0)
      return recompile(setting, "the plan was compiled without weight decay");
    // Groups with a decay of their own (exempt ones: 0) keep it.
    for (int g = 0; g < training.optimizer().groups_size(); ++g) {
      plan::OptimizerGroup &group = *training.mutable_optimizer()->mutable_groups(g);
      if (group.weight_decay() != old || (old == 0 && group.name() != "default"))
        continue;
      std::string prefix = fmt::format("g{}.", g);
      if (!listed(training, prefix + "weight_decay") && !listed(training, prefix + "decay") && *value.number != 0)
        return recompile(setting, fmt::format("group '{}' was compiled without weight decay", group.name()));
      group.set_weight_decay(*value.number);
    }
  } else if (name == "momentum" && !listed(training, "momentum") && *value.number != numbers["momentum"]) {
    return recompile(setting, "the plan was compiled without momentum");
  } else if (name == "dampening" && !listed(training, "one_minus_dampening") && *value.number != numbers["dampening"]) {
    return recompile(setting, "the plan was compiled without dampening");
  } else if (name == "eps" && !listed(training, "eps")) {
    return recompile(setting, "the plan's optimizer has no eps, or has it compiled in");
  } else if (name == "alpha" && !listed(training, "alpha")) {
    return recompile(setting, "the plan's optimizer has no alpha");
  } else if (name == "lr_decay" && !listed(training, "decayed_lr")) {
    return recompile(setting, "the plan's optimizer has no lr_decay");
  }
  numbers[name] = *value.number;
  return plan::Status();
}

plan::Status setSchedule(const std::string &setting, const std::string &name, const Value &value,
                         plan::Training &training) {
  plan::Schedule &schedule = *training.mutable_schedule();
  auto oneOf = [&](std::vector<std::string> words) {
    return std::find(words.begin(), words.end(), value.text) != words.end()
               ? plan::Status()
               : usage(fmt::format("--set {}: use one of {}", setting, fmt::join(words, ", ")));
  };
  plan::Status status;
  if (name == "kind") {
    if (status = oneOf(LearningSchedule::kinds()); !status.ok())
      return status;
    if (value.text == "one_cycle" && !listed(training, "momentum") && !listed(training, "beta1"))
      return recompile(setting, "one_cycle cycles momentum, which the plan was compiled without");
    schedule.set_kind(value.text);
  } else if (name == "per") {
    if (status = oneOf({"step", "epoch"}); status.ok())
      schedule.set_per(value.text);
  } else if (name == "warmup_from") {
    if (status = oneOf({"first", "zero"}); status.ok())
      schedule.set_warmup_from(value.text);
  } else if (name == "floor") {
    if (status = oneOf({"rescale", "clamp"}); status.ok())
      (*schedule.mutable_numbers())["floor_clamp"] = value.text == "clamp";
  } else if (name == "milestones") {
    if (value.list.empty())
      return usage(fmt::format("--set {}: milestones are a list of numbers", setting));
    for (int i = 0; schedule.mutable_numbers()->erase(fmt::format("milestone.{}", i)); ++i)
      ;
    for (size_t i = 0; i < value.list.size(); ++i)
      (*schedule.mutable_numbers())[fmt::format("milestone.{}", i)] = value.list[i];
  } else {
    if (!value.number || !std::isfinite(*value.number))
      return usage(fmt::format("--set {}: a number is needed", setting));
    (*schedule.mutable_numbers())[name] = *value.number;
  }
  return status;
}

plan::Status setCheckpoints(const std::string &setting, const std::string &name, const Value &value,
                            plan::Checkpoints &checkpoints) {
  if (name == "keep_best") {
    if (value.text != "true" && value.text != "false")
      return usage(fmt::format("--set {}: use true or false", setting));
    checkpoints.set_keep_best(value.text == "true");
    return plan::Status();
  }
  if (!value.number || !(*value.number >= 0))
    return usage(fmt::format("--set {}: a number from 0 is needed", setting));
  if (name == "every_minutes") {
    checkpoints.set_every_minutes(*value.number);
    return plan::Status();
  }
  if (*value.number != std::floor(*value.number) || *value.number > double(1 << 30))
    return usage(fmt::format("--set {}: a number of checkpoints is needed; 0 keeps all", setting));
  checkpoints.set_keep(static_cast<uint64_t>(*value.number));
  return plan::Status();
}

plan::Status applyOne(const std::string &setting, plan::Training &training, plan::DataSettings &data) {
  size_t equals = setting.find('=');
  if (equals == std::string::npos || equals == 0)
    return usage(fmt::format("--set {}: it must be KEY=VALUE", setting));
  std::string key = setting.substr(0, equals);
  key.erase(key.find_last_not_of(' ') + 1);
  std::string text = setting.substr(std::min(setting.find_first_not_of(' ', equals + 1), setting.size()));
  Value value = parseValue(text);
  if (key.starts_with("data.map.")) {
    (*data.mutable_map())[key.substr(9)] = value.text;
    return plan::Status();
  }
  for (const std::string &compiled : kCompiled)
    if (key == compiled || key.starts_with(compiled + ".") || key.starts_with("data.batch_axis."))
      return recompile(setting, "it is compiled into the plan");
  if (std::find(kRunTime.begin(), kRunTime.end(), key) == kRunTime.end()) {
    std::vector<std::string> known = kRunTime;
    known.insert(known.end(), kCompiled.begin(), kCompiled.end());
    std::string nearest = plan::nearestName(key, known);
    return usage(fmt::format("--set {}: unknown key '{}'; {}", setting, key,
                             nearest.empty() ? fmt::format("a run takes {}", fmt::join(kRunTime, ", "))
                                             : fmt::format("did you mean '{}'?", nearest)));
  }
  std::string name = key.substr(key.find('.') + 1);
  if (key.starts_with("optimizer."))
    return setOptimizer(setting, name, value, training);
  if (key.starts_with("schedule."))
    return setSchedule(setting, name, value, training);
  if (key.starts_with("checkpoint."))
    return setCheckpoints(setting, name, value, *training.mutable_checkpoints());
  if (key == "train.seed") {
    if (!value.number || *value.number < 0 || *value.number != std::floor(*value.number))
      return usage(fmt::format("--set {}: a seed is an integer from 0", setting));
    training.set_seed(static_cast<uint64_t>(*value.number));
    return plan::Status();
  }
  if (key == "train.clip_norm") {
    if (!listed(training, "clip_norm"))
      return recompile(setting, "the plan was compiled without clipping");
    if (!value.number || !(*value.number > 0))
      return usage(fmt::format("--set {}: a positive number is needed", setting));
    training.set_clip_norm(*value.number);
    return plan::Status();
  }
  auto oneOf = [&](std::vector<std::string> words) {
    return std::find(words.begin(), words.end(), value.text) != words.end()
               ? plan::Status()
               : usage(fmt::format("--set {}: use one of {}", setting, fmt::join(words, ", ")));
  };
  plan::Status status;
  if (name == "tokens")
    status = oneOf({"bytes", "chars", "uint16", "uint32"});
  else if (name == "windows")
    status = oneOf({"consecutive", "random"});
  else if (name == "last")
    status = oneOf({"drop", "pad"});
  else if (name == "eval_split" && (!value.number || !(*value.number > 0) || !(*value.number < 1)))
    status = usage(fmt::format("--set {}: the share of the data kept for evaluation lies between 0 and 1", setting));
  else if (name == "max_bad" &&
           (!value.number || *value.number < 0 || *value.number > 1e9 || *value.number != std::floor(*value.number)))
    status = usage(
        fmt::format("--set {}: the damaged samples that may be left out are a number from 0 to 1000000000", setting));
  if (status.ok() && name == "max_bad")
    (*data.mutable_settings())[name] = fmt::format("{:.0f}", *value.number);
  else if (status.ok())
    (*data.mutable_settings())[name] = name == "eval_split" || name == "transform" ? text : value.text;
  return status;
}
} // namespace

plan::Status tcc::runtime::applySettings(const std::vector<std::string> &settings, plan::Training &training,
                                         plan::DataSettings &data) {
  for (const std::string &setting : settings)
    if (plan::Status status = applyOne(setting, training, data); !status.ok())
      return status;
  return plan::Status();
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
bool isClassification(const plan::Plan &plan) {
  return plan.training().loss_kind() == "cross_entropy" || plan.training().loss_kind() == "nll";
}
/// Is the target of some entry shaped as the scores without their class axis? (Entries may have other dimensions.)
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
  auto recipe = plan::parseToml(plan.recipe());
  if (!isClassification(plan) || !recipe)
    return std::nullopt;
  auto given = recipe->at_path("loss.of");
  std::string of = (given.is_array() ? given[0] : given).value_or(std::string());
  int64_t axis = recipe->at_path("loss.class_axis").value_or(int64_t(1));
  for (const plan::Entry &entry : plan.entries()) {
    if (entry.name() != "predict")
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
  if (!isClassification(plan))
    return std::nullopt;
  auto recipe = plan::parseToml(plan.recipe());
  if (recipe)
    if (auto value = recipe->at_path("loss.ignore_index").value<int64_t>())
      return *value;
  return -100;
}

//===- RecipeKeys.cpp - the table of recipe keys --------------------------===//
#include "compiler/RecipeKeys.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <numeric>

namespace tcc::recipe {
namespace {

using plan::Status;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

//===----------------------------------------------------------------------===//
// Readers of one value
//===----------------------------------------------------------------------===//

Status expected(std::string_view what, const toml::node &node) {
  return plan::error("expected {}, found {}", what, typeName(node));
}

struct Range {
  double low = -kInfinity, high = kInfinity;
  bool openLow = false, openHigh = false;

  bool holds(double value) const {
    return (openLow ? value > low : value >= low) && (openHigh ? value < high : value <= high);
  }
  std::string text() const {
    if (high == kInfinity)
      return fmt::format("{} {}", openLow ? "above" : "at least", low);
    return fmt::format("from {} {}to {}{}", low, openLow ? "(excluded) " : "", high, openHigh ? " (excluded)" : "");
  }
};
constexpr Range kAny{};
constexpr Range kNotNegative{0, kInfinity};
constexpr Range kPositive{0, kInfinity, true};
constexpr Range kUnit{0, 1};
constexpr Range kBelowOne{0, 1, false, true};

Status readNumber(const toml::node &node, Range range, double &out) {
  std::optional<double> value;
  if (node.is_floating_point() || node.is_integer())
    value = node.value<double>();
  if (!value)
    return expected("a number", node);
  if (!std::isfinite(*value) || !range.holds(*value))
    return plan::error("{} is out of range: a number {}", *value, range.text());
  out = *value;
  return Status::success();
}

Status readInteger(const toml::node &node, int64_t low, int64_t high, int64_t &out) {
  if (!node.is_integer())
    return expected("an integer", node);
  int64_t value = *node.value<int64_t>();
  if (value < low || value > high) {
    if (high == std::numeric_limits<int64_t>::max())
      return plan::error("{} is out of range: an integer, at least {}", value, low);
    return plan::error("{} is out of range: an integer from {} to {}", value, low, high);
  }
  out = value;
  return Status::success();
}

Status readBool(const toml::node &node, bool &out) {
  if (!node.is_boolean())
    return expected("true or false", node);
  out = *node.value<bool>();
  return Status::success();
}

Status readString(const toml::node &node, std::string &out) {
  if (!node.is_string())
    return expected("a string", node);
  out = *node.value<std::string>();
  return Status::success();
}

/// One of `supported`; a member of `later` is known, and refused as not done yet.
Status readChoice(const toml::node &node, const std::vector<std::string> &supported,
                  const std::vector<std::string> &later, std::string &out) {
  std::string value;
  if (Status status = readString(node, value); !status.ok())
    return status;
  if (std::find(later.begin(), later.end(), value) != later.end())
    return plan::error("\"{}\" is not supported by this version yet; it does {}", value, fmt::join(supported, ", "));
  if (std::find(supported.begin(), supported.end(), value) == supported.end()) {
    std::vector<std::string> known = supported;
    known.insert(known.end(), later.begin(), later.end());
    auto nearest = std::min_element(known.begin(), known.end(), [&](const std::string &a, const std::string &b) {
      return editDistance(a, value) < editDistance(b, value);
    });
    return plan::error("\"{}\" is unknown; the nearest is \"{}\" (known: {})", value, *nearest, fmt::join(known, ", "));
  }
  out = value;
  return Status::success();
}

Status readStrings(const toml::node &node, std::vector<std::string> &out) {
  out.clear();
  if (node.is_string()) {
    out.push_back(*node.value<std::string>());
    return Status::success();
  }
  const toml::array *array = node.as_array();
  if (!array)
    return expected("a list of strings", node);
  for (const toml::node &element : *array) {
    if (!element.is_string())
      return plan::error("expected a list of strings, found {} in it", typeName(element));
    out.push_back(*element.value<std::string>());
  }
  return Status::success();
}

Status readNumbers(const toml::node &node, Range range, std::vector<double> &out) {
  out.clear();
  if (!node.is_array()) {
    double value = 0;
    Status status = readNumber(node, range, value);
    out.push_back(value);
    return status;
  }
  for (const toml::node &element : *node.as_array()) {
    double value = 0;
    if (Status status = readNumber(element, range, value); !status.ok())
      return status;
    out.push_back(value);
  }
  return Status::success();
}

Status readIntegers(const toml::node &node, int64_t low, std::vector<int64_t> &out) {
  out.clear();
  const toml::array *array = node.as_array();
  if (!array)
    return expected("a list of integers", node);
  for (const toml::node &element : *array) {
    int64_t value = 0;
    if (Status status = readInteger(element, low, std::numeric_limits<int64_t>::max(), value); !status.ok())
      return status;
    out.push_back(value);
  }
  return Status::success();
}

Status readIntegerTable(const toml::node &node, int64_t low, std::map<std::string, int64_t> &out) {
  const toml::table *table = node.as_table();
  if (!table)
    return expected("a table of integers", node);
  for (const auto &[name, value] : *table) {
    int64_t number = 0;
    Status status = readInteger(value, low, std::numeric_limits<int64_t>::max(), number);
    if (!status.ok())
      return status.withContext(std::string(name.str()));
    out[std::string(name.str())] = number;
  }
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Setters
//===----------------------------------------------------------------------===//

template <typename Owner> Setter number(Owner Recipe::*part, double Owner::*field, Range range) {
  return [=](Recipe &recipe, const toml::node &node) { return readNumber(node, range, recipe.*part.*field); };
}
template <typename Owner> Setter flag(Owner Recipe::*part, bool Owner::*field) {
  return [=](Recipe &recipe, const toml::node &node) { return readBool(node, recipe.*part.*field); };
}
template <typename Owner> Setter text(Owner Recipe::*part, std::string Owner::*field) {
  return [=](Recipe &recipe, const toml::node &node) { return readString(node, recipe.*part.*field); };
}
template <typename Owner>
Setter choice(Owner Recipe::*part, std::string Owner::*field, std::vector<std::string> supported,
              std::vector<std::string> later = {}) {
  return [=](Recipe &recipe, const toml::node &node) {
    return readChoice(node, supported, later, recipe.*part.*field);
  };
}
template <typename Owner> Setter strings(Owner Recipe::*part, std::vector<std::string> Owner::*field) {
  return [=](Recipe &recipe, const toml::node &node) { return readStrings(node, recipe.*part.*field); };
}
Setter optimizerNumber(std::string name, Range range) {
  return [=](Recipe &recipe, const toml::node &node) {
    return readNumber(node, range, recipe.optimizer.numbers[name]);
  };
}
Setter scheduleNumber(std::string name, Range range) {
  return [=](Recipe &recipe, const toml::node &node) {
    return readNumber(node, range, recipe.schedule.numbers[name]);
  };
}
Setter scheduleCount(std::string name, int64_t low) {
  return [=](Recipe &recipe, const toml::node &node) {
    int64_t value = 0;
    Status status = readInteger(node, low, int64_t(1) << 53, value);
    recipe.schedule.numbers[name] = double(value);
    return status;
  };
}
Setter dataText(std::string name, std::vector<std::string> supported, std::vector<std::string> later = {}) {
  return [=](Recipe &recipe, const toml::node &node) {
    return readChoice(node, supported, later, recipe.dataSettings[name]);
  };
}

Status setBetas(Recipe &recipe, const toml::node &node) {
  std::vector<double> betas;
  if (!node.is_array())
    return expected("a list of two numbers", node);
  if (Status status = readNumbers(node, kBelowOne, betas); !status.ok())
    return status;
  if (betas.size() != 2)
    return plan::error("expected two numbers, found {}", betas.size());
  recipe.optimizer.numbers["beta1"] = betas[0];
  recipe.optimizer.numbers["beta2"] = betas[1];
  return Status::success();
}

Status setGroups(Recipe &recipe, const toml::node &node) {
  const toml::array *array = node.as_array();
  if (!array)
    return expected("tables, each begun by [[optimizer.group]]", node);
  recipe.optimizer.groups.clear();
  for (const toml::node &element : *array) {
    const toml::table *table = element.as_table();
    if (!table)
      return expected("tables, each begun by [[optimizer.group]]", element);
    OptimizerGroupSettings group;
    const toml::source_position begin = element.source().begin;
    const bool fromFile = recipe.at("optimizer.group") != "--set: ";
    group.where = fromFile ? fmt::format("{}:{}:{}", recipe.file, begin.line, begin.column) : std::string("--set");
    auto located = [&](const Status &status) { return status.withContext(fmt::format("group at {}", group.where)); };
    for (const auto &[name, value] : *table) {
      Status status;
      if (name == "match") {
        status = readStrings(value, group.match);
      } else if (name == "lr_scale") {
        status = readNumber(value, kNotNegative, group.lrScale);
      } else if (name == "weight_decay") {
        double decay = 0;
        status = readNumber(value, kNotNegative, decay);
        group.weightDecay = decay;
      } else {
        status = plan::error("unknown key; a group has match, lr_scale and weight_decay");
      }
      if (!status.ok())
        return located(status.withContext(std::string(name.str())));
    }
    if (group.match.empty())
      return located(plan::error("it has no `match`: give the globs of its parameters"));
    recipe.optimizer.groups.push_back(std::move(group));
  }
  return Status::success();
}

Status setDataMap(Recipe &recipe, const toml::node &node) {
  const toml::table *table = node.as_table();
  if (!table)
    return expected("a table of strings", node);
  for (const auto &[name, value] : *table)
    if (Status status = readString(value, recipe.dataMap[std::string(name.str())]); !status.ok())
      return status.withContext(std::string(name.str()));
  return Status::success();
}

Setter dims(std::map<std::string, int64_t> ModelSettings::*field) {
  return [=](Recipe &recipe, const toml::node &node) { return readIntegerTable(node, 1, recipe.model.*field); };
}

std::vector<Key> makeKeys() {
  const Setter later = nullptr;
  using M = ModelSettings;
  using L = LossSettings;
  using O = OptimizerSettings;
  using S = ScheduleSettings;
  using T = TrainSettings;
  return {
      {"model.dims", dims(&M::dims)},
      {"evaluate.dims", later},
      {"predict.dims", later},
      {"model.trainable",
       [](Recipe &recipe, const toml::node &node) {
         return readStrings(node, recipe.model.trainable.emplace());
       }},
      {"model.frozen", strings(&Recipe::model, &M::frozen)},
      {"model.batch_norm", later},
      {"model.dropout", later},

      {"loss.output", text(&Recipe::loss, &L::output)},
      {"loss.kind", choice(&Recipe::loss, &L::kind, {"cross_entropy", "nll", "mse", "l1", "huber", "smooth_l1", "bce",
                                                     "bce_with_logits", "kl_div"})},
      {"loss.of", text(&Recipe::loss, &L::of)},
      {"loss.target", text(&Recipe::loss, &L::target)},
      {"loss.class_axis",
       [](Recipe &recipe, const toml::node &node) { return readInteger(node, -8, 8, recipe.loss.classAxis); }},
      {"loss.shift", flag(&Recipe::loss, &L::shift)},
      {"loss.ignore_index",
       [](Recipe &recipe, const toml::node &node) {
         return readInteger(node, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(),
                            recipe.loss.ignoreIndex);
       }},
      {"loss.label_smoothing", number(&Recipe::loss, &L::labelSmoothing, kUnit)},
      {"loss.weight",
       [](Recipe &recipe, const toml::node &node) { return readNumbers(node, kNotNegative, recipe.loss.weight); }},
      {"loss.pos_weight",
       [](Recipe &recipe, const toml::node &node) { return readNumbers(node, kNotNegative, recipe.loss.posWeight); }},
      {"loss.reduction", choice(&Recipe::loss, &L::reduction, {"mean", "sum", "batchmean"}, {"none"})},
      {"loss.delta", number(&Recipe::loss, &L::delta, kPositive)},
      {"loss.beta", number(&Recipe::loss, &L::beta, kNotNegative)},
      {"loss.log_target", flag(&Recipe::loss, &L::logTarget)},

      {"optimizer.kind", choice(&Recipe::optimizer, &O::kind, {"sgd", "adam", "adamw"},
                                {"rmsprop", "adagrad", "muon", "lion", "lamb"})},
      {"optimizer.lr", optimizerNumber("lr", kNotNegative)},
      {"optimizer.betas", setBetas},
      {"optimizer.eps", optimizerNumber("eps", kNotNegative)},
      {"optimizer.weight_decay", optimizerNumber("weight_decay", kNotNegative)},
      {"optimizer.momentum", optimizerNumber("momentum", kNotNegative)},
      {"optimizer.dampening", optimizerNumber("dampening", kAny)},
      {"optimizer.nesterov", flag(&Recipe::optimizer, &O::nesterov)},
      {"optimizer.alpha", later},
      {"optimizer.centered", later},
      {"optimizer.lr_decay", later},
      {"optimizer.initial_accumulator_value", later},
      {"optimizer.amsgrad", later},
      {"optimizer.maximize", later},
      {"optimizer.ns_steps", later},
      {"optimizer.decay_exempt", strings(&Recipe::optimizer, &O::decayExempt)},
      {"optimizer.group", setGroups},
      {"optimizer.layer_decay", later},

      {"schedule.kind", choice(&Recipe::schedule, &S::kind,
                               {"constant", "linear", "cosine", "step", "multi_step", "exponential", "polynomial",
                                "inverse_sqrt", "one_cycle"})},
      {"schedule.warmup_steps", scheduleCount("warmup_steps", 0)},
      {"schedule.total_steps", scheduleCount("total_steps", 1)},
      {"schedule.min_lr_scale", scheduleNumber("min_lr_scale", kNotNegative)},
      {"schedule.per", choice(&Recipe::schedule, &S::per, {"step", "epoch"})},
      {"schedule.warmup_from", choice(&Recipe::schedule, &S::warmupFrom, {"first", "zero"})},
      {"schedule.floor", choice(&Recipe::schedule, &S::floor, {"rescale", "clamp"})},
      {"schedule.step_size", scheduleCount("step_size", 1)},
      {"schedule.milestones",
       [](Recipe &recipe, const toml::node &node) { return readIntegers(node, 0, recipe.schedule.milestones); }},
      {"schedule.gamma", scheduleNumber("gamma", kNotNegative)},
      {"schedule.power", scheduleNumber("power", kNotNegative)},
      {"schedule.pct_start", scheduleNumber("pct_start", kUnit)},
      {"schedule.div_factor", scheduleNumber("div_factor", kPositive)},
      {"schedule.final_div_factor", scheduleNumber("final_div_factor", kPositive)},
      {"schedule.base_momentum", scheduleNumber("base_momentum", kBelowOne)},
      {"schedule.max_momentum", scheduleNumber("max_momentum", kBelowOne)},
      {"schedule.cycle_momentum",
       [](Recipe &recipe, const toml::node &node) {
         bool cycle = true;
         Status status = readBool(node, cycle);
         recipe.schedule.numbers["cycle_momentum"] = cycle;
         return status;
       }},

      {"train.accumulate",
       [](Recipe &recipe, const toml::node &node) {
         return readInteger(node, 1, int64_t(1) << 31, recipe.train.accumulate);
       }},
      {"train.clip_norm",
       [](Recipe &recipe, const toml::node &node) {
         return readNumber(node, kPositive, recipe.train.clipNorm.emplace());
       }},
      {"train.clip_value", later},
      {"train.seed",
       [](Recipe &recipe, const toml::node &node) {
         int64_t seed = 0;
         Status status = readInteger(node, 0, std::numeric_limits<int64_t>::max(), seed);
         recipe.train.seed = uint64_t(seed);
         return status;
       }},
      {"train.precision", choice(&Recipe::train, &T::precision, {"f32"}, {"tf32", "bf16", "f16", "auto"})},
      {"train.ema", later},

      {"data.map", setDataMap},
      {"data.batch_axis",
       [](Recipe &recipe, const toml::node &node) { return readIntegerTable(node, -1, recipe.dataBatchAxis); }},
      {"data.tokens", dataText("tokens", {"uint16", "uint32", "bytes", "chars"})},
      {"data.windows", dataText("windows", {"consecutive", "random"})},
      {"data.format", dataText("format", {"cifar10", "cifar100"})},
      {"data.last", dataText("last", {"drop", "pad"})},
      {"data.eval_split",
       [](Recipe &recipe, const toml::node &node) {
         double value = 0;
         Status status = readNumber(node, Range{0, 1, true, true}, value);
         recipe.dataSettings["eval_split"] = fmt::format("{}", value);
         return status;
       }},
      {"data.transform", later},

      {"compiler.fuse", [](Recipe &recipe, const toml::node &node) { return readBool(node, recipe.fuse); }},
      {"compiler.attention",
       [](Recipe &recipe, const toml::node &node) {
         return readChoice(node, {"auto", "unfused"}, {"fused"}, recipe.attention);
       }},
  };
}

} // namespace

std::span<const Key> allKeys() {
  static const std::vector<Key> keys = makeKeys();
  return keys;
}

std::string_view typeName(const toml::node &node) {
  switch (node.type()) {
  case toml::node_type::table: return "a table";
  case toml::node_type::array: return "a list";
  case toml::node_type::string: return "a string";
  case toml::node_type::integer: return "an integer";
  case toml::node_type::floating_point: return "a number with a fraction";
  case toml::node_type::boolean: return "a boolean";
  default: return "a date or time";
  }
}

size_t editDistance(std::string_view a, std::string_view b) {
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

/// True for a key of the file that a kind chosen by --set leaves without meaning: it goes with the kind it was written for.
static bool isOverridden(const Recipe &recipe, const std::string &key, const char *kindKey) {
  auto place = [&](const std::string &name) {
    auto found = recipe.where.find(name);
    return found == recipe.where.end() ? std::string() : found->second;
  };
  return place(kindKey) == "--set" && place(key) != "--set";
}

Status finishOptimizer(Recipe &recipe) {
  OptimizerSettings &optimizer = recipe.optimizer;
  // PyTorch's defaults, torch.optim.{SGD,Adam,AdamW}.
  std::map<std::string, double> defaults = {{"lr", 1e-3}, {"weight_decay", optimizer.kind == "adamw" ? 1e-2 : 0.0}};
  if (optimizer.kind == "sgd")
    defaults.insert({{"momentum", 0}, {"dampening", 0}});
  else
    defaults.insert({{"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}});
  for (auto number = optimizer.numbers.begin(); number != optimizer.numbers.end();) {
    const std::string &name = number->first;
    std::string key = "optimizer." + (name == "beta1" || name == "beta2" ? std::string("betas") : name);
    if (defaults.count(name))
      ++number;
    else if (isOverridden(recipe, key, "optimizer.kind"))
      number = optimizer.numbers.erase(number);
    else
      return plan::error("{}{} does not apply to {}: remove it or choose another optimizer.kind", recipe.at(key), key,
                         optimizer.kind);
  }
  if (optimizer.kind != "sgd" && isOverridden(recipe, "optimizer.nesterov", "optimizer.kind"))
    optimizer.nesterov = false;
  optimizer.numbers.insert(defaults.begin(), defaults.end());
  if (optimizer.nesterov) {
    if (optimizer.kind != "sgd")
      return plan::error("{}optimizer.nesterov does not apply to {}", recipe.at("optimizer.nesterov"),
                         optimizer.kind);
    if (optimizer.numbers["momentum"] <= 0 || optimizer.numbers["dampening"] != 0)
      return plan::error("{}optimizer.nesterov needs a momentum above 0 and no dampening",
                         recipe.at("optimizer.nesterov"));
  }
  return Status::success();
}

Status finishLossAndSchedule(Recipe &recipe) {
  LossSettings &loss = recipe.loss;
  // --set loss.output replaces a loss that the file makes, and the other way round.
  if (!loss.output.empty() && isOverridden(recipe, "loss.kind", "loss.output"))
    loss.kind.clear();
  if (!loss.kind.empty() && isOverridden(recipe, "loss.output", "loss.kind"))
    loss.output.clear();
  if (!loss.output.empty() && !loss.kind.empty())
    return plan::error("{}loss.output and loss.kind exclude each other: the loss is a graph output, or made from one",
                       recipe.at("loss.output"));
  struct Needs {
    const char *key;
    std::vector<std::string> kinds;
  };
  const Needs table[] = {
      {"loss.of", {"cross_entropy", "nll", "mse", "l1", "huber", "smooth_l1", "bce", "bce_with_logits", "kl_div"}},
      {"loss.target", {"cross_entropy", "nll", "mse", "l1", "huber", "smooth_l1", "bce", "bce_with_logits", "kl_div"}},
      {"loss.class_axis", {"cross_entropy", "nll"}},
      {"loss.shift", {"cross_entropy", "nll"}},
      {"loss.ignore_index", {"cross_entropy", "nll"}},
      {"loss.label_smoothing", {"cross_entropy"}},
      {"loss.weight", {"cross_entropy", "nll", "bce", "bce_with_logits"}},
      {"loss.pos_weight", {"bce_with_logits"}},
      {"loss.delta", {"huber"}},
      {"loss.beta", {"smooth_l1"}},
      {"loss.log_target", {"kl_div"}},
  };
  for (const Needs &needs : table) {
    if (!recipe.where.count(needs.key) || isOverridden(recipe, needs.key, "loss.output"))
      continue;
    if (loss.kind.empty())
      return plan::error("{}{} needs loss.kind ({})", recipe.at(needs.key), needs.key,
                         fmt::join(needs.kinds, ", "));
    if (std::find(needs.kinds.begin(), needs.kinds.end(), loss.kind) == needs.kinds.end() &&
        !isOverridden(recipe, needs.key, "loss.kind"))
      return plan::error("{}{} does not apply to {}; it belongs to {}", recipe.at(needs.key), needs.key, loss.kind,
                         fmt::join(needs.kinds, ", "));
  }
  if (!loss.kind.empty() && loss.target.empty())
    return plan::error("{}loss.kind needs loss.target: the graph input, or data column, that it compares with",
                       recipe.at("loss.kind"));
  if (loss.reduction == "batchmean" && loss.kind != "kl_div")
    return plan::error("{}loss.reduction \"batchmean\" belongs to kl_div", recipe.at("loss.reduction"));
  const ScheduleSettings &schedule = recipe.schedule;
  auto given = [&](const char *name) { return schedule.numbers.count(name) != 0; };
  const std::string kindPlace = recipe.at("schedule.kind");
  if (schedule.kind == "step" && !given("step_size"))
    return plan::error("{}schedule.kind \"step\" needs schedule.step_size", kindPlace);
  if (schedule.kind == "multi_step" && schedule.milestones.empty())
    return plan::error("{}schedule.kind \"multi_step\" needs schedule.milestones", kindPlace);
  if (schedule.kind == "exponential" && !given("gamma"))
    return plan::error("{}schedule.kind \"exponential\" needs schedule.gamma", kindPlace);
  if (schedule.kind == "one_cycle" && given("warmup_steps"))
    return plan::error("{}schedule.kind \"one_cycle\" warms up by itself: remove schedule.warmup_steps",
                       recipe.at("schedule.warmup_steps"));
  const Needs scheduleTable[] = {
      {"schedule.min_lr_scale", {"linear", "cosine", "polynomial"}},
      {"schedule.floor", {"polynomial"}},
      {"schedule.power", {"polynomial"}},
      {"schedule.step_size", {"step"}},
      {"schedule.milestones", {"multi_step"}},
      {"schedule.gamma", {"step", "multi_step", "exponential"}},
      {"schedule.pct_start", {"one_cycle"}},
      {"schedule.div_factor", {"one_cycle"}},
      {"schedule.final_div_factor", {"one_cycle"}},
      {"schedule.base_momentum", {"one_cycle"}},
      {"schedule.max_momentum", {"one_cycle"}},
      {"schedule.cycle_momentum", {"one_cycle"}},
  };
  for (const Needs &needs : scheduleTable)
    if (recipe.where.count(needs.key) && !isOverridden(recipe, needs.key, "schedule.kind") &&
        std::find(needs.kinds.begin(), needs.kinds.end(), schedule.kind) == needs.kinds.end())
      return plan::error("{}{} does not apply to {}; it belongs to {}", recipe.at(needs.key), needs.key, schedule.kind,
                         fmt::join(needs.kinds, ", "));
  return Status::success();
}

} // namespace tcc::recipe

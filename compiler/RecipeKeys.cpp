//===- RecipeKeys.cpp - the table of recipe keys --------------------------===//
#include "compiler/RecipeKeys.h"
#include "compiler/RecipeReaders.h"


namespace tcc::recipe {
namespace {

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
Setter optimizerFlag(std::string name) {
  return [=](Recipe &recipe, const toml::node &node) {
    bool on = false;
    Status status = readBool(node, on);
    if (on)
      recipe.optimizer.flags.insert(name);
    else
      recipe.optimizer.flags.erase(name);
    return status;
  };
}
std::vector<std::string> kindNames() {
  std::vector<std::string> names;
  for (const OptimizerKind &kind : optimizerKinds())
    names.push_back(kind.name);
  return names;
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

Status setNewtonSchulz(Recipe &recipe, const toml::node &node) {
  std::vector<double> values;
  if (!node.is_array())
    return expected("a list of three numbers", node);
  if (Status status = readNumbers(node, kAny, values); !status.ok())
    return status;
  if (values.size() != 3)
    return plan::error("expected three numbers, found {}", values.size());
  recipe.optimizer.numbers["ns_a"] = values[0];
  recipe.optimizer.numbers["ns_b"] = values[1];
  recipe.optimizer.numbers["ns_c"] = values[2];
  return Status::success();
}

Status setLayerDecay(Recipe &recipe, const toml::node &node) {
  const toml::table *table = node.as_table();
  if (!table)
    return expected("a table with pattern and rate", node);
  LayerDecaySettings decay;
  for (const auto &[name, value] : *table) {
    Status status;
    std::string word;
    if (name == "pattern")
      status = readString(value, decay.pattern);
    else if (name == "rate")
      status = readNumber(value, kPositive, decay.rate);
    else if (name == "before" && (status = readChoice(value, {"off", "on"}, {}, word)).ok())
      decay.beforeFirst = word == "on";
    else if (name != "before")
      status = plan::error("unknown key; layer_decay has pattern, rate and before");
    if (!status.ok())
      return status.withContext(std::string(name.str()));
  }
  size_t at = decay.pattern.find("{}");
  if (at == std::string::npos || decay.pattern.find("{}", at + 2) != std::string::npos || !table->contains("rate"))
    return plan::error("it needs a rate, and a pattern with one {{}} where the layer's number stands, such as "
                       "\"layers.{{}}.\"");
  recipe.optimizer.layerDecay = decay;
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

Status setShapes(Recipe &recipe, const toml::node &node) {
  const toml::table *table = node.as_table();
  if (!table)
    return expected("a table of inputs and their shapes", node);
  for (const auto &[name, value] : *table) {
    if (!value.is_array())
      return expected("a list of integers", value).withContext(std::string(name.str()));
    if (Status status = readIntegers(value, 1, recipe.model.shapes[std::string(name.str())]); !status.ok())
      return status.withContext(std::string(name.str()));
  }
  return Status::success();
}

Status setFix(Recipe &recipe, const toml::node &node) {
  const toml::table *table = node.as_table();
  if (!table)
    return expected("a table of inputs and their values", node);
  for (const auto &[name, value] : *table)
    if (Status status = readFixedValue(value, recipe.model.fix[std::string(name.str())]); !status.ok())
      return status.withContext(std::string(name.str()));
  return Status::success();
}

Status setDropout(Recipe &recipe, const toml::node &node) {
  if (node.is_string()) {
    std::string mode;
    recipe.model.dropout.reset();
    return readChoice(node, {"auto", "as-exported"}, {}, mode);
  }
  return readNumber(node, Range{0, 1, false, true}, recipe.model.dropout.emplace());
}

/// torchvision's sigmoid_focal_loss: −1 is none.
Status setFocalAlpha(Recipe &recipe, const toml::node &node) {
  double alpha = 0;
  if (Status status = readNumber(node, kAny, alpha); !status.ok())
    return status;
  if (alpha != -1 && !kUnit.holds(alpha))
    return plan::error("{} is out of range: a number {}, or -1 for no weight", alpha, kUnit.text());
  recipe.loss.alpha = alpha;
  return Status::success();
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
      {"model.shapes", setShapes},
      {"model.fix", setFix},
      {"evaluate.dims", later},
      {"predict.dims", later},
      {"model.trainable",
       [](Recipe &recipe, const toml::node &node) {
         return readStrings(node, recipe.model.trainable.emplace());
       }},
      {"model.frozen", strings(&Recipe::model, &M::frozen)},
      {"model.stop_gradient", strings(&Recipe::model, &M::stopGradient)},
      {"model.tie", flag(&Recipe::model, &M::tie)},
      {"model.merged", choice(&Recipe::model, &M::merged, {"auto", "split", "keep"})},
      {"model.quantize", choice(&Recipe::model, &M::quantize, {"fixed", "observe"})},
      {"model.batch_norm", choice(&Recipe::model, &M::batchNorm, {"auto", "as-exported", "train"})},
      {"model.dropout", setDropout},

      {"loss.output", text(&Recipe::loss, &L::output)},
      {"loss.kind", choice(&Recipe::loss, &L::kind, lossKinds())},
      {"loss.of", strings(&Recipe::loss, &L::of)},
      {"loss.target", text(&Recipe::loss, &L::target)},
      {"loss.class_axis",
       [](Recipe &recipe, const toml::node &node) {
         return readInteger(node, -8, 8, recipe.loss.classAxis.emplace());
       }},
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
      {"loss.margin",
       [](Recipe &recipe, const toml::node &node) { return readNumber(node, kAny, recipe.loss.margin.emplace()); }},
      {"loss.eps",
       [](Recipe &recipe, const toml::node &node) { return readNumber(node, kPositive, recipe.loss.eps.emplace()); },
       {"loss.epsilon"}},
      {"loss.p", number(&Recipe::loss, &L::p, Range{1, kInfinity})},
      {"loss.swap", flag(&Recipe::loss, &L::swap)},
      {"loss.full", flag(&Recipe::loss, &L::full)},
      {"loss.log_input", flag(&Recipe::loss, &L::logInput)},
      {"loss.alpha", setFocalAlpha},
      {"loss.gamma", number(&Recipe::loss, &L::gamma, kNotNegative)},
      {"loss.smooth", number(&Recipe::loss, &L::smooth, kNotNegative)},
      {"loss.input", choice(&Recipe::loss, &L::input, {"logits", "log_probs", "probs"}), {"loss.from_logits"}},
      {"loss.time_axis",
       [](Recipe &recipe, const toml::node &node) { return readInteger(node, -3, 2, recipe.loss.timeAxis); }},
      {"loss.blank",
       [](Recipe &recipe, const toml::node &node) {
         return readInteger(node, 0, std::numeric_limits<int64_t>::max(), recipe.loss.blank);
       },
       {"loss.blank_label", "loss.blank_id"}},
      {"loss.zero_infinity", flag(&Recipe::loss, &L::zeroInfinity)},
      {"loss.input_lengths", text(&Recipe::loss, &L::inputLengths)},
      {"loss.target_lengths", text(&Recipe::loss, &L::targetLengths)},
      {"loss.max_target_length",
       [](Recipe &recipe, const toml::node &node) {
         return readInteger(node, 1, int64_t(1) << 20, recipe.loss.maxTargetLength.emplace());
       }},

      {"optimizer.kind", choice(&Recipe::optimizer, &O::kind, kindNames()), {"optimizer.type", "optimizer.name"}},
      {"optimizer.lr", optimizerNumber("lr", kNotNegative), {"learning_rate"}},
      {"optimizer.betas", setBetas, {"beta1", "beta2", "adam_beta1", "adam_beta2"}},
      {"optimizer.eps", optimizerNumber("eps", kNotNegative), {"epsilon", "adam_epsilon"}},
      {"optimizer.weight_decay", optimizerNumber("weight_decay", kNotNegative), {"wd", "l2"}},
      {"optimizer.momentum", optimizerNumber("momentum", kNotNegative)},
      {"optimizer.dampening", optimizerNumber("dampening", kAny)},
      {"optimizer.nesterov", flag(&Recipe::optimizer, &O::nesterov)},
      {"optimizer.alpha", optimizerNumber("alpha", kNotNegative)},
      {"optimizer.centered", optimizerFlag("centered")},
      {"optimizer.lr_decay", optimizerNumber("lr_decay", kNotNegative)},
      {"optimizer.initial_accumulator_value", optimizerNumber("initial_accumulator_value", kNotNegative)},
      {"optimizer.amsgrad", optimizerFlag("amsgrad")},
      {"optimizer.maximize", optimizerFlag("maximize")},
      {"optimizer.ns_steps",
       [](Recipe &recipe, const toml::node &node) {
         int64_t steps = 0;
         Status status = readInteger(node, 0, 99, steps);
         recipe.optimizer.numbers["ns_steps"] = double(steps);
         return status;
       }},
      {"optimizer.ns_coefficients", setNewtonSchulz},
      {"optimizer.adjust_lr_fn",
       choice(&Recipe::optimizer, &O::adjustLr, {"original", "match_rms_adamw", "spectral_unclamped"})},
      {"optimizer.decay_exempt", strings(&Recipe::optimizer, &O::decayExempt)},
      {"optimizer.group", setGroups},
      {"optimizer.layer_decay", setLayerDecay},

      {"schedule.kind", choice(&Recipe::schedule, &S::kind,
                               {"constant", "linear", "cosine", "step", "multi_step", "exponential", "polynomial",
                                "inverse_sqrt", "one_cycle"}), {"lr_scheduler", "lr_scheduler_type", "schedule.type", "schedule.name"}},
      {"schedule.warmup_steps", scheduleCount("warmup_steps", 0), {"num_warmup_steps", "warmup"}},
      {"schedule.total_steps", scheduleCount("total_steps", 1), {"num_training_steps", "t_max", "total_iters"}},
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
       },
       {"gradient_accumulation_steps", "grad_accum", "accumulate_grad_batches", "accumulation_steps"}},
      {"train.clip_norm",
       [](Recipe &recipe, const toml::node &node) {
         return readNumber(node, kPositive, recipe.train.clipNorm.emplace());
       },
       {"max_grad_norm", "gradient_clip_val", "grad_clip", "clip_grad_norm", "max_norm"}},
      {"train.clip_value",
       [](Recipe &recipe, const toml::node &node) {
         return readNumber(node, kPositive, recipe.train.clipValue.emplace());
       }},
      {"train.seed",
       [](Recipe &recipe, const toml::node &node) {
         int64_t seed = 0;
         Status status = readInteger(node, 0, std::numeric_limits<int64_t>::max(), seed);
         recipe.train.seed = uint64_t(seed);
         return status;
       }},
      {"train.precision", choice(&Recipe::train, &T::precision, {"f32", "bf16", "auto"}, {"tf32", "f16"}), {"train.dtype", "amp", "mixed_precision"}},
      {"train.ema", later},

      {"checkpoint.every_minutes",
       [](Recipe &recipe, const toml::node &node) {
         return readNumber(node, kNotNegative, recipe.checkpoint.everyMinutes.emplace());
       }},
      {"checkpoint.keep",
       [](Recipe &recipe, const toml::node &node) {
         return readInteger(node, 0, int64_t(1) << 31, recipe.checkpoint.keep.emplace());
       }},
      {"checkpoint.keep_best",
       [](Recipe &recipe, const toml::node &node) { return readBool(node, recipe.checkpoint.keepBest.emplace()); }},

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
      {"data.max_bad",
       [](Recipe &recipe, const toml::node &node) {
         int64_t count = 0;
         Status status = readInteger(node, 0, 1000000000, count);
         recipe.dataSettings["max_bad"] = fmt::format("{}", count);
         return status;
       }},
      {"data.transform", later},

      {"compiler.fuse", [](Recipe &recipe, const toml::node &node) { return readBool(node, recipe.fuse); }},
      {"compiler.chunk_bytes",
       [](Recipe &recipe, const toml::node &node) {
         return readInteger(node, 0, int64_t(1) << 50, recipe.chunkBytes);
       }},
      {"compiler.attention",
       [](Recipe &recipe, const toml::node &node) {
         return readChoice(node, {"auto", "fused", "unfused"}, {}, recipe.attention);
       }},
      {"compiler.overlap", [](Recipe &recipe, const toml::node &node) { return readBool(node, recipe.overlap); }},
      {"compiler.fuse_updates",
       [](Recipe &recipe, const toml::node &node) { return readBool(node, recipe.fuseUpdates); }},
      {"compiler.winograd", [](Recipe &recipe, const toml::node &node) { return readBool(node, recipe.winograd); }},
      {"compiler.pointwise_convolutions",
       [](Recipe &recipe, const toml::node &node) { return readBool(node, recipe.pointwiseConvolutions); }},
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

} // namespace tcc::recipe

//===- RecipeRules.cpp - what kinds take, their defaults, what excludes what ==//
#include "compiler/RecipeKeys.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tcc::recipe {

using plan::Status;

/// True for a key of the file that a kind chosen by --set leaves without meaning: it goes with the kind it was written for.
static bool isOverridden(const Recipe &recipe, const std::string &key, const char *kindKey) {
  auto place = [&](const std::string &name) {
    auto found = recipe.where.find(name);
    return found == recipe.where.end() ? std::string() : found->second;
  };
  return place(kindKey) == "--set" && place(key) != "--set";
}

/// "betas" for beta1: the key that sets a number.
static std::string keyOf(const std::string &number) {
  if (number == "beta1" || number == "beta2")
    return "optimizer.betas";
  if (number == "ns_a" || number == "ns_b" || number == "ns_c")
    return "optimizer.ns_coefficients";
  return "optimizer." + number;
}

Status finishOptimizer(Recipe &recipe) {
  OptimizerSettings &optimizer = recipe.optimizer;
  const OptimizerKind *kind = findOptimizerKind(optimizer.kind);
  if (!kind)
    return plan::error("{}unknown optimizer \"{}\"", recipe.at("optimizer.kind"), optimizer.kind);
  auto refuse = [&](const std::string &key) {
    return plan::error("{}{} does not apply to {}: remove it or choose another optimizer.kind", recipe.at(key), key,
                       optimizer.kind);
  };
  auto overridden = [&](const std::string &key) { return isOverridden(recipe, key, "optimizer.kind"); };
  for (auto number = optimizer.numbers.begin(); number != optimizer.numbers.end();) {
    if (kind->numbers.count(number->first))
      ++number;
    else if (overridden(keyOf(number->first)))
      number = optimizer.numbers.erase(number);
    else
      return refuse(keyOf(number->first));
  }
  for (auto flag = optimizer.flags.begin(); flag != optimizer.flags.end();) {
    if (kind->flags.count(*flag))
      ++flag;
    else if (overridden("optimizer." + *flag))
      flag = optimizer.flags.erase(flag);
    else
      return refuse("optimizer." + *flag);
  }
  if (optimizer.kind != "muon" && recipe.where.count("optimizer.adjust_lr_fn") && !overridden("optimizer.adjust_lr_fn"))
    return refuse("optimizer.adjust_lr_fn");
  if (!kind->flags.count("nesterov") && overridden("optimizer.nesterov"))
    optimizer.nesterov = false;
  if (optimizer.kind == "muon" && !recipe.where.count("optimizer.nesterov"))
    optimizer.nesterov = true;
  if (optimizer.nesterov && !kind->flags.count("nesterov"))
    return refuse("optimizer.nesterov");
  // PyTorch's one_cycle sets the momentum, also of an optimizer that was made without.
  auto cycles = recipe.schedule.numbers.find("cycle_momentum");
  if (recipe.schedule.kind == "one_cycle" && (cycles == recipe.schedule.numbers.end() || cycles->second != 0)) {
    if (!kind->numbers.count("momentum") && !kind->numbers.count("beta1"))
      return plan::error("{}schedule.kind \"one_cycle\" cycles momentum, which {} has not: set schedule.cycle_momentum "
                         "= false",
                         recipe.at("schedule.kind"), optimizer.kind);
    if (kind->numbers.count("momentum") && optimizer.numbers["momentum"] == 0) {
      auto most = recipe.schedule.numbers.find("max_momentum");
      optimizer.numbers["momentum"] = most == recipe.schedule.numbers.end() ? 0.95 : most->second;
    }
  }
  optimizer.numbers.insert(kind->numbers.begin(), kind->numbers.end());
  if (optimizer.kind == "sgd" && optimizer.nesterov &&
      (optimizer.numbers["momentum"] <= 0 || optimizer.numbers["dampening"] != 0))
    return plan::error("{}optimizer.nesterov needs a momentum above 0 and no dampening",
                       recipe.at("optimizer.nesterov"));
  return Status::success();
}

static std::vector<std::string> without(std::vector<std::string> names, const std::string &name) {
  std::erase(names, name);
  return names;
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
      {"loss.of", lossKinds()},
      {"loss.target", without(lossKinds(), "triplet")},
      {"loss.class_axis", {"cross_entropy", "nll", "ctc", "dice"}},
      {"loss.shift", {"cross_entropy", "nll"}},
      {"loss.ignore_index", {"cross_entropy", "nll", "ctc"}},
      {"loss.label_smoothing", {"cross_entropy"}},
      {"loss.weight", {"cross_entropy", "nll", "bce", "bce_with_logits"}},
      {"loss.pos_weight", {"bce_with_logits"}},
      {"loss.reduction", lossKinds()},
      {"loss.delta", {"huber"}},
      {"loss.beta", {"smooth_l1"}},
      {"loss.log_target", {"kl_div"}},
      {"loss.margin", {"cosine_embedding", "triplet", "margin_ranking", "hinge", "hinge_embedding"}},
      {"loss.eps", {"triplet", "poisson_nll", "gaussian_nll"}},
      {"loss.p", {"triplet"}},
      {"loss.swap", {"triplet"}},
      {"loss.full", {"poisson_nll", "gaussian_nll"}},
      {"loss.log_input", {"poisson_nll"}},
      {"loss.alpha", {"focal"}},
      {"loss.gamma", {"focal"}},
      {"loss.smooth", {"dice"}},
      {"loss.input", {"ctc", "dice"}},
      {"loss.time_axis", {"ctc"}},
      {"loss.blank", {"ctc"}},
      {"loss.zero_infinity", {"ctc"}},
      {"loss.input_lengths", {"ctc"}},
      {"loss.target_lengths", {"ctc"}},
      {"loss.max_target_length", {"ctc"}},
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
  if (!loss.kind.empty() && loss.kind != "triplet" && loss.target.empty())
    return plan::error("{}loss.kind needs loss.target: the graph input, or data column, that it compares with",
                       recipe.at("loss.kind"));
  if (loss.kind == "dice" && loss.input == "log_probs")
    return plan::error("{}loss.input \"log_probs\" belongs to ctc; dice takes \"probs\" and \"logits\"",
                       recipe.at("loss.input"));
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

namespace tcc {

const std::vector<std::string> &lossKinds() {
  static const std::vector<std::string> kinds = {
      "cross_entropy", "nll",  "mse",   "l1",   "huber",           "smooth_l1", "bce",   "bce_with_logits", "kl_div",
      "ctc",           "focal", "dice", "cosine_embedding", "triplet",   "margin_ranking", "hinge", "hinge_embedding",
      "poisson_nll",   "gaussian_nll"};
  return kinds;
}

const std::vector<OptimizerKind> &optimizerKinds() {
  static const std::vector<OptimizerKind> kinds = {
      {"sgd",
       {{"lr", 1e-3}, {"momentum", 0}, {"dampening", 0}, {"weight_decay", 0}},
       {"nesterov", "maximize"}},
      {"adam",
       {{"lr", 1e-3}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0}},
       {"amsgrad", "maximize"}},
      {"adamw",
       {{"lr", 1e-3}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 1e-2}},
       {"amsgrad", "maximize"}},
      {"rmsprop",
       {{"lr", 1e-2}, {"alpha", 0.99}, {"eps", 1e-8}, {"weight_decay", 0}, {"momentum", 0}},
       {"centered", "maximize"}},
      {"adagrad",
       {{"lr", 1e-2}, {"lr_decay", 0}, {"weight_decay", 0}, {"initial_accumulator_value", 0}, {"eps", 1e-10}},
       {"maximize"}},
      // The betas are those of AdamW, which updates what is no matrix.
      {"muon",
       {{"lr", 1e-3}, {"weight_decay", 0.1}, {"momentum", 0.95}, {"eps", 1e-7}, {"ns_a", 3.4445}, {"ns_b", -4.7750},
        {"ns_c", 2.0315}, {"ns_steps", 5}, {"beta1", 0.9}, {"beta2", 0.999}},
       {"nesterov"}},
      {"lion", {{"lr", 1e-4}, {"beta1", 0.9}, {"beta2", 0.99}, {"weight_decay", 0}}, {}},
      {"lamb", {{"lr", 1e-3}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-6}, {"weight_decay", 1e-2}}, {}},
  };
  return kinds;
}

const OptimizerKind *findOptimizerKind(const std::string &name) {
  for (const OptimizerKind &kind : optimizerKinds())
    if (kind.name == name)
      return &kind;
  return nullptr;
}

} // namespace tcc

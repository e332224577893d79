//===- Kinds.cpp - losses, optimizers and schedules by name --------------===//
#include "support/recipe/Kinds.h"

#include <algorithm>
#include <initializer_list>

namespace tcc {

namespace {
/// The kind of this name, or null.
template <typename Kind> const Kind *find(const std::vector<Kind> &kinds, std::string_view name) {
  for (const Kind &kind : kinds)
    if (kind.name == name)
      return &kind;
  return nullptr;
}

template <typename Kind> std::vector<std::string> namesOf(const std::vector<Kind> &kinds) {
  std::vector<std::string> names;
  for (const Kind &kind : kinds)
    names.push_back(kind.name);
  return names;
}

/// Names of the kinds whose `list` holds `entry`.
template <typename Kind>
std::vector<std::string> namesWith(const std::vector<Kind> &kinds, std::vector<std::string> Kind::*list,
                                   std::string_view entry) {
  std::vector<std::string> names;
  for (const Kind &kind : kinds)
    if (std::find((kind.*list).begin(), (kind.*list).end(), entry) != (kind.*list).end())
      names.push_back(kind.name);
  return names;
}
/// Names of the kinds that take a key of their section: those that list it, or all if none does.
template <typename Kind> std::vector<std::string> namesTaking(const std::vector<Kind> &kinds, std::string_view key) {
  std::vector<std::string> names = namesWith(kinds, &Kind::keys, key);
  return names.empty() ? namesOf(kinds) : names;
}
} // namespace

const std::vector<LossKind> &lossKinds() {
  using enum LossTargetForm;
  static const std::vector<std::string> ofClasses = {"accuracy", "perplexity", "top5", "f1", "auroc"},
                                        ofLabels = {"accuracy", "f1", "auroc"}, ofNumbers = {"mae", "r2"};
  static const std::vector<LossKind> kinds = {
      {"cross_entropy",
       {"target", "class_axis", "shift", "ignore_index", "label_smoothing", "weight"},
       Classes,
       ofClasses},
      {"nll", {"target", "class_axis", "shift", "ignore_index", "weight"}, Classes, ofClasses},
      {"mse", {"target"}, Numbers, ofNumbers},
      {"l1", {"target"}, Numbers, ofNumbers},
      {"huber", {"target", "delta"}, Numbers, ofNumbers},
      {"smooth_l1", {"target", "beta"}, Numbers, ofNumbers},
      {"bce", {"target", "weight"}, Labels, ofLabels},
      {"bce_with_logits", {"target", "weight", "pos_weight"}, Labels, ofLabels, /*logits=*/true},
      {"kl_div", {"target", "log_target"}},
      {"ctc",
       {"target", "class_axis", "ignore_index", "input", "time_axis", "blank", "zero_infinity", "input_lengths",
        "target_lengths", "max_target_length"}},
      {"focal", {"target", "alpha", "gamma"}},
      {"dice", {"target", "class_axis", "smooth", "input"}},
      {"cosine_embedding", {"target", "margin"}},
      {"triplet", {"margin", "eps", "p", "swap"}},
      {"margin_ranking", {"target", "margin"}},
      {"hinge", {"target", "margin"}},
      {"hinge_embedding", {"target", "margin"}},
      {"poisson_nll", {"target", "eps", "full", "log_input"}},
      {"gaussian_nll", {"target", "eps", "full"}},
  };
  return kinds;
}

const LossKind *findLossKind(std::string_view name) { return find(lossKinds(), name); }
std::vector<std::string> lossKindNames() { return namesOf(lossKinds()); }

std::vector<std::string> lossesWithKey(std::string_view key) { return namesTaking(lossKinds(), key); }

bool isClassification(std::string_view lossKind) {
  const LossKind *kind = findLossKind(lossKind);
  return kind && kind->target == LossTargetForm::Classes;
}

/// Flags that are off unless a recipe turns them on.
static std::map<std::string, bool> off(std::initializer_list<const char *> names) {
  std::map<std::string, bool> flags;
  for (const char *name : names)
    flags[name] = false;
  return flags;
}

const std::vector<OptimizerKind> &optimizerKinds() {
  static const std::vector<OptimizerKind> kinds = {
      {"sgd", {{"lr", 1e-3}, {"momentum", 0}, {"dampening", 0}, {"weight_decay", 0}}, off({"nesterov", "maximize"})},
      {"adam",
       {{"lr", 1e-3}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0}},
       off({"amsgrad", "maximize"})},
      {"adamw",
       {{"lr", 1e-3}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 1e-2}},
       off({"amsgrad", "maximize"})},
      {"rmsprop",
       {{"lr", 1e-2}, {"alpha", 0.99}, {"eps", 1e-8}, {"weight_decay", 0}, {"momentum", 0}},
       off({"centered", "maximize"})},
      {"adagrad",
       {{"lr", 1e-2}, {"lr_decay", 0}, {"weight_decay", 0}, {"initial_accumulator_value", 0}, {"eps", 1e-10}},
       off({"maximize"})},
      // The betas are those of AdamW, which updates parameters that are not matrices.
      {"muon",
       {{"lr", 1e-3},
        {"weight_decay", 0.1},
        {"momentum", 0.95},
        {"eps", 1e-7},
        {"ns_a", 3.4445},
        {"ns_b", -4.7750},
        {"ns_c", 2.0315},
        {"ns_steps", 5},
        {"beta1", 0.9},
        {"beta2", 0.999}},
       {{"nesterov", true}},
       {"adjust_lr_fn"}},
      {"lion", {{"lr", 1e-4}, {"beta1", 0.9}, {"beta2", 0.99}, {"weight_decay", 0}}},
      {"lamb", {{"lr", 1e-3}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-6}, {"weight_decay", 1e-2}}},
  };
  return kinds;
}

const OptimizerKind *findOptimizerKind(const std::string &name) { return find(optimizerKinds(), name); }
std::vector<std::string> optimizerKindNames() { return namesOf(optimizerKinds()); }

const std::vector<ScheduleKind> &scheduleKinds() {
  static const std::vector<ScheduleKind> kinds = {
      {"constant"},
      {"linear", {"min_lr_scale"}},
      {"cosine", {"min_lr_scale"}},
      {"one_cycle",
       {"pct_start", "div_factor", "final_div_factor", "base_momentum", "max_momentum", "cycle_momentum"},
       "",
       {"warmup_steps"}},
      {"step", {"step_size", "gamma"}, "step_size"},
      {"multi_step", {"milestones", "gamma"}, "milestones"},
      {"exponential", {"gamma"}, "gamma"},
      {"polynomial", {"min_lr_scale", "floor", "power"}},
      {"inverse_sqrt"},
      {"cosine_warm_restarts", {"t_0", "t_mult", "eta_min"}, "t_0"},
      {"plateau",
       {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps"}},
  };
  return kinds;
}

const ScheduleKind *findScheduleKind(std::string_view name) { return find(scheduleKinds(), name); }
std::vector<std::string> scheduleKindNames() { return namesOf(scheduleKinds()); }

std::vector<std::string> schedulesWithKey(std::string_view key) { return namesTaking(scheduleKinds(), key); }

const std::vector<MetricKind> &metricKinds() {
  static const std::vector<MetricKind> kinds = {
      {"loss", false, false}, {"accuracy", true, false}, {"perplexity", false, false}, {"top5", true, true},
      {"f1", true, true},     {"auroc", true, true},     {"mae", false, true},         {"r2", true, true},
  };
  return kinds;
}

const MetricKind *findMetricKind(std::string_view name) { return find(metricKinds(), name); }
std::vector<std::string> metricKindNames() { return namesOf(metricKinds()); }

std::vector<std::string> lossesWithMetric(std::string_view metric) {
  return namesWith(lossKinds(), &LossKind::metrics, metric);
}

std::string_view metricOfAlias(std::string_view name) {
  return name == "acc" ? "accuracy" : name == "auc" || name == "roc_auc" ? "auroc" : "";
}

bool isGivenByLoss(const MetricKind &metric, std::string_view lossKind) {
  return metric.name == "loss" || (metric.name == "accuracy" && isClassification(lossKind));
}

} // namespace tcc

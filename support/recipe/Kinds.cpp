//===- Kinds.cpp - losses, optimizers and schedules by name --------------===//
#include "support/recipe/Kinds.h"

namespace tcc {

const std::vector<std::string> &lossKinds() {
  static const std::vector<std::string> kinds = {"cross_entropy",
                                                 "nll",
                                                 "mse",
                                                 "l1",
                                                 "huber",
                                                 "smooth_l1",
                                                 "bce",
                                                 "bce_with_logits",
                                                 "kl_div",
                                                 "ctc",
                                                 "focal",
                                                 "dice",
                                                 "cosine_embedding",
                                                 "triplet",
                                                 "margin_ranking",
                                                 "hinge",
                                                 "hinge_embedding",
                                                 "poisson_nll",
                                                 "gaussian_nll"};
  return kinds;
}

bool isClassification(std::string_view lossKind) { return lossKind == "cross_entropy" || lossKind == "nll"; }

const std::vector<OptimizerKind> &optimizerKinds() {
  static const std::vector<OptimizerKind> kinds = {
      {"sgd", {{"lr", 1e-3}, {"momentum", 0}, {"dampening", 0}, {"weight_decay", 0}}, {"nesterov", "maximize"}},
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

std::vector<std::string> optimizerKindNames() {
  std::vector<std::string> names;
  for (const OptimizerKind &kind : optimizerKinds())
    names.push_back(kind.name);
  return names;
}

const std::vector<std::string> &scheduleKinds() {
  static const std::vector<std::string> kinds = {
      "constant",   "linear",       "cosine",              "one_cycle", "step", "multi_step", "exponential",
      "polynomial", "inverse_sqrt", "cosine_warm_restarts", "plateau"};
  return kinds;
}

const std::vector<MetricKind> &metricKinds() {
  static const std::vector<std::string> classes = {"cross_entropy", "nll"}, binary = {"bce", "bce_with_logits"},
                                        either = {"cross_entropy", "nll", "bce", "bce_with_logits"},
                                        regressions = {"mse", "l1", "huber", "smooth_l1"};
  static const std::vector<MetricKind> kinds = {
      {"loss", false, false, {}},      {"accuracy", true, false, either}, {"perplexity", false, false, classes},
      {"top5", true, true, classes},   {"f1", true, true, either},        {"auroc", true, true, either},
      {"mae", false, true, regressions}, {"r2", true, true, regressions},
  };
  return kinds;
}

const MetricKind *findMetricKind(std::string_view name) {
  for (const MetricKind &kind : metricKinds())
    if (kind.name == name)
      return &kind;
  return nullptr;
}

std::string_view metricOfAlias(std::string_view name) {
  return name == "acc" ? "accuracy" : name == "auc" || name == "roc_auc" ? "auroc" : "";
}

std::vector<std::string> metricKindNames() {
  std::vector<std::string> names;
  for (const MetricKind &kind : metricKinds())
    names.push_back(kind.name);
  return names;
}

bool isGivenByLoss(const MetricKind &metric, std::string_view lossKind) {
  return metric.name == "loss" || (metric.name == "accuracy" && isClassification(lossKind));
}

} // namespace tcc

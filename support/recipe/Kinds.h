//===- Kinds.h - losses, optimizers and schedules by name ----------------===//
//
// The names that loss.kind, optimizer.kind and schedule.kind take. What a kind computes is elsewhere: passes/losses/,
// passes/optimizers/, runtime/train/Schedule.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_SUPPORT_RECIPE_KINDS_H
#define TCC_SUPPORT_RECIPE_KINDS_H

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tcc {

/// The built-in losses, in the order of the documentation.
const std::vector<std::string> &lossKinds();

/// True for a loss whose integer target names classes, one of which may be left out (loss.ignore_index).
bool isClassification(std::string_view lossKind);

/// An optimizer's numbers with their defaults (PyTorch's; lion's and lamb's papers'), and its flags.
struct OptimizerKind {
  std::string name;
  std::map<std::string, double> numbers;
  std::set<std::string> flags;
};
const std::vector<OptimizerKind> &optimizerKinds();
/// The kind of this name, or null.
const OptimizerKind *findOptimizerKind(const std::string &name);
std::vector<std::string> optimizerKindNames();

/// The schedules, in the order of LearningSchedule::Kind.
const std::vector<std::string> &scheduleKinds();

/// A number that evaluations compute, for evaluate.metrics. Its name in a run's metrics is "eval_" + name.
struct MetricKind {
  std::string name;
  bool larger;                     ///< a larger value is better
  bool fromPrediction;             ///< computed on the host from the prediction and its target; else from the loss's sums
  std::vector<std::string> losses; ///< kinds of the loss that it belongs to; empty: all
};
const std::vector<MetricKind> &metricKinds();
/// The kind of this name, or null.
const MetricKind *findMetricKind(std::string_view name);
/// "accuracy" for "acc", "auroc" for "auc": the metric that other trainers call `name`; empty if there is none.
std::string_view metricOfAlias(std::string_view name);
std::vector<std::string> metricKindNames();
/// True if every evaluation of that loss has the metric, whether evaluate.metrics names it or not.
bool isGivenByLoss(const MetricKind &metric, std::string_view lossKind);

} // namespace tcc

#endif // TCC_SUPPORT_RECIPE_KINDS_H

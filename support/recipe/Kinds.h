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

/// What a loss's target holds, from which metrics of classes, labels and numbers can be computed.
enum class LossTargetForm {
  Classes, ///< integers that name classes, one of which may be left out (loss.ignore_index)
  Labels,  ///< 0 or 1
  Numbers,
  Other
};

/// A built-in loss, as a recipe speaks of it. Its arithmetic is in passes/losses/.
struct LossKind {
  std::string name;
  /// The keys of [loss] that only this loss and others that list them take. A key that no loss lists is for all.
  std::vector<std::string> keys = {};
  LossTargetForm target = LossTargetForm::Other;
  std::vector<std::string> metrics = {}; ///< those of evaluate.metrics that it has, besides "loss"
  bool logits = false;                   ///< the prediction goes through a sigmoid first
};
/// In the order of the documentation.
const std::vector<LossKind> &lossKinds();
/// The kind of this name, or null.
const LossKind *findLossKind(std::string_view name);
std::vector<std::string> lossKindNames();
/// Names of the losses that list this key of [loss]; of all losses if none lists it.
std::vector<std::string> lossesWithKey(std::string_view key);

/// True for a loss whose integer target names classes, one of which may be left out (loss.ignore_index).
bool isClassification(std::string_view lossKind);

/// An optimizer: its numbers and flags with their defaults (those of PyTorch; for lion and lamb, of their papers), and
/// the keys of [optimizer] that only this optimizer takes.
struct OptimizerKind {
  std::string name;
  std::map<std::string, double> numbers;
  std::map<std::string, bool> flags = {};
  std::set<std::string> keys = {};
};
const std::vector<OptimizerKind> &optimizerKinds();
/// The kind of this name, or null.
const OptimizerKind *findOptimizerKind(const std::string &name);
std::vector<std::string> optimizerKindNames();

/// A schedule. Its formula is in runtime/train/Schedule.
struct ScheduleKind {
  std::string name;
  /// The keys of [schedule] that only this schedule and others that list them take. A key that none lists is for all.
  std::vector<std::string> keys = {};
  std::string needs = {};                   ///< the one of `keys` that must be given; empty: none
  std::vector<std::string> refuses = {};    ///< keys for all that this schedule does not take
};
/// In the order of LearningSchedule::Kind.
const std::vector<ScheduleKind> &scheduleKinds();
/// The kind of this name, or null.
const ScheduleKind *findScheduleKind(std::string_view name);
std::vector<std::string> scheduleKindNames();
/// Names of the schedules that list this key of [schedule]; of all schedules if none lists it.
std::vector<std::string> schedulesWithKey(std::string_view key);

/// A number that evaluations compute, for evaluate.metrics. Its name in a run's metrics is "eval_" + name.
struct MetricKind {
  std::string name;
  bool larger;         ///< a larger value is better
  bool fromPrediction; ///< computed on the host from the prediction and its target; else from the loss's sums
};
const std::vector<MetricKind> &metricKinds();
/// The kind of this name, or null.
const MetricKind *findMetricKind(std::string_view name);
/// "accuracy" for "acc", "auroc" for "auc": the metric that other trainers call `name`; empty if there is none.
std::string_view metricOfAlias(std::string_view name);
std::vector<std::string> metricKindNames();
/// Names of the losses that have the metric; none if all have it.
std::vector<std::string> lossesWithMetric(std::string_view metric);
/// True if every evaluation of that loss has the metric, whether evaluate.metrics names it or not.
bool isGivenByLoss(const MetricKind &metric, std::string_view lossKind);

} // namespace tcc

#endif // TCC_SUPPORT_RECIPE_KINDS_H

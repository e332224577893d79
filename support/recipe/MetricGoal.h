//===- MetricGoal.h - metrics that pick checkpoints, stop runs --*- C++ -*-===//
#ifndef TCC_SUPPORT_RECIPE_METRICGOAL_H
#define TCC_SUPPORT_RECIPE_METRICGOAL_H

#include "support/Status.h"

#include <string>
#include <string_view>
#include <vector>

namespace tcc {

/// A metric, and which values of it are better.
struct MetricGoal {
  std::string name = "eval_loss"; ///< its key in metrics.jsonl: "eval_loss", "ema_eval_f1"
  bool larger = false;

  bool isBetter(double value, double than, double minChange = 0) const {
    return larger ? value > than + minChange : value < than - minChange;
  }
};

/// Reads "accuracy", "eval_accuracy", "ema_eval_f1", "min:NAME" or "max:NAME"; empty text: `usual`. Error (wrong
/// usage): an unknown metric without a direction; `key` is for the message.
Expected<MetricGoal> parseGoal(const std::string &key, const std::string &text, const MetricGoal &usual = {});

/// Error (wrong usage): evaluations do not compute this metric; the message lists the known ones.
Status checkGoal(const std::string &key, const MetricGoal &goal, const std::vector<std::string> &known);

/// The keys that evaluations write to metrics.jsonl, for the kind of the loss and evaluate.metrics; with `averages`
/// also those of averaged weights.
std::vector<std::string> evaluationKeys(std::string_view lossKind, const std::vector<std::string> &metrics,
                                        bool averages);

} // namespace tcc

#endif // TCC_SUPPORT_RECIPE_METRICGOAL_H

//===- Goal.h - metrics that decide about a run --------------------------===//
//
// evaluate.best names the metric of the best checkpoint, evaluate.stop the one that ends training early. What they
// decide follows from the evaluations of the run alone, which metrics.jsonl holds: a resumed run takes it up again.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_GOAL_H
#define TCC_RUNTIME_TRAIN_GOAL_H

#include "runtime/train/Metrics.h"

#include <map>

namespace tcc::runtime {

/// A metric, and which values of it are better.
struct MetricGoal {
  std::string name = "eval_loss"; ///< its key in metrics.jsonl: "eval_loss", "ema_eval_f1"
  bool larger = false;

  bool isBetter(double value, double than, double minChange = 0) const {
    return larger ? value > than + minChange : value < than - minChange;
  }
};

/// Reads "accuracy", "eval_accuracy", "ema_eval_f1", "min:NAME" or "max:NAME"; empty text: `usual`. Error (wrong
/// usage): neither a metric that is known nor a direction; `key` is for the message.
Expected<MetricGoal> parseGoal(const std::string &key, const std::string &text, const MetricGoal &usual = {});

/// Error (wrong usage): evaluations compute no such metric; those that they do are listed.
Status checkGoal(const std::string &key, const MetricGoal &goal, const std::vector<std::string> &known);

/// evaluate.stop.
class EarlyStop {
public:
  EarlyStop(MetricGoal goal, uint64_t patience, double minChange)
      : goal(std::move(goal)), patience(patience), minChange(minChange) {}

  /// Hears of every evaluation, in order. One whose metric isn't finite is no better.
  void hear(uint64_t step, const EvaluationRecord &evaluation);
  /// True once `patience` evaluations in a row were no better than the best before them.
  bool isDue() const { return waited >= patience; }
  /// "eval_loss is no better than 0.31 (update 40) since 5 evaluations".
  std::string text() const;

private:
  MetricGoal goal;
  uint64_t patience;
  double minChange;
  std::optional<double> best;
  uint64_t bestStep = 0, waited = 0;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_GOAL_H

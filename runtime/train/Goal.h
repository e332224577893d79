//===- Goal.h - early stop and plateau, decided by metrics ---------------===//
//
// evaluate.best names the metric of the best checkpoint, evaluate.stop the one that ends training early. Both depend
// only on the run's evaluations, which metrics.jsonl holds, so a resumed run can reconstruct their state.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_GOAL_H
#define TCC_RUNTIME_TRAIN_GOAL_H

#include "runtime/plan/plan.pb.h"
#include "runtime/state/Manifest.h"
#include "runtime/train/Metrics.h"
#include "support/recipe/MetricGoal.h"

namespace tcc::runtime {

/// evaluate.stop.
class EarlyStop {
public:
  EarlyStop(MetricGoal goal, uint64_t patience, double minChange)
      : goal(std::move(goal)), patience(patience), minChange(minChange) {}

  /// Called with every evaluation, in order. One whose metric is not finite counts as no better.
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

/// schedule.kind = "plateau" is PyTorch's ReduceLROnPlateau: evaluations decide when the rate is reduced. Checkpoints
/// hold the state (PlateauState); the rate follows from the number of reductions (LearningSchedule::rate).
class Plateau {
public:
  /// `metric`: that of evaluate.best.
  Plateau(const plan::Schedule &schedule, MetricGoal metric);

  const MetricGoal &goal() const { return metric; }

  /// The state of a run at update `step`: `before`, or a new state if there is none or it followed another metric.
  PlateauState begin(const std::optional<PlateauState> &before, uint64_t step) const;

  /// Updates the state by the evaluation after update `step`, unless it already was. True: the rate is reduced.
  bool hear(uint64_t step, const EvaluationRecord &evaluation, PlateauState &state) const;

private:
  bool isBetter(double value, double than) const;

  MetricGoal metric;
  uint64_t patience = 0, cooldown = 0;
  double threshold = 0;
  bool absolute = false; ///< threshold_mode = "abs"
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_GOAL_H

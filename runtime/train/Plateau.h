//===- Plateau.h - reduce the learning rate on a plateau -----------------===//
//
// schedule.kind = "plateau" is PyTorch's ReduceLROnPlateau: evaluations decide when the rate is reduced. Checkpoints
// hold the state (PlateauState); the rate follows from the number of reductions (LearningSchedule::rate).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_PLATEAU_H
#define TCC_RUNTIME_TRAIN_PLATEAU_H

#include "runtime/plan/plan.pb.h"
#include "runtime/state/Manifest.h"
#include "runtime/train/Goal.h"

namespace tcc::runtime {

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

#endif // TCC_RUNTIME_TRAIN_PLATEAU_H

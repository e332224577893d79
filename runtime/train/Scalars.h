//===- Scalars.h - the numbers that change from update to update ---------===//
//
// A plan lists by name the scalars that its optimizer reads (docs/design/plan-format.md, "Entries and scalars"). They
// are computed here in double, the way PyTorch does in Python, and rounded once to f32.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_SCALARS_H
#define TCC_RUNTIME_TRAIN_SCALARS_H

#include "runtime/train/AverageRule.h"
#include "runtime/train/Schedule.h"

#include <optional>
#include <span>

namespace tcc::runtime {

class ScalarBlock {
public:
  /// Error: a name that this version does not know, or of a group that is not there.
  static Expected<ScalarBlock> create(const plan::Training &training, LearningSchedule schedule);

  size_t size() const { return items.size(); }

  /// Values for the applied update `update` (from 1) at a point of the schedule, in the plan's order; `out` has size()
  /// elements. `lossScale`: the factor of the loss; by default the first one. Allocates nothing.
  void compute(uint64_t update, SchedulePoint at, std::span<float> out, std::optional<double> lossScale = {}) const;

  /// The learning rate of a group with lr_scale 1, for the metrics.
  double learningRate(SchedulePoint at) const { return schedule.rate(rate, at); }

private:
  enum class Name {
    GroupRate,
    GroupWeightDecay,
    GroupDecay,
    GroupStepSize,
    Beta1,
    OneMinusBeta1,
    Beta2,
    OneMinusBeta2,
    Eps,
    BiasCorrection2Sqrt,
    Momentum,
    OneMinusDampening,
    FirstUpdate,
    ClipNorm,
    GroupDecayedRate,
    Alpha,
    OneMinusAlpha,
    OneMinusMomentum,
    BiasCorrection1,
    EmaDecay,
    EmaRest,
    LossScale
  };
  struct Item {
    Name name;
    double scale = 1, decay = 0; ///< of the group
    uint64_t skipped = 0;        ///< bits of the stages whose updates do not count
  };
  /// Of `update`, those that stages with these bits made.
  uint64_t updatesIn(uint64_t stages, uint64_t update) const;

  explicit ScalarBlock(LearningSchedule schedule) : schedule(std::move(schedule)) {}

  LearningSchedule schedule;
  std::vector<Item> items;
  double rate = 0, beta1 = 0, beta2 = 0, eps = 0, momentum = 0, dampening = 0, clipNorm = 0;
  double alpha = 0, rateDecay = 0, firstScale = 1;
  AverageRule average;
  std::vector<uint64_t> stageEnds; ///< the last updates of all stages but the last
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_SCALARS_H

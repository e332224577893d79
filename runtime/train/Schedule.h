//===- Schedule.h - the learning rate as a function of the update --------===//
//
// A schedule gives the learning rate from the update's number, and on a plateau from how often the rate was reduced:
// nothing else is accumulated, so a resumed run has the same rates. Formulas are those of docs/guide/recipe.md;
// one_cycle, cosine_warm_restarts and plateau are PyTorch's OneCycleLR, CosineAnnealingWarmRestarts and
// ReduceLROnPlateau.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_SCHEDULE_H
#define TCC_RUNTIME_TRAIN_SCHEDULE_H

#include "runtime/plan/plan.pb.h"
#include "support/Status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tcc::runtime {

/// A position in a schedule.
struct SchedulePoint {
  uint64_t count;          ///< updates, or epochs, before
  uint64_t reductions = 0; ///< of a rate on a plateau

  SchedulePoint(uint64_t count, uint64_t reductions = 0) : count(count), reductions(reductions) {}
};

class LearningSchedule {
public:
  /// `runTotal` is the run's length in the schedule's unit (updates, or epochs where per is "epoch"); it counts where
  /// the schedule names no total_steps of its own. Milestones are the numbers `milestone.0`, `milestone.1`, …; floor =
  /// "clamp" is the number floor_clamp = 1. Errors: unknown kind; a number that the kind needs is missing or senseless.
  static Expected<LearningSchedule> create(const plan::Schedule &schedule, double runTotal);

  /// Factor of the learning rate at count t (updates, or epochs, from 0); of kinds that know the rate itself that of
  /// their warm-up.
  double factor(uint64_t t) const;

  /// The learning rate of a group that has the rate `base` without a schedule.
  double rate(double base, SchedulePoint at) const;
  /// The rate is `factor` times the base; else it ends at a rate of its own, and the factors of groups differ.
  bool isFactor() const { return kind != Kind::WarmRestarts && kind != Kind::Plateau; }

  bool followsEvaluations() const { return kind == Kind::Plateau; }

  /// one_cycle's momentum (Adam: first beta) at count t; nothing for other kinds.
  std::optional<double> momentum(uint64_t t) const;

  bool perEpoch() const { return epochs; }
  double totalSteps() const { return total; }

private:
  enum class Kind {
    Constant,
    Linear,
    Cosine,
    OneCycle,
    Step,
    MultiStep,
    Exponential,
    Polynomial,
    InverseSqrt,
    WarmRestarts,
    Plateau
  };
  double decayed(double u) const;
  double oneCycle(double t, double initial, double peak, double last) const;
  double restarted(double base, double u) const;
  double reduced(double base, uint64_t reductions) const;

  Kind kind = Kind::Constant;
  bool epochs = false, warmupFromZero = false, clamp = false, cycleMomentum = true;
  double total = 0, warmup = 0, least = 0, power = 1, gamma = 0.1, stepSize = 1;
  double percentStart = 0.3, divide = 25, divideFinal = 1e4, baseMomentum = 0.85, mostMomentum = 0.95;
  double firstCycle = 1, cycleGrowth = 1, leastRate = 0, reduction = 0.1, leastChange = 1e-8;
  std::vector<double> milestones;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_SCHEDULE_H

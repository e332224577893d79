//===- Schedule.h - the learning rate as a function of the update --------===//
//
// A schedule computes the learning rate from the update's number (for plateau, also from the number of reductions).
// Nothing else is accumulated, so a resumed run has the same rates. The formulas are in docs/guide/recipe.md;
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
  uint64_t count;          ///< number of updates (or epochs) before this one
  uint64_t reductions = 0; ///< of the rate so far, for plateau

  SchedulePoint(uint64_t count, uint64_t reductions = 0) : count(count), reductions(reductions) {}
};

class LearningSchedule {
public:
  /// `runTotal` is the run's length in the schedule's unit (updates, or epochs if per is "epoch"); it is used if the
  /// schedule has no total_steps. Milestones are the numbers `milestone.0`, `milestone.1`, …; floor = "clamp" is the
  /// number floor_clamp = 1. Errors: unknown kind; a number that the kind needs is missing or invalid.
  static Expected<LearningSchedule> create(const plan::Schedule &schedule, double runTotal);

  /// Factor of the learning rate at count t (updates, or epochs, from 0). For kinds whose rate is not a multiple of the
  /// base (isFactor), only the factor of their warm-up.
  double factor(uint64_t t) const;

  /// The learning rate of a group whose rate without a schedule is `base`.
  double rate(double base, SchedulePoint at) const;
  /// True if the rate is `factor` times the base. Other kinds end at an absolute rate, so the factors of groups differ.
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
  double total = 0, warmup = 0, least = 0, power = 0, gamma = 0, stepSize = 0;
  double percentStart = 0, divide = 0, divideFinal = 0, baseMomentum = 0, mostMomentum = 0;
  double firstCycle = 0, cycleGrowth = 0, leastRate = 0, reduction = 0, leastChange = 0;
  std::vector<double> milestones;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_SCHEDULE_H

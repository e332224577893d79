//===- Schedule.h - the learning rate as a function of the update --------===//
//
// A schedule is a factor of the learning rate, computed anew from the update's number: nothing is accumulated, so a
// resumed run has the same rates. Formulas are those of docs/recipe; one_cycle is PyTorch's OneCycleLR.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_SCHEDULE_H
#define TCC_RUNTIME_TRAIN_SCHEDULE_H

#include "support/Status.h"
#include "runtime/plan/plan.pb.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tcc::runtime {

class LearningSchedule {
public:
  /// `runTotal` is the run's length in the schedule's unit (updates, or epochs where per is "epoch"); it counts where
  /// the schedule names no total_steps of its own. Milestones are the numbers `milestone.0`, `milestone.1`, …; floor =
  /// "clamp" is the number floor_clamp = 1. Errors: unknown kind; a number that the kind needs is missing or senseless.
  static Expected<LearningSchedule> create(const plan::Schedule &schedule, double runTotal);

  /// Factor of the learning rate at count t (updates, or epochs, from 0).
  double factor(uint64_t t) const;

  /// one_cycle's momentum (Adam: first beta) at count t; nothing for other kinds.
  std::optional<double> momentum(uint64_t t) const;

  bool perEpoch() const { return epochs; }
  double totalSteps() const { return total; }

private:
  enum class Kind { Constant, Linear, Cosine, OneCycle, Step, MultiStep, Exponential, Polynomial, InverseSqrt };
  double decayed(double u) const;
  double oneCycle(double t, double initial, double peak, double last) const;

  Kind kind = Kind::Constant;
  bool epochs = false, warmupFromZero = false, clamp = false, cycleMomentum = true;
  double total = 0, warmup = 0, least = 0, power = 1, gamma = 0.1, stepSize = 1;
  double percentStart = 0.3, divide = 25, divideFinal = 1e4, baseMomentum = 0.85, mostMomentum = 0.95;
  std::vector<double> milestones;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_SCHEDULE_H

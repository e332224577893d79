//===- AverageRule.h - the decay of a moving average, by update ----------===//
#ifndef TCC_RUNTIME_TRAIN_AVERAGERULE_H
#define TCC_RUNTIME_TRAIN_AVERAGERULE_H

#include "runtime/plan/plan.pb.h"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace tcc::runtime {

/// The factors of e ← d·e + (1 − d)·w. They follow from the update's number alone, so a resume needs no further state.
class AverageRule {
public:
  AverageRule() = default;
  explicit AverageRule(const plan::Ema &ema)
      : decay(ema.decay()), every(std::max<uint64_t>(ema.every(), 1)), warmup(ema.warmup()) {}

  /// d of update `update`, counted from 1; nothing if that update does not change the average. The n-th average has
  /// d = min(decay, (1 + n)/(warmup + n)): with warmup = 10 as TensorFlow's ExponentialMovingAverage with num_updates,
  /// without warm-up the decay itself.
  std::optional<double> decayAt(uint64_t update) const {
    if (update % every != 0)
      return std::nullopt;
    auto n = static_cast<double>(update / every);
    return std::min(decay, (1 + n) / (static_cast<double>(warmup) + n));
  }

private:
  double decay = 0;
  uint64_t every = 1, warmup = 0;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_AVERAGERULE_H

//===- LossScale.h - the factor of the loss in the backward pass ----------===//
//
// Gradients in f16 below 6·10⁻⁸ are zero, so the loss is multiplied before they are derived (Micikevicius et al., "Mixed
// precision training", arXiv:1710.03740, section 3.2). The factor follows torch.amp.GradScaler: it shrinks when a gradient
// is not finite, and grows after a number of updates without that. Whether an update is applied the plan decides, by the
// gradients' norm; here the host draws the conclusion for the next one.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_LOSSSCALE_H
#define TCC_RUNTIME_TRAIN_LOSSSCALE_H

#include "runtime/plan/plan.pb.h"
#include "runtime/state/Manifest.h"

namespace tcc::runtime {

/// A run ends when so many updates in a row were skipped although a smaller factor could not have helped: it was at most
/// 1, or is fixed.
constexpr uint64_t kMostHopelessUpdates = 10;

/// The state that a run begins with.
LossScaleState firstLossScale(const plan::LossScale &rule);

/// After an update that was applied.
void noteApplied(const plan::LossScale &rule, LossScaleState &state);

/// After an update that was skipped since a gradient is not finite; of several optimizers, after a round in which one
/// was. `wholly`: no weight changed. False, and the state stays: the run should end.
bool noteSkipped(const plan::LossScale &rule, LossScaleState &state, bool wholly = true);

/// Updates that changed the weights, of `steps`.
inline uint64_t appliedUpdates(uint64_t steps, const std::optional<LossScaleState> &state) {
  return steps - (state ? state->skipped : 0);
}

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_LOSSSCALE_H

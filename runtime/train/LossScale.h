//===- LossScale.h - the factor of the loss in the backward pass ----------===//
//
// Gradients below 6·10⁻⁸ are zero in f16, so the loss is multiplied by a factor before the backward pass (Micikevicius
// et al., "Mixed precision training", arXiv:1710.03740, section 3.2). The factor follows torch.amp.GradScaler: it
// shrinks when a gradient is not finite, and grows after a number of updates without that. The plan decides by the
// gradients' norm whether an update is applied; the host computes the factor of the next one here.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_LOSSSCALE_H
#define TCC_RUNTIME_TRAIN_LOSSSCALE_H

#include "runtime/plan/plan.pb.h"
#include "runtime/state/Manifest.h"

namespace tcc::runtime {

/// A run ends when this many updates in a row were skipped although a smaller factor could not have helped, because it
/// was at most 1 or is fixed.
constexpr uint64_t kMostHopelessUpdates = 10;

/// The state at the start of a run.
LossScaleState firstLossScale(const plan::LossScale &rule);

/// After an update that was applied.
void noteApplied(const plan::LossScale &rule, LossScaleState &state);

/// After an update that was skipped because a gradient is not finite; with several optimizers, after a round in which
/// one was skipped. `wholly`: no weight changed. False: the run should end; the state is unchanged.
bool noteSkipped(const plan::LossScale &rule, LossScaleState &state, bool wholly = true);

/// Of `steps` updates, the number that changed the weights.
inline uint64_t appliedUpdates(uint64_t steps, const std::optional<LossScaleState> &state) {
  return steps - (state ? state->skipped : 0);
}

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_LOSSSCALE_H

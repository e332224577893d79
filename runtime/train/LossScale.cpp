//===- LossScale.cpp - the factor of the loss in the backward pass --------===//
#include "runtime/train/LossScale.h"

#include <cmath>

using namespace tcc;
using namespace tcc::runtime;

/// The factor is an f32, in torch and in the plan's scalars.
static double rounded(double value) { return static_cast<double>(static_cast<float>(value)); }

LossScaleState tcc::runtime::firstLossScale(const plan::LossScale &rule) {
  LossScaleState state;
  state.scale = rounded(rule.init_scale());
  return state;
}

void tcc::runtime::noteApplied(const plan::LossScale &rule, LossScaleState &state) {
  state.hopeless = 0;
  if (!rule.dynamic() || ++state.growthTracker < rule.growth_interval())
    return;
  state.growthTracker = 0;
  if (const double grown = rounded(state.scale * rule.growth_factor()); std::isfinite(grown))
    state.scale = grown;
}

bool tcc::runtime::noteSkipped(const plan::LossScale &rule, LossScaleState &state, bool wholly) {
  const bool hopeless = !rule.dynamic() || state.scale <= 1;
  if (hopeless && state.hopeless + 1 >= kMostHopelessUpdates)
    return false;
  state.hopeless = hopeless ? state.hopeless + 1 : 0;
  state.skipped += wholly;
  if (rule.dynamic()) {
    state.scale = rounded(state.scale * rule.backoff_factor());
    state.growthTracker = 0;
  }
  return true;
}

//===- Plateau.cpp - reduce the learning rate on a plateau ---------------===//
#include "runtime/train/Plateau.h"

#include <cmath>

using namespace tcc;
using namespace tcc::runtime;

Plateau::Plateau(const plan::Schedule &schedule, MetricGoal given) : metric(std::move(given)) {
  const auto &numbers = schedule.numbers();
  auto number = [&](const char *name, double fallback) {
    auto found = numbers.find(name);
    return found == numbers.end() ? fallback : found->second;
  };
  metric.larger = number("mode_max", metric.larger ? 1 : 0) != 0;
  patience = static_cast<uint64_t>(number("patience", 10));
  cooldown = static_cast<uint64_t>(number("cooldown", 0));
  threshold = number("threshold", 1e-4);
  absolute = number("threshold_abs", 0) != 0;
}

PlateauState Plateau::begin(const std::optional<PlateauState> &before, uint64_t step) const {
  if (before && before->metric == metric.name)
    return *before;
  PlateauState state;
  state.metric = metric.name;
  state.reductions = before ? before->reductions : 0;
  state.heard = step == 0 ? 0 : step - 1;
  return state;
}

/// In PyTorch's order of operations.
bool Plateau::isBetter(double value, double than) const {
  if (metric.larger)
    return value > (absolute ? than + threshold : than * (threshold + 1.0));
  return value < (absolute ? than - threshold : than * (1.0 - threshold));
}

bool Plateau::hear(uint64_t step, const EvaluationRecord &evaluation, PlateauState &state) const {
  if (step <= state.heard)
    return false;
  state.heard = step;
  // As in PyTorch, a value that is not finite is no better than any other.
  const std::optional<double> value = evaluation.find(metric.name);
  if (value && std::isfinite(*value) && (!state.best || isBetter(*value, *state.best))) {
    state.best = value;
    state.waited = 0;
  } else {
    ++state.waited;
  }
  if (state.cooldown > 0) {
    --state.cooldown;
    state.waited = 0;
  }
  if (state.waited <= patience)
    return false;
  ++state.reductions;
  state.cooldown = cooldown;
  state.waited = 0;
  return true;
}

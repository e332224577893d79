//===- Goal.cpp - early stop and plateau, decided by metrics -------------===//
#include "runtime/train/Goal.h"
#include "runtime/plan/SettingFields.h"

#include <cmath>
#include <fmt/format.h>

using namespace tcc;
using namespace tcc::runtime;

void EarlyStop::hear(uint64_t step, const EvaluationRecord &evaluation) {
  std::optional<double> value = evaluation.find(goal.name);
  if (value && std::isfinite(*value) && (!best || goal.isBetter(*value, *best, minChange))) {
    best = value;
    bestStep = step;
    waited = 0;
  } else {
    ++waited;
  }
}

std::string EarlyStop::text() const {
  std::string since = fmt::format("{} evaluation{}", waited, waited == 1 ? "" : "s");
  if (!best)
    return fmt::format("{} was not finite in {}", goal.name, since);
  return fmt::format("{} is no better than {:.6g} (update {}) since {}", goal.name, *best, bestStep, since);
}

Plateau::Plateau(const plan::Schedule &schedule, MetricGoal given) : metric(std::move(given)) {
  const auto &numbers = schedule.numbers();
  auto number = [&](const char *name) { return plan::numberOr(numbers, "schedule", name); };
  auto isSet = [&](const char *name) { return numbers.contains(name) && numbers.at(name) != 0; };
  if (numbers.contains("mode_max"))
    metric.larger = isSet("mode_max");
  patience = static_cast<uint64_t>(number("patience"));
  cooldown = static_cast<uint64_t>(number("cooldown"));
  threshold = number("threshold");
  absolute = isSet("threshold_abs");
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

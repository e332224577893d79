//===- Goal.cpp - training that ends early -------------------------------===//
#include "runtime/train/Goal.h"

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

//===- CheckpointPolicy.cpp - when to checkpoint, and what to keep -------===//
#include "runtime/train/CheckpointPolicy.h"

#include <algorithm>

using namespace tcc::runtime;

/// Seconds until a failed checkpoint is tried again: a full disk may have space by then.
static constexpr double kRetrySeconds = 60;

bool CheckpointPolicy::isDue(uint64_t step, double now) const {
  if (rules.everySteps != 0 && step % rules.everySteps == 0)
    return true;
  if (failure)
    return now - *failure >= kRetrySeconds;
  return rules.everyMinutes > 0 && now - last >= rules.everyMinutes * 60;
}

std::vector<uint64_t> CheckpointPolicy::expired(std::vector<uint64_t> steps, uint64_t newest,
                                                std::optional<uint64_t> best) const {
  std::erase_if(steps, [&](uint64_t step) { return step > newest; });
  if (rules.keep == 0 || steps.size() <= rules.keep)
    return {};
  std::sort(steps.begin(), steps.end());
  steps.resize(steps.size() - rules.keep);
  if (rules.keepBest && best)
    std::erase(steps, *best);
  return steps;
}

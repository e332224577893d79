//===- Checkpointer.cpp - the checkpoints of one run ---------------------===//
#include "runtime/train/Checkpointer.h"
#include "runtime/state/CheckpointFolder.h"
#include "runtime/train/Metrics.h"

using namespace tcc;
using namespace tcc::runtime;

Checkpointer::Checkpointer(std::string run, const RunRecord &record, const plan::Plan &plan, Device &device, SignalWatch &signals,
                           const CheckpointRules &rules, double now, std::function<void(const std::string &)> warn)
    : run(std::move(run)), record(record), plan(plan), device(device), signals(signals), policy(rules, now), finite(plan, device),
      warn(std::move(warn)) {}

std::string Checkpointer::pathOf(uint64_t step) const { return fmt::format("{}/checkpoints/step-{}", run, step); }

void Checkpointer::resumedFrom(uint64_t step) {
  newest = step;
  signals.setLastWords(fmt::format("the last checkpoint is {}", pathOf(step)));
}

plan::Status Checkpointer::write(const TrainingPosition &position) {
  if (newest == position.step)
    return plan::Status();
  if (auto bad = finite.firstBad())
    return plan::Status(fmt::format("the state after update {} is not finite ('{}'), so it is not kept", position.step,
                                    *bad),
                        plan::kExitNonFinite);
  {
    SignalWatch::Uninterrupted writing;
    if (plan::Status status = writeCheckpoint(run, record, plan, device, position); !status.ok()) {
      policy.failed(monotonicSeconds());
      return status;
    }
    resumedFrom(position.step);
  }
  policy.written(monotonicSeconds());
  prune(position);
  return plan::Status();
}

plan::Status Checkpointer::markBest(const TrainingPosition &position) {
  if (plan::Status status = runtime::markBest(run, position.bestStep, position.bestLoss); !status.ok())
    return status;
  prune(position);
  return plan::Status();
}

void Checkpointer::prune(const TrainingPosition &position) {
  std::optional<uint64_t> best;
  if (position.bestStep != 0)
    best = position.bestStep;
  for (uint64_t step : policy.expired(ownCheckpointSteps(run), position.step, best))
    if (plan::Status status = removeCheckpoint(run, step); !status.ok())
      warn(status.message());
}

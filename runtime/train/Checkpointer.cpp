//===- Checkpointer.cpp - the checkpoints of one run ---------------------===//
#include "runtime/train/Checkpointer.h"
#include "runtime/state/CheckpointFolder.h"
#include "runtime/train/Metrics.h"

#include <algorithm>

using namespace tcc;
using namespace tcc::runtime;

Checkpointer::Checkpointer(std::string run, const RunRecord &record, const plan::Plan &plan, Device &device,
                           const WeightAverages *averages, std::vector<int> replaced, RunControl &control,
                           Communicator *ranks, const CheckpointRules &rules, double now, CheckpointHearers hearers)
    : run(std::move(run)), record(record), plan(plan), device(device), averages(averages),
      replaced(std::move(replaced)), control(control), ranks(ranks), policy(rules, now), finite(plan, device),
      hearers(std::move(hearers)), writer(rules.stagingBytes, device) {}

std::string Checkpointer::pathOf(uint64_t step) const { return fmt::format("{}/checkpoints/step-{}", run, step); }

void Checkpointer::resumedFrom(uint64_t step) {
  newest = step;
  control.setLastCheckpoint(pathOf(step));
}

Status Checkpointer::begin(const TrainingPosition &position, const VariableSums &sums) {
  if (Status status = finish(); !status.ok()) {
    if (status.code() == StatusCode::NonFinite)
      return status;
    hearers.failed(status);
  }
  if (newest == position.step)
    return Status();
  if (ranks && attempted == position.step)
    return attempt;
  if (position.bestStep != 0)
    best = position.bestStep;
  // If the device copies its state itself, the bytes are available only while the file is written.
  const bool atWriting = writer.copiesState();
  auto write = [this, position, atWriting](std::vector<CheckpointTensor> tensors) {
    RunControl::Writing writing(control);
    if (atWriting)
      finite.guard(tensors, position.step);
    auto bytes = writeCheckpoint(run, record, position, std::move(tensors), ranks);
    if (bytes && rank() == 0)
      control.setLastCheckpoint(pathOf(position.step));
    return bytes;
  };
  policy.begun(monotonicSeconds());
  std::vector<CheckpointTensor> tensors = checkpointTensors(
      plan, device, averages ? std::span(averages->hostState()) : std::span<const HostState>(), replaced, rank());
  for (CheckpointTensor &tensor : tensors)
    if (tensor.variable && *tensor.variable < sums.size())
      tensor.hash = sums[*tensor.variable];
  if (!atWriting)
    finite.guard(tensors, position.step);
  writer.start(position.step, std::move(tensors), std::move(write));
  attempted = position.step;
  return attempt = poll();
}

Status Checkpointer::collect(const std::optional<CheckpointWriter::Result> &result) {
  if (!result)
    return Status();
  if (!result->status.ok()) {
    policy.failed(monotonicSeconds());
    return result->status;
  }
  newest = result->step;
  policy.written();
  if (rank() != 0)
    return Status();
  hearers.written(*result);
  prune(result->step);
  return Status();
}

Status Checkpointer::poll() { return collect(writer.poll()); }
Status Checkpointer::finish() { return collect(writer.wait()); }

Status Checkpointer::markBest(const TrainingPosition &position) {
  if (Status status = runtime::markBest(run, {position.bestStep, position.bestValue, position.bestMetric});
      !status.ok())
    return status;
  best = position.bestStep;
  prune(position.step);
  return Status();
}

void Checkpointer::prune(uint64_t step) {
  for (uint64_t old : policy.expired(ownCheckpointSteps(run), step, best))
    if (Status status = removeCheckpoint(run, old); !status.ok())
      hearers.warn(status.message());
}

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

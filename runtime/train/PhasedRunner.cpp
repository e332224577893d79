//===- PhasedRunner.cpp - one step of several alternating optimizers -----===//
#include "runtime/train/PhasedRunner.h"
#include "runtime/train/LossScale.h"
#include "support/PlanNames.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace tcc;
using namespace tcc::runtime;

Expected<std::unique_ptr<UpdateRunner>> PhasedRunner::create(const Session &session) {
  std::unique_ptr<PhasedRunner> made(new PhasedRunner(session));
  made->mainPhase = static_cast<size_t>(session.training.phases_size());
  for (const plan::Phase &phase : session.training.phases()) {
    const auto number = static_cast<uint64_t>(made->phases.size());
    auto runner = UpdateRunner::create(session, phase.training(), {phase.name(), phase.every(), number});
    if (!runner)
      return runner.status();
    if (phase.every() == 1)
      made->mainPhase = std::min<size_t>(made->mainPhase, number);
    made->phases.push_back(runner.take());
  }
  if (made->mainPhase == made->phases.size())
    return error("{}: no phase of the plan runs at every step; compile again", session.reader.path());
  made->inputs = made->phases.front()->dataEntry();
  auto has = [&](const std::string &name) {
    return std::any_of(made->inputs.inputs().begin(), made->inputs.inputs().end(),
                       [&](const plan::Port &port) { return port.name() == name; });
  };
  for (const auto &phase : made->phases)
    for (const plan::Port &port : phase->dataEntry().inputs())
      if (!has(port.name())) {
        *made->inputs.add_buffers() = phase->dataEntry().buffers(static_cast<int>(port.buffer()));
        plan::Port &added = *made->inputs.add_inputs();
        added = port;
        added.set_buffer(static_cast<uint32_t>(made->inputs.buffers_size() - 1));
      }
  return std::unique_ptr<UpdateRunner>(std::move(made));
}

void PhasedRunner::setSeed(uint64_t seed) {
  for (const auto &phase : phases)
    phase->setSeed(seed);
}

void PhasedRunner::traceTo(Trace::Track *track) {
  for (const auto &phase : phases)
    phase->traceTo(track);
}

Status PhasedRunner::setSchedule(LearningSchedule schedule) {
  for (size_t i = 0; i < phases.size(); ++i) {
    const plan::Phase &phase = session.training.phases(static_cast<int>(i));
    const plan::Schedule &own = phase.training().schedule();
    // A phase's schedule counts its own updates.
    auto made = LearningSchedule::create(
        own, own.per() == "epoch" ? schedule.totalSteps() : std::floor(schedule.totalSteps() / double(phase.every())));
    if (!made)
      return made.status().withContext(fmt::format("phase {}", phase.name()));
    if (Status status = phases[i]->setSchedule(made.take()); !status.ok())
      return status;
  }
  return Status();
}

Status PhasedRunner::run(TrainingPosition &position, Batches &batches, UpdateMetrics &metrics, bool &finite) {
  metrics.phases.resize(phases.size());
  std::vector<PhaseMetrics> parts = std::move(metrics.phases);
  metrics = {};
  failed = phases.size();
  updated = false;
  finite = true;
  size_t overflow = phases.size();
  double overflowNorm = 0;
  for (size_t i = 0; i < phases.size(); ++i) {
    const plan::Phase &phase = session.training.phases(static_cast<int>(i));
    PhaseMetrics &part = parts[i];
    part.name = phase.name();
    part.ran = (position.step + 1) % phase.every() == 0;
    if (!part.ran)
      continue;
    UpdateMetrics own;
    Status status = phases[i]->run(position, batches, own, finite);
    part.loss = own.loss;
    part.learningRate = own.learningRate;
    part.gradientNorm = own.gradientNorm;
    part.skipped = own.skipped;
    const double waited = metrics.dataSeconds + own.dataSeconds;
    if (i == mainPhase || !status.ok() || !finite)
      metrics = own;
    metrics.dataSeconds = waited;
    if (!status.ok() || !finite) {
      failed = i;
      metrics.phases = std::move(parts);
      return status.ok() ? status : status.withContext(fmt::format("phase {}", phase.name()));
    }
    updated |= !own.skipped;
    if (own.skipped && overflow == phases.size()) {
      overflow = i;
      overflowNorm = own.gradientNorm;
    }
  }
  metrics.phases = std::move(parts);
  finite = scaleAfterRound(position, metrics, overflow);
  if (!finite) {
    failed = overflow;
    metrics.gradientNorm = overflowNorm;
  }
  return Status();
}

bool PhasedRunner::scaleAfterRound(TrainingPosition &position, UpdateMetrics &metrics, size_t overflow) {
  if (!position.lossScale || !session.training.has_loss_scale())
    return true;
  LossScaleState &scale = *position.lossScale;
  metrics.overflowed = overflow != phases.size();
  metrics.skipped = !updated;
  bool goesOn = true;
  if (metrics.overflowed)
    goesOn = noteSkipped(session.training.loss_scale(), scale, /*wholly=*/!updated);
  else
    noteApplied(session.training.loss_scale(), scale);
  metrics.skippedUpdates = 0;
  for (PhaseMetrics &part : metrics.phases) {
    auto own = scale.skippedOf.find(part.name);
    if (own == scale.skippedOf.end()) // the first round
      own = scale.skippedOf.emplace(part.name, 0).first;
    uint64_t &skipped = own->second;
    skipped += part.ran && part.skipped && goesOn;
    part.skippedUpdates = skipped;
    metrics.skippedUpdates += part.skippedUpdates;
  }
  return goesOn;
}

bool PhasedRunner::settle() {
  if (failed == phases.size())
    return true;
  return phases[failed]->settle() && !updated;
}

bool PhasedRunner::keepsState(const UpdateMetrics &metrics) const {
  return !updated && failed < phases.size() && phases[failed]->keepsState(metrics);
}

UpdateRunner::Cause PhasedRunner::findNonFinite(TrainingPosition &position, Batches &batches) {
  return failed < phases.size() ? phases[failed]->findNonFinite(position, batches) : Cause();
}

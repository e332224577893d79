//===- Train.cpp - the training loop -------------------------------------===//
//
// An update takes a window of `accumulate` micro-batches (fewer at an epoch's end) and is one run of `step`, or runs of
// `accumulate_first`, `accumulate_next`…, `update`. Its loss is the sum of losses over the sum of weights. Where
// training stands is (step, epoch, micro-batch of the epoch): enough to go on bit for bit.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/Train.h"
#include "runtime/train/Trainer.h"

#include <algorithm>
#include <cmath>
#include <new>

using namespace tcc;
using namespace tcc::runtime;

/// Fills the entry's inputs with the samples of `indices`, and says which damaged ones it left out.
plan::Status Trainer::fillBatch(LossRunner &entry) {
  size_t before = data.reader->damagedSamples().size();
  plan::Status status =
      data.reader->fillSound(indices, BatchReader::Damaged::Replace, data.reader->maskable(), entry.runner.inputs());
  if (data.reader->damagedSamples().size() == before)
    return status;
  for (const auto &[sample, text] : data.reader->damagedSamples())
    if (std::find(position.damagedSamples.begin(), position.damagedSamples.end(), sample) ==
        position.damagedSamples.end()) {
      position.damagedSamples.push_back(sample);
      progress().note(fmt::format("warning: damaged sample {} is left out ({} of data.max_bad = {}): {}", sample,
                                 position.damagedSamples.size(), maxBadOf(session), text));
    }
  return status;
}

plan::Status Trainer::microBatch(LossRunner &entry, uint64_t number, uint64_t inWindow, UpdateMetrics &metrics,
                                 double &sum, double &weight) {
  sampler->batchOf(position.epoch, number, indices);
  entry.runner.setCounters(position.step, inWindow);
  plan::Status status = fillBatch(entry);
  if (!status.ok())
    return status;
  state = step ? State::Partial : State::Window;
  status = entry.runner.run();
  sum += entry.runner.scalarOutput(entry.sum);
  weight += entry.runner.scalarOutput(entry.weight);
  metrics.damaged = position.damagedSamples.size();
  metrics.samples += indices.size();
  metrics.tokens += indices.size() * data.reader->tokensPerSample();
  return status;
}

plan::Status Trainer::update(UpdateMetrics &metrics, bool &finite) {
  uint64_t count = schedule->perEpoch() ? position.epoch : position.step;
  metrics = {};
  metrics.step = position.step + 1;
  metrics.epoch = position.epoch + 1;
  metrics.learningRate = scalars->learningRate(count);
  double sum = 0, weight = 0;
  plan::Status status;
  // A device without memory computes nothing that could be finite or not.
  auto good = [&](double value) { return std::isfinite(value) || !session.hasMemory(); };
  if (step) {
    lastWindow = 1;
    if (!step->runner.scalars().empty())
      scalars->compute(metrics.step, count, step->runner.scalars());
    status = microBatch(*step, position.batch, 0, metrics, sum, weight);
    metrics.gradientNorm = step->runner.scalarOutput(step->norm);
    metrics.loss = sum / weight;
    finite = good(metrics.loss) && good(metrics.gradientNorm);
    if (status.ok())
      state = State::Whole;
    return status;
  }
  lastWindow = std::min(accumulate, sampler->batchesPerEpoch() - position.batch);
  window->save();
  for (uint64_t i = 0; i < lastWindow && status.ok(); ++i)
    status = microBatch(i == 0 ? *first : *next, position.batch + i, i, metrics, sum, weight);
  metrics.loss = sum / weight;
  finite = good(metrics.loss);
  if (!status.ok() || !finite)
    return status;
  if (!updateEntry->scalars().empty())
    scalars->compute(metrics.step, count, updateEntry->scalars());
  state = State::Partial;
  status = updateEntry->run();
  metrics.gradientNorm = updateEntry->scalarOutput(updateEntry->outputIndex("grad_norm"));
  finite = good(metrics.gradientNorm);
  // With accumulation a norm that is not finite changes no state.
  state = !status.ok() ? State::Partial : finite ? State::Whole : State::Window;
  return status;
}

plan::Status Trainer::evaluateNow() {
  if (!evaluateEntry || !session.hasMemory() || evaluated == position.step)
    return plan::Status();
  recorder->flush();
  double start = monotonicSeconds();
  auto result = evaluate(*evaluateEntry, *evalData.reader, [&] { return signals->received() != 0; });
  if (!result)
    return result.status().withContext("evaluation");
  if (!result->complete)
    return plan::Status();
  evaluated = position.step;
  recorder->evaluation(position.step, position.epoch + (position.batch ? 1 : 0), *result, monotonicSeconds() - start);
  progress().note(fmt::format("step {}/{}  eval_loss {:.6g}{}", position.step, totalSteps, result->loss,
                              result->accuracy ? fmt::format("  eval_accuracy {:.4f}", *result->accuracy) : ""));
  bool better = std::isfinite(result->loss) && (position.bestStep == 0 || result->loss < position.bestLoss);
  // Without its checkpoint (the disk was full) it cannot be the best.
  if (!better || checkpoints->last() != position.step)
    return plan::Status();
  position.bestStep = position.step;
  position.bestLoss = result->loss;
  if (plan::Status status = checkpoints->markBest(position); !status.ok())
    progress().note(fmt::format("warning: {}; training goes on", status.message()));
  return plan::Status();
}

plan::Status Trainer::steps() {
  UpdateMetrics metrics;
  uint64_t batches = sampler->batchesPerEpoch();
  double start = monotonicSeconds(), before = start;
  auto isEvaluated = [&] { return options.evalEvery != 0 && position.step % options.evalEvery == 0; };
  // An evaluation that a signal or a crash cut short.
  if (resuming && position.step != 0 && position.step < totalSteps && isEvaluated())
    if (plan::Status status = evaluateNow(); !status.ok())
      return status;
  while (position.step < totalSteps && signals->received() == 0) {
    if (position.batch >= batches) {
      position.batch = 0;
      ++position.epoch;
    }
    bool finite = true;
    if (plan::Status status = update(metrics, finite); !status.ok())
      return status.withContext(fmt::format("step {}", metrics.step));
    if (!finite)
      return stopNonFinite(metrics);
    ++position.step;
    position.batch += lastWindow;
    double now = monotonicSeconds();
    metrics.seconds = now - before;
    before = now;
    recorder->update(metrics, now);
    bool evaluating = evaluateEntry && isEvaluated(), asked = signals->takeRequest();
    if (!evaluating && !asked && !checkpoints->isDue(position.step, now))
      continue;
    if (plan::Status status = checkpointOrWarn(); !status.ok())
      return status;
    if (asked && checkpoints->last() == position.step)
      progress().note("checkpoint: " + checkpoints->pathOf(position.step));
    if (evaluating && signals->received() == 0)
      if (plan::Status status = evaluateNow(); !status.ok())
        return status;
    before = monotonicSeconds();
  }
  if (signals->received() != 0)
    return stopOnSignal();
  if (plan::Status status = finish(); !status.ok())
    return status;
  progress().note(fmt::format("{} updates in {:.1f} s; {}", position.step, monotonicSeconds() - start, run_));
  return plan::Status();
}

plan::Status Trainer::loop() {
  plan::Status status;
  try {
    status = steps();
    if (!status.ok() && status.exitCode() != plan::kExitNonFinite)
      status = stopOnError(status);
  } catch (const std::bad_alloc &) {
    status = stopOnError(plan::error("out of memory"));
  }
  if (!status.ok())
    progress().noteInLog("error: " + status.message());
  return status;
}

plan::Status Trainer::run() {
  for (auto stage : {&Trainer::findEntries, &Trainer::openCheckpoint, &Trainer::openData, &Trainer::initialize,
                     &Trainer::planRun})
    if (plan::Status status = (this->*stage)(); !status.ok())
      return status;
  signals.emplace(fileno(options.messages));
  if (plan::Status status = openRun(); !status.ok())
    return status;
  if (accumulate > 1)
    window.emplace(session.plan(), *session.device);
  report();
  return loop();
}

plan::Status tcc::runtime::train(Session &session, const TrainOptions &options) {
  return Trainer(session, options).run();
}

//===- TrainEnds.cpp - how a training run ends, and what it leaves --------===//
#include "runtime/state/Export.h"
#include "runtime/state/Weights.h"
#include "runtime/train/RunFolder.h"
#include "runtime/train/Trainer.h"

#include <cmath>

using namespace tcc;
using namespace tcc::runtime;

plan::Status Trainer::checkpointAtEnd() {
  if (!session.hasMemory())
    return plan::Status();
  // A checkpoint stands for the updates before it, so their lines must be there too.
  recorder->flush();
  return checkpoints->write(position);
}

plan::Status Trainer::checkpointOrWarn() {
  plan::Status status = checkpointAtEnd();
  if (!status.ok() && status.exitCode() != plan::kExitNonFinite && !warned)
    progress().note(fmt::format("warning: {}; training goes on and tries again{}", status.message(),
                                checkpoints->last() ? "; until then the last one is " +
                                                          checkpoints->pathOf(*checkpoints->last())
                                                    : ""));
  warned = !status.ok();
  return status.exitCode() == plan::kExitNonFinite ? status : plan::Status();
}

std::string Trainer::kept() const {
  if (!checkpoints->last())
    return "no checkpoint had been written";
  return fmt::format("{} holds the state after update {}; go on with: {}", checkpoints->pathOf(*checkpoints->last()),
                     *checkpoints->last(), options.resumeCommand(run_));
}

Trainer::Diagnosis Trainer::findNonFinite(const UpdateMetrics &metrics) {
  // The same micro-batches again. A NaN in the data is to blame before any node that reads it; an infinity may be meant
  // (a mask) and is named beside the node.
  std::string node, input, infinite;
  uint64_t begin = position.batch, end = begin + lastWindow;
  for (uint64_t number = begin; number < end && node.empty() && input.empty(); ++number) {
    LossRunner &entry = step ? *step : number == begin ? *first : *next;
    sampler->batchOf(position.epoch, number, indices);
    if (step && !step->runner.scalars().empty())
      scalars->compute(metrics.step, schedule->perEpoch() ? position.epoch : position.step, step->runner.scalars());
    entry.runner.setCounters(position.step, number - begin);
    if (!data.reader
             ->fillSound(indices, BatchReader::Damaged::Replace, data.reader->maskable(), entry.runner.inputs())
             .ok())
      continue;
    input = data.reader->describeNonFinite(indices, /*infinities=*/false);
    if (input.empty() && infinite.empty())
      infinite = data.reader->describeNonFinite(indices, /*infinities=*/true);
    if (input.empty())
      node = entry.runner.findNonFinite();
  }
  return {node, input, infinite};
}

void Trainer::settleWindow() {
  if (state != State::Window)
    return;
  window->restore();
  state = State::Whole;
}

plan::Status Trainer::stopNonFinite(const UpdateMetrics &metrics) {
  settleWindow();
  // The plan leaves the state alone where the loss is not finite, or the norm where it waits for it (clipping, accumulation):
  // then this is the state of the last good update. Otherwise only the last checkpoint is.
  bool unchanged = !std::isfinite(metrics.loss) || session.training.has_clip_norm() || !step;
  plan::Status status = unchanged ? checkpointAtEnd() : plan::Status();
  Diagnosis found = findNonFinite(metrics);
  std::string what = std::isfinite(metrics.loss) ? fmt::format("the gradient's norm is {}", metrics.gradientNorm)
                                                 : fmt::format("the loss is {}", metrics.loss);
  std::string kept = "training stopped; no checkpoint had been written, --checkpoint-every N keeps some";
  if (checkpoints->last() == position.step)
    kept = fmt::format("training stopped before the update; {} holds the weights before it",
                       checkpoints->pathOf(position.step));
  else if (checkpoints->last())
    kept = fmt::format("training stopped; the last checkpoint is {}", checkpoints->pathOf(*checkpoints->last()));
  if (!status.ok())
    kept += fmt::format(" ({})", status.message());
  std::string seen = found.node.empty() ? "" : fmt::format(", first seen at node '{}'", found.node);
  std::string advice = "try a lower optimizer.lr, a warm-up or train.clip_norm, and look at the data of this step";
  if (!found.input.empty()) {
    seen = fmt::format(", because the data holds a NaN: {}: {}", options.data, found.input);
    advice = "correct the data (`trun data` lists every such sample), or leave it out with --set data.max_bad=N";
  } else if (!found.infinite.empty()) {
    advice = fmt::format("the data holds an infinity: {}: {}; correct it if it is not meant, else {}", options.data,
                         found.infinite, advice);
  }
  std::string text = fmt::format("step {}: {}{}; {}; {}", metrics.step, what, seen, kept, advice);
  return plan::Status(text, plan::kExitNonFinite);
}

plan::Status Trainer::stopOnError(const plan::Status &problem) {
  settleWindow();
  plan::Status written = state == State::Whole ? checkpointAtEnd() : plan::error("an update was interrupted");
  bool told = written.ok() || problem.message().ends_with(written.message());
  return plan::Status(fmt::format("{}; training stopped{}; {}", problem.message(),
                                  told ? "" : fmt::format(" without a checkpoint ({})", written.message()), kept()),
                      problem.exitCode());
}

plan::Status Trainer::release() {
  std::map<std::string, int> byName;
  for (int i = 0; i < session.plan().variables_size(); ++i)
    byName[session.plan().variables(i).name()] = i;
  std::vector<bool> written = writtenVariables(session.plan());
  auto trained = [&](const plan::Variable &variable) -> std::span<const std::byte> {
    int index = byName[variable.name()];
    if (variable.role() != plan::PARAMETER && !written[static_cast<size_t>(index)])
      return {};
    const auto *bytes = static_cast<const std::byte *>(session.device->variableData(static_cast<uint32_t>(index)));
    return {bytes, plan::tensorBytes(variable.type()).value_or(0)};
  };
  // The user's plan may have been overwritten since the start; the run's copy is checked.
  Manifest kept;
  kept.run.plan = record_.plan;
  kept.position = position;
  auto reader = openPlanOf(run_, kept);
  if (!reader)
    return reader.status();
  ExportOptions exportOptions;
  exportOptions.planFolder = session.reader.folder();
  return exportWeights(*reader, trained, run_ + "/model.onnx", exportOptions);
}

plan::Status Trainer::stopOnSignal() {
  int number = signals->received();
  if (plan::Status status = checkpointAtEnd(); !status.ok())
    return status.withContext(fmt::format("stopped by {} after update {}", signalName(number), position.step));
  progress().note(fmt::format("stopped by {} after update {}{}", signalName(number), position.step,
                              session.hasMemory() ? "; " + kept() : ""));
  return recorder->finish();
}

/// The end that was asked for. A checkpoint comes before what may take long or fail; where it cannot be written, the
/// weights alone still may be.
plan::Status Trainer::finish() {
  plan::Status written = checkpointAtEnd();
  if (signals->received() == 0)
    if (plan::Status status = evaluateNow(); !status.ok())
      return status;
  if (signals->received() != 0)
    return stopOnSignal();
  bool hasModel = session.plan().model_payload() >= 0 && session.plan().payloads_size() > 0 && session.hasMemory();
  plan::Status released = options.release && hasModel ? release() : plan::Status();
  for (const plan::Status &status : {written, released})
    if (!status.ok())
      return status;
  return recorder->finish();
}

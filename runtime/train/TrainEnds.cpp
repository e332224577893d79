//===- TrainEnds.cpp - ways in which a training run ends ------------------===//
#include "runtime/state/Export.h"
#include "runtime/state/Weights.h"
#include "runtime/train/LossScale.h"
#include "runtime/train/RunFolder.h"
#include "runtime/train/Trainer.h"
#include "support/AtomicFile.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

using namespace tcc;
using namespace tcc::runtime;

Status Trainer::checkpointAtEnd() {
  if (!writesCheckpoints())
    return Status();
  // A checkpoint stands for the updates before it, so their lines must be there too.
  recorder.flush();
  TraceScope span(track, "checkpoint", "update", run.position.step);
  return checkpoints.write(run.position, comparedSums);
}

Status Trainer::comparedCheckpointAtEnd() {
  Status status = checkReplicas();
  return status.ok() ? checkpointAtEnd() : status;
}

Status Trainer::checkpointOrWarn(bool wait) {
  if (!writesCheckpoints())
    return Status();
  // A checkpoint stands for the updates before it, so their lines must be there too.
  recorder.flush();
  TraceScope span(track, "checkpoint", "update", run.position.step);
  Status status = checkpoints.begin(run.position, comparedSums);
  if (status.ok() && wait)
    status = checkpoints.finish();
  return warnOf(status);
}

Status Trainer::warnOf(const Status &status) {
  if (!status.ok() && status.code() != StatusCode::NonFinite && !warned)
    progress().note(fmt::format(
        "warning: {}; training goes on and tries again{}", status.message(),
        checkpoints.last() ? "; until then the last one is " + checkpoints.pathOf(*checkpoints.last()) : ""));
  warned |= !status.ok();
  return status.code() == StatusCode::NonFinite ? status : Status();
}

std::string Trainer::kept() const {
  if (!checkpoints.last())
    return "no checkpoint had been written";
  if (diverged && compared)
    return fmt::format("the last checkpoint whose state was compared is {}, after update {}; go on with: {}",
                       checkpoints.pathOf(*checkpoints.last()), *checkpoints.last(), options.resumeCommand(run.folder));
  return fmt::format("{} holds the state after update {}; go on with: {}", checkpoints.pathOf(*checkpoints.last()),
                     *checkpoints.last(), options.resumeCommand(run.folder));
}

UpdateRunner::Cause Trainer::causeOnAnyRank(std::string &where) {
  // Each rank examines its own part without the others, unless parameters are sharded: then all ranks rerun together.
  if (!session.shardsParameters())
    session.device->setRanks(nullptr);
  UpdateRunner::Cause own = run.updates->findNonFinite(run.position, *run.batches);
  session.device->setRanks(session.ranks);
  if (session.worldSize() == 1)
    return own;
  using Field = std::string UpdateRunner::Cause::*;
  std::vector<UpdateRunner::Cause> causes(session.worldSize());
  for (Field field : {&UpdateRunner::Cause::node, &UpdateRunner::Cause::nanInput, &UpdateRunner::Cause::infiniteInput}) {
    auto texts = session.ranks->gatherTexts(own.*field);
    if (!texts)
      return own;
    for (size_t rank = 0; rank < causes.size(); ++rank)
      causes[rank].*field = (*texts)[rank];
  }
  auto places = session.ranks->gatherTexts(std::to_string(own.place));
  if (!places)
    return own;
  for (size_t rank = 0; rank < causes.size(); ++rank)
    causes[rank].place = std::strtoull((*places)[rank].c_str(), nullptr, 10);
  std::optional<size_t> first;
  for (Field field :
       {&UpdateRunner::Cause::nanInput, &UpdateRunner::Cause::node, &UpdateRunner::Cause::infiniteInput}) {
    for (size_t rank = 0; rank < causes.size(); ++rank)
      if (!(causes[rank].*field).empty() && (!first || causes[rank].place < causes[*first].place))
        first = rank;
    if (first)
      break;
  }
  if (!first)
    return own;
  where = fmt::format(" on {}", session.ranks->describe(static_cast<uint32_t>(*first)));
  return causes[*first];
}

Status Trainer::stopNonFinite(const UpdateMetrics &metrics) {
  run.updates->settle();
  // If the plan did not change the state, it is that of the last good update; otherwise only the last checkpoint is
  // good.
  Status status = run.updates->keepsState(metrics) ? comparedCheckpointAtEnd() : Status();
  if (diverged) // the cause is not in the data or the recipe, so it is not searched there
    return Status(fmt::format("step {}: the loss is {}, and {}", metrics.step, metrics.loss, status.message()));
  std::string at;
  UpdateRunner::Cause found = causeOnAnyRank(at);
  std::string what = std::isfinite(metrics.loss) ? fmt::format("the gradient's norm is {}", metrics.gradientNorm)
                                                 : fmt::format("the loss is {}", metrics.loss);
  std::string kept = "training stopped; no checkpoint had been written, --checkpoint-every N keeps some";
  if (checkpoints.last() == run.position.step)
    kept = fmt::format("training stopped before the update; {} holds the weights before it",
                       checkpoints.pathOf(run.position.step));
  else if (checkpoints.last())
    kept = fmt::format("training stopped; the last checkpoint is {}", checkpoints.pathOf(*checkpoints.last()));
  if (!status.ok())
    kept += fmt::format(" ({})", status.message());
  std::string seen = found.node.empty() ? at : fmt::format(", first seen at node '{}'{}", found.node, at);
  std::string advice = "try a lower optimizer.lr, a warm-up or train.clip_norm, and look at the data of this step";
  if (metrics.lossScale > 0 && std::isfinite(metrics.loss)) {
    what = fmt::format("the gradient's norm is {} at a loss scale of {:g}, after {} such updates in a row", metrics.gradientNorm,
                       metrics.lossScale, kMostHopelessUpdates - 1);
    advice = "f16 holds no gradient beyond 65504: try --precision bf16, a lower optimizer.lr or a warm-up, and look at the "
             "data of this step";
  }
  if (!found.nanInput.empty()) {
    seen = fmt::format(", because the data holds a NaN: {}: {}{}", options.data, found.nanInput, at);
    advice = "correct the data (`trun data` lists every such sample), or leave it out with --set data.max_bad=N";
  } else if (!found.infiniteInput.empty()) {
    advice = fmt::format("the data holds an infinity: {}: {}; correct it if it is not meant, else {}", options.data,
                         found.infiniteInput, advice);
  }
  // The loss is 0/0, from finite sums.
  if (metrics.lossWeight == 0 && found.nanInput.empty()) {
    const std::string &weights = session.training.sample_weight();
    seen = weights.empty()
               ? ": no target of this update counts, so its loss is 0/0"
               : fmt::format(": the weights of this update's samples (input '{}') times what counts of them "
                             "are 0, so its loss is 0/0",
                             weights);
    advice =
        "leave such samples out of the data, or let an update have more samples: a larger batch, or train.accumulate";
  }
  std::string text = fmt::format("step {}: {}{}; {}; {}", metrics.step, what, seen, kept, advice);
  return Status(text, StatusCode::NonFinite);
}

Status Trainer::stopOnError(const Status &problem) {
  if (!session.leads())
    return problem;
  if (diverged) // complete a checkpoint that is being written, so that the message can name it
    (void)checkpoints.finish();
  Status written = diverged                ? error("the ranks do not agree on the state")
                   : session.isSharded()   ? error("other ranks hold parts of the state")
                   : run.updates->settle() ? checkpointAtEnd()
                                           : error("an update was interrupted");
  bool told = written.ok() || problem.message().ends_with(written.message());
  // The ranks can no longer compare their state, so the message says that the checkpoint holds only rank 0's.
  const bool alone = written.ok() && session.worldSize() > 1 && compared != run.position.step;
  return Status(fmt::format("{}; training stopped{}; {}{}", problem.message(),
                            told ? "" : fmt::format(" without a checkpoint ({})", written.message()), kept(),
                            alone ? " (rank 0's state, which could not be compared with that of the other ranks)" : ""),
                problem.code());
}

Status Trainer::writeTrace() {
  // The threads of the loader and of checkpoints must have ended, because they add spans to the trace.
  (void)checkpoints.finish();
  run.batches.reset();
  if (uint64_t lost = trace->lost())
    progress().note(fmt::format("note: {}: {} later spans found no room; trace a shorter run", options.trace, lost));
  return writeFileAtomically(options.trace, trace->text("trun " + run.folder), OwnFile::Trace);
}

Status Trainer::release() {
  // With sharded parameters only the checkpoint has all of them.
  if (session.shardsParameters()) {
    if (checkpoints.last() != run.position.step)
      return error("{}/model.onnx: not written, since the last checkpoint could not be", run.folder);
    ExportOptions fromRun;
    fromRun.planFolder = session.reader.folder();
    return exportRun(fmt::format("{}@{}", run.folder, run.position.step), run.folder + "/model.onnx", fromRun);
  }
  std::map<std::string, int> byName;
  for (int i = 0; i < session.plan().variables_size(); ++i)
    byName[session.plan().variables(i).name()] = i;
  std::vector<bool> written = writtenVariables(session.plan());
  TrainedValues trained;
  trained.has = [&](const plan::Variable &variable) {
    const int index = byName[variable.name()];
    return variable.role() == plan::PARAMETER || written[static_cast<size_t>(index)] ||
           std::find(session.replaced.begin(), session.replaced.end(), index) != session.replaced.end();
  };
  trained.stream = [&](const plan::Variable &variable, const ByteSink &sink) {
    return session.device->readPieces(Place::variable(static_cast<uint32_t>(byName[variable.name()])), sink);
  };
  // Use the run's copy of the plan, which is checked: the user's may have been overwritten since the start.
  Manifest stored;
  stored.run.plan = run.record.plan;
  stored.run.target = run.record.target;
  stored.position = run.position;
  auto reader = openPlanOf(run.folder, stored);
  if (!reader)
    return reader.status();
  reader->joinShards();
  ExportOptions exportOptions;
  exportOptions.planFolder = session.reader.folder();
  return exportWeights(*reader, trained, run.folder + "/model.onnx", exportOptions);
}

Status Trainer::stopOnRequest() {
  std::string by = signals.received() != 0 ? signalName(signals.received())
                   : endRequested()        ? "--max-time"
                                           : "a signal to another rank";
  if (Status status = comparedCheckpointAtEnd(); !status.ok())
    return status.withContext(fmt::format("stopped by {} after update {}", by, run.position.step));
  if (!session.leads()) {
    progress().note(fmt::format("stopped by {} after update {}", by, run.position.step));
    return Status();
  }
  progress().note(fmt::format("stopped by {} after update {}{}", by, run.position.step,
                              session.computes() ? "; " + kept() : ""));
  recorder.end(run.position.step, by);
  return recorder.finish();
}

/// The planned end of a run. The checkpoint is written first, because later parts may take long or fail. If it cannot
/// be written, the weights alone are still exported.
Status Trainer::finish() {
  Status written = comparedCheckpointAtEnd();
  if (session.worldSize() > 1 || !endRequested())
    if (Status status = evaluateNow(); !status.ok())
      return status;
  if (!session.leads()) { // only rank 0 does the rest
    complete = true;
    return written;
  }
  if (endRequested())
    return stopOnRequest();
  bool hasModel = session.plan().model_payload() >= 0 && session.plan().payloads_size() > 0 && session.computes();
  Status released = options.release.value_or(true) && hasModel ? release() : Status();
  for (const Status &status : {written, released})
    if (!status.ok())
      return status;
  recorder.end(run.position.step, isStopped() ? "evaluate.stop: " + run.stop->text() : "finished");
  complete = true;
  return recorder.finish();
}

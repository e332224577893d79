//===- TrainEnds.cpp - ways in which a training run ends ------------------===//
#include "runtime/state/Export.h"
#include "runtime/state/Weights.h"
#include "runtime/train/LossScale.h"
#include "runtime/train/RunFolder.h"
#include "runtime/train/Trainer.h"
#include "support/Advice.h"
#include "support/AtomicFile.h"

#include <algorithm>
#include <cmath>

using namespace tcc;
using namespace tcc::runtime;

Status Trainer::checkpointAtEnd() {
  if (!writesCheckpoints())
    return Status();
  // A checkpoint stands for the updates before it, so their lines must be there too.
  recorder.flush();
  TraceScope span(track, "checkpoint", "update", run.position.step);
  return checkpoints.write(run.position, ranks.comparedSums());
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
  Status status = checkpoints.begin(run.position, ranks.comparedSums());
  if (status.ok() && wait)
    status = checkpoints.finish();
  return warnOf(status);
}

Status Trainer::warnOf(const Status &status) {
  if (!status.ok() && status.code() != StatusCode::NonFinite && !warned)
    recorder.message(Message::warning(
        "{}; training goes on and tries again{}", status.message(),
        checkpoints.last() ? "; until then the last one is " + checkpoints.pathOf(*checkpoints.last()) : ""));
  warned |= !status.ok();
  return status.code() == StatusCode::NonFinite ? status : Status();
}

std::string Trainer::kept() const {
  if (!options.keepsFiles)
    return "the run keeps no checkpoints";
  if (!checkpoints.last())
    return "no checkpoint had been written";
  if (ranks.diverged() && ranks.comparedStep())
    return fmt::format("the last checkpoint whose state was compared is {}, after update {}; go on with: {}",
                       checkpoints.pathOf(*checkpoints.last()), *checkpoints.last(), advice::resume(run.folder));
  return fmt::format("{} holds the state after update {}; go on with: {}", checkpoints.pathOf(*checkpoints.last()),
                     *checkpoints.last(), advice::resume(run.folder));
}

UpdateRunner::Cause Trainer::causeOnAnyRank(std::string &where) {
  // Each rank examines its own part without the others, unless parameters are sharded: then all ranks rerun together.
  if (!session.shardsParameters())
    session.device->setRanks(nullptr);
  const UpdateRunner::Cause own = run.updates->findNonFinite(run.position, *run.batches);
  session.device->setRanks(session.ranks);
  return ranks.firstCause(own, where);
}

Status Trainer::stopNonFinite(const UpdateMetrics &metrics) {
  run.updates->settle();
  // If the plan did not change the state, it is that of the last good update; otherwise only the last checkpoint is
  // good.
  Status status = run.updates->keepsState(metrics) ? comparedCheckpointAtEnd() : Status();
  if (ranks.diverged()) // the cause is not in the data or the recipe, so it is not searched there
    return Status(fmt::format("step {}: the loss is {}, and {}", metrics.step, metrics.loss, status.message()));
  std::string at;
  UpdateRunner::Cause found = causeOnAnyRank(at);
  std::string what = std::isfinite(metrics.loss) ? fmt::format("the gradient's norm is {}", metrics.gradientNorm)
                                                 : fmt::format("the loss is {}", metrics.loss);
  std::string kept = options.keepsFiles ? fmt::format("training stopped; no checkpoint had been written, {} keeps some",
                                                      advice::option("checkpoint-every", "N"))
                                        : "training stopped";
  if (checkpoints.last() == run.position.step)
    kept = fmt::format("training stopped before the update; {} holds the weights before it",
                       checkpoints.pathOf(run.position.step));
  else if (checkpoints.last())
    kept = fmt::format("training stopped; the last checkpoint is {}", checkpoints.pathOf(*checkpoints.last()));
  if (!status.ok())
    kept += fmt::format(" ({})", status.message());
  std::string seen = found.node.empty() ? at : fmt::format(", first seen at node '{}'{}", found.node, at);
  std::string wayOut = "try a lower optimizer.lr, a warm-up or train.clip_norm, and look at the data of this step";
  if (metrics.lossScale > 0 && std::isfinite(metrics.loss)) {
    what = fmt::format("the gradient's norm is {} at a loss scale of {:g}, after {} such updates in a row", metrics.gradientNorm,
                       metrics.lossScale, kMostHopelessUpdates - 1);
    wayOut = fmt::format("f16 holds no gradient beyond 65504: try {}, a lower optimizer.lr or a warm-up, and look at the "
                         "data of this step",
                         advice::compile("precision", "bf16"));
  }
  if (!found.nanInput.empty()) {
    seen = fmt::format(", because the data holds a NaN: {}: {}{}", options.data, found.nanInput, at);
    wayOut = fmt::format("correct the data (`{}` lists every such sample), or leave it out with {}",
                         advice::command("data"), advice::set("data.max_bad", "N"));
  } else if (!found.infiniteInput.empty()) {
    wayOut = fmt::format("the data holds an infinity: {}: {}; correct it if it is not meant, else {}", options.data,
                         found.infiniteInput, wayOut);
  }
  // The loss is 0/0, from finite sums.
  if (metrics.lossWeight == 0 && found.nanInput.empty()) {
    const std::string &weights = session.training.sample_weight();
    seen = weights.empty()
               ? ": no target of this update counts, so its loss is 0/0"
               : fmt::format(": the weights of this update's samples (input '{}') times what counts of them "
                             "are 0, so its loss is 0/0",
                             weights);
    wayOut =
        "leave such samples out of the data, or let an update have more samples: a larger batch, or train.accumulate";
  }
  std::string text = fmt::format("step {}: {}{}; {}; {}", metrics.step, what, seen, kept, wayOut);
  return Status(text, StatusCode::NonFinite);
}

Status Trainer::stopOnError(const Status &problem) {
  if (!session.leads())
    return problem;
  if (ranks.diverged()) // complete a checkpoint that is being written, so that the message can name it
    (void)checkpoints.finish();
  Status written = ranks.diverged()        ? error("the ranks do not agree on the state")
                   : session.isSharded()    ? error("other ranks hold parts of the state")
                   : !run.updates->settle() ? error("an update was interrupted")
                                            : checkpointAtEnd();
  bool told = written.ok() || problem.message().ends_with(written.message());
  // The ranks can no longer compare their state, so the message says that the checkpoint holds only rank 0's.
  const bool alone = written.ok() && session.worldSize() > 1 && ranks.comparedStep() != run.position.step;
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
    recorder.message(Message::note("{}: {} later spans found no room; trace a shorter run", options.trace, lost));
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
  return exportWeights(*reader, trainedValuesOf(session), run.folder + "/model.onnx", exportOptions);
}

Status Trainer::stopOnRequest() {
  const char *stopper = control.stoppedBy();
  const std::string by = stopper          ? stopper
                         : endRequested() ? advice::option("max-time")
                                          : "a signal to another rank";
  if (Status status = comparedCheckpointAtEnd(); !status.ok())
    return status.withContext(fmt::format("stopped by {} after update {}", by, run.position.step));
  tellEnd(RunEnd::Kind::Stopped, by, session.leads() && session.computes() ? kept() : "");
  return session.leads() ? recorder.finish() : Status();
}

/// The planned end of a run. The checkpoint is written first, because later parts may take long or fail. If it cannot
/// be written, the weights alone are still exported.
Status Trainer::finish() {
  Status written = comparedCheckpointAtEnd();
  if (session.worldSize() > 1 || !endRequested())
    if (Status status = evaluateNow(); !status.ok())
      return status;
  if (session.leads() && endRequested())
    return stopOnRequest();
  // Only rank 0 writes the model.
  const bool hasModel = session.plan().model_payload() >= 0 && session.plan().payloads_size() > 0;
  const bool releases = session.leads() && options.keepsFiles && options.release.value_or(true);
  Status released = releases && hasModel && session.computes() ? release() : Status();
  for (const Status &status : {written, released})
    if (!status.ok())
      return status;
  complete = true;
  tellEnd(isStopped() ? RunEnd::Kind::Early : RunEnd::Kind::Done, isStopped() ? run.stop->text() : "");
  return session.leads() ? recorder.finish() : Status();
}

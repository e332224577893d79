//===- Recorder.cpp - the numbers of one run, on the disk and on the screen ===//
#include "runtime/train/Recorder.h"

using namespace tcc;
using namespace tcc::runtime;

static constexpr double kFlushSeconds = 0.1;

Expected<Recorder> Recorder::open(const std::string &run, Progress progress) {
  auto metrics = MetricsFile::open(run + "/metrics.jsonl");
  if (!metrics)
    return metrics.status();
  auto events = TensorBoardFile::create(run);
  if (!events)
    return events.status();
  if (Status status = progress.openLog(run + "/log.txt"); !status.ok())
    return status;
  return Recorder(std::move(progress), Files{metrics.take(), events.take()});
}

Expected<Recorder> Recorder::openLog(const std::string &log, Progress progress) {
  if (Status status = progress.openLog(log); !status.ok())
    return status;
  return Recorder(std::move(progress), std::nullopt);
}

void Recorder::update(const UpdateMetrics &update, double now) {
  if (!files)
    return screen.update(update);
  TensorBoardFile &events = files->events;
  files->metrics.update(update);
  events.scalar("train/loss", update.step, update.loss);
  for (const LossPart &part : update.losses)
    events.scalar(fmt::format("train/loss/{}", part.name), update.step, part.loss());
  events.scalar("train/lr", update.step, update.learningRate);
  events.scalar("train/grad_norm", update.step, update.gradientNorm);
  if (update.lossScale > 0)
    events.scalar("train/loss_scale", update.step, update.lossScale);
  for (const PhaseMetrics &phase : update.phases)
    if (phase.ran) {
      events.scalar(fmt::format("train/loss.{}", phase.name), update.step, phase.loss);
      events.scalar(fmt::format("train/lr.{}", phase.name), update.step, phase.learningRate);
      events.scalar(fmt::format("train/grad_norm.{}", phase.name), update.step, phase.gradientNorm);
    }
  events.scalar("train/data_seconds", update.step, update.dataSeconds);
  if (now - flushed >= kFlushSeconds)
    flush();
  screen.update(update);
}

void Recorder::checkpoint(const CheckpointWriter::Result &result) {
  screen.noteInLog(fmt::format("checkpoint of update {}: {}, training waited {:.3f} s, durable after {:.3f} s",
                               result.step, formatBytes(result.bytes), result.blockedSeconds, result.writingSeconds));
  if (!files)
    return;
  TensorBoardFile &events = files->events;
  files->metrics.checkpoint(result.step, result.bytes, result.blockedSeconds, result.writingSeconds);
  events.scalar("checkpoint/bytes", result.step, static_cast<double>(result.bytes));
  events.scalar("checkpoint/waited_seconds", result.step, result.blockedSeconds);
  events.scalar("checkpoint/seconds", result.step, result.writingSeconds);
}

void Recorder::evaluation(uint64_t step, uint64_t epoch, const EvaluationRecord &evaluation, double seconds) {
  if (!files)
    return;
  TensorBoardFile &events = files->events;
  files->metrics.evaluation(step, epoch, evaluation, seconds);
  // "eval_loss" → "eval/loss", "ema_eval_loss" → "eval/ema_loss".
  for (const auto &[key, value] : evaluation.values) {
    bool averaged = key.starts_with("ema_");
    events.scalar((averaged ? "eval/ema_" : "eval/") + key.substr(averaged ? 9 : 5), step, value);
  }
  flush();
}

void Recorder::end(uint64_t step, const std::string &reason) {
  if (files)
    files->metrics.end(step, reason);
  (void)tryFlush();
}

Status Recorder::tryFlush() {
  flushed = monotonicSeconds();
  if (!files)
    return Status();
  Status status = files->metrics.file().flush(), others = files->events.file().flush();
  return status.ok() ? others : status;
}

void Recorder::flush() {
  Status status = tryFlush();
  if (!status.ok() && !failing)
    screen.note(fmt::format("warning: {}; training goes on, and lines wait until there is space", status.message()));
  failing = !status.ok();
}

Status Recorder::finish() {
  Status status = tryFlush();
  if (!files)
    return status;
  for (RecordFile *file : {&files->metrics.file(), &files->events.file()})
    if (status.ok() && file->lost() != 0)
      status = error("{}: {} lines are missing: the disk was full, or failed, for too long", file->path(),
                           file->lost());
  return status;
}

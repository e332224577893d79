//===- Recorder.cpp - the numbers of one run, on the disk and on the screen ===//
#include "runtime/train/Recorder.h"

using namespace tcc;
using namespace tcc::runtime;

static constexpr double kFlushSeconds = 0.1;

plan::Expected<Recorder> Recorder::open(const std::string &run, Progress progress) {
  auto metrics = MetricsFile::open(run + "/metrics.jsonl");
  if (!metrics)
    return metrics.status();
  auto events = TensorBoardFile::create(run);
  if (!events)
    return events.status();
  if (plan::Status status = progress.openLog(run + "/log.txt"); !status.ok())
    return status;
  return Recorder(std::move(progress), metrics.take(), events.take());
}

void Recorder::update(const UpdateMetrics &update, double now) {
  metrics.update(update);
  events.scalar("train/loss", update.step, update.loss);
  events.scalar("train/lr", update.step, update.learningRate);
  events.scalar("train/grad_norm", update.step, update.gradientNorm);
  if (now - flushed >= kFlushSeconds)
    flush();
  screen.update(update);
}

void Recorder::evaluation(uint64_t step, uint64_t epoch, const Evaluation &evaluation, double seconds) {
  metrics.evaluation(step, epoch, evaluation.loss, evaluation.accuracy, seconds);
  events.scalar("eval/loss", step, evaluation.loss);
  if (evaluation.accuracy)
    events.scalar("eval/accuracy", step, *evaluation.accuracy);
  flush();
}

plan::Status Recorder::tryFlush() {
  flushed = monotonicSeconds();
  plan::Status status = metrics.file().flush(), others = events.file().flush();
  return status.ok() ? others : status;
}

void Recorder::flush() {
  plan::Status status = tryFlush();
  if (!status.ok() && !failing)
    screen.note(fmt::format("warning: {}; training goes on, and lines wait until there is space", status.message()));
  failing = !status.ok();
}

plan::Status Recorder::finish() {
  plan::Status status = tryFlush();
  for (RecordFile *file : {&metrics.file(), &events.file()})
    if (status.ok() && file->lost() != 0)
      status = plan::error("{}: {} lines are missing: the disk was full, or failed, for too long", file->path(),
                           file->lost());
  return status;
}

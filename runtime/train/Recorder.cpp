//===- Recorder.cpp - the files of one run ---------------------------------===//
#include "runtime/train/Recorder.h"

using namespace tcc;
using namespace tcc::runtime;

static constexpr double kFlushSeconds = 0.1;

Expected<Recorder> Recorder::open(const std::string &run, RecorderOptions options) {
  auto metrics = MetricsFile::open(run + "/metrics.jsonl");
  if (!metrics)
    return metrics.status();
  auto events = TensorBoardFile::create(run);
  if (!events)
    return events.status();
  Recorder recorder(options);
  recorder.numbers.emplace(Numbers{metrics.take(), events.take()});
  if (Status status = recorder.openLog(run + "/log.txt"); !status.ok())
    return status;
  return recorder;
}

Expected<Recorder> Recorder::openLog(const std::string &log, RecorderOptions options) {
  Recorder recorder(options);
  if (Status status = recorder.openLog(log); !status.ok())
    return status;
  return recorder;
}

Status Recorder::openLog(const std::string &path) {
  auto opened = RecordFile::open(path, /*append=*/true);
  if (!opened)
    return opened.status();
  lines.emplace(opened.take());
  return Status();
}

void Recorder::log(std::string_view line) {
  if (!lines)
    return;
  std::lock_guard lock(*mutex);
  lines->add(line);
  (void)lines->flush();
}

void Recorder::message(const Message &message) {
  if (options.next)
    options.next->message(message);
  log(worded(message.line(), *options.wording) + "\n");
}

void Recorder::begins(const RunFacts &facts) {
  if (options.next)
    options.next->begins(facts);
  pace = ProgressPace(facts, options.logEvery);
  folder = facts.folder;
  for (const std::string &line : linesOf(facts))
    log(worded(line, *options.wording) + "\n");
}

void Recorder::update(const UpdateMetrics &update) {
  if (options.next)
    options.next->update(update);
  if (lines && pace.isDue(update.step)) {
    TextLine line = progressLine(update, pace.totalSteps(), pace.secondsLeft(update.step), Detail::All);
    line.add("\n");
    log(line.view());
  }
  if (!numbers)
    return;
  TensorBoardFile &events = numbers->events;
  numbers->metrics.update(update);
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
  if (monotonicSeconds() - flushed >= kFlushSeconds)
    flush();
}

void Recorder::evaluating(uint64_t done, uint64_t samples) {
  if (options.next)
    options.next->evaluating(done, samples);
}

void Recorder::evaluated(const EvaluatedStep &evaluated) {
  if (options.next)
    options.next->evaluated(evaluated);
  log(lineOf(evaluated) + "\n");
  if (!numbers)
    return;
  numbers->metrics.evaluation(evaluated.step, evaluated.epoch, evaluated.record, evaluated.seconds);
  // "eval_loss" → "eval/loss", "ema_eval_loss" → "eval/ema_loss".
  for (const auto &[key, value] : evaluated.record.values) {
    const bool averaged = key.starts_with("ema_");
    numbers->events.scalar((averaged ? "eval/ema_" : "eval/") + key.substr(averaged ? 9 : 5), evaluated.step, value);
  }
  flush();
}

void Recorder::checkpoint(const WrittenCheckpoint &checkpoint) {
  if (options.next)
    options.next->checkpoint(checkpoint);
  log(lineOf(checkpoint) + "\n");
  if (!numbers)
    return;
  TensorBoardFile &events = numbers->events;
  numbers->metrics.checkpoint(checkpoint.step, checkpoint.bytes, checkpoint.waitedSeconds, checkpoint.writingSeconds);
  events.scalar("checkpoint/bytes", checkpoint.step, static_cast<double>(checkpoint.bytes));
  events.scalar("checkpoint/waited_seconds", checkpoint.step, checkpoint.waitedSeconds);
  events.scalar("checkpoint/seconds", checkpoint.step, checkpoint.writingSeconds);
}

void Recorder::ends(const RunEnd &end) {
  if (options.next)
    options.next->ends(end);
  for (const std::string &line : linesOf(end, folder))
    log(worded(line, *options.wording) + "\n");
  std::string reason = worded(end.reason, *options.wording);
  switch (end.kind) {
  case RunEnd::Kind::Done:
    reason = "finished";
    break;
  case RunEnd::Kind::Early:
    reason = "evaluate.stop: " + reason;
    break;
  case RunEnd::Kind::Failed:
    reason = "error: " + reason;
    log(reason + "\n");
    break;
  case RunEnd::Kind::Stopped:
    break;
  }
  if (numbers)
    numbers->metrics.end(end.step, reason);
  (void)tryFlush();
}

Status Recorder::tryFlush() {
  flushed = monotonicSeconds();
  if (!numbers)
    return Status();
  Status status = numbers->metrics.file().flush(), others = numbers->events.file().flush();
  return status.ok() ? others : status;
}

void Recorder::flush() {
  Status status = tryFlush();
  if (!status.ok() && !failing)
    message(Message::warning("{}; training goes on, and lines wait until there is space", status.message()));
  failing = !status.ok();
}

Status Recorder::finish() {
  Status status = tryFlush();
  if (!numbers)
    return status;
  for (RecordFile *file : {&numbers->metrics.file(), &numbers->events.file()})
    if (status.ok() && file->lost() != 0)
      status =
          error("{}: {} lines are missing: the disk was full, or failed, for too long", file->path(), file->lost());
  return status;
}

//===- Train.cpp - the training loop -------------------------------------===//
//
// The position of training is (step, epoch, micro-batch of the epoch), which is enough to resume bit for bit.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/Train.h"
#include "runtime/plan/SettingFields.h"
#include "runtime/train/LossScale.h"
#include "runtime/train/Ranks.h"
#include "runtime/train/Trainer.h"
#include "support/AtomicFile.h"
#include "support/recipe/Keys.h"

#include <cmath>
#include <new>
#include <utility>

using namespace tcc;
using namespace tcc::runtime;

static CheckpointRules rulesOf(const plan::Checkpoints &given, std::optional<uint64_t> everySteps,
                               uint64_t stagingBytes) {
  auto presetOf = [](const char *key) { return recipe::keyOf(key).presetNumber(); };
  CheckpointRules rules;
  rules.everyMinutes = given.has_every_minutes() ? given.every_minutes() : presetOf("checkpoint.every_minutes");
  rules.keep = given.has_keep() ? given.keep() : static_cast<uint64_t>(presetOf("checkpoint.keep"));
  rules.keepBest = given.has_keep_best() ? given.keep_best() : presetOf("checkpoint.keep_best") != 0;
  if (everySteps)
    rules.everySteps = *everySteps;
  if (everySteps == 0u)
    rules.everyMinutes = 0;
  rules.stagingBytes = stagingBytes;
  return rules;
}

Trainer::Trainer(Session &session, const TrainOptions &options, PreparedRun prepared, SignalWatch &signals,
                 Recorder opened)
    : session(session), options(options), run(std::move(prepared)), signals(signals), recorder(std::move(opened)),
      checkpoints(
          run.folder, run.record, session.plan(), *session.device, run.averages.get(), session.replaced, signals,
          session.isSharded() ? session.ranks : nullptr,
          rulesOf(session.training.checkpoints(), options.checkpointEvery,
                  session.computes() ? hostMemoryOf(session.plan(), session.training, session.data).staging : 0),
          monotonicSeconds(),
          {[this](const std::string &text) { progress().note("warning: " + text); },
           [this](const Status &status) { (void)warnOf(status); }, // only its text: `begin` ends non-finite runs
           [this](const CheckpointWriter::Result &result) {
             warned = false;
             recorder.checkpoint(result);
           }}) {
  if (!options.trace.empty()) {
    track = &trace.emplace().track("training");
    run.batches->traceTo(&*trace, track);
    run.updates->traceTo(track);
    checkpoints.traceTo(track, &trace->track("checkpoint"));
  }
  if (session.ranks)
    session.ranks->onSlow([this](const std::string &text) { progress().note("warning: " + text); });
  run.batches->onDamaged([this](const std::string &text) { progress().note("warning: " + text); });
  if (run.goesOn())
    checkpoints.resumedFrom(run.position.step);
  for (const auto &[step, record] : recorder.evaluations()) {
    evaluated = step;
    if (run.stop)
      run.stop->hear(step, record);
    if (step <= run.position.step)
      hearForRate(step, record);
  }
}

Expected<Evaluation> Trainer::evaluateWith(bool averages) {
  EvaluateOptions with = evaluateOptionsOf(session);
  with.ranks = session.ranks;
  BatchReader &reader = *run.evaluation->data.reader;
  with.goesOn = [&](uint64_t done) {
    progress().evaluating(done, reader.samples());
    return !endRequested();
  };
  if (!averages)
    return evaluate(run.evaluation->runner, reader, with);
  if (Status status = exchangeAverages(); !status.ok())
    return status;
  auto result = evaluate(run.evaluation->runner, reader, with);
  // Restore the weights whether or not the evaluation succeeded: training and checkpoints need them. After an error the
  // ranks run no more collectives.
  Status back = result || session.worldSize() == 1 ? exchangeAverages()
                : run.averages                     ? run.averages->exchange()
                                                   : Status();
  return back.ok() ? std::move(result) : Expected<Evaluation>(back);
}

Status Trainer::exchangeAverages() {
  checkpoints.beforeHostChanges();
  Status status = run.averages ? run.averages->exchange() : Status();
  const bool shares = session.worldSize() > 1 && !session.training.ema().on_device() && !session.shardsParameters();
  return status.ok() && shares ? shareParameters(session) : status;
}

Status Trainer::evaluateNow() {
  if (!run.evaluation || !session.computes())
    return Status();
  uint64_t done = evaluated == run.position.step;
  if (session.worldSize() > 1) { // only rank 0 knows the evaluations of a resumed run
    auto agreed = session.ranks->anyOf(session.leads() ? done : 0);
    if (!agreed)
      return agreed.status();
    done = *agreed;
  }
  if (done)
    return Status();
  recorder.flush();
  TraceScope span(track, "evaluation", "update", run.position.step);
  double start = monotonicSeconds();
  auto result = evaluateWith(/*averages=*/false);
  if (!result)
    return result.status().withContext("evaluation");
  std::optional<Evaluation> averaged;
  if (result->complete && session.training.has_ema()) {
    auto second = evaluateWith(/*averages=*/true);
    if (!second)
      return second.status().withContext("evaluation of the averaged weights");
    averaged = *second;
  }
  if (!result->complete || (averaged && !averaged->complete))
    return Status();
  evaluated = run.position.step;
  if (!session.leads())
    return shareReductions();
  EvaluationRecord record = recordOf(*result, averaged ? &*averaged : nullptr);
  recorder.evaluation(run.position.step, run.position.epoch + (run.position.batch ? 1 : 0), record,
                      monotonicSeconds() - start);
  progress().clear();
  std::string text = fmt::format("step {}/{}", run.position.step, run.totalSteps);
  for (const auto &[key, value] : record.values)
    text += key.ends_with("eval_accuracy") ? fmt::format("  {} {:.4f}", key, value)
                                           : fmt::format("  {} {:.6g}", key, value);
  progress().note(text);
  if (run.stop)
    run.stop->hear(run.position.step, record);
  hearForRate(run.position.step, record);
  if (Status status = shareReductions(); !status.ok())
    return status;
  return keepBest(record);
}

bool Trainer::endsEpoch() const {
  return run.position.batch == 0 || run.position.batch >= run.batches->perEpoch();
}

bool Trainer::isEvaluated(uint64_t step) const {
  if (!options.evaluatesOften())
    return false;
  // By epochs, only the current position can be judged; earlier evaluations are in the checkpoint's state.
  return options.evalEvery->epoch ? step == run.position.step && step != 0 && endsEpoch()
                                  : step % options.evalEvery->updates == 0;
}

void Trainer::hearForRate(uint64_t step, const EvaluationRecord &record) {
  // Ignore the additional evaluation at the end of a run: a longer run does not have it.
  if (!run.plateau || !isEvaluated(step))
    return;
  PlateauState &state = *run.position.plateau;
  const double base = session.training.optimizer().numbers().at("lr");
  auto rate = [&] { return run.updates->schedule().rate(base, {run.totalSteps, state.reductions}); };
  const double before = rate();
  if (run.plateau->hear(step, record, state) && rate() < before)
    progress().note(fmt::format("step {}: {} is no better than {:.6g}: the learning rate falls from {:.6g} to {:.6g}",
                                step, state.metric, state.best.value_or(NAN), before, rate()));
}

Status Trainer::shareReductions() {
  if (!run.plateau || session.worldSize() == 1)
    return Status();
  uint64_t &reductions = run.position.plateau->reductions;
  auto agreed = session.ranks->anyOf(session.leads() ? reductions : 0);
  if (agreed)
    reductions = *agreed;
  return agreed.status();
}

Status Trainer::keepBest(const EvaluationRecord &record) {
  TrainingPosition &position = run.position;
  double value = record.find(run.best.name).value_or(NAN);
  bool better = std::isfinite(value) && (position.bestStep == 0 || run.best.isBetter(value, position.bestValue));
  // Without its checkpoint (the disk was full) it cannot be the best.
  if (!better)
    return Status();
  if (Status status = warnOf(checkpoints.finish()); !status.ok() || checkpoints.last() != position.step)
    return status;
  position.bestStep = position.step;
  position.bestValue = value;
  position.bestMetric = run.best.name;
  if (Status status = checkpoints.markBest(position); !status.ok())
    progress().note(fmt::format("warning: {}; training goes on", status.message()));
  return Status();
}

bool Trainer::endRequested() const {
  return signals.received() != 0 || (options.maxSeconds > 0 && monotonicSeconds() - begun >= options.maxSeconds);
}

Expected<bool> Trainer::goesOn() {
  std::optional<uint64_t> ends = std::exchange(agreedEnds, std::nullopt);
  if (!ends) {
    auto agreed = session.ranks ? session.ranks->anyOf(ownEnds()) : Expected<uint64_t>(ownEnds());
    if (!agreed)
      return agreed.status();
    ends = *agreed;
  }
  ending = *ends;
  return ending == 0 && run.position.step < run.totalSteps;
}

Expected<bool> Trainer::checkpointIsDue(bool evaluating, bool &asked) {
  bool due = evaluating || asked || checkpoints.isDue(run.position.step, monotonicSeconds());
  if (session.worldSize() == 1)
    return due;
  // Ranks receive a signal at different updates, and their clocks differ: rank 0 decides for all.
  constexpr uint64_t kDue = kStopped << 1, kAsked = kStopped << 2;
  auto agreed = session.ranks->anyOf(ownEnds() | (session.leads() ? (due ? kDue : 0) | (asked ? kAsked : 0) : 0));
  if (!agreed)
    return agreed.status();
  asked = (*agreed & kAsked) != 0;
  due = (*agreed & kDue) != 0;
  if (!due) // the next update begins at once, so goesOn reuses this agreement
    agreedEnds = *agreed & (kEndRequested | kStopped);
  return due;
}

Status Trainer::checkReplicas() {
  if (session.worldSize() == 1 || !session.computes() || compared == run.position.step)
    return Status();
  TraceScope span(track, "compare ranks", "update", run.position.step);
  auto differences = differencesOfReplicas(session, run.position.step, /*begins=*/!compared, comparedSums);
  if (!differences) // an error, such as the end of a rank, does not mean that the state differs
    return differences.status().withContext(fmt::format("step {}", run.position.step));
  diverged = !differences->empty();
  if (diverged)
    return Status(*differences);
  compared = run.position.step;
  return Status();
}

Status Trainer::updateOnce(UpdateMetrics &metrics, bool &finite) {
  TraceScope span(track, "update", "update", run.position.step + 1);
  comparedSums.clear(); // the state changes now
  const CollectiveTimes before = session.worldSize() > 1 ? session.device->collectiveTimes() : CollectiveTimes();
  Status status = run.updates->run(run.position, *run.batches, metrics, finite);
  if (session.worldSize() > 1 && session.computes()) {
    const CollectiveTimes after = session.device->collectiveTimes();
    if (after.calls > before.calls) { // a device that runs an entry as one graph does not time its collectives
      metrics.communicationSeconds = after.seconds - before.seconds;
      metrics.exposedSeconds = after.exposedSeconds - before.exposedSeconds;
    }
  }
  return status;
}

void Trainer::warnOfScale(const UpdateMetrics &metrics) {
  const bool dynamic = session.training.loss_scale().dynamic();
  if (scaleTold || (dynamic && metrics.lossScale > 1))
    return;
  scaleTold = true;
  progress().note(
      fmt::format("warning: step {}: a gradient is not finite at a loss scale of {:g}, {}; the run ends after {} "
                  "such updates in a row",
                  metrics.step, metrics.lossScale, dynamic ? "where a smaller one hardly helps" : "which is fixed",
                  kMostHopelessUpdates));
}

void Trainer::recordUpdate(const UpdateMetrics &metrics, double now, const Start &start) {
  if (metrics.normOfRun == 0)
    return recorder.update(metrics, now);
  awaited = {metrics, start, now};
}

Status Trainer::completeUpdate(bool isLast) {
  if (!awaited)
    return Status();
  Awaited one = std::move(*awaited);
  awaited.reset();
  bool finite = true;
  if (Status status = run.updates->complete(one.metrics, finite); !status.ok())
    return status.withContext(fmt::format("step {}", one.metrics.step));
  if (finite) {
    if (isLast)
      one.metrics.seconds += monotonicSeconds() - one.now;
    recorder.update(one.metrics, one.now);
    return Status();
  }
  run.position.step = one.start.step;
  run.position.epoch = one.start.epoch;
  run.position.batch = one.start.batch;
  return stopNonFinite(one.metrics);
}

Status Trainer::steps() {
  UpdateMetrics metrics;
  uint64_t batches = run.batches->perEpoch();
  double startedAt = monotonicSeconds(), before = startedAt;
  bool updated = false;
  // Files of the same name (checkpoints, weights) may differ between machines.
  if (Status status = checkReplicas(); !status.ok())
    return status;
  if (Status status = shareReductions(); !status.ok())
    return status;
  if (run.position.step == 0 && plan::numberSetting(session.training, "evaluate.at_start") != 0) {
    if (!run.evaluation)
      progress().note("note: evaluate.at_start: there is no evaluation data; give --eval-data PATH");
    if (Status status = evaluateNow(); !status.ok())
      return status;
  }
  // Repeat an evaluation that a signal or a crash interrupted.
  if (run.resumed && run.position.step != 0 && run.position.step < run.totalSteps && isEvaluated(run.position.step))
    if (Status status = evaluateNow(); !status.ok())
      return status;
  for (;;) {
    Expected<bool> more = goesOn();
    if (!more)
      return more.status().withContext(fmt::format("step {}", run.position.step + 1));
    if (!*more)
      break;
    if (run.position.batch >= batches) {
      run.position.batch = 0;
      ++run.position.epoch;
    }
    bool finite = true;
    Status status = updateOnce(metrics, finite);
    // The previous update has ended by now.
    if (Status earlier = completeUpdate(/*isLast=*/false); !earlier.ok())
      return earlier;
    const bool comparing = session.worldSize() > 1 && (run.position.step + 1) % kReplicaCheckUpdates == 0;
    // Reading the state has to wait for the update anyway.
    if (status.ok() && finite && (comparing || run.averages))
      status = run.updates->complete(metrics, finite);
    if (!status.ok())
      return status.withContext(fmt::format("step {}", metrics.step));
    if (!finite)
      return stopNonFinite(metrics);
    const Start start{run.position.step, run.position.epoch, run.position.batch};
    ++run.position.step;
    run.position.batch += run.updates->taken();
    if (comparing)
      if (Status compared = checkReplicas(); !compared.ok())
        return compared;
    if (metrics.overflowed)
      warnOfScale(metrics);
    if (!metrics.skipped && run.averages) {
      checkpoints.beforeHostChanges();
      if (Status averaged = run.averages->update(appliedUpdates(run.position.step, run.position.lossScale));
          !averaged.ok())
        return averaged.withContext(fmt::format("step {}: train.ema", run.position.step));
    }
    const double now = monotonicSeconds();
    metrics.seconds = now - before;
    metrics.resumed = run.resumed && !std::exchange(updated, true);
    before = now;
    recordUpdate(metrics, now, start);
    if (Status polled = warnOf(checkpoints.poll()); !polled.ok())
      return polled;
    bool evaluating = run.evaluation && isEvaluated(run.position.step), asked = signals.takeRequest();
    Expected<bool> due = checkpointIsDue(evaluating, asked);
    if (!due)
      return due.status().withContext(fmt::format("step {}", run.position.step));
    if (!*due)
      continue;
    if (Status earlier = completeUpdate(/*isLast=*/true); !earlier.ok())
      return earlier;
    if (Status status = checkReplicas(); !status.ok())
      return status;
    if (Status status = checkpointOrWarn(/*wait=*/asked); !status.ok())
      return status;
    if (asked && checkpoints.last() == run.position.step)
      progress().note("checkpoint: " + checkpoints.pathOf(run.position.step));
    // With several ranks, all must begin the evaluation; it ends on all if one of them has to end.
    if (evaluating && (session.worldSize() > 1 || !endRequested()))
      if (Status status = evaluateNow(); !status.ok())
        return status;
    before = monotonicSeconds();
  }
  if (Status status = completeUpdate(/*isLast=*/true); !status.ok())
    return status;
  if (Status status = checkReplicas(); !status.ok())
    return status;
  if (ending == kEndRequested && run.position.step < run.totalSteps)
    return stopOnRequest();
  if (isStopped())
    progress().note(fmt::format("stopped early after update {}: {}; --set evaluate.stop.patience=N goes on",
                                run.position.step, run.stop->text()));
  if (Status status = finish(); !status.ok())
    return status;
  double waited = run.batches->waitedSeconds();
  progress().note(fmt::format("{} updates in {:.1f} s{}; {}", run.position.step, monotonicSeconds() - startedAt,
                              waited >= 0.1 ? fmt::format(", {:.1f} s of them waiting for data", waited) : "",
                              run.folder));
  return Status();
}

/// The number of ranks, by which the batch is multiplied.
static std::string ranksText(const Session &session) {
  const plan::VirtualRanks share = session.virtualRanks();
  if (session.training.parallel().virtual_ranks() != 0)
    return fmt::format(" x {} virtual ranks on {}", share.all, session.worldSize());
  return share.all > 1 ? fmt::format(" x {} ranks", share.all) : "";
}

void Trainer::report() {
  for (const std::string &note : run.notes)
    progress().note(note);
  const Dataset &dataset = run.batches->dataset();
  const BatchReader &reader = run.batches->reader();
  uint64_t window = run.updates->window(), dataBytes = dataset.hostBytes() + run.batches->hostBytes();
  if (run.evaluation)
    dataBytes += run.evaluation->data.dataset->hostBytes();
  progress().note(fmt::format("{}: {} samples, {} a batch{}{}, {} updates{}, seed {}{}", session.plan().model(),
                              reader.samples(), reader.batch(), ranksText(session),
                              window > 1 ? fmt::format(" x {} accumulated", window) : "", run.totalSteps,
                              run.resumed ? fmt::format(" of which {} are done", run.position.step) : "",
                              run.position.seed, run.position.shuffle ? "" : ", not shuffled"));
  if (!dataset.vocabulary.empty())
    progress().note(fmt::format("vocabulary: {} characters", dataset.vocabulary.size()));
  if (!dataset.classes.empty())
    progress().note(fmt::format("classes: {}", dataset.classes.size()));
  for (const auto &[column, names] : dataset.facts.categories)
    progress().note(fmt::format("column '{}': {} categories", column, names.size()));
  for (const std::string &note : session.notes)
    progress().note(note);
  uint64_t resident = session.device->residentBytes(), transient = session.device->transientBytes();
  unsigned workers = session.device->capabilities().threads;
  HostMemory host = hostMemoryOf(session.plan(), session.training, session.data);
  // With several ranks the memory is measured, because the plan does not contain NCCL's buffers.
  const bool joined = session.worldSize() > 1 && session.device->capabilities().memory == DeviceMemory::Separate;
  progress().note(
      fmt::format("memory: resident {}, transient {}, together {} on the device with {} worker{}{}; host: data "
                  "{}, plan {} (mapped){}{}",
                  formatBytes(resident), formatBytes(transient), formatBytes(resident + transient), workers,
                  workers == 1 ? "" : "s",
                  joined ? fmt::format(", and {} of libraries", formatBytes(session.device->libraryBytes())) : "",
                  formatBytes(dataBytes), formatBytes(session.reader.fileBytes()),
                  host.averages ? ", averages " + formatBytes(host.averages) : "",
                  host.staging ? ", checkpoints " + formatBytes(host.staging) : ""));
}

Status Trainer::train() {
  report();
  Status status;
  try {
    status = steps();
    if (!status.ok())
      if (Status last = completeUpdate(/*isLast=*/true); last.code() == StatusCode::NonFinite)
        status = last;
    // If the loss is not finite, it is so on every rank: only rank 0 reports it.
    if (!status.ok() && session.ranks && (session.leads() || status.code() != StatusCode::NonFinite))
      session.ranks->abort(status.message());
    if (!status.ok() && status.code() != StatusCode::NonFinite)
      status = stopOnError(status);
  } catch (const std::bad_alloc &) {
    status = stopOnError(error("out of memory"));
  }
  if (!status.ok()) {
    progress().noteInLog("error: " + status.message());
    recorder.end(run.position.step, "error: " + status.message());
  }
  Status traced = trace ? writeTrace() : Status();
  if (status.ok())
    status = traced;
  return status;
}

Status tcc::runtime::train(Session &session, const TrainOptions &options, bool *complete) {
  // Report a trace file that cannot be written now, not after hours of training.
  if (!options.trace.empty())
    if (Status status = writeFileAtomically(options.trace, "", OwnFile::Trace); !status.ok())
      return status.withContext("--trace");
  // The other ranks must not wait for one that cannot begin.
  auto refused = [&](const Status &status) {
    if (session.ranks)
      session.ranks->abort(status.message());
    return status;
  };
  auto prepared = prepareRun(session, options);
  if (!prepared)
    return refused(prepared.status());
  Expected<std::string> places = std::string();
  if (session.worldSize() > 1) {
    if (Status status = compareRanks(session, options, *prepared); !status.ok())
      return refused(status);
    places = warningOfPlaces(session);
    if (!places)
      return refused(places.status());
  }
  SignalWatch signals(fileno(options.messages));
  if (Status status = openRunFolder(session, options, *prepared); !status.ok())
    return refused(status);
  Progress progress(prepared->totalSteps, prepared->position.step, options.logEvery.value_or(0), options.terminal,
                    options.messages, options.quiet);
  if (session.leads() && !places->empty())
    progress.note("warning: " + *places);
  auto recorder = session.leads() ? Recorder::open(prepared->folder, std::move(progress))
                                  : Recorder::openLog(rankLog(prepared->folder, session.rank()), std::move(progress));
  if (!recorder)
    return refused(recorder.status());
  Trainer trainer(session, options, prepared.take(), signals, recorder.take());
  Status status = trainer.train();
  if (complete)
    *complete = trainer.isComplete();
  return status;
}

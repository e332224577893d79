//===- Train.cpp - the training loop -------------------------------------===//
//
// The position of training is (step, epoch, micro-batch of the epoch), which is enough to resume bit for bit.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/Train.h"
#include "runtime/plan/SettingFields.h"
#include "runtime/train/Evaluate.h"
#include "runtime/train/LossScale.h"
#include "runtime/train/Ranks.h"
#include "runtime/train/Trainer.h"
#include "support/Advice.h"
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

Trainer::Trainer(Session &session, const TrainOptions &options, PreparedRun prepared, RunControl &control,
                 Recorder opened)
    : session(session), options(options), run(std::move(prepared)), control(control), recorder(std::move(opened)),
      ranks(session),
      checkpoints(run.folder, run.record, session.plan(), *session.device, run.averages.get(), session.replaced, control,
                  session.isSharded() ? session.ranks : nullptr,
                  rulesOf(session.training.checkpoints(), options.checkpointEvery,
                          options.keepsFiles && session.computes()
                              ? hostMemoryOf(session.plan(), session.training, session.data).staging
                              : 0),
                  monotonicSeconds(),
                  {[this](const std::string &text) { recorder.message({Message::Tone::Warning, text}); },
                   [this](const Status &status) { (void)warnOf(status); }, // only its text: `begin` ends non-finite runs
                   [this](const CheckpointWriter::Result &result) {
                     warned = false;
                     recorder.checkpoint({result.step, checkpoints.pathOf(result.step), result.bytes,
                                          result.blockedSeconds, result.writingSeconds});
                   }}) {
  if (!options.trace.empty()) {
    track = &trace.emplace().track("training");
    run.batches->traceTo(&*trace, track);
    run.updates->traceTo(track);
    checkpoints.traceTo(track, &trace->track("checkpoint"));
  }
  auto warn = [this](const std::string &text) { recorder.message({Message::Tone::Warning, text}); };
  if (session.ranks)
    session.ranks->onSlow(warn);
  run.batches->onDamaged(warn);
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
    recorder.evaluating(done, reader.samples());
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
  auto done = ranks.asFirst(evaluated == run.position.step); // only rank 0 knows the evaluations of a resumed run
  if (!done)
    return done.status();
  if (*done)
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
  recorder.evaluated({run.position.step, run.totalSteps, run.position.epoch + (run.position.batch ? 1 : 0), record,
                      monotonicSeconds() - start});
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
    recorder.message(Message::plain("step {}: {} is no better than {:.6g}: the learning rate falls from {:.6g} to {:.6g}",
                                    step, state.metric, state.best.value_or(NAN), before, rate()));
}

Status Trainer::shareReductions() {
  if (!run.plateau || session.worldSize() == 1)
    return Status();
  uint64_t &reductions = run.position.plateau->reductions;
  auto first = ranks.numberOfFirst(reductions);
  if (first)
    reductions = *first;
  return first.status();
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
    recorder.message(Message::warning("{}; training goes on", status.message()));
  return Status();
}

bool Trainer::endRequested() const {
  return control.stoppedBy() || (options.maxSeconds > 0 && monotonicSeconds() - begun >= options.maxSeconds);
}

Expected<bool> Trainer::goesOn() {
  auto agreed = ranks.ends(ownEnds());
  if (!agreed)
    return agreed.status();
  ending = *agreed;
  return !ending.any() && run.position.step < run.totalSteps;
}

Status Trainer::updateOnce(UpdateMetrics &metrics, bool &finite) {
  TraceScope span(track, "update", "update", run.position.step + 1);
  ranks.stateChanges();
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
  recorder.message(Message::warning(
      "step {}: a gradient is not finite at a loss scale of {:g}, {}; the run ends after {} such updates in a row",
      metrics.step, metrics.lossScale, dynamic ? "where a smaller one hardly helps" : "which is fixed",
      kMostHopelessUpdates));
}

void Trainer::recordUpdate(const UpdateMetrics &metrics, double now, const Start &start) {
  if (metrics.normOfRun == 0)
    return recorder.update(metrics);
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
    recorder.update(one.metrics);
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
  double before = loopBegun = monotonicSeconds();
  bool updated = false;
  // Files of the same name (checkpoints, weights) may differ between machines.
  if (Status status = checkReplicas(); !status.ok())
    return status;
  if (Status status = shareReductions(); !status.ok())
    return status;
  if (run.position.step == 0 && plan::numberSetting(session.training, "evaluate.at_start") != 0) {
    if (!run.evaluation)
      recorder.message(Message::note("evaluate.at_start: there is no evaluation data; give {}",
                                     advice::option("eval-data", "PATH")));
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
    const bool evaluating = run.evaluation && isEvaluated(run.position.step), asked = control.takeCheckpointRequest();
    const bool isDue = evaluating || asked || checkpoints.isDue(run.position.step, monotonicSeconds());
    auto due = ranks.checkpoint({isDue, asked}, ownEnds());
    if (!due)
      return due.status().withContext(fmt::format("step {}", run.position.step));
    if (!due->due)
      continue;
    if (Status earlier = completeUpdate(/*isLast=*/true); !earlier.ok())
      return earlier;
    if (Status status = checkReplicas(); !status.ok())
      return status;
    if (Status status = checkpointOrWarn(/*wait=*/due->asked); !status.ok())
      return status;
    if (due->asked && checkpoints.last() == run.position.step)
      recorder.message(Message::plain("checkpoint: {}", checkpoints.pathOf(run.position.step)));
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
  if (ending == EndReasons{.requested = true} && run.position.step < run.totalSteps)
    return stopOnRequest();
  return finish();
}

RunFacts Trainer::facts() const {
  const Dataset &dataset = run.batches->dataset();
  const Device &device = *session.device;
  const HostMemory host = hostMemoryOf(session.plan(), session.training, session.data);
  const bool hasVirtualRanks = session.training.parallel().virtual_ranks() != 0;
  RunFacts facts;
  facts.model = session.plan().model();
  facts.folder = run.folder;
  facts.samples = run.batches->reader().samples();
  facts.batch = run.batches->reader().batch();
  facts.window = run.updates->window();
  facts.ranks = hasVirtualRanks ? session.worldSize() : session.virtualRanks().all;
  facts.virtualRanks = hasVirtualRanks ? session.virtualRanks().all : 0;
  facts.totalSteps = run.totalSteps;
  facts.doneSteps = run.position.step;
  facts.resumed = run.resumed.has_value();
  facts.seed = run.position.seed;
  facts.shuffle = run.position.shuffle;
  facts.vocabulary = dataset.vocabulary.size();
  facts.classes = dataset.classes.size();
  for (const auto &[column, names] : dataset.facts.categories)
    facts.categories.emplace_back(column, names.size());
  for (const Message &note : session.notes)
    facts.selected.push_back(note.line());
  facts.resident = device.residentBytes();
  facts.transient = device.transientBytes();
  facts.workers = device.capabilities().threads;
  // With several ranks the memory is measured, because the plan does not contain NCCL's buffers.
  if (session.worldSize() > 1 && device.capabilities().memory == DeviceMemory::Separate)
    facts.libraries = device.libraryBytes();
  facts.data = dataset.hostBytes() + run.batches->hostBytes() +
               (run.evaluation ? run.evaluation->data.dataset->hostBytes() : 0);
  facts.plan = session.reader.fileBytes();
  facts.averages = host.averages;
  facts.staging = options.keepsFiles ? host.staging : 0;
  return facts;
}

void Trainer::tellEnd(RunEnd::Kind kind, std::string reason, std::string kept) {
  recorder.ends({kind, run.position.step, std::move(reason), std::move(kept), monotonicSeconds() - loopBegun,
                 run.batches ? run.batches->waitedSeconds() : 0});
}

Status Trainer::train() {
  for (const Message &note : run.notes)
    recorder.message(note);
  recorder.begins(facts());
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
  if (!status.ok())
    tellEnd(RunEnd::Kind::Failed, status.message());
  Status traced = trace ? writeTrace() : Status();
  if (status.ok())
    status = traced;
  return status;
}

Status tcc::runtime::train(Session &session, const TrainOptions &given, RunResult *result) {
  // Report a trace file that cannot be written now, not after hours of training.
  if (!given.trace.empty())
    if (Status status = writeFileAtomically(given.trace, "", OwnFile::Trace); !status.ok())
      return status.withContext(advice::option("trace"));
  RunEvents nobody;
  RunControl unasked;
  const Wording neutral;
  TrainOptions options = given;
  options.events = given.events ? given.events : &nobody;
  options.control = given.control ? given.control : &unasked;
  options.wording = given.wording ? given.wording : &neutral;
  // The other ranks must not wait for one that cannot begin.
  auto refused = [&](const Status &status) {
    if (session.ranks)
      session.ranks->abort(status.message());
    return status;
  };
  auto prepared = prepareRun(session, options);
  if (!prepared)
    return refused(prepared.status());
  if (session.worldSize() > 1) {
    if (Status status = compareRanks(session, options, *prepared); !status.ok())
      return refused(status);
    auto places = warningOfPlaces(session);
    if (!places)
      return refused(places.status());
    if (session.leads() && !places->empty())
      prepared->notes.insert(prepared->notes.begin(), {Message::Tone::Warning, *places});
  }
  if (options.keepsFiles) {
    if (Status status = openRunFolder(session, options, *prepared); !status.ok())
      return refused(status);
  } else if (prepared->resumed) {
    prepared->resumed->checkpoint.reset();
  }
  const RecorderOptions recording{options.events, options.wording, options.logEvery.value_or(0)};
  auto recorder = !options.keepsFiles ? Expected<Recorder>(Recorder::withoutFiles(recording))
                  : session.leads()   ? Recorder::open(prepared->folder, recording)
                                      : Recorder::openLog(rankLog(prepared->folder, session.rank()), recording);
  if (!recorder)
    return refused(recorder.status());
  Trainer trainer(session, options, prepared.take(), *options.control, recorder.take());
  Status status = trainer.train();
  if (result)
    *result = trainer.result();
  return status;
}

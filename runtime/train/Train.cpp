//===- Train.cpp - the training loop -------------------------------------===//
//
// The position of training is (step, epoch, micro-batch of the epoch), which is enough to resume bit for bit.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/Train.h"
#include "runtime/plan/FourBits.h"
#include "runtime/plan/SettingFields.h"
#include "runtime/state/Export.h"
#include "runtime/state/Weights.h"
#include "runtime/train/Evaluate.h"
#include "runtime/train/LossScale.h"
#include "runtime/train/Ranks.h"
#include "runtime/train/RunFolder.h"
#include "runtime/train/Trainer.h"
#include "support/Advice.h"
#include "support/AtomicFile.h"
#include "support/recipe/Keys.h"

#include <algorithm>
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
      checkpoints(run.folder, run.record, session.plan(), *session.device, run.averages.get(), session.replaced,
                  control, session.isSharded() ? session.ranks : nullptr,
                  rulesOf(session.training.checkpoints(), options.checkpointEvery,
                          options.keepsFiles && session.computes()
                              ? hostMemoryOf(session.plan(), session.training, session.data).staging
                              : 0),
                  monotonicSeconds(),
                  {[this](const std::string &text) {
                     recorder.message({Message::Tone::Warning, text});
                   },
                   [this](const Status &status) {
                     (void)warnOf(status);
                   }, // keep only the text: `begin` ends non-finite runs
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
  const BatchReader &reader = run.evaluation->data.reader();
  with.goesOn = [&](uint64_t done) {
    recorder.evaluating(done, reader.samples());
    return !endRequested();
  };
  if (!averages)
    return evaluate(run.evaluation->runners, run.evaluation->data, with);
  if (Status status = exchangeAverages(); !status.ok())
    return status;
  auto result = evaluate(run.evaluation->runners, run.evaluation->data, with);
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
    recorder.message(
        Message::plain("step {}: {} is no better than {:.6g}: the learning rate falls from {:.6g} to {:.6g}", step,
                       state.metric, state.best.value_or(NAN), before, rate()));
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
  facts.batches = run.batches->sizes();
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
    what = fmt::format("the gradient's norm is {} at a loss scale of {:g}, after {} such updates in a row",
                       metrics.gradientNorm, metrics.lossScale, kMostHopelessUpdates - 1);
    wayOut =
        fmt::format("f16 holds no gradient beyond 65504: try {}, a lower optimizer.lr or a warm-up, and look at the "
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
               : fmt::format(": the sample weights of this update (input '{}') are 0 for all targets that "
                             "count, so its loss is 0/0",
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
  // A rank that finds the difference first may end before this one has compared anything.
  const bool compares = session.worldSize() > 1 && session.computes();
  Status written = ranks.diverged()                    ? error("the ranks do not agree on the state")
                   : compares && !ranks.comparedStep() ? error("the ranks had not compared their state")
                   : session.isSharded()               ? error("other ranks hold parts of the state")
                   : !run.updates->settle()            ? error("an update was interrupted")
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
  const bool merges = !plan::unmergeable(session.plan());
  Status released = releases && hasModel && merges && session.computes() ? release() : Status();
  if (releases && hasModel && !merges)
    recorder.message(Message::note("no model.onnx: the file's 4 bits cannot hold the adapters; export them with {}",
                                   advice::flag("adapter")));
  for (const Status &status : {written, released})
    if (!status.ok())
      return status;
  complete = true;
  tellEnd(isStopped() ? RunEnd::Kind::Early : RunEnd::Kind::Done, isStopped() ? run.stop->text() : "");
  return session.leads() ? recorder.finish() : Status();
}

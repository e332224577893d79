//===- Train.cpp - the training loop -------------------------------------===//
//
// An update takes a window of `accumulate` micro-batches (fewer at an epoch's end) and is one run of `step`, or runs of
// `accumulate_first`, `accumulate_next`…, `update`. Its loss is the sum of losses over the sum of weights. Where
// training stands is (step, epoch, micro-batch of the epoch): enough to go on bit for bit.
//
//===----------------------------------------------------------------------===//
#include "runtime/train/Train.h"
#include "runtime/data/Sampler.h"
#include "runtime/state/Export.h"
#include "runtime/state/RunLock.h"
#include "runtime/state/Weights.h"
#include "runtime/train/Checkpointer.h"
#include "runtime/train/Recorder.h"
#include "runtime/train/Resume.h"
#include "runtime/train/RunFolder.h"
#include "runtime/train/Scalars.h"
#include "runtime/train/WindowState.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <new>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// An entry that gives loss_sum and loss_weight.
struct LossRunner {
  EntryRunner runner;
  int sum, weight, norm;

  LossRunner(Device &device, const plan::Entry &entry)
      : runner(device, entry), sum(runner.outputIndex("loss_sum")), weight(runner.outputIndex("loss_weight")),
        norm(runner.outputIndex("grad_norm")) {}
};

class Trainer {
public:
  Trainer(Session &session, const TrainOptions &options) : session(session), options(options) {}
  plan::Status run();

private:
  plan::Status findEntries();
  plan::Status openCheckpoint();
  plan::Status openData();
  plan::Status initialize();
  plan::Status planRun();
  plan::Status continueRun();
  void noteScheduleTotal(std::optional<uint64_t> total);
  plan::Status openRun();
  CheckpointRules rules() const;
  Progress &progress() { return recorder->progress(); }
  void report();
  plan::Status loop();
  plan::Status steps();
  /// One update; `finite` says whether it was applied.
  plan::Status update(UpdateMetrics &metrics, bool &finite);
  /// Micro-batch `number` of the epoch, which is micro-batch `inWindow` of its update.
  plan::Status microBatch(LossRunner &entry, uint64_t number, uint64_t inWindow, UpdateMetrics &metrics, double &sum,
                          double &weight);
  plan::Status fillBatch(LossRunner &entry);
  plan::Status evaluateNow();
  /// A checkpoint between updates. One that cannot be written is told, and training goes on; state that is not finite
  /// ends it.
  plan::Status checkpointOrWarn();
  /// The checkpoint that an end needs. Error: it could not be written.
  plan::Status checkpointAtEnd();
  /// What an error or a signal leaves, and how to go on.
  std::string kept() const;
  /// Undoes what a window that came to no update left.
  void settleWindow();
  plan::Status stopNonFinite(const UpdateMetrics &metrics);
  /// Where numbers first go bad in the window that `metrics` is of: a NaN or an infinity of the data, a node.
  struct Diagnosis {
    std::string node, input, infinite;
  };
  Diagnosis findNonFinite(const UpdateMetrics &metrics);
  /// After an error between or in updates: keeps the last whole update, if its state can still be had.
  plan::Status stopOnError(const plan::Status &problem);
  plan::Status release();
  plan::Status finish();
  plan::Status stopOnSignal();

  Session &session;
  const TrainOptions &options;
  std::unique_ptr<LossRunner> step, first, next;
  std::unique_ptr<EntryRunner> updateEntry, evaluateEntry;
  EntryData data, evalData;
  std::optional<Sampler> sampler;
  std::optional<ScalarBlock> scalars;
  std::optional<LearningSchedule> schedule;
  std::optional<Recorder> recorder;
  std::optional<SignalWatch> signals;
  std::optional<Checkpointer> checkpoints;
  std::optional<WindowState> window; ///< with accumulation
  std::vector<uint64_t> indices;
  TrainingPosition position;
  RunReference resumed; ///< the checkpoint that is resumed
  std::optional<Checkpoint> checkpoint_;
  std::optional<RunLock> lock;
  RunRecord record_;
  std::vector<std::string> notes; ///< for the log, once it is open
  std::string run_;
  uint64_t totalSteps = 0, accumulate = 1, lastWindow = 0;
  std::optional<uint64_t> evaluated;
  bool resuming = false, sameRun = false;
  bool warned = false; ///< the last checkpoint could not be written, which was told
  /// Whole: the variables are those of `position`. Window: the forward passes of its next window have advanced running
  /// statistics, no more. Partial: an update was interrupted.
  enum class State { Whole, Window, Partial } state = State::Whole;
};
} // namespace

plan::Status Trainer::findEntries() {
  const plan::Plan &plan = session.plan();
  accumulate = static_cast<uint64_t>(std::max<int64_t>(session.training.accumulate(), 1));
  auto require = [&](const char *name) -> plan::Expected<const plan::Entry *> {
    if (const plan::Entry *entry = findEntry(plan, name))
      return entry;
    return plan::error("{}: the plan has no entry '{}', so it cannot train; compile with tcc --entry train,evaluate",
                       session.reader.path(), name);
  };
  auto make = [&](const char *name, std::unique_ptr<LossRunner> &runner) -> plan::Status {
    auto entry = require(name);
    if (!entry)
      return entry.status();
    runner = std::make_unique<LossRunner>(*session.device, **entry);
    if (runner->sum < 0 || runner->weight < 0)
      return plan::error("{}: entry '{}' gives no loss_sum and loss_weight; compile again", session.reader.path(),
                         name);
    return plan::Status();
  };
  if (accumulate == 1)
    return make("step", step);
  plan::Status status = make("accumulate_first", first);
  if (status.ok())
    status = make("accumulate_next", next);
  if (!status.ok())
    return status;
  auto entry = require("update");
  if (!entry)
    return entry.status();
  updateEntry = std::make_unique<EntryRunner>(*session.device, **entry);
  return plan::Status();
}

/// Locks the run that goes on before anything of it is read.
plan::Status Trainer::openCheckpoint() {
  resuming = !options.resume.empty();
  if (!resuming)
    return plan::Status();
  resumed = parseRunReference(options.resume);
  auto folder = findCheckpoint(resumed);
  if (!folder)
    return folder.status();
  std::error_code code;
  sameRun =
      options.out.empty() || options.out == resumed.run || std::filesystem::equivalent(options.out, resumed.run, code);
  if (sameRun) {
    auto taken = RunLock::acquire(resumed.run);
    if (!taken)
      return taken.status();
    lock.emplace(taken.take());
    removeUnfinished(resumed.run);
  }
  auto opened = Checkpoint::open(*folder);
  if (!opened)
    return opened.status();
  checkpoint_.emplace(opened.take());
  resumed.selector = std::to_string(checkpoint_->manifest().position.step);
  return plan::Status();
}

plan::Status Trainer::openData() {
  const plan::Entry &entry = (step ? step : first)->runner.entry();
  bool split = evalSplitOf(session) > 0 && options.evalData.empty();
  DataNotes known;
  if (resuming) {
    auto read = readDataNotes(resumed.run, checkpoint_->manifest().run.files);
    if (!read)
      return read.status();
    known = read.take();
  }
  std::optional<std::vector<uint32_t>> vocabulary = known.vocabulary;
  auto opened = openEntryData(session, entry, options.data,
                              {split ? DatasetOptions::Part::Head : DatasetOptions::Part::All, true, vocabulary});
  if (!opened)
    return opened.status();
  data = opened.take();
  if (plan::Status status = checkClasses(known, *data.dataset, resumed.run); !status.ok())
    return status;
  if (options.evalData.empty() && !split)
    return plan::Status();
  const plan::Entry *evaluate = findEntry(session.plan(), "evaluate");
  if (!evaluate)
    return plan::error("{}: the plan has no entry 'evaluate'; compile with tcc --entry train,evaluate, or leave the "
                       "evaluation data out",
                       session.reader.path());
  vocabulary.reset();
  if (!data.dataset->vocabulary.empty())
    vocabulary = data.dataset->vocabulary;
  opened = openEntryData(session, *evaluate, split ? options.data : options.evalData,
                         {split ? DatasetOptions::Part::Tail : DatasetOptions::Part::All, false, vocabulary});
  if (!opened)
    return opened.status();
  evalData = opened.take();
  if (!split && evalData.dataset->classes != data.dataset->classes)
    return plan::error("{}: its class folders differ from those of {}, so labels would mean other things",
                       options.evalData, options.data);
  evaluateEntry = std::make_unique<EntryRunner>(*session.device, *evaluate);
  return plan::Status();
}

plan::Status Trainer::initialize() {
  if (options.init.empty())
    return plan::Status();
  auto fit = loadWeights(session.plan(), *session.device, options.init,
                         options.initPartial ? WeightsRule::WhatFits : WeightsRule::Strict);
  if (!fit)
    return fit.status();
  if (!fit->text().empty())
    notes.push_back(
        fmt::format("note: {}: {} of the model's values taken; {}", options.init, fit->loaded, fit->text()));
  return plan::Status();
}

/// Takes up the checkpoint's position and state.
plan::Status Trainer::continueRun() {
  position = checkpoint_->manifest().position;
  if (options.seed && *options.seed != position.seed)
    return plan::Status(
        fmt::format("--seed {}: the run that is resumed has seed {}; leave --seed out", *options.seed, position.seed),
        plan::kExitUsage);
  if (options.shuffle && *options.shuffle != position.shuffle)
    return plan::Status(fmt::format("--{}shuffle: the run that is resumed was {}shuffled",
                                    *options.shuffle ? "" : "no-", position.shuffle ? "" : "not "),
                        plan::kExitUsage);
  return loadState(*checkpoint_, session.plan(), *session.device);
}

/// The schedule keeps the length that the run began with: a user who lengthens the run may expect another.
void Trainer::noteScheduleTotal(std::optional<uint64_t> total) {
  if (!total || static_cast<double>(*total) == position.scheduleTotal)
    return;
  auto other = LearningSchedule::create(session.training.schedule(), static_cast<double>(*total));
  uint64_t next = schedule->perEpoch() ? position.epoch : position.step, last = std::max<uint64_t>(*total, 1) - 1;
  if (other && (other->factor(next) != schedule->factor(next) || other->factor(last) != schedule->factor(last)))
    notes.push_back(
        fmt::format("note: the schedule keeps the length {} that the run began with, though it now goes on to "
                    "{}; --set schedule.total_steps={} changes it",
                    position.scheduleTotal, *total, *total));
}

plan::Status Trainer::planRun() {
  if (resuming) {
    if (plan::Status status = continueRun(); !status.ok())
      return status;
  } else {
    position.seed = options.seed.value_or(session.training.seed());
    position.shuffle = options.shuffle.value_or(true);
  }
  for (LossRunner *entry : {step.get(), first.get(), next.get()})
    if (entry)
      entry->runner.setSeed(position.seed);
  if (evaluateEntry)
    evaluateEntry->setSeed(position.seed);
  position.settings = options.settings;
  data.reader->knowDamaged(position.damagedSamples);
  DataMap settings(session.data.settings().begin(), session.data.settings().end());
  bool pad = settingText(settings, "last") == "pad";
  uint64_t samples = data.reader->samples(), batch = data.reader->batch();
  uint64_t epochSamples = data.dataset->epochSamples ? data.dataset->epochSamples : samples;
  if (pad && epochSamples % batch != 0 && !data.reader->maskable())
    return plan::error(
        "{}: data.last = \"pad\" needs a loss that can leave targets out (cross_entropy or nll with integer "
        "targets); leave it out, and the last {} samples of an epoch are dropped",
        options.data, epochSamples % batch);
  SampleOrder order = data.dataset->epochSamples ? SampleOrder::Random
                      : position.shuffle         ? SampleOrder::Shuffled
                                                 : SampleOrder::Ordered;
  sampler.emplace(samples, epochSamples, batch, order, position.seed, pad);
  uint64_t batches = sampler->batchesPerEpoch();
  if (batches == 0)
    return plan::error("{}: too few samples: {}, but a batch takes {}; compile with a smaller batch, or pad with --set "
                       "data.last=pad",
                       options.data, epochSamples, batch);
  record_ = makeRunRecord(session);
  record_.data = makeDataRecord(data, epochSamples, batches);
  if (resuming) {
    auto differences = compareWithRun(resumed, checkpoint_->manifest(), record_, position);
    if (!differences)
      return differences.status();
    notes = differences.take();
  }
  if (position.batch > batches)
    return plan::error("{}: an epoch has {} batches, the resumed run had done {}: resume with the same data",
                       options.data, batches, position.batch);
  // Epochs count from the position: what an epoch holds may have changed since the run began.
  auto updatesOf = [&](uint64_t left) { return (left + accumulate - 1) / accumulate; };
  uint64_t perEpoch = updatesOf(batches), epochs = options.epochs.value_or(1);
  totalSteps = options.steps ? *options.steps : position.step;
  if (!options.steps && position.epoch < epochs)
    totalSteps += updatesOf(batches - position.batch) + (epochs - position.epoch - 1) * perEpoch;
  indices.reserve(batch);
  bool inEpochs = session.training.schedule().per() == "epoch";
  if (!resuming)
    position.scheduleTotal =
        static_cast<double>(inEpochs ? options.epochs.value_or((totalSteps + perEpoch - 1) / perEpoch) : totalSteps);
  auto made = LearningSchedule::create(session.training.schedule(), position.scheduleTotal);
  if (!made)
    return made.status();
  schedule = made.take();
  if (resuming)
    noteScheduleTotal(inEpochs ? options.epochs : std::optional(totalSteps));
  auto block = ScalarBlock::create(session.training, *schedule);
  if (!block)
    return block.status();
  scalars.emplace(block.take());
  std::span<float> values = step ? step->runner.scalars() : updateEntry->scalars();
  if (!values.empty() && values.size() < scalars->size())
    return plan::error("{}: the plan's scalar block is too small; compile again", session.reader.path());
  return plan::Status();
}

plan::Status Trainer::openRun() {
  run_ = !options.out.empty() ? options.out : resuming ? resumed.run : freeRunName(session.reader.path());
  if (resuming && checkpoint_->manifest().run.plan && checkpoint_->manifest().run.plan != record_.plan)
    notes.push_back(
        fmt::format("note: the plan is not the one in {}: results may differ in their last bits", resumed.run));
  if (sameRun) {
    auto superseded = supersedeAfter(run_, position);
    if (!superseded)
      return superseded.status();
    if (!superseded->empty())
      notes.push_back(*superseded);
    record_.files = checkpoint_->manifest().run.files;
  } else {
    if (plan::Status status = createRunFolder(run_); !status.ok())
      return status;
    auto taken = RunLock::acquire(run_);
    if (!taken)
      return taken.status();
    lock.emplace(taken.take());
    // The best checkpoint is in the other run.
    position.bestStep = 0;
    auto files = writeDataNotes(run_, *data.dataset);
    if (!files)
      return files.status();
    record_.files = files.take();
  }
  if (!lock->held())
    notes.push_back(fmt::format("note: the file system of {} has no locks: do not resume it twice at once", run_));
  checkpoint_.reset();
  if (plan::Status status = keepPlan(run_, session.reader); !status.ok())
    return status;
  auto opened = Recorder::open(
      run_, Progress(totalSteps, position.step, options.logEvery, options.terminal, options.messages));
  if (!opened)
    return opened.status();
  recorder.emplace(opened.take());
  checkpoints.emplace(run_, record_, session.plan(), *session.device, *signals, rules(), monotonicSeconds(),
                      [this](const std::string &text) { progress().note("warning: " + text); });
  if (sameRun) {
    checkpoints->resumedFrom(position.step);
    if (recorder->lastEvaluation() == position.step)
      evaluated = position.step;
  }
  for (const std::string &note : notes)
    progress().note(note);
  return plan::Status();
}

void Trainer::report() {
  const plan::Plan &plan = session.plan();
  uint64_t dataBytes = data.dataset->hostBytes() + (evalData.dataset ? evalData.dataset->hostBytes() : 0);
  progress().note(fmt::format("{}: {} samples, {} a batch{}, {} updates{}, seed {}{}", plan.model(),
                             data.reader->samples(), data.reader->batch(),
                             accumulate > 1 ? fmt::format(" x {} accumulated", accumulate) : "", totalSteps,
                             resuming ? fmt::format(" of which {} are done", position.step) : "", position.seed,
                             position.shuffle ? "" : ", not shuffled"));
  if (!data.dataset->vocabulary.empty())
    progress().note(fmt::format("vocabulary: {} characters", data.dataset->vocabulary.size()));
  if (!data.dataset->classes.empty())
    progress().note(fmt::format("classes: {}", data.dataset->classes.size()));
  if (!session.note.empty())
    progress().note(session.note);
  progress().note(
      fmt::format("memory: resident {}, transient {}, together {} on the device; host: data {}, plan {} (mapped)",
                  formatBytes(session.device->residentBytes()), formatBytes(session.device->transientBytes()),
                  formatBytes(session.device->residentBytes() + session.device->transientBytes()),
                  formatBytes(dataBytes), formatBytes(session.reader.fileBytes())));
}

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

CheckpointRules Trainer::rules() const {
  CheckpointRules rules;
  const plan::Checkpoints &given = session.training.checkpoints();
  if (given.has_every_minutes())
    rules.everyMinutes = given.every_minutes();
  if (given.has_keep())
    rules.keep = given.keep();
  if (given.has_keep_best())
    rules.keepBest = given.keep_best();
  if (options.checkpointEvery)
    rules.everySteps = *options.checkpointEvery;
  if (options.checkpointEvery == 0u)
    rules.everyMinutes = 0;
  return rules;
}

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

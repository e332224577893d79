//===- TrainSetup.cpp - what a training run needs before its first update -===//
#include "runtime/state/Weights.h"
#include "runtime/train/Resume.h"
#include "runtime/train/RunFolder.h"
#include "runtime/train/Trainer.h"

#include <algorithm>
#include <filesystem>

using namespace tcc;
using namespace tcc::runtime;

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

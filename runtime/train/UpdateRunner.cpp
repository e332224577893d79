//===- UpdateRunner.cpp - one update of the weights ----------------------===//
#include "runtime/train/UpdateRunner.h"
#include "runtime/plan/DType.h"
#include "runtime/plan/Shapes.h"
#include "runtime/state/Weights.h"
#include "runtime/train/LossScale.h"
#include "support/Advice.h"
#include "support/PlanNames.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// A step of a plan with phases ([[phase]] of the recipe) is one round: each phase that is due updates its parameters,
/// in order, on the same micro-batches. A phase is an UpdateRunner over entries of its own; all share the state.
///
/// All phases share one loss scale, like several optimizers with one GradScaler: a phase whose gradients are not finite
/// skips only its own update. The factor changes once per round; it shrinks if any phase skipped its update.
class PhasedRunner : public UpdateRunner {
public:
  /// Error: the plan lacks an entry of a phase.
  static Expected<std::unique_ptr<UpdateRunner>> create(const Session &session);

  std::vector<const plan::Entry *> dataEntries() const override {
    std::vector<const plan::Entry *> entries;
    for (const plan::Entry &entry : inputs)
      entries.push_back(&entry);
    return entries;
  }
  uint64_t window() const override { return main().window(); }
  uint64_t taken() const override { return main().taken(); }
  const LearningSchedule &schedule() const override { return main().schedule(); }
  void setSeed(uint64_t seed) override;
  void traceTo(Trace::Track *track) override;
  Status setSchedule(LearningSchedule schedule) override;
  Status run(TrainingPosition &position, Batches &batches, UpdateMetrics &metrics, bool &finite) override;
  bool settle() override;
  bool keepsState(const UpdateMetrics &metrics) const override;
  Cause findNonFinite(TrainingPosition &position, Batches &batches) override;

private:
  explicit PhasedRunner(const Session &session) : UpdateRunner(session, session.training) {}
  /// Computes the next round's loss scale. False: training should end. `metrics` are those of the round; `overflow` is
  /// the first phase that was skipped, or the number of phases.
  bool scaleAfterRound(TrainingPosition &position, UpdateMetrics &metrics, size_t overflow);
  /// The first phase that runs at every step: `loss`, `lr` and `grad_norm` of a step are its numbers.
  const UpdateRunner &main() const { return *phases[mainPhase]; }

  std::vector<std::unique_ptr<UpdateRunner>> phases;
  size_t mainPhase = 0, failed = 0; ///< failed: the phase that failed or was not finite
  bool updated = false;             ///< an earlier phase of the round has updated its parameters
  std::vector<plan::Entry> inputs;  ///< by shape: the inputs of all entries, for the data
};
} // namespace

/// Adds the inputs of `other` that the entry lacks.
static void addInputs(plan::Entry &entry, const plan::Entry &other) {
  for (const plan::Port &port : other.inputs())
    if (std::ranges::none_of(entry.inputs(), [&](const plan::Port &known) { return known.name() == port.name(); })) {
      *entry.add_buffers() = other.buffers(static_cast<int>(port.buffer()));
      plan::Port &added = *entry.add_inputs();
      added = port;
      added.set_buffer(static_cast<uint32_t>(entry.buffers_size() - 1));
    }
}

Expected<std::unique_ptr<UpdateRunner>> PhasedRunner::create(const Session &session) {
  std::unique_ptr<PhasedRunner> made(new PhasedRunner(session));
  made->mainPhase = static_cast<size_t>(session.training.phases_size());
  for (const plan::Phase &phase : session.training.phases()) {
    const auto number = static_cast<uint64_t>(made->phases.size());
    auto runner = UpdateRunner::create(session, phase.training(), {phase.name(), phase.every(), number});
    if (!runner)
      return runner.status();
    if (phase.every() == 1)
      made->mainPhase = std::min<size_t>(made->mainPhase, number);
    made->phases.push_back(runner.take());
  }
  if (made->mainPhase == made->phases.size())
    return error("{}: no phase of the plan runs at every step; compile again", session.reader.path());
  for (const plan::Entry *entry : made->phases.front()->dataEntries())
    made->inputs.push_back(*entry);
  for (const auto &phase : made->phases) {
    const std::vector<const plan::Entry *> shapes = phase->dataEntries();
    if (shapes.size() != made->inputs.size())
      return error("{}: the phases have entries in different numbers of shapes; compile again", session.reader.path());
    for (size_t shape = 0; shape < shapes.size(); ++shape)
      addInputs(made->inputs[shape], *shapes[shape]);
  }
  return std::unique_ptr<UpdateRunner>(std::move(made));
}

void PhasedRunner::setSeed(uint64_t seed) {
  for (const auto &phase : phases)
    phase->setSeed(seed);
}

void PhasedRunner::traceTo(Trace::Track *track) {
  for (const auto &phase : phases)
    phase->traceTo(track);
}

Status PhasedRunner::setSchedule(LearningSchedule schedule) {
  for (size_t i = 0; i < phases.size(); ++i) {
    const plan::Phase &phase = session.training.phases(static_cast<int>(i));
    const plan::Schedule &own = phase.training().schedule();
    // A phase's schedule counts its own updates.
    auto made = LearningSchedule::create(
        own, own.per() == "epoch" ? schedule.totalSteps() : std::floor(schedule.totalSteps() / double(phase.every())));
    if (!made)
      return made.status().withContext(fmt::format("phase {}", phase.name()));
    if (Status status = phases[i]->setSchedule(made.take()); !status.ok())
      return status;
  }
  return Status();
}

Status PhasedRunner::run(TrainingPosition &position, Batches &batches, UpdateMetrics &metrics, bool &finite) {
  metrics.phases.resize(phases.size());
  std::vector<PhaseMetrics> parts = std::move(metrics.phases);
  metrics = {};
  failed = phases.size();
  updated = false;
  finite = true;
  size_t overflow = phases.size();
  double overflowNorm = 0;
  for (size_t i = 0; i < phases.size(); ++i) {
    const plan::Phase &phase = session.training.phases(static_cast<int>(i));
    PhaseMetrics &part = parts[i];
    part.name = phase.name();
    part.ran = (position.step + 1) % phase.every() == 0;
    if (!part.ran)
      continue;
    UpdateMetrics own;
    Status status = phases[i]->run(position, batches, own, finite);
    part.loss = own.loss;
    part.learningRate = own.learningRate;
    part.gradientNorm = own.gradientNorm;
    part.skipped = own.skipped;
    const double waited = metrics.dataSeconds + own.dataSeconds;
    if (i == mainPhase || !status.ok() || !finite)
      metrics = own;
    metrics.dataSeconds = waited;
    if (!status.ok() || !finite) {
      failed = i;
      metrics.phases = std::move(parts);
      return status.ok() ? status : status.withContext(fmt::format("phase {}", phase.name()));
    }
    updated |= !own.skipped;
    if (own.skipped && overflow == phases.size()) {
      overflow = i;
      overflowNorm = own.gradientNorm;
    }
  }
  metrics.phases = std::move(parts);
  finite = scaleAfterRound(position, metrics, overflow);
  if (!finite) {
    failed = overflow;
    metrics.gradientNorm = overflowNorm;
  }
  return Status();
}

bool PhasedRunner::scaleAfterRound(TrainingPosition &position, UpdateMetrics &metrics, size_t overflow) {
  if (!position.lossScale || !session.training.has_loss_scale())
    return true;
  LossScaleState &scale = *position.lossScale;
  metrics.overflowed = overflow != phases.size();
  metrics.skipped = !updated;
  bool goesOn = true;
  if (metrics.overflowed)
    goesOn = noteSkipped(session.training.loss_scale(), scale, /*wholly=*/!updated);
  else
    noteApplied(session.training.loss_scale(), scale);
  metrics.skippedUpdates = 0;
  for (PhaseMetrics &part : metrics.phases) {
    auto own = scale.skippedOf.find(part.name);
    if (own == scale.skippedOf.end()) // the first round
      own = scale.skippedOf.emplace(part.name, 0).first;
    uint64_t &skipped = own->second;
    skipped += part.ran && part.skipped && goesOn;
    part.skippedUpdates = skipped;
    metrics.skippedUpdates += part.skippedUpdates;
  }
  return goesOn;
}

bool PhasedRunner::settle() {
  if (failed == phases.size())
    return true;
  return phases[failed]->settle() && !updated;
}

bool PhasedRunner::keepsState(const UpdateMetrics &metrics) const {
  return !updated && failed < phases.size() && phases[failed]->keepsState(metrics);
}

UpdateRunner::Cause PhasedRunner::findNonFinite(TrainingPosition &position, Batches &batches) {
  return failed < phases.size() ? phases[failed]->findNonFinite(position, batches) : Cause();
}

namespace {
/// A plan with stages ([[stage]] of the recipe) has the entries of an update for each stage: they update the parameters
/// that the stage trains, and only read the others. The update's number determines the stage, so a resumed run
/// continues in the right one. All stages share the optimizer's state.
class StagedRunner : public UpdateRunner {
public:
  /// Error: the plan lacks an entry of a stage.
  static Expected<std::unique_ptr<UpdateRunner>> create(const Session &session);

  std::vector<const plan::Entry *> dataEntries() const override { return stages.front()->dataEntries(); }
  uint64_t window() const override { return stages.front()->window(); }
  uint64_t taken() const override { return stages[current]->taken(); }
  const LearningSchedule &schedule() const override { return stages.front()->schedule(); }
  void setSeed(uint64_t seed) override;
  void traceTo(Trace::Track *track) override;
  void observe(MicroBatchObserver made) override;
  Status setSchedule(LearningSchedule schedule) override;
  Status run(TrainingPosition &position, Batches &batches, UpdateMetrics &metrics, bool &finite) override;
  bool settle() override { return stages[current]->settle(); }
  bool keepsState(const UpdateMetrics &metrics) const override { return stages[current]->keepsState(metrics); }
  Cause findNonFinite(TrainingPosition &position, Batches &batches) override {
    return stages[current]->findNonFinite(position, batches);
  }

private:
  explicit StagedRunner(const Session &session) : UpdateRunner(session, session.training) {}

  std::vector<plan::Training> trainings; ///< by stage; the stage's runner refers to it
  std::vector<std::unique_ptr<UpdateRunner>> stages;
  size_t current = 0; ///< of the last update
};
} // namespace

/// The plan's settings, with those of the stage in place of the plan's.
static plan::Training trainingOf(const plan::Training &whole, const plan::Stage &stage) {
  plan::Training training = whole;
  *training.mutable_scalars() = stage.training().scalars();
  *training.mutable_optimizer() = stage.training().optimizer();
  double &rate = (*training.mutable_optimizer()->mutable_numbers())["lr"];
  rate *= stage.lr_scale();
  return training;
}

Expected<std::unique_ptr<UpdateRunner>> StagedRunner::create(const Session &session) {
  std::unique_ptr<StagedRunner> made(new StagedRunner(session));
  for (const plan::Stage &stage : session.training.stages())
    made->trainings.push_back(trainingOf(session.training, stage));
  auto inputsOf = [](const plan::Entry &entry) {
    std::vector<std::string> names;
    for (const plan::Port &port : entry.inputs())
      names.push_back(port.name());
    return names;
  };
  for (int i = 0; i < session.training.stages_size(); ++i) {
    const std::string &name = session.training.stages(i).name();
    auto runner = UpdateRunner::create(session, made->trainings[static_cast<size_t>(i)], {name});
    if (!runner)
      return runner.status();
    made->stages.push_back(runner.take());
    // One reader fills the inputs of all stages, so they must be the same, in the same order.
    if (inputsOf(made->stages.back()->dataEntry()) != inputsOf(made->dataEntry()))
      return error("{}: the entries of {} read other inputs than those of {}; compile again", session.reader.path(),
                   name, session.training.stages(0).name());
  }
  return std::unique_ptr<UpdateRunner>(std::move(made));
}

void StagedRunner::setSeed(uint64_t seed) {
  for (const auto &stage : stages)
    stage->setSeed(seed);
}

void StagedRunner::traceTo(Trace::Track *track) {
  for (const auto &stage : stages)
    stage->traceTo(track);
}

void StagedRunner::observe(MicroBatchObserver made) {
  for (const auto &stage : stages)
    stage->observe(made);
}

Status StagedRunner::setSchedule(LearningSchedule schedule) {
  for (const auto &stage : stages)
    if (Status status = stage->setSchedule(schedule); !status.ok())
      return status;
  return Status();
}

Status StagedRunner::run(TrainingPosition &position, Batches &batches, UpdateMetrics &metrics, bool &finite) {
  current = 0;
  while (current + 1 < stages.size() && position.step >= session.training.stages(static_cast<int>(current)).until())
    ++current;
  return stages[current]->run(position, batches, metrics, finite);
}

Expected<std::vector<const plan::Entry *>> UpdateRunner::requireShapes(const std::string &base) const {
  const std::string name = phase.name.empty() ? base : base + "." + phase.name;
  std::vector<const plan::Entry *> shapes = plan::shapesOf(session.plan(), name);
  if (shapes.empty())
    return error("{}: the plan has no entry '{}', so it cannot train; compile with {}", session.reader.path(), name,
                 advice::compile("entry", "train,evaluate"));
  return shapes;
}

Expected<const plan::Entry *> UpdateRunner::require(const std::string &base) const {
  auto shapes = requireShapes(base);
  return shapes ? Expected<const plan::Entry *>(shapes->front()) : shapes.status();
}

Expected<std::unique_ptr<UpdateRunner>> UpdateRunner::create(const Session &session) {
  if (!session.training.phases().empty())
    return PhasedRunner::create(session);
  return session.training.stages().empty() ? create(session, session.training, {}) : StagedRunner::create(session);
}

Expected<std::unique_ptr<UpdateRunner>> UpdateRunner::create(const Session &session, const plan::Training &training,
                                                             UpdatePhase phase) {
  std::unique_ptr<UpdateRunner> made(new UpdateRunner(session, training, std::move(phase)));
  made->accumulate = static_cast<uint64_t>(std::max<int64_t>(training.accumulate(), 1));
  if (Status status = checkVirtualRanks(session); !status.ok())
    return status;
  made->own = session.virtualRanks();
  const bool virtualRanks = session.training.parallel().virtual_ranks() != 0;
  bool windows = made->accumulate > 1 || virtualRanks;
  std::vector<const char *> names = windows
                                        ? std::vector<const char *>{entries::kAccumulateFirst, entries::kAccumulateNext}
                                        : std::vector<const char *>{entries::kStep};
  if (windows && made->accumulate == 1)
    names.pop_back();
  for (const char *name : names) {
    auto shapes = made->requireShapes(name);
    if (!shapes)
      return shapes.status();
    made->losses.resize(std::max(made->losses.size(), shapes->size()));
    if (made->losses.size() != shapes->size())
      return error("{}: the plan lacks entry '{}' in some of its shapes; compile again", session.reader.path(), name);
    for (size_t shape = 0; shape < shapes->size(); ++shape) {
      auto added = made->lossEntryOf(*(*shapes)[shape]);
      if (!added)
        return added.status();
      made->losses[shape].push_back(added.take());
    }
  }
  if (windows) {
    auto entry = made->require(entries::kUpdate);
    if (!entry)
      return entry.status();
    made->closing.emplace(*session.device, **entry);
    if (made->sumsInUpdate()) {
      auto terms = made->termsOf(*made->closing);
      if (!terms)
        return terms.status();
      made->closingTerms = terms.take();
    }
    made->before.emplace(session.plan(), *session.device);
  }
  if (made->own.count > 1)
    made->ofFirst.emplace(session.plan(), *session.device);
  for (int level = 0; virtualRanks && uint64_t(2) << level <= made->own.count; ++level)
    for (auto [kind, runners] : {std::pair(entries::kHold, &made->holds), std::pair(entries::kJoin, &made->joins)}) {
      auto entry = made->require(std::string(kind) + std::to_string(level));
      if (!entry)
        return entry.status();
      runners->emplace_back(*session.device, **entry);
    }
  return made;
}

Expected<UpdateRunner::LossEntry> UpdateRunner::lossEntryOf(const plan::Entry &entry) const {
  EntryRunner runner(*session.device, entry);
  const int sum = runner.outputIndex(outputs::kLossSum), weight = runner.outputIndex(outputs::kLossWeight),
            norm = runner.outputIndex(outputs::kGradNorm);
  if (sum < 0 || weight < 0)
    return error("{}: entry '{}' gives no loss_sum and loss_weight; compile again", session.reader.path(),
                 entry.name());
  auto terms = termsOf(runner);
  if (!terms)
    return terms.status();
  return LossEntry{std::move(runner), sum, weight, norm, terms.take()};
}

std::vector<const plan::Entry *> UpdateRunner::dataEntries() const {
  std::vector<const plan::Entry *> entries;
  for (const std::vector<LossEntry> &shape : losses)
    entries.push_back(&shape.front().runner.entry());
  return entries;
}

Expected<std::vector<std::pair<int, int>>> UpdateRunner::termsOf(const EntryRunner &runner) const {
  std::vector<std::pair<int, int>> terms;
  for (const plan::LossTerm &term : training.losses()) {
    const int sum = runner.outputIndex(std::string(outputs::kTermSum) + term.name()),
              weight = runner.outputIndex(std::string(outputs::kTermWeight) + term.name());
    if (sum < 0 || weight < 0)
      return error("{}: entry '{}' gives no numbers of the loss '{}'; compile again", session.reader.path(),
                   runner.entry().name(), term.name());
    terms.emplace_back(sum, weight);
  }
  return terms;
}

Status UpdateRunner::addTerms(const EntryRunner &runner, const std::vector<std::pair<int, int>> &terms,
                              UpdateMetrics &metrics) {
  Status status;
  for (size_t i = 0; i < terms.size() && status.ok(); ++i) {
    status = runner.addScalar(terms[i].first, metrics.losses[i].sum);
    if (status.ok())
      status = runner.addScalar(terms[i].second, metrics.losses[i].weight);
  }
  return status;
}

void UpdateRunner::setSeed(uint64_t seed) {
  for (std::vector<LossEntry> &shape : losses)
    for (LossEntry &entry : shape)
      entry.runner.setSeed(seed);
  if (closing)
    closing->setSeed(seed);
}

Status UpdateRunner::setSchedule(LearningSchedule schedule) {
  rates = std::move(schedule);
  auto block = ScalarBlock::create(training, *rates);
  if (block)
    scalars.emplace(block.take());
  return block.status();
}

Status UpdateRunner::giveScalars(EntryRunner &runner, const TrainingPosition &position) {
  std::optional<double> scale;
  uint64_t skipped = 0;
  if (const auto &state = position.lossScale) {
    scale = state->scale;
    auto own = state->skippedOf.find(phase.name);
    skipped = phase.name.empty() ? state->skipped : own == state->skippedOf.end() ? 0 : own->second;
  }
  return runner.giveScalars(*scalars, updateOf(position) - skipped, pointOf(position), scale);
}

Status UpdateRunner::microBatch(uint64_t virtualRank, uint64_t inWindow, TrainingPosition &position,
                                Batches &batches, UpdateMetrics &metrics, Sums &sums) {
  const uint64_t number = readOf(position, virtualRank, inWindow);
  latest = batches.shapeOf(position, number);
  LossEntry &entry = entryOf(latest, inWindow);
  entry.runner.setCounters(position.step, counterOf(virtualRank, inWindow));
  if (Status status = giveScalars(entry.runner, position); !status.ok())
    return status;
  const double before = batches.dataSeconds();
  if (Status status = batches.give(entry.runner, position, number); !status.ok())
    return status;
  metrics.dataSeconds += batches.dataSeconds() - before;
  state = closing ? State::Window : State::Partial;
  TraceScope span(trace, entry.runner.entry().name().c_str(), "update", metrics.step);
  Status status = entry.runner.run();
  if (status.ok())
    status = entry.runner.addScalar(entry.sum, sums.loss);
  if (status.ok())
    status = entry.runner.addScalar(entry.weight, sums.weight);
  if (status.ok() && !(closing && sumsInUpdate()))
    status = addTerms(entry.runner, entry.terms, metrics);
  if (status.ok() && observer)
    status = observer(entry.runner, virtualRank * lastWindow + inWindow);
  metrics.damaged = position.damagedSamples.size();
  if (virtualRank != 0) // the first virtual rank has counted the samples of all
    return status;
  metrics.samples += batches.samples(position.epoch, position.batch + inWindow);
  metrics.tokens += batches.tokens(position.epoch, position.batch + inWindow);
  return status;
}

Status UpdateRunner::addToTree(uint64_t virtualRank) {
  for (size_t level = 0;; ++level) {
    if (virtualRank >> level & 1) {
      if (Status status = joins[level].run(); !status.ok())
        return status;
      continue;
    }
    return virtualRank + 1 < own.count ? holds[level].run() : Status();
  }
}

Status UpdateRunner::runWindows(TrainingPosition &position, Batches &batches, UpdateMetrics &metrics,
                                Sums &sums) {
  Status status = closing ? before->save() : Status();
  for (uint64_t v = 0; v < own.count && status.ok(); ++v) {
    if (v != 0)
      status = before->restore();
    for (uint64_t i = 0; i < lastWindow && status.ok(); ++i)
      status = microBatch(v, i, position, batches, metrics, sums);
    if (status.ok() && v == 0 && ofFirst)
      status = ofFirst->save();
    if (status.ok() && own.count > 1)
      status = addToTree(v);
  }
  return status.ok() && ofFirst ? ofFirst->restore() : status;
}

Status UpdateRunner::run(TrainingPosition &position, Batches &batches, UpdateMetrics &metrics, bool &finite) {
  std::vector<LossPart> parts = std::move(metrics.losses);
  metrics = {};
  parts.resize(static_cast<size_t>(training.losses_size()));
  for (size_t i = 0; i < parts.size(); ++i)
    parts[i] = {training.losses(static_cast<int>(i)).name()};
  metrics.losses = std::move(parts);
  metrics.step = position.step + 1;
  metrics.epoch = position.epoch + 1;
  metrics.learningRate = scalars->learningRate(pointOf(position));
  lastWindow = std::min(accumulate, batches.perEpoch() - position.batch);
  // On a device that computes nothing, every number counts as finite.
  auto good = [&](double value) { return std::isfinite(value) || !session.computes(); };
  Sums sums;
  if (session.ranks)
    session.ranks->setStep(metrics.step);
  if (session.training.has_loss_scale() && !position.lossScale)
    position.lossScale = firstLossScale(session.training.loss_scale());
  Status status = runWindows(position, batches, metrics, sums);
  metrics.loss = sums.loss / sums.weight;
  metrics.lossWeight = sums.weight;
  finite = good(metrics.loss);
  if (!status.ok())
    return status;
  // The next update is submitted while this one runs, so do not wait for the norm, which is known only at its end.
  const bool keeps = session.device->capabilities().keepsNumbers && session.computes() && losses[latest][0].norm >= 0;
  if (keeps && finite && !normGuards() && phase.name.empty()) {
    metrics.normOfRun = losses[latest][0].runner.latestRun();
    metrics.shape = latest;
    state = State::Whole;
    finite = scaleAfter(position, metrics, true);
    return status;
  }
  if (!closing) {
    status = losses[latest][0].runner.addScalar(losses[latest][0].norm, metrics.gradientNorm);
    if (status.ok())
      state = State::Whole;
    finite = finite && scaleAfter(position, metrics, good(metrics.gradientNorm));
    return status;
  }
  // With several ranks these are this rank's sums only: all ranks must run `update`, which adds them.
  if (!finite && !sumsInUpdate())
    return status;
  if (status = giveScalars(*closing, position); !status.ok())
    return status;
  closing->setCounters(position.step, counterOf(0, 0));
  state = State::Partial;
  TraceScope span(trace, closing->entry().name().c_str(), "update", metrics.step);
  status = closing->run();
  if (status.ok())
    status = closing->addScalar(closing->outputIndex(outputs::kGradNorm), metrics.gradientNorm);
  if (sumsInUpdate()) {
    Sums global;
    if (status.ok())
      status = closing->addScalar(closing->outputIndex(outputs::kLossSum), global.loss);
    if (status.ok())
      status = closing->addScalar(closing->outputIndex(outputs::kLossWeight), global.weight);
    if (status.ok())
      status = addTerms(*closing, closingTerms, metrics);
    metrics.loss = global.loss / global.weight;
    metrics.lossWeight = global.weight;
    if (status.ok() && !good(metrics.loss)) {
      finite = false;
      state = State::Window; // the update did not change the state
      return status;
    }
  }
  finite = scaleAfter(position, metrics, good(metrics.gradientNorm));
  // With accumulation, an update whose norm is not finite changes no state. A skipped update counts as whole: running
  // statistics have advanced, as in PyTorch.
  state = !status.ok() ? State::Partial : finite ? State::Whole : State::Window;
  return status;
}

Status UpdateRunner::complete(UpdateMetrics &metrics, bool &finite) const {
  if (metrics.normOfRun == 0)
    return Status();
  const LossEntry &entry = losses[metrics.shape][0];
  Expected<double> norm = entry.runner.scalarOutput(entry.norm, metrics.normOfRun);
  if (!norm)
    return norm.status();
  metrics.gradientNorm = *norm;
  metrics.normOfRun = 0;
  finite = std::isfinite(*norm);
  return Status();
}

bool UpdateRunner::scaleAfter(TrainingPosition &position, UpdateMetrics &metrics, bool finiteNorm) {
  if (!position.lossScale)
    return finiteNorm;
  if (!session.training.has_loss_scale()) { // an earlier plan of the run had one: keep its count of skipped updates
    metrics.skippedUpdates = position.lossScale->skipped;
    return finiteNorm;
  }
  const plan::LossScale &rule = session.training.loss_scale();
  LossScaleState &scale = *position.lossScale;
  metrics.lossScale = scale.scale;
  metrics.overflowed = !finiteNorm;
  bool goesOn = true;
  if (!phase.name.empty()) { // all phases share the factor, which changes at the end of the round
    metrics.skipped = !finiteNorm;
    return true;
  }
  if (finiteNorm)
    noteApplied(rule, scale);
  else
    metrics.skipped = goesOn = noteSkipped(rule, scale);
  metrics.skippedUpdates = scale.skipped;
  return goesOn;
}

bool UpdateRunner::settle() {
  if (state == State::Window && before->restore().ok())
    state = State::Whole;
  return state == State::Whole;
}

bool UpdateRunner::keepsState(const UpdateMetrics &metrics) const {
  return !std::isfinite(metrics.loss) || normGuards();
}

UpdateRunner::Cause UpdateRunner::findNonFinite(TrainingPosition &position, Batches &batches) {
  Cause cause;
  // If entries gather parameters, either all ranks rerun a micro-batch or none does.
  const bool together = session.shardsParameters();
  auto onAnyRank = [&](bool own) {
    auto any = together ? session.ranks->anyOf(own) : Expected<uint64_t>(own);
    return !any || *any != 0;
  };
  for (uint64_t n = 0; n < lastWindow * own.count; ++n) {
    const uint64_t v = n / lastWindow, i = n % lastWindow;
    EntryRunner &runner = entryOf(batches.shapeOf(position, readOf(position, v, i)), i).runner;
    (void)giveScalars(runner, position);
    runner.setCounters(position.step, counterOf(v, i));
    if (onAnyRank(!batches.give(runner, position, readOf(position, v, i)).ok()))
      continue;
    cause.nanInput = batches.describeNonFinite(/*infinities=*/false);
    if (cause.nanInput.empty() && cause.infiniteInput.empty())
      cause.infiniteInput = batches.describeNonFinite(/*infinities=*/true);
    if (cause.nanInput.empty() || together) {
      const EntryRunner::NonFinite found = runner.findNonFinite();
      cause.node = found.node;
      cause.place = n << 32 | found.instruction;
    }
    if (onAnyRank(!cause.node.empty() || !cause.nanInput.empty()))
      break;
  }
  return cause;
}

WindowState::WindowState(const plan::Plan &plan, Device &device) : device(device) {
  std::vector<bool> written = writtenVariables(plan);
  for (int i = 0; i < plan.variables_size(); ++i) {
    const plan::Variable &variable = plan.variables(i);
    bool byForwardPass = written[static_cast<size_t>(i)] && variable.role() != plan::PARAMETER &&
                         variable.role() != plan::OPTIMIZER && variable.role() != plan::ACCUMULATOR &&
                         variable.role() != plan::EMA;
    if (byForwardPass)
      kept.push_back({Place::variable(static_cast<uint32_t>(i)),
                      std::vector<std::byte>(plan::tensorBytes(variable.type()).value_or(0))});
  }
}

Status WindowState::save() {
  for (Kept &one : kept)
    if (Status status = device.read(one.place, 0, one.copy); !status.ok())
      return status;
  return Status();
}

Status WindowState::restore() {
  for (const Kept &one : kept)
    if (Status status = device.write(one.place, 0, one.copy); !status.ok())
      return status;
  return Status();
}

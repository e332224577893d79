//===- UpdateRunner.cpp - one update of the weights ----------------------===//
#include "runtime/train/UpdateRunner.h"
#include "runtime/train/LossScale.h"
#include "runtime/train/PhasedRunner.h"
#include "runtime/train/StagedRunner.h"
#include "support/Advice.h"
#include "support/PlanNames.h"

#include <algorithm>
#include <cmath>

using namespace tcc;
using namespace tcc::runtime;

Expected<const plan::Entry *> UpdateRunner::require(const std::string &base) const {
  const std::string name = phase.name.empty() ? base : base + "." + phase.name;
  if (const plan::Entry *entry = findEntry(session.plan(), name))
    return entry;
  return error("{}: the plan has no entry '{}', so it cannot train; compile with {}",
               session.reader.path(), name, advice::compile("entry", "train,evaluate"));
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
    auto entry = made->require(name);
    if (!entry)
      return entry.status();
    EntryRunner runner(*session.device, **entry);
    int sum = runner.outputIndex(outputs::kLossSum), weight = runner.outputIndex(outputs::kLossWeight),
        norm = runner.outputIndex(outputs::kGradNorm);
    if (sum < 0 || weight < 0)
      return error("{}: entry '{}' gives no loss_sum and loss_weight; compile again", session.reader.path(), name);
    auto terms = made->termsOf(runner);
    if (!terms)
      return terms.status();
    made->losses.push_back({std::move(runner), sum, weight, norm, terms.take()});
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
  for (LossEntry &entry : losses)
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
  LossEntry &entry = entryOf(inWindow);
  entry.runner.setCounters(position.step, counterOf(virtualRank, inWindow));
  if (Status status = giveScalars(entry.runner, position); !status.ok())
    return status;
  const double before = batches.dataSeconds();
  if (Status status = batches.give(entry.runner, position, readOf(position, virtualRank, inWindow)); !status.ok())
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
  metrics.damaged = position.damagedSamples.size();
  if (virtualRank != 0) // the first virtual rank has counted the samples of all
    return status;
  metrics.samples += batches.samples(position.batch + inWindow);
  metrics.tokens += batches.tokens(position.batch + inWindow);
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
  const bool keeps = session.device->capabilities().keepsNumbers && session.computes() && losses[0].norm >= 0;
  if (keeps && finite && !normGuards() && phase.name.empty()) {
    metrics.normOfRun = losses[0].runner.latestRun();
    state = State::Whole;
    finite = scaleAfter(position, metrics, true);
    return status;
  }
  if (!closing) {
    status = losses[0].runner.addScalar(losses[0].norm, metrics.gradientNorm);
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
  Expected<double> norm = losses[0].runner.scalarOutput(losses[0].norm, metrics.normOfRun);
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
    EntryRunner &runner = entryOf(i).runner;
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

//===- Profile.cpp - when each instruction of a few updates ran ----------===//
#include "runtime/train/Profile.h"
#include "runtime/data/Sampler.h"
#include "runtime/train/EntryRunner.h"
#include "runtime/train/Metrics.h"
#include "runtime/train/Ranks.h"
#include "runtime/train/Scalars.h"
#include "support/Advice.h"
#include "support/PlanNames.h"

#include <algorithm>
#include <cmath>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// The entries that one step runs, each with its number of calls.
struct Call {
  std::unique_ptr<EntryRunner> runner;
  uint64_t times = 1;
  int loss = -1;
};

class Profiler {
public:
  Profiler(Session &session, const ProfileOptions &options) : session(session), options(options) {}

  Expected<Profile> run() {
    for (auto stage : {&Profiler::findEntries, &Profiler::openData})
      if (Status status = (this->*stage)(); !status.ok())
        return status;
    std::vector<CollectiveTimes> before;
    for (uint64_t i = 0; i < options.warmup + options.steps; ++i) {
      if (i == options.warmup)
        before = collectiveTimes();
      if (Status status = step(i, i >= options.warmup); !status.ok())
        return status.withContext(fmt::format("step {}", i + 1));
    }
    addCollectives(before, collectiveTimes());
    return std::move(result);
  }

private:
  template <typename Visit> void forCollectives(Visit &&visit) const {
    for (size_t e = 0; session.worldSize() > 1 && e < result.entries.size(); ++e)
      for (int i = 0; i < result.entries[e]->instructions_size(); ++i)
        if (result.entries[e]->instructions(i).has_collective())
          visit(e, i);
  }

  std::vector<CollectiveTimes> collectiveTimes() const {
    std::vector<CollectiveTimes> times;
    forCollectives([&](size_t e, int i) {
      if (auto entry = session.device->findEntry(result.entries[e]->name()))
        times.push_back(session.device->collectiveTimes(*entry, static_cast<uint32_t>(i)));
    });
    return times;
  }

  void addCollectives(const std::vector<CollectiveTimes> &before, const std::vector<CollectiveTimes> &after) {
    size_t next = 0;
    const auto steps = static_cast<double>(options.steps);
    forCollectives([&](size_t e, int i) {
      const CollectiveTimes &a = before[next], &b = after[next];
      ++next;
      result.collectives.push_back({e, i, static_cast<double>(b.calls - a.calls) / steps,
                                    (b.seconds - a.seconds) / steps, (b.exposedSeconds - a.exposedSeconds) / steps});
    });
  }

  Status findEntries() {
    const plan::Plan &plan = session.plan();
    if (session.worldSize() > 1)
      for (const Status &status :
           {requireRanks(session), checkVirtualRanks(session),
            compareLines(*session.ranks, fmt::format("{}={}\n{}={}\n{}={}\n", advice::option("entry"), options.entry,
                                                     advice::option("warmup"), options.warmup, advice::option("steps"),
                                                     options.steps))})
        if (!status.ok())
          return status;
    uint64_t window = static_cast<uint64_t>(std::max<int64_t>(session.training.accumulate(), 1));
    const bool phased = !session.training.phases().empty();
    if ((phased || !session.training.stages().empty()) && options.entry.empty())
      return Status(fmt::format("{}: the plan has several {}; give one of its entries: {}",
                                session.reader.path(), phased ? "optimizers ([[phase]])" : "stages ([[stage]])",
                                advice::option("entry", entryNames())),
                    StatusCode::Usage);
    std::vector<std::pair<std::string, uint64_t>> wanted = {{options.entry, 1}};
    if (options.entry.empty() && window == 1 && session.training.parallel().virtual_ranks() == 0)
      wanted = {{entries::kStep, 1}};
    else if (options.entry.empty()) {
      const uint64_t share = std::min(session.virtualRanks().count, plan::mostVirtualRanks(session.training));
      wanted.clear();
      for (const char *name : {entries::kAccumulateFirst, entries::kAccumulateNext, entries::kUpdate})
        if (const uint64_t times = entries::runsPerUpdate(name, static_cast<int64_t>(window), share))
          wanted.emplace_back(name, times);
      // The entries that sum over virtual ranks; their order does not affect the times.
      for (uint64_t level = 0; uint64_t(2) << level <= share; ++level)
        for (std::string_view kind : {entries::kHold, entries::kJoin})
          wanted.emplace_back(std::string(kind) + std::to_string(level), share >> (level + 1));
    }
    for (const auto &[name, times] : wanted) {
      const plan::Entry *entry = findEntry(plan, name);
      if (!entry && options.entry.empty())
        return error(
            "{}: the plan has no entry '{}', so it cannot train; compile with {}, or give one of its "
            "entries: {}",
            session.reader.path(), name, advice::compile("entry", "train"), advice::option("entry", entryNames()));
      if (!entry)
        return Status(
            fmt::format("{}: {} has no such entry; it has {}", advice::option("entry", name), session.reader.path(),
                        entryNames()),
            StatusCode::Usage);
      Call call{std::make_unique<EntryRunner>(*session.device, *entry), times, -1};
      call.loss = call.runner->outputIndex(outputs::kLossSum);
      call.runner->setSeed(session.training.seed());
      calls.push_back(std::move(call));
      result.entries.push_back(entry);
    }
    return Status();
  }

  std::string entryNames() const {
    std::string names;
    for (const plan::Entry &entry : session.plan().entries())
      names += (names.empty() ? "" : ", ") + entry.name();
    return names;
  }

  Status openData() {
    // All entries of an update that read data have the same inputs, so one reader serves them.
    for (const Call &call : calls)
      if (data.readers.empty() && call.runner->entry().inputs_size()) {
        EntryDataOptions open;
        open.learnsFacts = true;
        open.cutsLong = true; // times, not results, are wanted
        auto opened = openEntryData(session, call.runner->entry(), options.data, open);
        if (!opened)
          return opened.status();
        data = opened.take();
        sampler.emplace(data.reader().samples(), data.reader().samples(), data.reader().batch(), SampleOrder::Ordered,
                        0, LastBatch::Drop);
        const plan::VirtualRanks share = session.virtualRanks();
        sampler->setRanks(share.first, session.worldSize() > 1 ? share.all : 1);
        if (sampler->batchesPerEpoch() == 0)
          return error("{}: too few samples: {}, but a batch takes {}; give more data, or compile with a smaller "
                             "batch",
                             options.data, data.reader().samples(), data.reader().batch());
      }
    plan::Training training = session.training;
    for (const plan::Phase &phase : session.training.phases())
      if (options.entry.ends_with("." + phase.name()))
        training = phase.training();
    for (const plan::Stage &stage : session.training.stages())
      if (options.entry.ends_with("." + stage.name())) {
        *training.mutable_scalars() = stage.training().scalars();
        *training.mutable_optimizer() = stage.training().optimizer();
      }
    auto schedule = LearningSchedule::create(training.schedule(), static_cast<double>(options.warmup + options.steps));
    if (!schedule)
      return schedule.status();
    auto block = ScalarBlock::create(training, schedule.take());
    if (!block)
      return block.status();
    scalars.emplace(block.take());
    return Status();
  }

  Status step(uint64_t number, bool measured) {
    StepTimes times;
    uint64_t inWindow = 0, samples = 0, tokens = 0;
    times.begin = monotonicSeconds();
    for (size_t i = 0; i < calls.size(); ++i)
      for (uint64_t again = 0; again < calls[i].times; ++again) {
        EntryRunner &runner = *calls[i].runner;
        EntryTimes run;
        run.entry = i;
        run.pieces.reserve(static_cast<size_t>(2 * runner.entry().instructions_size()));
        runner.setCounters(number, inWindow);
        if (Status status = runner.giveScalars(*scalars, number + 1, number); !status.ok())
          return status;
        if (runner.entry().inputs_size()) {
          sampler->batchOf(0, batch++ % sampler->batchesPerEpoch(), indices);
          Status status = runner.giveInputs([&](auto inputs) { return data.reader().fill(indices, false, inputs); });
          if (!status.ok())
            return status;
          ++inWindow;
          samples += indices.size();
          tokens += indices.size() * data.reader().tokensPerSample();
        }
        run.begin = monotonicSeconds();
        Status status = runner.runTimed([&run](std::span<const LaunchPart> parts) { addPieces(run, parts); });
        if (!status.ok())
          return status;
        Expected<double> loss = runner.scalarOutput(calls[i].loss);
        if (!loss)
          return loss.status();
        result.finite &= std::isfinite(*loss);
        times.runs.push_back(std::move(run));
      }
    times.end = monotonicSeconds();
    result.samples = samples;
    result.tokens = tokens;
    if (measured)
      result.steps.push_back(std::move(times));
    return Status();
  }

  static void addPieces(EntryTimes &run, std::span<const LaunchPart> parts) {
    double end = monotonicSeconds(), begin = run.pieces.empty() ? run.begin : run.pieces.back().end, all = 0, sum = 0;
    for (const LaunchPart &part : parts)
      all += part.workerSeconds;
    for (const LaunchPart &part : parts) {
      sum += part.workerSeconds;
      run.pieces.push_back({part.instruction, all > 0 ? begin + (end - begin) * (sum / all) : end});
    }
  }

  Session &session;
  const ProfileOptions &options;
  Profile result;
  std::vector<Call> calls;
  EntryData data;
  std::optional<Sampler> sampler;
  std::optional<ScalarBlock> scalars;
  std::vector<uint64_t> indices;
  uint64_t batch = 0;
};
} // namespace

Expected<Profile> tcc::runtime::profile(Session &session, const ProfileOptions &options) {
  return Profiler(session, options).run();
}

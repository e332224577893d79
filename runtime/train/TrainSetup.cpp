//===- TrainSetup.cpp - preparation of a training run ---------------------===//
#include "runtime/train/TrainSetup.h"
#include "runtime/data/Sampler.h"
#include "runtime/plan/Shapes.h"
#include "runtime/state/Weights.h"
#include "runtime/train/AlgorithmRecord.h"
#include "runtime/train/Evaluate.h"
#include "runtime/train/Resume.h"
#include "runtime/train/RunFolder.h"
#include "support/Advice.h"
#include "support/OwnFiles.h"
#include "support/PlanNames.h"

#include <algorithm>
#include <filesystem>

using namespace tcc;
using namespace tcc::runtime;

namespace {
class Setup {
public:
  Setup(Session &session, const TrainOptions &options) : session(session), options(options) {}

  Expected<PreparedRun> run() {
    if (Status status = requireRanks(session); !status.ok())
      return status;
    auto updates = UpdateRunner::create(session);
    if (!updates)
      return updates.status();
    result.updates = updates.take();
    for (auto stage : {&Setup::openCheckpoint, &Setup::openData, &Setup::setGoals, &Setup::initialize,
                       &Setup::takeUpPosition, &Setup::beginAverages, &Setup::orderBatches, &Setup::planSteps})
      if (Status status = (this->*stage)(); !status.ok())
        return status;
    return std::move(result);
  }

private:
  const Manifest &stored() const { return result.resumed->checkpoint->manifest(); }

  /// Locks the resumed run before reading anything from it.
  Status openCheckpoint() {
    if (options.resume.empty())
      return Status();
    ResumedRun &resumed = result.resumed.emplace();
    RunReference &reference = resumed.reference = parseRunReference(options.resume);
    auto folder = findCheckpoint(reference);
    if (!folder)
      return folder.status();
    std::error_code code;
    resumed.goesOn = options.out.empty() || options.out == reference.run ||
                     std::filesystem::equivalent(options.out, reference.run, code);
    if (resumed.goesOn && session.leads()) {
      auto taken = RunLock::acquire(reference.run);
      if (!taken)
        return taken.status();
      result.lock.emplace(taken.take());
      removeUnfinished(reference.run);
    }
    auto opened = Checkpoint::open(*folder);
    if (!opened)
      return opened.status();
    resumed.checkpoint.emplace(opened.take());
    reference.selector = std::to_string(stored().position.step);
    return Status();
  }

  Status openData() {
    bool split = evalSplitOf(session) > 0 && options.evalData.empty();
    DataNotes known;
    std::string resumedFolder = result.resumed ? result.resumed->reference.run : "";
    if (result.resumed) {
      auto read = readDataNotes(resumedFolder, stored().run.files);
      if (!read)
        return read.status();
      known = read.take();
    } else if (auto read = readDataNotesOf(options.init); !read) {
      return read.status();
    } else {
      known = read.take();
    }
    const std::string from = result.resumed ? resumedFolder : options.init;
    // With --init-partial the data may differ from that of the initial model.
    const bool others = !options.init.empty() && options.initPartial;
    auto scanning = [this](uint64_t done, uint64_t files, uint64_t found) {
      options.events->scanning(done, files, found);
    };
    auto notes = [this](const Message &message) {
      if (std::find(result.notes.begin(), result.notes.end(), message) == result.notes.end())
        result.notes.push_back(message);
    };
    auto opened = openEntryData(
        session, result.updates->dataEntries(), options.data,
        {split ? DatasetOptions::Part::Head : DatasetOptions::Part::All, true,
         others ? std::nullopt : known.vocabulary, scanning, notes,
         others ? ColumnFacts() : known.facts, !result.resumed, options.dataSource});
    options.events->scanned();
    if (!opened)
      return opened.status();
    data = opened.take();
    if (Status status = checkClasses(known, *data.dataset, from); !status.ok() && others)
      notes({Message::Tone::Warning, status.message()});
    else if (!status.ok())
      return status;
    if (others && known.vocabulary && *known.vocabulary != data.dataset->vocabulary)
      notes(Message::warning("{}: its characters have other tokens than those of {}", options.data, from));
    if (options.evalData.empty() && !split)
      return Status();
    const std::vector<const plan::Entry *> shapes = plan::shapesOf(session.plan(), entries::kEvaluate);
    if (shapes.empty())
      return error("{}: the plan has no entry 'evaluate'; compile with {}, or leave the evaluation data out",
                   session.reader.path(), advice::compile("entry", "train,evaluate"));
    // Evaluation texts use the vocabulary of the training text; other data has none.
    known.vocabulary = data.dataset->vocabulary;
    if (known.vocabulary->empty())
      known.vocabulary.reset();
    opened = openEntryData(
        session, shapes, split ? options.data : options.evalData,
        {split ? DatasetOptions::Part::Tail : DatasetOptions::Part::All, false, known.vocabulary, scanning, notes,
         data.dataset->facts, false, split ? options.dataSource : options.evalDataSource});
    options.events->scanned();
    if (!opened)
      return opened.status();
    if (!split && opened->dataset->classes != data.dataset->classes)
      return error("{}: its class folders differ from those of {}, so labels would mean other things", options.evalData,
                   options.data);
    result.evaluation.emplace(EvaluationSet{opened.take(), {}});
    for (const plan::Entry *shape : shapes)
      result.evaluation->runners.emplace_back(*session.device, *shape);
    return Status();
  }

  /// Sets up the decisions that depend on evaluations: best checkpoint, early stop, plateau.
  Status setGoals() {
    const plan::Evaluation &settings = session.training.evaluation();
    std::vector<std::string> keys = evaluationKeys(session);
    auto best = parseGoal("evaluate.best", settings.best());
    if (!best)
      return best.status();
    if (Status status = checkGoal("evaluate.best", *best, keys); !status.ok())
      return status;
    result.best = best.take();
    if (!result.evaluation && options.evaluatesOften())
      return Status(fmt::format("{}: there is no evaluation data; give {}, or keep a part of {} with {}",
                                advice::option("eval-every", options.evalEvery->text()),
                                advice::option("eval-data", "PATH"), advice::option("data"),
                                advice::set("data.eval_split", "0.1")),
                    StatusCode::Usage);
    if (Status status = setPlateau(); !status.ok())
      return status;
    if (settings.stop_patience() == 0 || !session.leads()) // rank 0 decides for all
      return Status();
    auto stop = parseGoal("evaluate.stop.metric", settings.stop_metric(), result.best);
    if (!stop)
      return stop.status();
    if (Status status = checkGoal("evaluate.stop.metric", *stop, keys); !status.ok())
      return status;
    if (!result.evaluation || !options.evaluatesOften())
      return Status(
          fmt::format("evaluate.stop: training ends early by its evaluations, and there are none; give {} and "
                      "{}, or turn it off with {}",
                      advice::option("eval-data"), advice::option("eval-every"),
                      advice::set("evaluate.stop.patience", "0")),
          StatusCode::Usage);
    result.stop.emplace(stop.take(), settings.stop_patience(), settings.stop_min_change());
    return Status();
  }

  Status setPlateau() {
    const plan::Schedule &schedule = session.training.schedule();
    if (schedule.kind() != "plateau")
      return Status();
    if (!result.evaluation || !options.evaluatesOften())
      return Status(
          fmt::format("schedule.kind = \"plateau\": the learning rate follows evaluations, and there are none; "
                      "give {} (or {}) and {}, or {}",
                      advice::option("eval-data"), advice::set("data.eval_split", "0.1"), advice::option("eval-every"),
                      advice::set("schedule.kind", "constant")),
          StatusCode::Usage);
    result.plateau.emplace(schedule, result.best);
    return Status();
  }

  Status initialize() {
    if (options.init.empty())
      return Status();
    auto fit = loadWeights(session.plan(), *session.device, options.init,
                           options.initPartial ? WeightsRule::WhatFits : WeightsRule::Strict, session.rank());
    if (!fit)
      return fit.status();
    session.replaced = fit->replaced;
    if (fit->averages)
      result.notes.push_back({Message::Tone::Note, averagesText(options.init)});
    if (!fit->text().empty())
      result.notes.push_back(
          Message::note("{}: {} of the model's values taken; {}", options.init, fit->loaded, fit->text()));
    return Status();
  }

  /// Sets position and state to the checkpoint's, or to those of a new run.
  Status takeUpPosition() {
    TrainingPosition &position = result.position;
    if (result.resumed) {
      position = stored().position;
      if (options.seed && *options.seed != position.seed)
        return Status(fmt::format("{}: the run that is resumed has seed {}; leave {} out",
                                  advice::option("seed", std::to_string(*options.seed)), position.seed,
                                  advice::option("seed")),
                      StatusCode::Usage);
      if (options.shuffle && *options.shuffle != position.shuffle)
        return Status(fmt::format("{}: the run that is resumed was {}shuffled",
                                  advice::flag("shuffle", *options.shuffle), position.shuffle ? "" : "not "),
                      StatusCode::Usage);
      if (Status status = loadState(*result.resumed->checkpoint, session.plan(), *session.device, &session.replaced,
                                    session.rank());
          !status.ok())
        return status;
    } else {
      if (options.from)
        position = *options.from;
      position.seed = options.seed.value_or(options.from ? position.seed : session.training.seed());
      position.shuffle = options.shuffle.value_or(true);
    }
    result.updates->setSeed(position.seed);
    if (result.evaluation)
      for (EntryRunner &runner : result.evaluation->runners)
        runner.setSeed(position.seed);
    position.settings = options.settings;
    data.reader().knowDamaged(position.damagedSamples);
    return Status();
  }

  /// Averages start as copies of the weights, also if the resumed run kept none.
  Status beginAverages() {
    // If averages are on the host and parameters are not sharded, only rank 0 keeps them; otherwise every rank does.
    if (!session.computes() || (!session.leads() && !session.training.ema().on_device() && !session.shardsParameters()))
      return Status();
    if (options.averages && !result.resumed) {
      result.averages = options.averages;
      return Status();
    }
    if (session.training.has_ema())
      result.averages = std::make_shared<WeightAverages>(session.plan(), session.training, *session.device);
    if (result.resumed && result.averages) {
      auto loaded = result.averages->load(*result.resumed->checkpoint, session.rank());
      if (!loaded || *loaded)
        return loaded.status();
      result.notes.push_back(Message::note("the run kept no averaged weights: they start as those of update {}",
                                           result.position.step));
    } else if (result.resumed && requireAverages(*result.resumed->checkpoint).ok()) {
      result.notes.push_back(Message::note("the run's averaged weights are not continued; {} goes on with them",
                                           advice::set("train.ema.decay", "…")));
    }
    return result.averages ? result.averages->start() : Status();
  }

  /// Error: the last samples of an epoch fill no batch, and data.last asks for a way that this plan cannot go.
  Status checkLast(const EntryData &data, const Sampler &sampler, LastBatch last, uint64_t ranks) const {
    const std::string &statistics = session.training.batch_statistics();
    bool padded = false;
    for (uint64_t n = sampler.batchesPerEpoch(), ends = data.readers.size(); n > 0 && ends > 0 && !padded; --n, --ends)
      padded = sampler.globalSamples(0, n - 1) < data.readers[sampler.shapeOfBatch(0, n - 1)]->batch() * ranks;
    if (last == LastBatch::Pad && padded && !data.reader().maskable())
      return error("{}: data.last = \"pad\": the loss cannot leave a sample out; compile with {} for a built-in loss, "
                   "give the last samples a shape of their own ({}), or leave them out: {}",
                   options.data, advice::compileSet("data.last", "pad"), advice::set("data.last", "exact"),
                   advice::set("data.last", "drop"));
    if (last == LastBatch::Pad && padded && !statistics.empty())
      return error("{}: data.last = \"pad\": node '{}' computes statistics over a batch, which padding would change; "
                   "give the last samples a shape of their own ({}), or leave them out: {}",
                   options.data, statistics, advice::set("data.last", "exact"), advice::set("data.last", "drop"));
    const std::vector<uint64_t> unheld = sampler.unheld();
    if (last != LastBatch::Exact || std::ranges::all_of(unheld, [](uint64_t samples) { return samples == 0; }))
      return Status();
    return error("{}: data.last = \"exact\": {}; {}", options.data, describeUnheld(unheld, ranks), shapesFor(unheld));
  }

  /// "the last 5 samples of an epoch fill no batch".
  std::string describeUnheld(const std::vector<uint64_t> &unheld, uint64_t ranks) const {
    const std::vector<const plan::Entry *> shapes = result.updates->dataEntries();
    std::string text;
    for (size_t shape = 0; shape < unheld.size(); ++shape)
      if (unheld[shape]) {
        const std::string dims = plan::shapeText(session.plan(), *shapes[shape]);
        text += fmt::format("{}{}{}", text.empty() ? "" : ", ", unheld[shape],
                            dims.empty() ? "" : fmt::format(" of {}", dims));
      }
    return fmt::format("the last samples of an epoch{} fill no batch: {}", ranks > 1 ? " for each rank" : "", text);
  }

  /// How to compile a plan that has a shape for each number of samples: "compile with tcc --dim batch=32,5".
  std::string shapesFor(const std::vector<uint64_t> &unheld) const {
    const std::vector<const plan::Entry *> shapes = result.updates->dataEntries();
    const std::string batch = plan::batchDim(shapes);
    std::vector<std::string> tables;
    auto add = [&](const plan::Entry &shape, int64_t samples) {
      std::string table;
      for (const plan::Dim &dim : shape.dims())
        table += fmt::format("{}{} = {}", table.empty() ? "" : ", ", dim.name(),
                             dim.name() == batch ? samples : dim.value());
      tables.push_back("{ " + table + " }");
    };
    if (shapes.size() == 1 || batch.empty())
      return plan::batchesAdvice(shapes, fmt::format("{},{}", shapes.front()->batch(), unheld.front()));
    for (size_t shape = 0; shape < shapes.size(); ++shape) {
      add(*shapes[shape], shapes[shape]->batch());
      if (unheld[shape])
        add(*shapes[shape], static_cast<int64_t>(unheld[shape]));
    }
    return "compile with " + advice::compileSet("model.buckets", fmt::format("[{}]", fmt::join(tables, ", ")));
  }

  /// Sets up the order of the samples, and the data's part of the run's record.
  Status orderBatches() {
    TrainingPosition &position = result.position;
    DataMap settings(session.data.settings().begin(), session.data.settings().end());
    const std::string lastText = settingText(settings, "last");
    const LastBatch last = lastText == "pad"     ? LastBatch::Pad
                           : lastText == "exact" ? LastBatch::Exact
                                                 : LastBatch::Drop;
    uint64_t samples = data.reader().samples(), batch = data.reader().batch();
    uint64_t epochSamples = data.dataset->epochSamples ? data.dataset->epochSamples : samples;
    const plan::VirtualRanks share = session.virtualRanks();
    const uint64_t ranks = share.all; // virtual ranks, among which an epoch is divided
    std::vector<double> weights;
    if (std::string kind = settingText(settings, "sampler"); kind == "balanced" || kind == "weighted") {
      auto read = sampleWeights(*data.dataset, kind == "balanced", settingText(settings, "weights"));
      if (!read)
        return read.status();
      weights = read.take();
      if (!position.shuffle || data.dataset->epochSamples)
        return Status(fmt::format("data.sampler = \"{}\" draws samples at random: it excludes {} and data.windows = "
                                  "\"random\"",
                                  kind, advice::flag("shuffle", false)),
                      StatusCode::Usage);
    }
    SampleOrder order = data.dataset->epochSamples || !weights.empty() ? SampleOrder::Random
                        : position.shuffle                             ? SampleOrder::Shuffled
                                                                       : SampleOrder::Ordered;
    const std::string window = settingText(settings, "shuffle_window");
    if (!window.empty() && order == SampleOrder::Random)
      return Status(
          "data.shuffle_window: samples that are drawn at random (data.sampler, data.windows = \"random\") have no "
          "order to shuffle; leave one of them out",
          StatusCode::Usage);
    if (!window.empty() && order == SampleOrder::Shuffled)
      order = SampleOrder::Windowed;
    Sampler sampler(samples, epochSamples, batch, order, position.seed, last, std::move(weights));
    if (order == SampleOrder::Windowed)
      sampler.setWindow(data.dataset->shards, std::strtoull(window.c_str(), nullptr, 10));
    if (Status status = gatherByShape(data, order == SampleOrder::Random, sampler); !status.ok())
      return status;
    sampler.setRanks(share.first, ranks);
    sampler.setShare(share.count, result.updates->window());
    if (Status status = checkLast(data, sampler, last, ranks); !status.ok())
      return status;
    uint64_t batches = sampler.batchesPerEpoch();
    if (batches == 0 && data.readers.size() > 1)
      return error("{}: too few samples: {} fill no batch of any shape{}; compile with smaller batches, or pad with {}",
                   options.data, epochSamples, ranks > 1 ? fmt::format(" on {} ranks", ranks) : "",
                   advice::set("data.last", "pad"));
    if (batches == 0)
      return error("{}: too few samples: {}, but a batch takes {}{}; compile with a smaller batch, or pad with {}",
                   options.data, epochSamples, batch, ranks > 1 ? fmt::format(" of each of {} ranks", ranks) : "",
                   advice::set("data.last", "pad"));
    if ((ranks > 1 || data.readers.size() > 1) && sampler.dropped())
      result.notes.push_back(Message::note(
          "the last {} samples of an epoch fill no batch {}and are left out{}", sampler.dropped(),
          ranks > 1 ? fmt::format("of {} ranks ", ranks) : "of their shape ",
          last != LastBatch::Drop ? "" : fmt::format("; {} takes them", advice::set("data.last", "pad"))));
    result.record = makeRunRecord(session);
    result.record.data = makeDataRecord(data, epochSamples, batches, ranks);
    result.batches = std::make_unique<TrainingBatches>(std::move(data), std::move(sampler), maxBadOf(session),
                                                       workersOf(session, data));
    if (!session.training.phases().empty())
      result.batches->keep(result.updates->window() * share.count);
    if (result.resumed) {
      auto differences = compareWithRun(result.resumed->reference, stored(), result.record, position);
      if (!differences)
        return differences.status();
      std::vector<Message> notes = differences.take();
      result.notes.insert(result.notes.end(), notes.begin(), notes.end());
    }
    result.batches->beginAt(position.epoch, position.batch);
    if (position.batch > batches)
      return error("{}: an epoch has {} batches, the resumed run had done {}: resume with the same data", options.data,
                   batches, position.batch);
    return Status();
  }

  /// Sets the number of updates, and the schedule over them.
  Status planSteps() {
    TrainingPosition &position = result.position;
    // Count epochs from the current position: an epoch's length may have changed since the run began.
    uint64_t window = result.updates->window(), batches = result.batches->perEpoch();
    auto updatesOf = [&](uint64_t left) { return (left + window - 1) / window; };
    uint64_t perEpoch = updatesOf(batches), epochs = options.epochs.value_or(1);
    result.totalSteps = options.steps ? *options.steps : position.step;
    if (!options.steps && position.epoch < epochs)
      result.totalSteps += updatesOf(batches - position.batch) + (epochs - position.epoch - 1) * perEpoch;
    bool inEpochs = session.training.schedule().per() == "epoch";
    if (!result.resumed)
      position.scheduleTotal = static_cast<double>(
          inEpochs ? options.epochs.value_or((result.totalSteps + perEpoch - 1) / perEpoch) : result.totalSteps);
    auto made = LearningSchedule::create(session.training.schedule(), position.scheduleTotal);
    if (!made)
      return made.status();
    if (Status status = result.updates->setSchedule(made.take()); !status.ok())
      return status;
    position.plateau =
        result.plateau ? std::optional(result.plateau->begin(position.plateau, position.step)) : std::nullopt;
    if (result.resumed)
      noteScheduleTotal(inEpochs ? options.epochs : std::optional(result.totalSteps));
    return Status();
  }

  /// Notes that the schedule keeps the length that the run began with: a user who extends the run may expect otherwise.
  void noteScheduleTotal(std::optional<uint64_t> total) {
    const TrainingPosition &position = result.position;
    if (!total || static_cast<double>(*total) == position.scheduleTotal)
      return;
    const LearningSchedule &schedule = result.updates->schedule();
    auto other = LearningSchedule::create(session.training.schedule(), static_cast<double>(*total));
    uint64_t next = schedule.perEpoch() ? position.epoch : position.step, last = std::max<uint64_t>(*total, 1) - 1;
    if (other && (other->factor(next) != schedule.factor(next) || other->factor(last) != schedule.factor(last)))
      result.notes.push_back(
          Message::note("the schedule keeps the length {} that the run began with, though it now goes on to {}; {} "
                        "changes it",
                        position.scheduleTotal, *total, advice::set("schedule.total_steps", std::to_string(*total))));
  }

  Session &session;
  const TrainOptions &options;
  EntryData data; ///< until the batches take it
  PreparedRun result;
};
} // namespace

Expected<PreparedRun> tcc::runtime::prepareRun(Session &session, const TrainOptions &options) {
  return Setup(session, options).run();
}

/// For a rank that does not lead: gets the name of the folder that rank 0 has made.
static Status joinRunFolder(const Session &session, PreparedRun &run) {
  auto folders = session.ranks->gatherTexts("");
  if (!folders)
    return folders.status();
  run.folder = folders->front();
  if (run.resumed)
    run.resumed->checkpoint.reset();
  return Status();
}

/// For rank 0: makes the folder and its files, except checkpoints and metrics.
static Status makeRunFolder(const Session &session, const TrainOptions &options, PreparedRun &run);

Status tcc::runtime::openRunFolder(const Session &session, const TrainOptions &options, PreparedRun &run) {
  options.events->opening();
  if (!session.leads())
    return joinRunFolder(session, run);
  if (Status status = makeRunFolder(session, options, run); !status.ok() || session.worldSize() == 1)
    return status;
  if (Status status = makeFolders(run.folder + "/ranks"); !status.ok())
    return status;
  std::error_code code;
  return session.ranks->gatherTexts(std::filesystem::absolute(run.folder, code).string()).status();
}

static Status makeRunFolder(const Session &session, const TrainOptions &options, PreparedRun &run) {
  const ResumedRun *resumed = run.resumed ? &*run.resumed : nullptr;
  run.folder = !options.out.empty() ? options.out
               : resumed            ? resumed->reference.run
                                    : freeRunName(session.reader.path());
  if (resumed) {
    const RunRecord &stored = resumed->checkpoint->manifest().run;
    if (stored.plan && stored.plan != run.record.plan)
      run.notes.push_back(Message::note("the plan is not the one in {}: results may differ in their last bits",
                                        resumed->reference.run));
    else if (!stored.target.empty() && stored.target != run.record.target)
      run.notes.push_back(
          Message::note("the target differs from the run's: {} → {}; results may differ in their last bits",
                        stored.target, run.record.target));
  }
  if (run.goesOn()) {
    auto superseded = supersedeAfter(run.folder, run.best, run.position);
    if (!superseded)
      return superseded.status();
    if (*superseded)
      run.notes.push_back(**superseded);
    run.record.files = resumed->checkpoint->manifest().run.files;
  } else {
    auto taken = createRunFolder(run.folder);
    if (!taken)
      return taken.status();
    run.lock.emplace(taken.take());
    // The best checkpoint is in the other run.
    run.position.bestStep = 0;
    run.position.bestMetric = run.best.name;
    // Early stopping depends on all evaluations up to here.
    if (resumed && run.stop)
      if (Status status = inheritEvaluations(resumed->reference.run, run.folder, run.position.step); !status.ok())
        return status;
    auto files = writeDataNotes(run.folder, run.batches->dataset());
    if (!files)
      return files.status();
    run.record.files = files.take();
  }
  if (!run.lock->held())
    run.notes.push_back(
        Message::note("the file system of {} has no locks: do not resume it twice at once", run.folder));
  if (run.resumed)
    run.resumed->checkpoint.reset();
  if (Status status = writeRunOptions(run.folder, options); !status.ok())
    return status;
  if (Status status = writeAlgorithms(run.folder, session.device->algorithms()); !status.ok())
    return status;
  return keepPlan(run.folder, session.reader);
}

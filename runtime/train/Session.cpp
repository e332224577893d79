//===- Session.cpp - an open plan, its settings and its device -----------===//
#include "runtime/train/Session.h"
#include "runtime/plan/Parallelism.h"
#include "runtime/plan/Shapes.h"
#include "runtime/plan/Shards.h"
#include "runtime/plan/Targets.h"
#include "runtime/plan/Variants.h"
#include "runtime/registry/DeviceRegistry.h"
#include "runtime/train/Metrics.h"
#include "runtime/train/Ranks.h"
#include "runtime/train/Settings.h"
#include "support/Advice.h"
#include "support/MachineMemory.h"
#include "support/NearestName.h"
#include "support/PlanNames.h"
#include "support/Processors.h"
#include "support/Toml.h"
#include "support/recipe/ColumnRules.h"
#include "support/recipe/Kinds.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fmt/ranges.h>
#include <numeric>

using namespace tcc;
using namespace tcc::runtime;

static const DeviceRegistry &devicesOf(const SessionOptions &options) {
  return options.devices ? *options.devices : standardDevices();
}

/// Selects a target of a plan for several: the one that the options name, or the best that runs here.
static Status selectTarget(Session &session, const SessionOptions &options) {
  const std::vector<std::string> names = plan::targetNames(session.plan());
  Expected<uint32_t> chosen = chooseTarget(session.reader, options.target, options.device, devicesOf(options));
  if (!chosen)
    return chosen.status();
  if (names.size() == 1)
    return Status();
  session.reader.selectTarget(*chosen);
  session.notes.push_back(Message::plain(
      "target {}, of {}{}", session.plan().target(), fmt::join(names, ", "),
      options.target.empty() ? "" : fmt::format(", as {} says", advice::option("target"))));
  return Status();
}

/// Processors of this rank: without binding by a launcher, all ranks of a machine share its processors.
static unsigned ownProcessors(const SessionOptions &options) {
  return std::max(1u, usableProcessors() / options.sharers);
}

/// Compares everything that determines the sequence of the ranks' collectives. Must precede making the device, which
/// may run collectives.
static Status compareSessions(const Session &session, const SessionOptions &options) {
  std::string text = fmt::format("program=trun {}\nplan={:016x} ({})\ntarget={}\n", TCC_VERSION,
                                 session.reader.checksum(), session.plan().model(), session.plan().target());
  for (size_t i = 0; i < options.settings.size(); ++i)
    text += fmt::format("{}={}\n", advice::option("set", std::to_string(i)), options.settings[i]);
  return compareLines(*session.ranks, text);
}

/// Sets both numbers to the minimum over all ranks. Variants differ in the order of their collectives, so all ranks
/// must select the same one.
static Status takeLeast(Communicator &ranks, uint64_t &limit, uint32_t &workers) {
  auto texts = ranks.gatherTexts(fmt::format("{} {}", limit, workers));
  if (!texts)
    return texts.status();
  for (const std::string &text : *texts) {
    char *next = nullptr;
    limit = std::min<uint64_t>(limit, std::strtoull(text.c_str(), &next, 10));
    workers = std::min(workers, static_cast<uint32_t>(std::strtoul(next, nullptr, 10)));
  }
  return Status();
}

/// Selects the fastest variant of a fat plan within the budget, or within the free memory.
static Status chooseVariant(Session &session, const SessionOptions &options) {
  const plan::Plan &plan = session.plan();
  // No more workers than the plan was made for: more would need more memory and could force a slower variant.
  uint32_t workers = options.threads ? options.threads : std::min(ownProcessors(options), plan.max_workers());
  uint64_t limit = options.budgetBytes ? options.budgetBytes : freeMemoryBytes();
  const bool together = session.worldSize() > 1 && !plan.variants().empty();
  if (together)
    if (Status status = takeLeast(*session.ranks, limit, workers); !status.ok())
      return status;
  std::optional<uint32_t> variant = plan::fastestVariant(plan, limit, workers);
  if (!variant && options.budgetBytes && !options.threads)
    variant = plan::fastestVariant(plan, limit, 1);
  if (!variant && options.budgetBytes) {
    const uint32_t fewest = options.threads ? options.threads : 1;
    const uint64_t least = plan::variantBytes(plan, plan::smallestVariant(plan, fewest), fewest),
                   leastOfOne = plan::variantBytes(plan, plan::smallestVariant(plan, 1), 1);
    // It may fit with fewer workers: chooseWorkers finds the number.
    if (leastOfOne > limit || !plan.variants().empty())
      return Status(fmt::format("{}: the plan takes at least {} ({} bytes){}, {} allows {}; compile with {}, or with "
                                "more {}",
                                options.planPath, formatBytes(least), least,
                                options.threads
                                    ? " with " + advice::option("threads", std::to_string(options.threads))
                                    : std::string(),
                                advice::option("memory-budget"), formatBytes(limit), advice::compile("memory-budget"),
                                advice::option("variants")),
                    StatusCode::OverBudget);
  }
  if (plan.variants().empty())
    return Status();
  uint32_t chosen = variant.value_or(plan::smallestVariant(plan, workers));
  session.notes.push_back(Message::plain("variant {} of {}: {} of {} {}{}", chosen + 1, plan.variants_size(),
                                         formatBytes(plan::variantBytes(plan, chosen, workers)), formatBytes(limit),
                                         options.budgetBytes ? "allowed"
                                         : together          ? "free on the machine that has least"
                                                             : "free on this machine",
                                         variant ? "" : ", less than the smallest variant takes"));
  session.reader.selectVariant(chosen);
  return Status();
}

/// The number of workers that was requested; else as many as there are processors and as fit into the budget, if there
/// is one. Error: the requested number does not fit into the budget.
static Expected<unsigned> chooseWorkers(Session &session, const SessionOptions &options) {
  const plan::Plan &plan = session.plan();
  const bool fixed = plan::runsOnGrids(plan);
  if (fixed && options.threads)
    return Status(fmt::format("{}: {}: the plan is for {}, whose number of threads it sets; leave {} out",
                              options.planPath, advice::option("threads", std::to_string(options.threads)),
                              plan.target(), advice::option("threads")),
                  StatusCode::Usage);
  const uint32_t wanted = fixed ? plan.max_workers() : options.threads ? options.threads : ownProcessors(options);
  const uint64_t budget = options.budgetBytes ? options.budgetBytes : plan.budget_bytes();
  const uint32_t fit = budget ? plan::workersWithin(plan, budget, wanted) : wanted;
  if (fit == wanted)
    return wanted;
  const uint64_t needed = plan::variantBytes(plan, 0, wanted);
  if (fixed)
    return Status(
        fmt::format("{}: the plan takes {} ({} bytes) of the device, the memory budget is {}; compile with {} "
                    "set to it",
                    options.planPath, formatBytes(needed), needed, formatBytes(budget),
                    advice::compile("memory-budget")),
        StatusCode::OverBudget);
  if (options.threads)
    return Status(fmt::format("{}: {} takes {} ({} bytes), the memory budget is {}; use {}, or a larger budget",
                              options.planPath, advice::option("threads", std::to_string(wanted)), formatBytes(needed),
                              needed, formatBytes(budget), advice::option("threads", std::to_string(fit))),
                  StatusCode::OverBudget);
  session.notes.push_back(
      Message::plain("{} of {} processors: with all the plan would take {}, the memory budget is {}", fit, wanted,
                     formatBytes(needed), formatBytes(budget)));
  return fit;
}

/// Notes how the algorithms differ from those that the resumed run recorded.
static void noteAlgorithms(Session &session, const SessionOptions &options) {
  const Algorithms now = session.device->algorithms();
  const Algorithms &before = options.recorded;
  if (options.tune && now.empty())
    session.notes.push_back(Message::note("{}: the plan has no products or convolutions, so there was nothing to time",
                                          advice::option("tune")));
  else if (options.tune)
    session.notes.push_back(Message::plain("tuned {} library call{} of the plan: the fastest algorithms of {} on {}",
                                        now.calls.size(), now.calls.size() == 1 ? "" : "s", now.library, now.machine));
  for (const std::string &note : now.notes)
    session.notes.push_back(Message::plain("{}", note));
  if (now.empty() || before.empty())
    return;
  size_t missing = 0, others = 0;
  for (const auto &[call, algorithm] : now.calls) {
    auto found = before.calls.find(call);
    (found == before.calls.end() ? missing : others) += found == before.calls.end() || !(found->second == algorithm);
  }
  constexpr const char *kBits = "results may differ in their last bits";
  if (missing)
    session.notes.push_back(Message::note("{} has no algorithm for {} of {} library calls: {}", before.source, missing,
                                        now.calls.size(), kBits));
  if (others)
    session.notes.push_back(Message::note("{} of {} library calls take another algorithm than {} has: {}", others,
                                        now.calls.size(), before.source, kBits));
  if (before.machine != now.machine)
    session.notes.push_back(Message::note("the machine differs from the one in {}: {} → {}; {}", before.source,
                                        before.machine, now.machine, kBits));
}

bool tcc::runtime::Session::shardsParameters() const {
  return worldSize() > 1 && plan::shardsParameters(plan().training().parallel());
}

Status tcc::runtime::requireRanks(const Session &session) {
  const plan::Parallel &parallel = session.plan().training().parallel();
  if (parallel.ranks() == 0 || parallel.ranks() == session.worldSize())
    return Status();
  if (plan::replicatesShards(parallel)) {
    if (session.worldSize() % parallel.ranks() == 0)
      return Status();
    return error("{}: the plan's state is sharded over nodes of {} ranks (parallel.mode \"hybrid\"), the job has {}; "
                 "start it with a multiple of {}, such as {}, or compile with {}",
                 session.reader.path(), parallel.ranks(), session.worldSize(), parallel.ranks(),
                 advice::option("nproc", std::to_string(2 * parallel.ranks())),
                 advice::compileSet("parallel.shard_within_node", "K"));
  }
  return error(
      "{}: the plan's state is sharded over {} ranks (parallel.mode \"{}\"), the job has {}; start it with {}, or "
      "compile with {}",
      session.reader.path(), parallel.ranks(), parallel.mode(), session.worldSize(),
      advice::option("nproc", std::to_string(parallel.ranks())),
      advice::compileSet("parallel.ranks", std::to_string(session.worldSize())));
}

Expected<Session> tcc::runtime::openSession(const SessionOptions &options) {
  auto reader = options.planBytes ? plan::PlanReader::fromBuffer(*options.planBytes, options.planPath)
                                  : plan::PlanReader::open(options.planPath);
  if (!reader)
    return reader.status();
  Session session{reader.take(), {}, {}, nullptr};
  session.reader.setFolder(options.planFolder);
  if (Status status = selectTarget(session, options); !status.ok())
    return status;
  session.ranks = options.ranks;
  if (session.worldSize() > 1 && !session.plan().training().has_parallel())
    return error("{}: the plan is for one rank, the job has {}; compile with {}", options.planPath, session.worldSize(),
                 advice::compileSet("parallel.mode", "ddp"));
  if (session.worldSize() > 1)
    if (Status status = compareSessions(session, options); !status.ok())
      return status;
  if (Status status = chooseVariant(session, options); !status.ok())
    return status;
  session.training = session.plan().training();
  session.data = session.plan().data();
  if (Status status = applySettings(options.settings, session.training, session.data); !status.ok())
    return status;
  Expected<unsigned> workers = chooseWorkers(session, options);
  if (!workers)
    return workers.status();
  DeviceOptions deviceOptions;
  deviceOptions.name = options.device;
  deviceOptions.threads = *workers;
  deviceOptions.recorded = options.recorded;
  deviceOptions.tune = options.tune;
  deviceOptions.stepByStep = options.stepByStep;
  deviceOptions.rank = session.rank();
  deviceOptions.localRank = options.localRank;
  deviceOptions.ranks = session.worldSize() > 1 ? options.ranks : nullptr;
  auto device = createDevice(session.reader, deviceOptions, devicesOf(options));
  if (!device)
    return device.status();
  session.device = device.take();
  session.device->setRanks(options.ranks);
  if (options.tune && !session.device->capabilities().choosesAlgorithms)
    return Status(
        fmt::format("{0}: device {1} chooses nothing: a plan for {2} names every implementation; leave {0} out",
                    advice::option("tune"), session.device->capabilities().name, session.plan().target()),
        StatusCode::Usage);
  if (options.stepByStep && !session.device->capabilities().asynchronous)
    return Status(fmt::format("{0}: device {1} awaits every instruction anyway; leave {0} out",
                              advice::flag("step-by-step"), session.device->capabilities().name),
                  StatusCode::Usage);
  noteAlgorithms(session, options);
  return session;
}

Status tcc::runtime::checkVirtualRanks(const Session &session) {
  const uint64_t all = session.training.parallel().virtual_ranks(), ranks = session.worldSize(),
                 least = std::max<uint64_t>(session.training.parallel().least_ranks(), 1);
  if (all == 0)
    return Status();
  if (ranks > all || all % ranks != 0)
    return error(
        "{}: {} virtual ranks are shared by {} to {} ranks, a power of two, the job has {}; use {}, or compile "
        "with another train.virtual_ranks",
        session.reader.path(), all, least, all, ranks,
        advice::option("nproc", std::to_string(std::max(least, std::min(all, std::bit_floor(ranks))))));
  if (ranks < least)
    return error("{}: the plan has memory for {} ranks or more, the job has {}; use {}, or compile with {}",
                 session.reader.path(), least, ranks, advice::option("nproc", std::to_string(least)),
                 advice::compileSet("parallel.least_ranks", std::to_string(ranks)));
  return Status();
}

TrainedValues tcc::runtime::trainedValuesOf(const Session &session) {
  std::map<std::string, int> byName;
  for (int i = 0; i < session.plan().variables_size(); ++i)
    byName[session.plan().variables(i).name()] = i;
  TrainedValues trained;
  trained.has = [&session, byName, written = writtenVariables(session.plan())](const plan::Variable &variable) {
    const int index = byName.at(variable.name());
    return variable.role() == plan::PARAMETER || written[static_cast<size_t>(index)] ||
           std::find(session.replaced.begin(), session.replaced.end(), index) != session.replaced.end();
  };
  trained.stream = [&session, byName](const plan::Variable &variable, const ByteSink &sink) {
    return session.device->readPieces(Place::variable(static_cast<uint32_t>(byName.at(variable.name()))), sink);
  };
  return trained;
}

double tcc::runtime::evalSplitOf(const Session &session) {
  DataMap settings(session.data.settings().begin(), session.data.settings().end());
  std::string text = settingText(settings, "eval_split");
  return text.empty() ? 0 : std::strtod(text.c_str(), nullptr);
}

uint64_t tcc::runtime::maxBadOf(const Session &session) {
  DataMap settings(session.data.settings().begin(), session.data.settings().end());
  return std::strtoull(settingText(settings, "max_bad").c_str(), nullptr, 10);
}

unsigned tcc::runtime::workersOf(const Session &session, const EntryData &data) {
  DataMap settings(session.data.settings().begin(), session.data.settings().end());
  if (std::string text = settingText(settings, "workers"); !text.empty())
    return static_cast<unsigned>(std::strtoul(text.c_str(), nullptr, 10));
  for (const auto &[input, column] : data.reader().columns())
    if (column->isComputed())
      return usableProcessors();
  return 0;
}

/// Reads data.constant. Error: an input that no entry has.
static Status readConstants(const Session &session, const std::string &text, std::set<std::string> &constants) {
  std::vector<std::string> known;
  for (const plan::Entry &entry : session.plan().entries())
    for (const plan::Port &port : entry.inputs())
      if (!port.presence() && std::find(known.begin(), known.end(), port.name()) == known.end())
        known.push_back(port.name());
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    begin = end + 1;
    if (std::find(known.begin(), known.end(), name) == known.end())
      return Status(fmt::format("data.constant: the model has no input '{}'; {}", name, nearestOrSome(name, known)),
                    StatusCode::Usage);
    constants.insert(name);
  }
  return Status();
}

static std::set<std::string> sampleWeightsOf(const plan::Training &training) {
  std::set<std::string> names = {training.sample_weight()};
  for (const plan::LossTerm &term : training.losses())
    names.insert(term.sample_weight());
  for (const plan::Phase &phase : training.phases())
    names.insert(phase.training().sample_weight());
  names.erase("");
  return names;
}

/// True if a single ignored target or weight of 0 excludes a sample: false if several losses are computed. Evaluations
/// compute only the first phase's loss.
static bool isMaskedByOne(const plan::Training &training, bool trains) {
  auto isSame = [&](const plan::Phase &phase) {
    const plan::Training &own = phase.training();
    return own.loss_kind() == training.loss_kind() && own.target() == training.target() &&
           own.sample_weight() == training.sample_weight();
  };
  return training.losses().empty() &&
         (!trains || std::all_of(training.phases().begin(), training.phases().end(), isSame));
}

/// True if the losses read which slots of a batch have a sample.
static bool marksPresence(const plan::Plan &plan) {
  return std::ranges::any_of(plan.entries(), [](const plan::Entry &entry) {
    return std::ranges::any_of(entry.inputs(), [](const plan::Port &port) { return port.presence(); });
  });
}

BindOptions tcc::runtime::bindOptionsOf(const Session &session, bool trains) {
  const DataMap settings(session.data.settings().begin(), session.data.settings().end());
  BindOptions bind;
  bind.map.insert(session.data.map().begin(), session.data.map().end());
  bind.target = session.training.target();
  bind.sampleWeights = sampleWeightsOf(session.training);
  const bool byOne = isMaskedByOne(session.training, trains);
  // Metrics ignore what the loss ignores, but they know no presence.
  if (byOne || marksPresence(session.plan()))
    bind.ignoreIndex = ignoreIndexOf(session.training);
  if (byOne) {
    if (const int64_t classes = session.training.class_target().classes())
      bind.classes = classes;
    // The accuracy also ignores the class that the loss ignores, but it knows no weights.
    if (!isClassification(session.training.loss_kind()))
      bind.maskingWeight = session.training.sample_weight();
  }
  bind.maxBad = maxBadOf(session);
  for (const auto &[key, rule] : settings)
    if (key.starts_with("pad."))
      if (auto pad = recipe::parsePad(rule))
        bind.pad[key.substr(4)] = *pad;
  bind.negativeIndices = settingText(settings, "negative_indices") == "true";
  return bind;
}

std::vector<BatchReader *> EntryData::allReaders() const {
  std::vector<BatchReader *> all;
  for (const auto &reader : readers)
    all.push_back(reader.get());
  return all;
}

size_t EntryData::shapeOfAll() const {
  const std::vector<size_t> order = shapesBySize(readers);
  const auto holdsAll = [&](size_t shape) {
    for (uint64_t sample = 0; sample < reader().samples(); ++sample)
      if (!readers[shape]->holds(sample))
        return false;
    return true;
  };
  const auto found = std::ranges::find_if(order, holdsAll);
  return found == order.end() ? order.back() : *found;
}

Status tcc::runtime::gatherByShape(const EntryData &data, bool drawsAtRandom, Sampler &sampler) {
  if (data.readers.size() == 1)
    return Status();
  std::vector<uint8_t> shapes = shapesOfSamples(data.readers);
  if (drawsAtRandom && std::ranges::any_of(shapes, [&](uint8_t shape) { return shape != shapes.front(); }))
    return Status(
        "samples that are drawn at random (data.sampler, data.windows = \"random\") do not fill batches of several "
        "shapes; leave that out, or compile a plan of one shape",
        StatusCode::Usage);
  std::vector<uint64_t> batches;
  for (const auto &reader : data.readers)
    batches.push_back(reader->batch());
  sampler.setShapes(std::move(shapes), std::move(batches), smallerBatches(data.readers));
  return Status();
}

/// Error: a sample is larger than every shape in some axis.
static Status checkSizes(const EntryData &data) {
  const BatchReader &largest = *data.readers[data.largest()];
  if (std::ranges::none_of(data.readers, [](const auto &reader) { return reader->isRagged(); }))
    return Status();
  for (uint64_t sample = 0; sample < largest.samples(); ++sample)
    if (std::ranges::none_of(data.readers, [&](const auto &reader) { return reader->holds(sample); }))
      return error("{}: {}; compile with a larger shape ({}){}, or cut such samples with {}", data.dataset->path,
                   largest.describeLarger(sample, data.readers),
                   data.readers.size() > 1 ? "model.buckets, or " + advice::compile("dim", "NAME=N")
                                           : advice::compile("dim", "NAME=N"),
                   largest.padsImages() ? ", scale images down with [[data.transform]] kind = \"resize\" and max_size"
                                        : "",
                   advice::set("data.too_long", "cut"));
  return Status();
}

/// Error: data.pad names a column that the data lacks.
static Status checkPads(const Session &session, const Dataset &dataset) {
  std::vector<std::string> known;
  for (const auto &column : dataset.columns)
    known.push_back(column->name());
  for (const auto &[key, rule] : session.data.settings())
    if (const std::string prefix = "pad."; key.starts_with(prefix) && !dataset.find(key.substr(prefix.size())))
      return Status(fmt::format("data.{}: {} has no such column; {}", key, dataset.path,
                                nearestOrSome(key.substr(prefix.size()), known)),
                    StatusCode::Usage);
  return Status();
}

Expected<EntryData> tcc::runtime::openEntryData(const Session &session, const plan::Entry &entry,
                                                const std::string &path, const EntryDataOptions &options) {
  return openEntryData(session, std::vector<const plan::Entry *>{&entry}, path, options);
}

Expected<EntryData> tcc::runtime::openEntryData(const Session &session, const std::vector<const plan::Entry *> &shapes,
                                                const std::string &path, const EntryDataOptions &options) {
  const plan::Entry &entry = *shapes.front();
  DatasetOptions dataOptions;
  dataOptions.settings.insert(session.data.settings().begin(), session.data.settings().end());
  dataOptions.part = options.part;
  dataOptions.training = options.training;
  dataOptions.predicting = entries::kindOf(entry.name()) == entries::kPredict;
  dataOptions.limit = std::strtoull(settingText(dataOptions.settings, "limit").c_str(), nullptr, 10);
  dataOptions.evalSplit = evalSplitOf(session);
  dataOptions.sameWindow = session.training.shift();
  dataOptions.overlappingWindows = options.training && settingText(dataOptions.settings, "windows") == "random";
  dataOptions.vocabulary = options.vocabulary;
  dataOptions.facts = options.facts;
  dataOptions.learnsFacts = options.learnsFacts;
  dataOptions.scanning = options.scanning;
  dataOptions.note = options.note;
  dataOptions.memoryBytes = freeMemoryBytes();
  // The window is the sequence length: of the first sampled integer input of rank 2, the target's last.
  for (bool target : {false, true})
    for (const plan::Port &port : entry.inputs()) {
      const plan::TensorType &type = entry.buffers(static_cast<int>(port.buffer())).type();
      if (dataOptions.windowLength == 0 && (port.name() == session.training.target()) == target &&
          port.sample_axis() >= 0 && port.sample_axis() < 2 && type.dims_size() == 2 &&
          !plan::isFloatingPoint(type.dtype()) && type.dtype() != plan::I1)
        dataOptions.windowLength = type.dims(1 - port.sample_axis());
    }
  auto dataset = options.source ? options.source(dataOptions) : openDataset(path, dataOptions);
  if (!dataset)
    return dataset.status();
  EntryData result;
  result.dataset = std::make_unique<Dataset>(dataset.take());
  if (options.training)
    if (Status status = checkPads(session, *result.dataset); !status.ok())
      return status;
  BindOptions bind = bindOptionsOf(session, options.training);
  if (Status status = readConstants(session, settingText(dataOptions.settings, "constant"), bind.constants);
      !status.ok())
    return status;
  if (session.training.has_class_target() && !session.training.class_target().has_axis())
    bind.targetHint =
        "; if the classes are the last axis of the prediction, as in [batch, sequence, vocabulary], compile "
        "with " +
        advice::compileSet("loss.class_axis", "-1");
  const std::string name = entry.name().substr(0, entry.name().find(entries::kShapeMark));
  std::vector<const plan::Entry *> all = shapes;
  for (const plan::Entry &other : session.plan().entries())
    all.push_back(&other);
  bind.raggedInputs = plan::paddedAxes(all);
  bind.paddedAxes = plan::paddedAxes(shapes.size() > 1 ? shapes : plan::shapesOf(session.plan(), name));
  if (shapes.size() > 1 && (result.dataset->format == "token" || result.dataset->format == "text"))
    return Status(
        fmt::format("{}: a file of tokens is cut into windows of one length, so the plan's other shapes would "
                    "stay unused; compile with one shape ({}), or give texts of their own lengths as a ragged "
                    "column",
                    path, advice::compile("dim", "NAME=N")),
        StatusCode::Usage);
  for (const plan::Entry *shape : shapes) {
    auto reader = BatchReader::bind(*shape, *result.dataset, bind);
    if (!reader)
      return shapes.size() == 1 ? reader.status()
                                : reader.status().withContext("for " + plan::shapeText(session.plan(), *shape));
    result.readers.push_back(std::make_unique<BatchReader>(reader.take()));
    result.readers.back()->shareDamaged(result.reader());
  }
  for (const Message &note : result.reader().notes())
    if (options.note)
      options.note(note);
  if (!options.cutsLong && settingText(dataOptions.settings, "too_long") != "cut")
    if (Status status = checkSizes(result); !status.ok())
      return status;
  return result;
}

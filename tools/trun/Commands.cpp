//===- Commands.cpp - the commands of trun -------------------------------===//
#include "tools/trun/Commands.h"
#include "runtime/plan/Shapes.h"
#include "runtime/plan/Shards.h"
#include "runtime/plan/Targets.h"
#include "runtime/plan/Verifier.h"
#include "runtime/registry/DeviceRegistry.h"
#include "runtime/state/Checkpoint.h"
#include "runtime/state/Weights.h"
#include "runtime/train/AlgorithmRecord.h"
#include "runtime/train/Evaluate.h"
#include "runtime/train/RunFolder.h"
#include "runtime/train/Settings.h"
#include "support/AtomicFile.h"
#include "support/Json.h"
#include "support/MachineMemory.h"
#include "support/PlanNames.h"
#include "tools/common/StandardStreams.h"
#include "tools/trun/OnRanks.h"
#include "tools/trun/ProfileReport.h"
#include "tools/trun/RunHistory.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::tools;

namespace {
/// Prints a message; --quiet suppresses all but warnings.
void tell(const Options &options, const Message &message) {
  if (!options.screen.quiet || message.tone == Message::Tone::Warning)
    printMessage("trun: {}\n", message.line());
}

/// Error: --ema without a run, since only a run's checkpoint holds averages.
Status checkEma(const Options &options) {
  if (!options.ema || (!options.from.empty() && !options.from.ends_with(".safetensors")))
    return Status();
  return Status("--ema: averaged weights are in a run's checkpoints; give --from RUN[@STEP]", StatusCode::Usage);
}

/// The set of weights that --from and --ema mean; prints a message if a run's best checkpoint decides it.
Expected<WeightSet> setOf(const Options &options) {
  if (options.ema)
    return WeightSet::Averages;
  auto set = weightSetOf(parseRunReference(options.from));
  if (set && *set == WeightSet::Averages)
    tell(options, {Message::Tone::Note, averagesText(options.from)});
  return set;
}

/// The weights of --from: a run's checkpoint, or else a file.
Expected<std::optional<Checkpoint>> openFrom(const std::string &from) {
  std::error_code code;
  if (from.empty() || from.ends_with(".safetensors") || std::filesystem::is_regular_file(from, code))
    return std::optional<Checkpoint>();
  auto folder = findCheckpoint(parseRunReference(from));
  if (!folder)
    return folder.status();
  auto checkpoint = Checkpoint::open(*folder);
  if (!checkpoint)
    return checkpoint.status();
  return std::optional<Checkpoint>(checkpoint.take());
}

Status loadFrom(Session &session, std::optional<Checkpoint> &checkpoint, const Options &options, WeightSet set) {
  const std::string &from = options.from;
  if (!checkpoint) {
    auto fit = loadWeights(session.plan(), *session.device, from, WeightsRule::MayBeMissing);
    if (fit && !fit->complete())
      tell(options, Message::note("{}: {}; they keep the model's own values", from, fit->text()));
    return fit.status();
  }
  NameList unused;
  Status status = loadModelValues(*checkpoint, session.plan(), *session.device, unused, set);
  if (status.ok() && !unused.empty())
    tell(options, Message::note("{}: the plan has no {}", from, unused.text()));
  return status;
}

/// An open session with an entry and its data.
struct Prepared {
  Session session;
  EntryData data;
  std::vector<EntryRunner> runners; ///< of the entry's shapes
  DataNotes notes; ///< of the run that the weights come from
};

Expected<Prepared> prepare(const Options &options, const std::string &entryName, const std::string &dataPath) {
  if (Status status = checkEma(options); !status.ok())
    return status;
  SessionOptions sessionOptions = options.session;
  auto checkpoint = openFrom(options.from);
  if (!checkpoint)
    return checkpoint.status();
  // Settings data.… that the run was trained with apply here, too, unless the command sets others.
  if (*checkpoint)
    sessionOptions.settings =
        mergeSettings((*checkpoint)->manifest().position.settings, sessionOptions.settings, "data.");
  auto session = openSession(sessionOptions);
  if (!session)
    return session.status();
  if (const plan::Parallel &parallel = session->plan().training().parallel(); plan::shardsParameters(parallel))
    return error(
        "{}: no process has all parameters (parallel.mode \"{}\"); for '{}' compile a plan with tcc --entry {} "
        "--set parallel.mode=none, which reads the run's checkpoints",
        options.session.planPath, parallel.mode(), entryName, entryName);
  std::vector<const plan::Entry *> shapes = plan::shapesOf(session->plan(), entryName);
  // Weights of a run are run in inference mode, whatever mode the graph was exported in.
  if (entryName == entries::kPredict && !options.from.empty())
    if (auto inference = plan::shapesOf(session->plan(), entries::kPredictInference); !inference.empty())
      shapes = std::move(inference);
  if (shapes.empty())
    return error("{}: the plan has no entry '{}'; compile with tcc --entry {}", options.session.planPath, entryName,
                 entryName);
  EntryDataOptions dataOptions;
  if (!options.from.empty()) {
    auto set = setOf(options);
    if (!set)
      return set.status();
    if (Status status = loadFrom(*session, *checkpoint, options, *set); !status.ok())
      return status;
  }
  DataNotes notes;
  std::string run = parseRunReference(options.from).run;
  if (*checkpoint) {
    auto read = readDataNotes(run, (*checkpoint)->manifest().run.files);
    if (!read)
      return read.status();
    notes = read.take();
    checkpoint->reset();
  }
  if (options.from.empty())
    tell(options, Message::note("no --from: {} takes the plan's initial weights", entryName));
  dataOptions.vocabulary = notes.vocabulary;
  dataOptions.note = [&](const Message &message) { tell(options, message); };
  dataOptions.facts = notes.facts;
  auto data = openEntryData(*session, shapes, dataPath, dataOptions);
  if (!data)
    return data.status();
  if (Status status = checkClasses(notes, *data->dataset, run); !status.ok())
    return status;
  Prepared prepared{session.take(), data.take(), {}, std::move(notes)};
  for (const plan::Entry *shape : shapes)
    prepared.runners.emplace_back(*prepared.session.device, *shape).setSeed(prepared.session.training.seed());
  return prepared;
}

/// A line for each class of the targets: how often each class was predicted for it.
std::string confusionCsv(const Evaluation &evaluation, const std::vector<std::string> &names) {
  const size_t classes = static_cast<size_t>(std::sqrt(static_cast<double>(evaluation.confusion.size())) + 0.5);
  auto nameOf = [&](size_t i) {
    if (i >= names.size())
      return std::to_string(i);
    std::string quoted = "\"";
    for (char c : names[i])
      quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    return names[i].find_first_of(",\"\r\n") == std::string::npos ? names[i] : quoted + "\"";
  };
  std::string text = "target";
  for (size_t i = 0; i < classes; ++i)
    text += "," + nameOf(i);
  for (size_t row = 0; row < classes; ++row) {
    text += "\n" + nameOf(row);
    for (size_t i = 0; i < classes; ++i)
      text += fmt::format(",{}", evaluation.confusion[row * classes + i]);
  }
  return text + "\n";
}

/// The names of the target's classes: those of class folders, or of the texts of its column; empty: numbers alone.
std::vector<std::string> classNames(const Prepared &prepared, const ColumnFacts &facts,
                                    const std::vector<std::string> &folders) {
  const std::string &target = prepared.session.training.target();
  const auto &map = prepared.session.data.map();
  const auto column = map.find(target);
  const auto texts = facts.categories.find(column == map.end() ? target : column->second);
  return texts == facts.categories.end() ? folders : texts->second;
}

Status evalCommand(const Options &options) {
  auto prepared = prepare(options, entries::kEvaluate, options.train.data);
  if (!prepared)
    return prepared.status();
  EvaluateOptions with = evaluateOptionsOf(prepared->session);
  Screen screen(options.screen);
  with.goesOn = [&](uint64_t done) {
    screen.evaluating(done, prepared->data.reader().samples());
    return true;
  };
  with.confusion = !options.confusion.empty();
  auto result = evaluate(prepared->runners, prepared->data, with);
  screen.clear();
  if (!result)
    return result.status();
  const Dataset &dataset = *prepared->data.dataset;
  if (with.confusion)
    if (Status status = writeFileAtomically(
            options.confusion, confusionCsv(*result, classNames(*prepared, dataset.facts, dataset.classes)),
            OwnFile::Confusion);
        !status.ok())
      return status;
  nlohmann::ordered_json line;
  for (const auto &[key, value] : recordOf(*result, nullptr).values)
    line[key] = value;
  line["samples"] = result->samples;
  printResult("{}\n", jsonText(line));
  return Status();
}

Status predictCommand(const Options &options) {
  static constexpr ArrayFormat kFormats[] = {ArrayFormat::Safetensors, ArrayFormat::Npz, ArrayFormat::Npy,
                                             ArrayFormat::Csv};
  auto format = arrayFormatOf(options.outputs, kFormats);
  if (!format)
    return format.status().withContext("--outputs");
  if (Status status = checkPlace(options.outputs, *format); !status.ok())
    return status;
  auto prepared = prepare(options, entries::kPredict, options.inputs);
  if (!prepared)
    return prepared.status();
  // Class names come from the run, since the inputs need not hold the target.
  std::vector<std::string> names;
  if (predictsClasses(prepared->session))
    names = classNames(*prepared, prepared->notes.facts, prepared->notes.classes.value_or(std::vector<std::string>()));
  return writePredictions(prepared->runners, prepared->data, options.outputs, *format, names);
}

Status gradientsCommand(const Options &options) {
  static constexpr ArrayFormat kFormats[] = {ArrayFormat::Safetensors, ArrayFormat::Npz};
  auto format = arrayFormatOf(options.outputs, kFormats);
  if (!format)
    return format.status().withContext("--outputs");
  if (Status status = checkPlace(options.outputs, *format); !status.ok())
    return status;
  auto prepared = prepare(options, entries::kGradients, options.inputs);
  return prepared ? writeGradients(prepared->runners.front(), prepared->data.reader(), options.outputs, *format)
                  : prepared.status();
}

Status exportCommand(const Options &options) {
  ExportOptions with = options.exporting;
  with.note = [&](const std::string &text) { tell(options, {Message::Tone::Note, text}); };
  return exportRun(options.run, options.output, with, options.ema ? WeightSet::Averages : WeightSet::Last);
}

/// The plan, of the target that `--target` and `--device` choose.
Expected<plan::PlanReader> openPlan(const Options &options) {
  auto reader = plan::PlanReader::open(options.session.planPath);
  if (!reader)
    return reader.status();
  auto target = runtime::chooseTarget(*reader, options.session.target, options.session.device);
  if (!target)
    return target.status();
  reader->selectTarget(*target);
  return reader;
}

Status verifyCommand(const Options &options) {
  const std::string &path = options.session.planPath;
  auto reader = plan::PlanReader::open(path);
  if (!reader)
    return reader.status();
  std::vector<std::string> problems = plan::verifyPlan(reader->plan());
  for (size_t i = 0; i + 1 < problems.size(); ++i)
    printMessage("trun: {}: {}\n", path, problems[i]);
  if (!problems.empty())
    return error("{}: {}", path, problems.back());
  const std::vector<std::string> names = plan::targetNames(reader->plan());
  for (uint32_t i = 0; i < names.size(); ++i) {
    const plan::Plan one = plan::targetOf(reader->plan(), i);
    printResult("{}: {}{} entries, {} variables, {}: good\n", path, names.size() > 1 ? names[i] + ": " : "",
                one.entries_size(), one.variables_size(), formatBytes(reader->fileBytes()));
  }
  return Status();
}

Status quantizeCommand(const Options &options) {
  if (!options.output.ends_with(".safetensors"))
    return Status(fmt::format("--output {}: must end in .safetensors", options.output), StatusCode::Usage);
  auto reader = openPlan(options);
  if (!reader)
    return reader.status();
  auto done = runtime::quantizeWeights(reader->plan(), options.from, options.output);
  if (!done)
    return done.status();
  printResult("{}: {} tensors, {} of them rounded, {}\n", options.output, done->tensors, done->rounded,
              formatBytes(done->bytes));
  return Status();
}

Status memoryCommand(const Options &options) {
  auto reader = openPlan(options);
  if (!reader)
    return reader.status();
  if (int variants = std::max(1, reader->plan().variants_size()); options.variant >= static_cast<uint32_t>(variants))
    return Status(fmt::format("--variant {}: the plan has {}, counted from 0", options.variant, variants),
                  StatusCode::Usage);
  if (!reader->plan().variants().empty())
    reader->selectVariant(options.variant);
  DeviceOptions deviceOptions;
  deviceOptions.name = options.session.device;
  deviceOptions.threads = options.session.threads;
  deviceOptions.initialValues = false;
  auto device = createDevice(*reader, deviceOptions);
  if (!device)
    return device.status();
  uint64_t now = processMemoryBytes(), library = (*device)->libraryBytes();
  nlohmann::ordered_json line;
  line["process_bytes"] = options.processBytes;
  line["host_bytes"] = now - std::min(now, options.processBytes + library);
  line["library_bytes"] = library;
  printResult("{}\n", jsonText(line));
  return Status();
}

/// The types whose rate bounds an instruction of the plan.
std::vector<plan::DType> multipliedTypes(const plan::Plan &plan) {
  std::set<plan::DType> types;
  for (const plan::Entry &entry : plan.entries())
    for (const plan::Instruction &instruction : entry.instructions())
      types.insert(report::arithmeticType(instruction));
  return {types.begin(), types.end()};
}

Status profileRank(const Options &options, const SessionOptions &sessionOptions) {
  auto session = openSession(sessionOptions);
  if (!session)
    return session.status();
  std::optional<Roofline> roofline;
  report::ChosenCard card;
  const DeviceCapabilities &machine = session->device->capabilities();
  const unsigned threads = machine.threads;
  // The measured roofline is the host's: a device with memory of its own is compared with a data sheet.
  if (!options.noRoofline && machine.memory == DeviceMemory::Separate)
    card = report::chooseCard(session->plan(), machine.machine);
  if (!options.noRoofline && session->leads() && machine.memory == DeviceMemory::Host) {
    auto measured = measureRoofline(threads, session->plan().target(), multipliedTypes(session->plan()));
    if (!measured)
      return measured.status();
    roofline = measured.take();
  }
  auto measured = profile(*session, options.profile);
  if (!measured)
    return measured.status();
  // Others may still read this rank's memory: no rank ends before all are done.
  if (session->worldSize() > 1)
    if (Status status = session->ranks->barrier(); !status.ok())
      return status;
  if (!session->leads())
    return Status();
  ProfileReport report = makeProfileReport(*session, *measured, std::move(roofline), card);
  if (!options.trace.empty())
    if (Status status = writeFileAtomically(options.trace, profileTrace(report), OwnFile::Trace); !status.ok())
      return status;
  if (options.json)
    printResult("{}", profileJson(report));
  else
    printText(profileText(report, options.allKernels));
  return Status();
}

Status profileCommand(const Options &options) {
  JobOptions job = options.job;
  job.device = options.session.device;
  return onRanks(job, [&](const OwnRank &own) {
    SessionOptions session = options.session;
    own.applyTo(session);
    Status status = profileRank(options, session);
    if (!status.ok() && own.ranks)
      own.ranks->abort(status.message());
    return status;
  });
}

/// Takes from a resumed run its plan, and the options that the command line does not give.
Status takeRunOptions(const std::string &run, const Manifest &manifest, SessionOptions &session, TrainOptions &train,
                      bool quiet) {
  auto kept = readRunOptions(run);
  if (!kept)
    return kept.status();
  if (*kept)
    fillFrom(train, **kept);
  if (train.data.empty())
    return Status(fmt::format("--resume {}: the run was written without its options, by an earlier version or by a "
                              "program with a loop of "
                              "its own; give PLAN and --data",
                              run),
                  StatusCode::Usage);
  session.target = train.target;
  session.device = train.device;
  session.threads = train.threads;
  session.budgetBytes = train.budgetBytes;
  if (session.planPath.empty()) {
    auto reader = openPlanOf(run, manifest);
    if (!reader)
      return reader.status();
    auto folder = planFolderOf(run, reader->path());
    if (!folder)
      return folder.status();
    session.planPath = reader->path();
    session.planFolder = *folder;
  }
  if (!quiet)
    printMessage("trun: {} goes on after update {}: {} {}\n", run, manifest.position.step, session.planPath,
                 optionsText(train));
  return Status();
}

Status trainCommand(const Options &options) {
  SessionOptions sessionOptions = options.session;
  TrainOptions trainOptions = options.train;
  if (!trainOptions.resume.empty()) {
    // The run's settings come first, and those of the command line override them. The step is fixed here, since the
    // run's last checkpoint may change at any time.
    RunReference reference = parseRunReference(trainOptions.resume);
    auto checkpoint = findCheckpoint(reference);
    if (!checkpoint)
      return checkpoint.status();
    auto manifest = readManifest(*checkpoint);
    if (!manifest)
      return manifest.status();
    sessionOptions.settings = mergeSettings(manifest->position.settings, sessionOptions.settings);
    trainOptions.resume = fmt::format("{}@{}", reference.run, manifest->position.step);
    if (Status status = takeRunOptions(reference.run, *manifest, sessionOptions, trainOptions, options.screen.quiet);
        !status.ok())
      return status;
    auto recorded = readAlgorithms(reference.run);
    if (!recorded)
      return recorded.status();
    sessionOptions.recorded = recorded.take();
  }
  // A run that broke off before its first checkpoint begins anew. Only rank 0 looks at the folder: others might see it
  // half removed.
  const bool starts = trainOptions.resume.empty();
  auto makeRoom = [&]() -> Status {
    if (!starts || trainOptions.out.empty() || !std::filesystem::exists(trainOptions.out))
      return Status();
    auto removed = removeUnbegun(
        trainOptions.out, {sessionOptions.planPath, trainOptions.data, trainOptions.evalData, trainOptions.init});
    if (!removed)
      return removed.status();
    if (!*removed)
      return runExists(trainOptions.out);
    tell(options, Message::note("{}: it broke off before its first checkpoint, and begins anew", trainOptions.out));
    return Status();
  };
  trainOptions.settings = sessionOptions.settings;
  JobOptions job = options.job;
  job.processes = trainOptions.processes;
  job.device = trainOptions.device;
  job.run = trainOptions.out.empty() ? parseRunReference(trainOptions.resume).run : trainOptions.out;
  return onRanks(job, [&](const OwnRank &own) {
    own.applyTo(sessionOptions);
    if (Status status = own.speaks() ? makeRoom() : Status(); !status.ok()) {
      if (own.ranks)
        own.ranks->abort(status.message());
      return status;
    }
    auto session = openSession(sessionOptions);
    if (!session && own.ranks)
      own.ranks->abort(session.message());
    if (!session)
      return session.status();
    ScreenOptions screenOptions = options.screen;
    screenOptions.logEvery = trainOptions.logEvery.value_or(0);
    screenOptions.out = own.speaks() ? screenOptions.out : nullptr;
    TrainScreen screen(screenOptions);
    screen.tellTo(trainOptions);
    return train(*session, trainOptions);
  });
}
} // namespace

Status tcc::tools::reportCommand(const Options &options) {
  auto history = readRunHistory(options.run);
  if (!history)
    return history.status();
  if (!options.html.empty())
    return writeFileAtomically(options.html, runReportHtml(*history), OwnFile::Page);
  if (options.json)
    printResult("{}\n", jsonText(runReportJson(*history)));
  else
    printText(runReportText(*history));
  return Status();
}

Status tcc::tools::runCommand(const Options &options) {
  switch (options.command) {
  case Options::Command::Train:
    return trainCommand(options);
  case Options::Command::Eval:
    return evalCommand(options);
  case Options::Command::Predict:
    return predictCommand(options);
  case Options::Command::Gradients:
    return gradientsCommand(options);
  case Options::Command::Export:
    return exportCommand(options);
  case Options::Command::Verify:
    return verifyCommand(options);
  case Options::Command::Memory:
    return memoryCommand(options);
  case Options::Command::Profile:
    return profileCommand(options);
  case Options::Command::Data:
    return dataCommand(options);
  case Options::Command::LrFind:
    return lrFindCommand(options);
  case Options::Command::Sweep:
    return sweepCommand(options);
  case Options::Command::Report:
    return reportCommand(options);
  case Options::Command::Quantize:
    return quantizeCommand(options);
  }
  return Status();
}

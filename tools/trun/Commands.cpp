//===- Commands.cpp - the commands of trun -------------------------------===//
#include "tools/trun/Commands.h"
#include "runtime/cpu/MachineMemory.h"
#include "runtime/plan/Verifier.h"
#include "runtime/state/AtomicFile.h"
#include "runtime/state/Checkpoint.h"
#include "runtime/state/Weights.h"
#include "runtime/train/Evaluate.h"
#include "runtime/train/Metrics.h"
#include "runtime/train/RunFolder.h"
#include "runtime/train/Settings.h"
#include "tools/common/StandardStreams.h"
#include "tools/trun/ProfileReport.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::tools;

namespace {
plan::Status checkEma(const Options &options) {
  return options.ema ? plan::error("--ema: the run keeps no averaged weights; train a plan whose recipe has train.ema")
                     : plan::Status();
}

/// What --from names: a run's checkpoint, or else a file of weights.
plan::Expected<std::optional<Checkpoint>> openFrom(const std::string &from) {
  if (from.empty() || from.ends_with(".safetensors"))
    return std::optional<Checkpoint>();
  auto folder = findCheckpoint(parseRunReference(from));
  if (!folder)
    return folder.status();
  auto checkpoint = Checkpoint::open(*folder);
  if (!checkpoint)
    return checkpoint.status();
  return std::optional<Checkpoint>(checkpoint.take());
}

plan::Status loadFrom(Session &session, std::optional<Checkpoint> &checkpoint, const std::string &from) {
  if (!checkpoint) {
    auto fit = loadWeights(session.plan(), *session.device, from, WeightsRule::MayBeMissing);
    if (fit && !fit->complete())
      fmt::print(stderr, "trun: note: {}: {}; they keep the model's own values\n", from, fit->text());
    return fit.status();
  }
  NameList unused;
  plan::Status status = loadModelValues(*checkpoint, session.plan(), *session.device, unused);
  if (status.ok() && !unused.empty())
    fmt::print(stderr, "trun: note: {}: the plan has no {}\n", from, unused.text());
  return status;
}

/// An open session with an entry and its data.
struct Prepared {
  Session session;
  EntryData data;
  std::unique_ptr<EntryRunner> runner;
};

plan::Expected<Prepared> prepare(const Options &options, const std::string &entryName, const std::string &dataPath) {
  if (plan::Status status = checkEma(options); !status.ok())
    return status;
  SessionOptions sessionOptions = options.session;
  auto checkpoint = openFrom(options.from);
  if (!checkpoint)
    return checkpoint.status();
  // A run that was trained with --set data.… is used with the same, unless told otherwise.
  if (*checkpoint)
    sessionOptions.settings = mergeSettings((*checkpoint)->manifest().position.settings, sessionOptions.settings, "data.");
  auto session = openSession(sessionOptions);
  if (!session)
    return session.status();
  const plan::Entry *entry = findEntry(session->plan(), entryName);
  // Weights of a run are run in inference mode, whatever mode the graph was exported in.
  if (const plan::Entry *inference = findEntry(session->plan(), entryName + "_inference");
      inference && !options.from.empty())
    entry = inference;
  if (!entry)
    return plan::error("{}: the plan has no entry '{}'; compile with tcc --entry {}", options.session.planPath,
                       entryName, entryName);
  EntryDataOptions dataOptions;
  if (!options.from.empty()) {
    if (plan::Status status = loadFrom(*session, *checkpoint, options.from); !status.ok())
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
  dataOptions.vocabulary = notes.vocabulary;
  auto data = openEntryData(*session, *entry, dataPath, dataOptions);
  if (!data)
    return data.status();
  if (plan::Status status = checkClasses(notes, *data->dataset, run); !status.ok())
    return status;
  Prepared prepared{session.take(), data.take(), nullptr};
  prepared.runner = std::make_unique<EntryRunner>(*prepared.session.device, *entry);
  prepared.runner->setSeed(prepared.session.training.seed());
  return prepared;
}

plan::Status evalCommand(const Options &options) {
  auto prepared = prepare(options, "evaluate", options.train.data);
  if (!prepared)
    return prepared.status();
  auto result = evaluate(*prepared->runner, *prepared->data.reader);
  if (!result)
    return result.status();
  nlohmann::ordered_json line;
  line["eval_loss"] = result->loss;
  if (result->accuracy)
    line["eval_accuracy"] = *result->accuracy;
  line["samples"] = result->samples;
  printResult("{}\n", line.dump());
  return plan::Status();
}

plan::Status predictCommand(const Options &options) {
  auto prepared = prepare(options, "predict", options.inputs);
  return prepared ? predict(*prepared->runner, *prepared->data.reader, options.outputs) : prepared.status();
}

plan::Status gradientsCommand(const Options &options) {
  auto prepared = prepare(options, "gradients", options.inputs);
  return prepared ? writeGradients(*prepared->runner, *prepared->data.reader, options.outputs) : prepared.status();
}

plan::Status exportCommand(const Options &options) {
  if (plan::Status status = checkEma(options); !status.ok())
    return status;
  return exportRun(options.run, options.output, options.keepMode);
}

plan::Status verifyCommand(const Options &options) {
  const std::string &path = options.session.planPath;
  auto reader = plan::PlanReader::open(path);
  if (!reader)
    return reader.status();
  std::vector<std::string> problems = plan::verifyPlan(reader->plan());
  for (size_t i = 0; i + 1 < problems.size(); ++i)
    printMessage("trun: {}: {}\n", path, problems[i]);
  if (!problems.empty())
    return plan::error("{}: {}", path, problems.back());
  printResult("{}: {} entries, {} variables, {}: good\n", path, reader->plan().entries_size(),
             reader->plan().variables_size(), formatBytes(reader->fileBytes()));
  return plan::Status();
}

plan::Status memoryCommand(const Options &options) {
  auto reader = plan::PlanReader::open(options.session.planPath);
  if (!reader)
    return reader.status();
  if (int variants = std::max(1, reader->plan().variants_size()); options.variant >= static_cast<uint32_t>(variants))
    return plan::Status(fmt::format("--variant {}: the plan has {}, counted from 0", options.variant, variants),
                        plan::kExitUsage);
  if (!reader->plan().variants().empty())
    reader->selectVariant(options.variant);
  auto device = createEmptyCpuDevice(*reader, options.session.threads);
  if (!device)
    return device.status();
  uint64_t now = processMemoryBytes(), library = (*device)->libraryBytes();
  nlohmann::ordered_json line;
  line["process_bytes"] = options.processBytes;
  line["host_bytes"] = now - std::min(now, options.processBytes + library);
  line["library_bytes"] = library;
  printResult("{}\n", line.dump());
  return plan::Status();
}

/// The types whose rate bounds an instruction of the plan.
std::vector<plan::DType> multipliedTypes(const plan::Plan &plan) {
  std::set<plan::DType> types;
  for (const plan::Entry &entry : plan.entries())
    for (const plan::Instruction &instruction : entry.instructions())
      types.insert(report::arithmeticType(instruction));
  return {types.begin(), types.end()};
}

plan::Status profileCommand(const Options &options) {
  auto session = openSession(options.session);
  if (!session)
    return session.status();
  std::optional<Roofline> roofline;
  unsigned threads = session->device->threads();
  if (!options.noRoofline) {
    auto measured = measureRoofline(threads, multipliedTypes(session->plan()));
    if (!measured)
      return measured.status();
    roofline = measured.take();
  }
  auto measured = profile(*session, options.profile);
  if (!measured)
    return measured.status();
  ProfileReport report = makeProfileReport(*session, *measured, std::move(roofline));
  if (!options.trace.empty())
    if (plan::Status status = writeFileAtomically(options.trace, profileTrace(report)); !status.ok())
      return status;
  printResult("{}", options.json ? profileJson(report) : profileText(report, options.allKernels));
  return plan::Status();
}

plan::Status trainCommand(const Options &options) {
  SessionOptions sessionOptions = options.session;
  TrainOptions trainOptions = options.train;
  if (!trainOptions.resume.empty()) {
    // The settings of the run go on to hold; what is given now comes after them. The step is fixed here: the run's last
    // checkpoint may be another one a moment later.
    RunReference reference = parseRunReference(trainOptions.resume);
    auto checkpoint = findCheckpoint(reference);
    if (!checkpoint)
      return checkpoint.status();
    auto manifest = readManifest(*checkpoint);
    if (!manifest)
      return manifest.status();
    sessionOptions.settings = mergeSettings(manifest->position.settings, sessionOptions.settings);
    trainOptions.resume = fmt::format("{}@{}", reference.run, manifest->position.step);
  } else if (!trainOptions.out.empty() && std::filesystem::exists(trainOptions.out)) {
    return plan::error("{}: exists already; give another --out, or go on with it by --resume {}", trainOptions.out,
                       trainOptions.out);
  }
  auto session = openSession(sessionOptions);
  if (!session)
    return session.status();
  trainOptions.settings = sessionOptions.settings;
  return train(*session, trainOptions);
}
} // namespace

plan::Status tcc::tools::runCommand(const Options &options) {
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
  }
  return plan::Status();
}

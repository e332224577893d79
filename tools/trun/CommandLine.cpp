//===- CommandLine.cpp - the command line of trun -------------------------===//
#include "runtime/registry/DeviceRegistry.h"
#include "support/MachineMemory.h"
#include "support/PlanNames.h"
#include "support/ShortText.h"
#include "tools/common/CommandLine.h"
#include "tools/common/CommandLineWording.h"
#include "tools/common/ExitStatus.h"
#include "tools/common/Quantities.h"
#include "tools/common/StandardStreams.h"
#include "tools/trun/Commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstring>
#include <fmt/ranges.h>
#include <unistd.h>

using namespace tcc;
using namespace tcc::tools;

namespace {
constexpr std::string_view kEpoch = "epoch"; ///< of --eval-every

/// A number of updates, if the text is one.
std::optional<uint64_t> countOf(const std::string &text) {
  uint64_t count = 0;
  auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), count);
  const bool whole = problem == std::errc() && end == text.data() + text.size() && count <= uint64_t(INT64_MAX);
  return whole ? std::optional(count) : std::nullopt;
}

std::string checkInterval(const std::string &text) {
  return text == kEpoch || countOf(text)
             ? ""
             : fmt::format("must be a number of updates, at least 0, or `epoch`, not {}", shortened(text));
}

struct Raw {
  int64_t workers = -1, processes = 0;
  bool noRelease = false, shuffle = false, noShuffle = false;
  int64_t steps = -1, epochs = -1, seed = -1, checkpointEvery = -1, logEvery = -1;
  std::string budget, maxTime, names, evalEvery;
};

void addBudget(CLI::App &app, Raw &raw) {
  app.add_option("--memory-budget", raw.budget,
                 "limit on the plan's memory: 512MiB, 1.5GiB, bytes, or 60% of this machine's memory; a plan with "
                 "several variants runs the fastest that fits (default: free memory)");
}

void addTarget(CLI::App &app, Options &options) {
  app.add_option("--target", options.session.target,
                 "run this target of a plan for several, as cpu:v3 (default: the best that runs here: a CUDA card "
                 "before the processor, the highest level of each)");
}

void addDevice(CLI::App &app, Options &options, Raw &raw) {
  addTarget(app, options);
  app.add_option("--device", options.session.device,
                 fmt::format("device: {} (default: that of the target); null checks everything and computes nothing",
                             fmt::join(runtime::deviceNames(), ", ")));
  app.add_option("--threads", options.session.threads,
                 "number of workers; 0 (default): as many as this process may use and a memory budget allows")
      ->check(CLI::Range(0u, 4096u));
  addBudget(app, raw);
}

void addQuiet(CLI::App &app, Options &options) {
  app.add_flag("--quiet", options.screen.quiet, "print warnings and errors only");
}

void addSettings(CLI::App &app, Options &options) {
  app.add_option("--set", options.session.settings, "KEY=VALUE: change a recipe key that needs no compilation")
      ->allow_extra_args(false);
}

void addPlan(CLI::App &app, Options &options) {
  app.add_option("PLAN", options.session.planPath, "the plan that tcc wrote")->required();
}

void addFrom(CLI::App &app, Options &options) {
  app.add_option("--from", options.from,
                 "RUN[@STEP|@best|@last], or WEIGHTS.safetensors; default: the initial weights");
  app.add_flag("--ema", options.ema,
               "with --from RUN: the averaged weights (train.ema); of RUN@best they are taken where evaluate.best is a "
               "metric of them");
  addQuiet(app, options);
}

void addInsecureRanks(CLI::App &app, Options &options) {
  app.add_flag(
      "--insecure-ranks", options.job.insecureRanks,
      "let ranks of several machines join without a job secret (TRUN_JOB_SECRET_FILE): anybody on their network can "
      "read and change the training");
}

void addTrain(CLI::App &app, Options &options, Raw &raw) {
  runtime::TrainOptions &train = options.train;
  app.add_option("PLAN", options.session.planPath, "the plan that tcc wrote; default with --resume: the run's plan");
  app.add_option("--data", train.data,
                 "training data: a file, a folder, or the start of IDX names; default with --resume: the run's");
  app.add_option("--eval-data", train.evalData, "data to evaluate on");
  auto *steps = app.add_option("--steps", raw.steps, "total number of updates")->check(checkNotNegative);
  app.add_option("--epochs", raw.epochs, "total passes over the data; default 1")
      ->check(checkNotNegative)
      ->excludes(steps);
  app.add_option("--out", train.out, "run folder to create; default: a new one, MODEL.run");
  app.add_option("--resume", train.resume,
                 "RUN[@STEP]: continue this run from its checkpoint, with its plan, data and options; options given "
                 "here override the run's");
  app.add_option("--init", train.init, "start from WEIGHTS.safetensors, or RUN[@STEP|@best|@last]");
  app.add_flag("--init-partial", train.initPartial, "with --init: take the weights that fit, and list the rest");
  auto *shuffle = app.add_flag("--shuffle", raw.shuffle, "draw a new order every epoch (default)");
  app.add_flag("--no-shuffle", raw.noShuffle, "read in order, and start over at the end")->excludes(shuffle);
  app.add_option("--seed", raw.seed, "seed of the sample order and of random numbers (dropout); default: the recipe's")
      ->check(checkNotNegative);
  app.add_option("--eval-every", raw.evalEvery,
                 "updates between evaluations, or `epoch`: at each epoch's end; default: at the end")
      ->check(checkInterval);
  app.add_option("--checkpoint-every", raw.checkpointEvery,
                 "updates between checkpoints, in addition to one every 15 minutes (checkpoint.every_minutes), before "
                 "evaluations and at the end; 0: only before evaluations and at the end")
      ->check(checkNotNegative);
  app.add_option("--log-every", raw.logEvery, "updates between progress lines")->check(checkNotNegative);
  app.add_option("--max-time", raw.maxTime,
                 "90s, 30m, 2h, 1d12h: stop after this time, with a checkpoint, like a signal");
  app.add_flag("--no-release", raw.noRelease, "write no model.onnx at the end");
  addQuiet(app, options);
  app.add_option("--workers", raw.workers,
                 "threads that read batches ahead; 0: the training thread reads; default: as many as this process may "
                 "use if samples are decoded or transformed")
      ->check(CLI::Range(int64_t(0), int64_t(1024)));
  app.add_flag("--tune", options.session.tune,
               "device cuda: time the libraries' algorithms for each product and convolution, take the fastest, and "
               "record them in the run");
  app.add_flag("--step-by-step", options.session.stepByStep,
               "device cuda: await each instruction before the next one, so that a fault of the card names its node; "
               "slow");
  app.add_option("--nproc", raw.processes,
                 "train on so many ranks of this machine, each a process with a part of its processors; the plan needs "
                 "parallel.mode; default: 1, or as the resumed run")
      ->check(CLI::Range(int64_t(1), int64_t(1024)));
  addInsecureRanks(app, options);
  addSettings(app, options);
  addDevice(app, options, raw);
}

void addIo(CLI::App &app, Options &options, Raw &raw) {
  addPlan(app, options);
  app.add_option("--inputs", options.inputs,
                 "data to read: a file of any kind that --data takes, with a column per input")
      ->required();
  app.add_option("--outputs", options.outputs,
                 "file to write: .safetensors or .npz; of predictions also .npy (one array) or .csv (a row per sample)")
      ->required();
  addFrom(app, options);
  addSettings(app, options);
  addDevice(app, options, raw);
}

void addProfile(CLI::App &app, Options &options, Raw &raw) {
  runtime::ProfileOptions &profile = options.profile;
  addPlan(app, options);
  app.add_option("--data", profile.data, "training data: a file, a folder, or the start of IDX names")->required();
  app.add_option("--steps", profile.steps, "steps to measure (default 3)")->check(CLI::Range(1u, 100000u));
  app.add_option("--warmup", profile.warmup, "warm-up steps before them (default 2)")->check(CLI::Range(0u, 100000u));
  app.add_option("--entry", profile.entry, "profile one entry alone: step, evaluate, predict, gradients, "
                                           "accumulate_next, update, …; default: all entries of an update");
  app.add_flag("--json", options.json, "JSON on standard output");
  app.add_flag("--all", options.allKernels, "list every kernel, not only those above 0.5 % of the step");
  app.add_option("--trace", options.trace, "also write a step as a trace for chrome://tracing or ui.perfetto.dev");
  app.add_option("--nproc", raw.processes, "profile so many ranks of this machine; shown is rank 0's step")
      ->check(CLI::Range(int64_t(1), int64_t(1024)));
  addInsecureRanks(app, options);
  app.add_flag("--no-roofline", options.noRoofline, "do not measure the machine's roofline first");
  addSettings(app, options);
  addTarget(app, options);
  app.add_option("--threads", options.session.threads,
                 "number of workers; 0 (default): as many as this process may use and a memory budget allows")
      ->check(CLI::Range(0u, 4096u));
  addBudget(app, raw);
}

void addExport(CLI::App &app, Options &options, Raw &raw) {
  runtime::ExportOptions &with = options.exporting;
  app.add_option("-o,--output", options.output, "file to write: .onnx or .safetensors; with --adapter, or a folder")
      ->required();
  app.add_flag("--ema", options.ema, "export the averaged weights");
  app.add_flag("--keep-mode", with.keepMode, "keep BatchNormalization and Dropout in the mode of the import");
  auto *adapter =
      app.add_flag("--adapter", with.adapter,
                   "write the trained adapter alone, as peft reads it: a folder with adapter_model.safetensors "
                   "and adapter_config.json");
  app.add_flag("--merge", with.merge,
               "add the trained adapter to the weights (default without --adapter); refuses a run without one")
      ->excludes(adapter);
  app.add_option(
         "--names", raw.names,
         "names and shapes in .safetensors: onnx (default: those of the graph's initializers) or torch (those of "
         "the module's state_dict, where the export's notes tell them)")
      ->check(CLI::IsMember({"torch", "onnx"}))
      ->excludes(adapter);
  app.add_option(
      "--root", with.root,
      "write the state of this submodule alone, by its own names: model, where the exported module wraps one");
}

/// The word, quoted for a shell.
std::string shellWord(const std::string &word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@%+";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos)
    return word;
  std::string quoted = "'";
  for (char c : word)
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

int wrongUsage(const std::string &text) {
  printMessage("trun: {}\n", text);
  return kExitUsage;
}

int fault(const std::string &text) {
  printMessage("trun: error: {}\n", text);
  return kExitFault;
}

std::optional<int> check(Options &options, const Raw &raw) {
  runtime::TrainOptions &train = options.train;
  options.screen.terminal = ::isatty(STDERR_FILENO) != 0;
  if (!raw.budget.empty()) {
    Expected<uint64_t> bytes = parseMemorySize("--memory-budget", raw.budget, tcc::machineMemoryBytes());
    if (!bytes)
      return wrongUsage(bytes.status().message());
    options.session.budgetBytes = *bytes;
  }
  if (options.profile.entry == entries::kTrain)
    options.profile.entry.clear(); // all entries of an update
  if (options.command == Options::Command::LrFind && options.lrFind.start >= options.lrFind.end)
    return wrongUsage(fmt::format("--start {:g}: the rate grows, so it must be below --end {:g}", options.lrFind.start,
                                  options.lrFind.end));
  const bool hasRoot = !options.exporting.root.empty();
  if (raw.names == "onnx" && hasRoot)
    return wrongUsage("--root: a submodule has names of torch; leave --names onnx out");
  if (raw.names == "torch" || hasRoot)
    options.exporting.names = runtime::WeightNames::Torch;
  const bool sweep = options.command == Options::Command::Sweep;
  options.job.processes = train.processes = static_cast<unsigned>(raw.processes);
  options.job.quiet = options.screen.quiet;
  if (options.command != Options::Command::Train && !sweep)
    return std::nullopt;
  if (sweep && (train.out.empty() || !train.resume.empty()))
    return wrongUsage(train.out.empty() ? "--out is required: the folder of the sweep's runs"
                                        : "--resume: the same sweep command goes on with its runs; leave it out");
  if (sweep && raw.processes > 1)
    return wrongUsage("--nproc: the runs of a sweep have one rank each; leave it out");
  if (raw.workers >= 0)
    options.session.settings.push_back(fmt::format("data.workers={}", raw.workers));
  if (raw.steps >= 0)
    train.steps = static_cast<uint64_t>(raw.steps);
  if (raw.epochs >= 0)
    train.epochs = static_cast<uint64_t>(raw.epochs);
  if (raw.evalEvery == kEpoch)
    train.evalEvery = runtime::EvaluationInterval::epochs();
  else if (!raw.evalEvery.empty())
    train.evalEvery = *countOf(raw.evalEvery);
  if (raw.logEvery >= 0)
    options.screen.logEvery = *(train.logEvery = static_cast<uint64_t>(raw.logEvery));
  if (!raw.maxTime.empty()) {
    Expected<double> seconds = parseDuration("--max-time", raw.maxTime);
    if (!seconds)
      return wrongUsage(seconds.status().message());
    train.maxSeconds = *seconds;
  }
  train.target = options.session.target;
  train.device = options.session.device;
  train.threads = options.session.threads;
  train.budgetBytes = options.session.budgetBytes;
  if (train.resume.empty() && (options.session.planPath.empty() || train.data.empty()))
    return wrongUsage(
        options.session.planPath.empty()
            ? "PLAN is required: the plan that tcc wrote, or --resume RUN to go on with a run; see trun --help"
            : "--data is required: the training data, or --resume RUN to go on with a run; see trun --help");
  if (raw.checkpointEvery >= 0)
    train.checkpointEvery = static_cast<uint64_t>(raw.checkpointEvery);
  if (raw.seed >= 0)
    train.seed = static_cast<uint64_t>(raw.seed);
  if (raw.shuffle || raw.noShuffle)
    train.shuffle = raw.shuffle;
  if (!train.init.empty() && !train.resume.empty())
    return wrongUsage("--init and --resume: a resumed run has its weights already; give one of them");
  if (train.initPartial && train.init.empty())
    return wrongUsage("--init-partial: it needs --init WEIGHTS.safetensors");
  if (raw.noRelease)
    train.release = false;
  return std::nullopt;
}
} // namespace

std::string tcc::tools::optionsText(const runtime::RunOptions &options) {
  std::string text;
  for (const auto &[key, value] : runtime::givenOptions(options)) {
    std::string name = key == "max_seconds" ? "max-time" : key;
    std::replace(name.begin(), name.end(), '_', '-');
    if (key == "release" && value == "true")
      continue;
    text += text.empty() ? "" : " ";
    text += key == "release"       ? "--no-release"
            : key == "max_seconds" ? fmt::format("--{} {}s", name, value)
                                   : fmt::format("--{} {}", name, shellWord(value));
  }
  return text;
}

Parsed tcc::tools::parseCommandLine(int argc, char **argv) {
  static constexpr std::pair<const char *, Options::Command> kCommands[] = {
      {"train", Options::Command::Train},     {"eval", Options::Command::Eval},
      {"predict", Options::Command::Predict}, {"gradients", Options::Command::Gradients},
      {"export", Options::Command::Export},   {"verify", Options::Command::Verify},
      {"memory", Options::Command::Memory},   {"profile", Options::Command::Profile},
      {"data", Options::Command::Data},       {"lr-find", Options::Command::LrFind},
      {"sweep", Options::Command::Sweep},     {"report", Options::Command::Report},
      {"quantize", Options::Command::Quantize}};
  Parsed parsed;
  Options &options = parsed.options;
  Raw raw;
  std::string word = argc > 1 ? argv[1] : "";
  bool named = false;
  // Training, which has no word of its own here, is described below.
  if (asksForDescription(argc, argv))
    for (const auto &[name, command] : kCommands)
      if (command != Options::Command::Train) {
        std::string commandWord = name;
        char *words[] = {argv[0], commandWord.data(), argv[1]};
        parseCommandLine(3, words);
      }
  for (const auto &[name, command] : kCommands)
    if (word == name) {
      options.command = command;
      named = true;
    }
  CLI::App app("trun: runs the plans that tcc makes", named ? "trun " + word : "trun");
  app.set_version_flag("--version", "trun " TCC_VERSION);
  app.get_formatter()->column_width(30);
  switch (options.command) {
  case Options::Command::Train:
    app.description("Trains a plan that tcc made: trun PLAN --data PATH …\n"
                    "Other commands: trun eval | predict | gradients | export | verify | memory | profile | data | "
                    "report | lr-find | sweep | quantize, each with its own "
                    "--help.");
    addTrain(app, options, raw);
    app.add_option("--trace", options.train.trace,
                   "write a timeline of training, loader and checkpoint threads to this file, for ui.perfetto.dev");
    break;
  case Options::Command::Eval:
    app.description("Computes loss and accuracy over a data set; prints JSON.");
    addPlan(app, options);
    app.add_option("--data", options.train.data, "data to evaluate on")->required();
    app.add_option("--confusion", options.confusion,
                   "write how often each class was predicted for each class of the targets to this file (CSV)");
    addFrom(app, options);
    addSettings(app, options);
    addDevice(app, options, raw);
    break;
  case Options::Command::Predict:
    app.description("Computes every output of the model for the given inputs.");
    addIo(app, options, raw);
    break;
  case Options::Command::Gradients:
    app.description("Computes the loss and every gradient of one batch.");
    addIo(app, options, raw);
    break;
  case Options::Command::Export:
    app.description("Writes trained weights as model.onnx or weights.safetensors.");
    app.add_option("RUN", options.run, "checkpoint to export: RUN[@STEP|@best|@last]")->required();
    addExport(app, options, raw);
    break;
  case Options::Command::Verify:
    app.description("Checks a plan with the verifier alone.");
    addPlan(app, options);
    break;
  case Options::Command::Profile:
    app.description("Measures a few real updates: the time of every kernel, and its share of this machine's roofline.");
    addProfile(app, options, raw);
    break;
  case Options::Command::Data:
    app.description("Lists a data set's columns and every damaged sample. Exit status 1 if a sample is damaged.");
    app.add_option("PATH", options.train.data, "the data: a file, a folder, or the start of IDX names")->required();
    app.add_option("--plan", options.session.planPath,
                   "also check the data against this plan's model: shapes, types, indices, classes");
    app.add_option("--png", options.output, "write a sheet of samples, transformed as in training, to this file");
    addSettings(app, options);
    break;
  case Options::Command::LrFind:
    app.description("Trains in memory while the learning rate grows by one factor per update; prints the loss at each "
                    "rate, and a rate to start from. Writes nothing.");
    addPlan(app, options);
    app.add_option("--data", options.lrFind.data, "training data: a file, a folder, or the start of IDX names")
        ->required();
    app.add_option("--init", options.lrFind.init, "start from WEIGHTS.safetensors, or RUN[@STEP|@best|@last]");
    app.add_option("--start", options.lrFind.start, "the first rate (default 1e-7)")->check(checkPositive);
    app.add_option("--end", options.lrFind.end, "the last rate (default 10)")->check(checkPositive);
    app.add_option("--steps", options.lrFind.steps, "updates (default 100)")->check(CLI::Range(2u, 1000000u));
    app.add_flag("--json", options.json, "JSON on standard output");
    addSettings(app, options);
    addDevice(app, options, raw);
    break;
  case Options::Command::Sweep:
    app.description(
        "Trains once for each combination of the values in --set KEY=V1,V2 and each seed, in OUT/1, OUT/2, …; "
        "prints the runs, best first. The same command continues a stopped sweep.");
    addTrain(app, options, raw);
    app.add_option("--seeds", options.seeds, "runs of each combination, with seeds from --seed on (default 1)")
        ->check(CLI::Range(1u, 100000u));
    break;
  case Options::Command::Report: {
    app.description(
        "Tells of a run: state, losses, time in compute, data and checkpoints; one that trains, was stopped or "
        "broke off, too.");
    app.add_option("RUN", options.run, "the folder of the run")->required();
    auto *html = app.add_option("--html", options.html, "write a page with curves to this file; it needs no network");
    app.add_flag("--json", options.json, "JSON on standard output")->excludes(html);
    break;
  }
  case Options::Command::Quantize:
    app.description("Rounds weights to the 8 or 4 bits in which a plan keeps them; --init takes the file as it is.");
    addPlan(app, options);
    app.add_option("WEIGHTS", options.from, "the weights: a safetensors file, or RUN[@STEP|@best|@last]")->required();
    app.add_option("-o,--output", options.output, "file to write: .safetensors")->required();
    addTarget(app, options);
    break;
  case Options::Command::Memory:
    app.description("Measures the memory of the process beside the plan's arenas; prints JSON.");
    addPlan(app, options);
    app.add_option("--threads", options.session.threads, "workers; 0: as many as this process may use")
        ->check(CLI::Range(0u, 4096u));
    addTarget(app, options);
    app.add_option("--variant", options.variant, "variant to load, counted from 0 (most memory)");
    break;
  }
  int skip = named ? 1 : 0;
  Arguments arguments = readArguments(app, argc - skip, argv + skip);
  if (arguments.answered)
    parsed.exitStatus = kExitDone;
  else if (!arguments.status.ok())
    parsed.exitStatus = wrongUsage(arguments.status.message());
  else if (Status status = checkOutputs(app, {{"--output", std::nullopt},
                                              {"--outputs", std::nullopt},
                                              {"--trace", OwnFile::Trace},
                                              {"--html", OwnFile::Page},
                                              {"--png", OwnFile::Picture},
                                              {"--confusion", OwnFile::Confusion}});
           !status.ok())
    parsed.exitStatus = exitStatusOf(status) == kExitUsage ? wrongUsage(status.message()) : fault(status.message());
  if (parsed.exitStatus)
    return parsed;
  parsed.exitStatus = check(options, raw);
  commandLineWording().resumeCommand = [program = std::string(argv[0])](std::string_view run) {
    return shellWord(program) + " --resume " + shellWord(std::string(run));
  };
  return parsed;
}

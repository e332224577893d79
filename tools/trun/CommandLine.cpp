//===- CommandLine.cpp - what trun understands ---------------------------===//
#include "runtime/cpu/MachineMemory.h"
#include "tools/common/CommandLine.h"
#include "tools/common/MemorySize.h"
#include "tools/trun/Commands.h"

#include <CLI/CLI.hpp>
#include <cstring>
#include <unistd.h>

using namespace tcc;
using namespace tcc::tools;

namespace {
struct Raw {
  int64_t workers = 0, processes = 1;
  bool noRelease = false, shuffle = false, noShuffle = false;
  int64_t steps = -1, epochs = -1, seed = -1, checkpointEvery = -1;
  std::string budget;
};

void addBudget(CLI::App &app, Raw &raw) {
  app.add_option("--memory-budget", raw.budget,
                 "what the plan may take: 512MiB, 1.5GiB, bytes, or 60% of this machine's memory; a plan with several "
                 "variants runs the fastest within it (default: within what is free)");
}

void addDevice(CLI::App &app, Options &options, Raw &raw) {
  app.add_option("--device", options.session.device, "cpu (default), or null: check everything, compute nothing");
  app.add_option("--threads", options.session.threads, "workers; 0: as many as this process may use")
      ->check(CLI::Range(0u, 4096u));
  addBudget(app, raw);
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
  app.add_flag("--ema", options.ema, "the averaged weights");
}

void addTrain(CLI::App &app, Options &options, Raw &raw) {
  runtime::TrainOptions &train = options.train;
  addPlan(app, options);
  app.add_option("--data", train.data, "training data: a file, a folder, or the start of IDX names")->required();
  app.add_option("--eval-data", train.evalData, "data to evaluate on");
  auto *steps = app.add_option("--steps", raw.steps, "updates in all")->check(CLI::NonNegativeNumber);
  app.add_option("--epochs", raw.epochs, "passes over the data in all; default 1")
      ->check(CLI::NonNegativeNumber)
      ->excludes(steps);
  app.add_option("--out", train.out, "run folder to make; default: a new one, MODEL.run");
  app.add_option("--resume", train.resume, "RUN[@STEP]: go on where it stopped");
  app.add_option("--init", train.init, "WEIGHTS.safetensors, or RUN[@STEP|@best|@last], to start from");
  app.add_flag("--init-partial", train.initPartial, "with --init: take the weights that fit, and list the rest");
  auto *shuffle = app.add_flag("--shuffle", raw.shuffle, "a new order every epoch (default)");
  app.add_flag("--no-shuffle", raw.noShuffle, "read in order, and start over at the end")->excludes(shuffle);
  app.add_option("--seed", raw.seed, "of the order and of random numbers (dropout); default: the recipe's")->check(CLI::NonNegativeNumber);
  app.add_option("--eval-every", train.evalEvery, "updates between evaluations; default: at the end");
  app.add_option("--checkpoint-every", raw.checkpointEvery,
                 "updates between checkpoints, besides those of every 15 minutes (checkpoint.every_minutes), before "
                 "evaluations and at the end; 0: those two alone")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--log-every", train.logEvery, "updates between progress lines");
  app.add_flag("--no-release", raw.noRelease, "write no model.onnx at the end");
  app.add_option("--workers", raw.workers, "loader threads: only 0, the training thread reads");
  app.add_option("--nproc", raw.processes, "processes: only 1");
  addSettings(app, options);
  addDevice(app, options, raw);
}

void addIo(CLI::App &app, Options &options, Raw &raw) {
  addPlan(app, options);
  app.add_option("--inputs", options.inputs, "tensors by input name, e.g. IN.safetensors")->required();
  app.add_option("--outputs", options.outputs, "file to write, .safetensors")->required();
  addFrom(app, options);
  addSettings(app, options);
  addDevice(app, options, raw);
}

void addProfile(CLI::App &app, Options &options, Raw &raw) {
  runtime::ProfileOptions &profile = options.profile;
  addPlan(app, options);
  app.add_option("--data", profile.data, "training data: a file, a folder, or the start of IDX names")->required();
  app.add_option("--steps", profile.steps, "steps that are measured (default 3)")->check(CLI::Range(1u, 100000u));
  app.add_option("--warmup", profile.warmup, "steps before them (default 2)")->check(CLI::Range(0u, 100000u));
  app.add_option("--entry", profile.entry, "one entry alone: step, evaluate, predict, gradients, accumulate_next, update, …; "
                                           "default: all that an update runs");
  app.add_flag("--json", options.json, "JSON on standard output");
  app.add_flag("--all", options.allKernels, "every kernel in the table, not only those from 0.5 % of the step on");
  app.add_option("--trace", options.trace, "also write a step as a trace for chrome://tracing or ui.perfetto.dev");
  app.add_flag("--no-roofline", options.noRoofline, "do not measure the machine first");
  addSettings(app, options);
  app.add_option("--threads", options.session.threads, "workers; 0: as many as this process may use")
      ->check(CLI::Range(0u, 4096u));
  addBudget(app, raw);
}

/// The word as a shell reads it back.
std::string shellWord(const std::string &word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@%+";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos)
    return word;
  std::string quoted = "'";
  for (char c : word)
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

/// What was typed, with --resume in the place of what names the run or its first weights.
std::string resumeCommand(const std::vector<std::string> &words, const std::string &run) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string &word = words[i];
    bool dropped = false;
    for (std::string_view option : {"--out", "--resume", "--init"}) {
      if (word == option)
        ++i; // its value, too
      dropped |= word == option || (word.starts_with(option) && word[option.size()] == '=');
    }
    if (!dropped && word != "--init-partial")
      text += shellWord(word) + " ";
  }
  return text + "--resume " + shellWord(run);
}

int wrongUsage(const std::string &text) {
  std::fprintf(stderr, "trun: %s\n", text.c_str());
  return plan::kExitUsage;
}

std::optional<int> check(Options &options, const Raw &raw) {
  runtime::TrainOptions &train = options.train;
  if (!raw.budget.empty()) {
    plan::Expected<uint64_t> bytes = parseMemorySize("--memory-budget", raw.budget, runtime::machineMemoryBytes());
    if (!bytes)
      return wrongUsage(bytes.status().message());
    options.session.budgetBytes = *bytes;
  }
  if (options.command != Options::Command::Train)
    return std::nullopt;
  if (raw.processes != 1)
    return wrongUsage("--nproc: training on several processes is not there yet; use 1");
  if (raw.workers != 0)
    return wrongUsage("--workers: data is read by the training thread, loader threads are not there yet; use 0");
  if (raw.steps >= 0)
    train.steps = static_cast<uint64_t>(raw.steps);
  if (raw.epochs >= 0)
    train.epochs = static_cast<uint64_t>(raw.epochs);
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
  train.release = !raw.noRelease;
  train.terminal = ::isatty(STDERR_FILENO) != 0;
  return std::nullopt;
}
} // namespace

Parsed tcc::tools::parseCommandLine(int argc, char **argv) {
  static constexpr std::pair<const char *, Options::Command> kCommands[] = {
      {"train", Options::Command::Train},     {"eval", Options::Command::Eval},
      {"predict", Options::Command::Predict}, {"gradients", Options::Command::Gradients},
      {"export", Options::Command::Export},   {"verify", Options::Command::Verify},
      {"memory", Options::Command::Memory},   {"profile", Options::Command::Profile},
      {"data", Options::Command::Data}};
  Parsed parsed;
  Options &options = parsed.options;
  Raw raw;
  std::string word = argc > 1 ? argv[1] : "";
  bool named = false;
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
    app.description("trun PLAN --data PATH …: trains.\n"
                    "Other commands: trun eval | predict | gradients | export | verify | memory | profile | data, each with its own "
                    "--help.");
    addTrain(app, options, raw);
    break;
  case Options::Command::Eval:
    app.description("Loss and accuracy over a data set, as JSON on standard output.");
    addPlan(app, options);
    app.add_option("--data", options.train.data, "data to evaluate on")->required();
    addFrom(app, options);
    addSettings(app, options);
    addDevice(app, options, raw);
    break;
  case Options::Command::Predict:
    app.description("Every output of the model for the given inputs.");
    addIo(app, options, raw);
    break;
  case Options::Command::Gradients:
    app.description("Loss and every gradient of one batch.");
    addIo(app, options, raw);
    break;
  case Options::Command::Export:
    app.description("Trained weights as model.onnx or weights.safetensors.");
    app.add_option("RUN", options.run, "RUN[@STEP|@best|@last]")->required();
    app.add_option("-o,--output", options.output, "file to write: .onnx or .safetensors")->required();
    app.add_flag("--ema", options.ema, "the averaged weights");
    app.add_flag("--keep-mode", options.keepMode, "keep BatchNormalization and Dropout in the mode of the import");
    break;
  case Options::Command::Verify:
    app.description("Checks a plan with the verifier alone.");
    addPlan(app, options);
    break;
  case Options::Command::Profile:
    app.description("Where the time of a training step goes: every instruction of a few real updates, by kernel, against "
                    "what this machine can do.");
    addProfile(app, options, raw);
    break;
  case Options::Command::Data:
    app.description("What a data set holds: its columns, and every sample that is damaged. Exit status 1 if one is.");
    app.add_option("PATH", options.train.data, "the data: a file, a folder, or the start of IDX names")->required();
    app.add_option("--plan", options.session.planPath,
                   "also check what this plan's model asks for: shapes, types, indices, classes");
    addSettings(app, options);
    break;
  case Options::Command::Memory:
    app.description("What the process takes beside the plan's arenas, measured, as JSON on standard output.");
    addPlan(app, options);
    app.add_option("--threads", options.session.threads, "workers; 0: as many as this process may use")
        ->check(CLI::Range(0u, 4096u));
    app.add_option("--variant", options.variant, "of a plan with several: which, from 0 (most memory)");
    break;
  }
  int skip = named ? 1 : 0;
  Arguments arguments = readArguments(app, argc - skip, argv + skip);
  if (arguments.answered)
    parsed.exitStatus = plan::kExitDone;
  else if (!arguments.status.ok())
    parsed.exitStatus = wrongUsage(arguments.status.message());
  if (parsed.exitStatus)
    return parsed;
  parsed.exitStatus = check(options, raw);
  std::vector<std::string> words(argv, argv + argc);
  options.train.resumeCommand = [words](const std::string &run) { return resumeCommand(words, run); };
  return parsed;
}

//===- Compile.cpp - tcc MODEL, tcc inspect -------------------------------===//
#include "compiler/PlanCache.h"
#include "compiler/profile/Profile.h"
#include "compiler/target/cuda/Cards.h"
#include "compiler/recipe/Recipe.h"
#include "frontend/Import.h"
#include "runtime/plan/Verifier.h"
#include "support/AtomicFile.h"
#include "support/MachineMemory.h"
#include "support/PlanNames.h"
#include "tools/common/MemorySize.h"
#include "tools/tcc/Commands.h"
#include "tools/tcc/FitBatch.h"
#include "tools/tcc/Report.h"

#include "mlir/IR/MLIRContext.h"
#include "tools/common/StandardStreams.h"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <sstream>

namespace tcc::tools {

namespace {

/// More than trun takes beside its arenas: program, library, plan (`tcc report` has what one plan's run takes).
constexpr uint64_t kBesideArenasBytes = 32ull << 20;

/// What a CUDA context takes of a card beside the arena: code, stacks of threads. Not measured; drivers of CUDA 12 take
/// some 300 to 500 MiB on an H100.
constexpr uint64_t kBesideCardArenaBytes = 512ull << 20;

std::string cardNames() {
  std::string names;
  for (const target::cuda::Card &card : target::cuda::cards())
    names += (names.empty() ? "" : ", ") + std::string(card.name);
  return names;
}

/// `--device-memory`: bytes, or a card, which the report is for then.
Expected<uint64_t> readDeviceMemory(const std::string &text, CompileOptions &options) {
  const std::string prefix = "cuda:";
  if (!options.target.starts_with(prefix))
    return Status(fmt::format("--device-memory {}: it is a CUDA card's memory; give --target cuda:sm_90, or the card's "
                              "architecture",
                              text),
                  kExitUsage);
  const target::cuda::Card *card = target::cuda::findCard(text);
  if (!card) {
    Expected<uint64_t> bytes = parseMemorySize("--device-memory", text);
    if (!bytes)
      return Status(fmt::format("{}, or a card's name: {}", bytes.message(), cardNames()), kExitUsage);
    return bytes;
  }
  auto number = [](std::string_view architecture) { return std::atoi(architecture.data() + 3); };
  std::string_view wanted = std::string_view(options.target).substr(prefix.size());
  if (wanted.starts_with("sm_") && number(wanted) > number(card->architecture))
    return Status(fmt::format("--device-memory {}: it has the architecture {}, which does not run code for {}; compile "
                              "with --target cuda:{}",
                              text, card->architecture, wanted, card->architecture),
                  kExitUsage);
  options.card = card->name;
  return card->memoryBytes;
}

/// Never throws: a link that leads nowhere is no folder.
bool isFolder(const std::string &path) {
  std::error_code code;
  return std::filesystem::is_directory(path, code);
}

/// `--timings`: a table on standard output for "-", else a JSON file.
Status writeTimings(const std::string &path, const Profile &profile) {
  if (path == "-") {
    printResult("{}", profile.toTable());
    return Status::success();
  }
  return tcc::writeFileAtomically(path, profile.toJson());
}

/// Reads the bytes as trun will, before anything takes their name. Returns the plan's memory, as text.
Expected<std::string> verifyBytes(const std::string &bytes, const std::string &path) {
  Expected<plan::PlanReader> written = plan::PlanReader::fromBuffer(bytes, path);
  if (!written)
    return written.status();
  if (std::vector<std::string> problems = plan::verifyPlan(written->plan()); !problems.empty())
    return error("internal error: the plan does not verify: {}", problems.front());
  return report::formatBytes(written->plan().resident_bytes()) + " resident + " +
         report::formatBytes(written->plan().transient_bytes()) + " transient";
}

/// Compiles one model, or takes the plan of an earlier compile; checks and writes it, and says on standard error what the
/// user should know.
Status makePlan(const CompileOptions &options, const std::string &path, bool quiet) {
  Profile &profile = *options.profile;
  std::optional<cache::PlanCache> known;
  cache::CachedPlan plan;
  bool found = false;
  std::vector<std::string> externalFiles;
  if (options.store && options.dumpFolder.empty()) {
    Profile::Span span = profile.phase("look-up");
    known.emplace(*options.store, options);
    if (std::optional<cache::CachedPlan> earlier = known->find()) {
      plan = std::move(*earlier);
      found = true;
    }
  }
  if (!found) {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    // A context for each model, so that they share no state.
    mlir::MLIRContext context(registry);
    Expected<CompiledModel> compiled = compileModel(context, options);
    if (!compiled)
      return compiled.status();
    Profile::Span span = profile.phase("write");
    Expected<std::string> bytes = compiled->writer.toBuffer(compiled->plan);
    if (!bytes)
      return bytes.status().withContext(path);
    plan = {bytes.take(), compiled->warnings};
    externalFiles = compiled->externalFiles;
  }
  {
    Profile::Span span = profile.phase("write");
    Expected<std::string> sizes = verifyBytes(plan.bytes, path);
    if (!sizes)
      return sizes.status();
    if (Status status = plan::PlanWriter::writeBytes(plan.bytes, path); !status.ok())
      return status;
    for (const std::string &warning : plan.warnings)
      if (!quiet)
        printMessage("warning: {}\n", warning);
    if (!quiet)
      printMessage("{}: {}{}\n", path, *sizes, found ? " (from the cache)" : "");
  }
  if (known && !found) {
    Profile::Span span = profile.phase("keep");
    known->keep(plan, externalFiles);
  }
  return Status::success();
}

} // namespace

Status readEntries(const std::string &text, CompileOptions &options) {
  std::stringstream list(text);
  for (std::string entry; std::getline(list, entry, ',');) {
    if (entry != entries::kTrain && entry != entries::kEvaluate && entry != entries::kPredict &&
        entry != entries::kGradients)
      return Status(fmt::format("--entry {}: expected train, evaluate, predict or gradients", entry),
                          kExitUsage);
    options.entries.push_back(entry);
  }
  return Status::success();
}

int compileCommand(int argc, char **argv) {
  CLI::App app("Compiles an ONNX forward graph into a training plan.\n"
               "Other commands: tcc report | frontier | gradcheck | inspect | ops, each with its own --help.",
               "tcc");
  ModelArguments model;
  model.add(app, /*several=*/true);
  std::string output, entries, timings, target, budget, deviceMemory, fit, suggestion;
  CompileOptions options;
  std::string cacheFolder, cacheSize;
  uint64_t cacheBytes = cache::ContentStore::kDefaultCapacityBytes;
  bool quiet = false, noCache = false;
  app.add_option("-o,--output", output, "the plan to write, or a folder for it; default: MODEL.tplan");
  app.add_option("--target", target, "cpu[:v3|:v4|:v4-bf16|:amx] or cuda:sm_80|sm_86|sm_89|sm_90|sm_100|sm_120; default: this machine's level");
  app.add_option("--threads", options.maxWorkers, "workers that --memory-budget holds for; any number may run the plan; default: 8")
      ->check(CLI::Range(1, 1024));
  app.add_option("--memory-budget", budget,
                 "limit on state and arena together: 512MiB, 1.5GiB, bytes, or 60% of this machine's memory; "
                 "recomputes values where the limit requires it");
  app.add_option("--device-memory", deviceMemory,
                 "memory of the CUDA card that a percentage is of: 80GiB, or a card's name, which the report's rates "
                 "then are of: a100, h100, h200, b200, l4, l40s, rtx4090, …");
  app.add_option("--fit", fit, "batch: find the largest batch whose plan fits into --memory-budget")
      ->check(CLI::IsMember({"batch"}));
  app.add_option("--variants", options.variants,
                 "number of points of the time-memory frontier in the plan; trun runs the fastest that fits into free "
                 "memory")
      ->check(CLI::Range(1, 16));
  app.add_option("--precision", options.precision,
                 "f32 (default), bf16 (products in bf16, the rest in f32), or auto: bf16 where the target has it")
      ->check(CLI::IsMember({"f32", "tf32", "bf16", "f16", "auto"}));
  app.add_option("--entry", entries, "train,evaluate,predict,gradients; default: the first three");
  app.add_flag("--embed-weights", options.embedWeights, "store weights above 64 MiB in the plan, too");
  app.add_option("--dump-phases-to", options.dumpFolder, "write the IR after each phase into this folder");
  app.add_option("--timings", timings, "write the seconds of each phase: as JSON to this file, or with - as a table to "
                                       "standard output");
  app.add_flag("--no-cache", noCache, "do not read or write the cache");
  app.add_option("--cache-dir", cacheFolder,
                 "folder of the cache; default: $TCC_CACHE_DIR, else $XDG_CACHE_HOME/tcc, else ~/.cache/tcc");
  app.add_option("--cache-size", cacheSize, "largest size of the cache; removes the least recently used entries first; "
                                            "default: 2GiB");
  app.add_option("--suggest-recipe", suggestion,
                 "write a recipe guessed from the graph to this file, and no plan");
  app.add_flag("--quiet", quiet, "say nothing but errors");
  if (std::optional<int> status = readCommandLine(app, argc, argv))
    return *status;
  options.target = target;
  if (options.precision == "tf32" || options.precision == "f16")
    return printError(Status(fmt::format("--precision {}: no target multiplies {} yet; use bf16 or f32",
                                               options.precision, options.precision),
                                   kExitUsage));
  const bool forCuda = target.starts_with("cuda");
  uint64_t wholeBytes = forCuda ? 0 : tcc::machineMemoryBytes();
  if (!deviceMemory.empty()) {
    Expected<uint64_t> bytes = readDeviceMemory(deviceMemory, options);
    if (!bytes)
      return printError(bytes.status());
    wholeBytes = *bytes;
  }
  if (!budget.empty()) {
    if (forCuda && !wholeBytes && budget.ends_with('%'))
      return printError(Status(fmt::format("--memory-budget {}: of which card? give --device-memory 80GiB, or a card's "
                                           "name: {}",
                                           budget, cardNames()),
                               kExitUsage));
    Expected<uint64_t> bytes = parseMemorySize("--memory-budget", budget, wholeBytes);
    if (!bytes)
      return printError(bytes.status());
    options.budgetBytes = *bytes;
    // A share of the machine counts all of trun, not the arenas alone; one of a card what the driver takes, too.
    if (budget.ends_with('%'))
      options.budgetBytes -= std::min(options.budgetBytes - 1, forCuda ? kBesideCardArenaBytes : kBesideArenasBytes);
  }
  if (!cacheSize.empty()) {
    Expected<uint64_t> bytes = parseMemorySize("--cache-size", cacheSize);
    if (!bytes)
      return printError(bytes.status());
    cacheBytes = *bytes;
  }
  if (!fit.empty() && budget.empty())
    return printError(Status("--fit batch: it needs a budget; give one with --memory-budget", kExitUsage));
  if (Status status = model.fill(options); !status.ok())
    return printError(status);
  if (Status status = readEntries(entries, options); !status.ok())
    return printError(status);
  if (!suggestion.empty() && model.models.size() > 1)
    return printError(Status("--suggest-recipe is for one model at a time", kExitUsage));
  if (!suggestion.empty())
    return suggestRecipe(options, suggestion, quiet);
  if (model.models.size() > 1 && !output.empty() && !isFolder(output))
    return printError(Status(fmt::format("-o {}: with several models it must be a folder that exists", output),
                                   kExitUsage));
  if (model.models.size() > 1 && !timings.empty() && timings != "-")
    return printError(Status("--timings FILE is for one model at a time; --timings - prints a table for each",
                                   kExitUsage));

  std::vector<std::filesystem::path> targets;
  for (const std::string &path : model.models) {
    std::filesystem::path target = std::filesystem::path(path).replace_extension(".tplan");
    if (!output.empty())
      target = isFolder(output) ? output / target.filename() : std::filesystem::path(output);
    if (auto other = std::find(targets.begin(), targets.end(), target); other != targets.end())
      return printError(
          Status(fmt::format("{} and {} would both be compiled to {}: compile one of them on its own",
                                   model.models[size_t(other - targets.begin())], path, target.string()),
                       kExitUsage));
    targets.push_back(target);
  }

  std::optional<cache::ContentStore> store;
  if (cacheFolder.empty())
    cacheFolder = cache::defaultFolder();
  if (!noCache && !cacheFolder.empty())
    store.emplace(cacheFolder, cacheBytes);
  options.store = store ? &*store : nullptr;
  int exitStatus = kExitDone;
  for (size_t i = 0; i < targets.size(); ++i) {
    const std::string &path = model.models[i];
    const std::filesystem::path &target = targets[i];
    options.modelPath = path;
    options.planFolder = target.parent_path().string();
    CompileOptions chosen = options;
    Profile profile;
    chosen.profile = &profile;
    if (!fit.empty()) {
      Expected<int64_t> batch = fitBatch(chosen);
      if (!batch) {
        exitStatus = std::max(exitStatus, printError(batch.status()));
        continue;
      }
      printMessage("{}: a batch of {} fits into {}\n", path, *batch, report::formatBytes(options.budgetBytes));
    }
    Status status = makePlan(chosen, target.string(), quiet);
    if (store) {
      store->trim();
      if (std::string problem = store->takeProblem(); !problem.empty() && !quiet)
        printMessage("warning: the cache {}; --cache-dir names another folder, --no-cache turns the cache off\n",
                     problem);
    }
    if (status.ok() && !timings.empty())
      status = writeTimings(timings, profile);
    if (!status.ok())
      exitStatus = std::max(exitStatus, printError(status));
  }
  return exitStatus;
}

int inspectCommand(int argc, char **argv) {
  CLI::App app("Lists inputs, outputs, parameters, ops, and everything that is unsupported.", "tcc inspect");
  ModelArguments model;
  model.add(app);
  if (std::optional<int> status = readCommandLine(app, argc, argv))
    return *status;
  CompileOptions options;
  if (Status status = model.fill(options); !status.ok())
    return printError(status);
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry);
  context.loadAllAvailableDialects();
  Expected<Recipe> recipe = readRecipe(options.recipePath, options.settings);
  if (!recipe)
    return printError(recipe.status());
  Expected<std::string> text = frontend::inspectModel(context, model.models.front(), importOptions(options, *recipe));
  if (!text)
    return printError(text.status());
  printResult("{}", *text);
  return kExitDone;
}

} // namespace tcc::tools

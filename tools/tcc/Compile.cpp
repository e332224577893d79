//===- Compile.cpp - tcc MODEL, tcc inspect -------------------------------===//
#include "compiler/Recipe.h"
#include "compiler/cache/PlanCache.h"
#include "compiler/profile/Profile.h"
#include "frontend/Import.h"
#include "runtime/plan/Verifier.h"
#include "runtime/cpu/MachineMemory.h"
#include "runtime/state/AtomicFile.h"
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

/// Never throws: a link that leads nowhere is no folder.
bool isFolder(const std::string &path) {
  std::error_code code;
  return std::filesystem::is_directory(path, code);
}

/// `--timings`: a table on standard output for "-", else a JSON file.
plan::Status writeTimings(const std::string &path, const Profile &profile) {
  if (path == "-") {
    printResult("{}", profile.toTable());
    return plan::Status::success();
  }
  return runtime::writeFileAtomically(path, profile.toJson());
}

/// Reads the bytes as trun will, before anything takes their name. Returns the plan's memory, as text.
plan::Expected<std::string> verifyBytes(const std::string &bytes, const std::string &path) {
  plan::Expected<plan::PlanReader> written = plan::PlanReader::fromBuffer(bytes, path);
  if (!written)
    return written.status();
  if (std::vector<std::string> problems = plan::verifyPlan(written->plan()); !problems.empty())
    return plan::error("internal error: the plan does not verify: {}", problems.front());
  return report::formatBytes(written->plan().resident_bytes()) + " resident + " +
         report::formatBytes(written->plan().transient_bytes()) + " transient";
}

/// Compiles one model, or takes the plan of an earlier compile; checks and writes it, and says on standard error what the
/// user should know.
plan::Status makePlan(const CompileOptions &options, const std::string &path, bool quiet) {
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
    // A context for each model: what one leaves there is not the next one's.
    mlir::MLIRContext context(registry);
    plan::Expected<CompiledModel> compiled = compileModel(context, options);
    if (!compiled)
      return compiled.status();
    Profile::Span span = profile.phase("write");
    plan::Expected<std::string> bytes = compiled->writer.toBuffer(compiled->plan);
    if (!bytes)
      return bytes.status().withContext(path);
    plan = {bytes.take(), compiled->warnings};
    externalFiles = compiled->externalFiles;
  }
  {
    Profile::Span span = profile.phase("write");
    plan::Expected<std::string> sizes = verifyBytes(plan.bytes, path);
    if (!sizes)
      return sizes.status();
    if (plan::Status status = plan::PlanWriter::writeBytes(plan.bytes, path); !status.ok())
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
  return plan::Status::success();
}

} // namespace

plan::Status readEntries(const std::string &text, CompileOptions &options) {
  std::stringstream list(text);
  for (std::string entry; std::getline(list, entry, ',');) {
    if (entry != "train" && entry != "evaluate" && entry != "predict" && entry != "gradients")
      return plan::Status(fmt::format("--entry {}: expected train, evaluate, predict or gradients", entry),
                          plan::kExitUsage);
    options.entries.push_back(entry);
  }
  return plan::Status::success();
}

int compileCommand(int argc, char **argv) {
  CLI::App app("Compiles an ONNX forward graph into a training plan.\n"
               "Other commands: tcc report | frontier | gradcheck | inspect | ops, each with its own --help.",
               "tcc");
  ModelArguments model;
  model.add(app, /*several=*/true);
  std::string output, entries, timings, target, budget, fit, suggestion;
  CompileOptions options;
  std::string cacheFolder, cacheSize;
  uint64_t cacheBytes = cache::ContentStore::kDefaultCapacityBytes;
  bool quiet = false, noCache = false;
  app.add_option("-o,--output", output, "the plan to write, or a folder for it; default: MODEL.tplan");
  app.add_option("--target", target, "cpu[:v3|:v4|:v4-bf16|:amx]; default: this machine's level");
  app.add_option("--threads", options.maxWorkers, "largest number of workers that may run the plan; default: 8")
      ->check(CLI::Range(1, 1024));
  app.add_option("--memory-budget", budget,
                 "what state and arena may take together: 512MiB, 1.5GiB, bytes, or 60% of this machine's memory; "
                 "instructions are executed again where that is needed");
  app.add_option("--fit", fit, "batch: the largest batch for which a plan fits into --memory-budget")
      ->check(CLI::IsMember({"batch"}));
  app.add_option("--variants", options.variants,
                 "points of the time-memory frontier to put into the plan; trun takes the fastest that fits into the "
                 "free memory")
      ->check(CLI::Range(1, 16));
  app.add_option("--precision", options.precision,
                 "f32 (default), bf16 (products in bf16, the rest in f32), or auto: bf16 where the target has it")
      ->check(CLI::IsMember({"f32", "tf32", "bf16", "f16", "auto"}));
  app.add_option("--entry", entries, "train,evaluate,predict,gradients; default: the first three");
  app.add_flag("--embed-weights", options.embedWeights, "copy weights beyond 64 MiB into the plan, too");
  app.add_option("--dump-phases-to", options.dumpFolder, "write the IR after each phase into this folder");
  app.add_option("--timings", timings, "write where the time went to this file (JSON), or with - as a table to standard output");
  app.add_flag("--no-cache", noCache, "neither look for the result of an earlier compile nor keep this one");
  app.add_option("--cache-dir", cacheFolder,
                 "where results are kept; default: $TCC_CACHE_DIR, else $XDG_CACHE_HOME/tcc, else ~/.cache/tcc");
  app.add_option("--cache-size", cacheSize, "most that is kept there, what was not used for longest goes first; default: 2GiB");
  app.add_option("--suggest-recipe", suggestion,
                 "write a recipe that would work, by what the graph shows, to this file, and compile nothing");
  app.add_flag("--quiet", quiet, "say nothing but errors");
  if (std::optional<int> status = readCommandLine(app, argc, argv))
    return *status;
  options.target = target;
  if (options.precision == "tf32" || options.precision == "f16")
    return printError(plan::Status(fmt::format("--precision {}: no CPU target multiplies {}; use bf16 or f32",
                                               options.precision, options.precision),
                                   plan::kExitUsage));
  if (!budget.empty()) {
    plan::Expected<uint64_t> bytes = parseMemorySize("--memory-budget", budget, runtime::machineMemoryBytes());
    if (!bytes)
      return printError(bytes.status());
    options.budgetBytes = *bytes;
    // A share of the machine counts all of trun, not the arenas alone.
    if (budget.ends_with('%'))
      options.budgetBytes -= std::min(options.budgetBytes - 1, kBesideArenasBytes);
  }
  if (!cacheSize.empty()) {
    plan::Expected<uint64_t> bytes = parseMemorySize("--cache-size", cacheSize);
    if (!bytes)
      return printError(bytes.status());
    cacheBytes = *bytes;
  }
  if (!fit.empty() && budget.empty())
    return printError(plan::Status("--fit batch: say with --memory-budget what it has to fit into", plan::kExitUsage));
  if (plan::Status status = model.fill(options); !status.ok())
    return printError(status);
  if (plan::Status status = readEntries(entries, options); !status.ok())
    return printError(status);
  if (!suggestion.empty() && model.models.size() > 1)
    return printError(plan::Status("--suggest-recipe is for one model at a time", plan::kExitUsage));
  if (!suggestion.empty())
    return suggestRecipe(options, suggestion, quiet);
  if (model.models.size() > 1 && !output.empty() && !isFolder(output))
    return printError(plan::Status(fmt::format("-o {}: with several models it must be a folder that exists", output),
                                   plan::kExitUsage));
  if (model.models.size() > 1 && !timings.empty() && timings != "-")
    return printError(plan::Status("--timings FILE is for one model at a time; --timings - prints a table for each",
                                   plan::kExitUsage));

  std::vector<std::filesystem::path> targets;
  for (const std::string &path : model.models) {
    std::filesystem::path target = std::filesystem::path(path).replace_extension(".tplan");
    if (!output.empty())
      target = isFolder(output) ? output / target.filename() : std::filesystem::path(output);
    if (auto other = std::find(targets.begin(), targets.end(), target); other != targets.end())
      return printError(
          plan::Status(fmt::format("{} and {} would both be compiled to {}: compile one of them on its own",
                                   model.models[size_t(other - targets.begin())], path, target.string()),
                       plan::kExitUsage));
    targets.push_back(target);
  }

  std::optional<cache::ContentStore> store;
  if (cacheFolder.empty())
    cacheFolder = cache::defaultFolder();
  if (!noCache && !cacheFolder.empty())
    store.emplace(cacheFolder, cacheBytes);
  options.store = store ? &*store : nullptr;
  int exitStatus = plan::kExitDone;
  for (size_t i = 0; i < targets.size(); ++i) {
    const std::string &path = model.models[i];
    const std::filesystem::path &target = targets[i];
    options.modelPath = path;
    options.planFolder = target.parent_path().string();
    CompileOptions chosen = options;
    Profile profile;
    chosen.profile = &profile;
    if (!fit.empty()) {
      plan::Expected<int64_t> batch = fitBatch(chosen);
      if (!batch) {
        exitStatus = std::max(exitStatus, printError(batch.status()));
        continue;
      }
      printMessage("{}: a batch of {} fits into {}\n", path, *batch, report::formatBytes(options.budgetBytes));
    }
    plan::Status status = makePlan(chosen, target.string(), quiet);
    if (store) {
      store->trim();
      if (std::string problem = store->takeProblem(); !problem.empty() && !quiet)
        printMessage("warning: the cache {}; --cache-dir puts it elsewhere, --no-cache does without\n", problem);
    }
    if (status.ok() && !timings.empty())
      status = writeTimings(timings, profile);
    if (!status.ok())
      exitStatus = std::max(exitStatus, printError(status));
  }
  return exitStatus;
}

int inspectCommand(int argc, char **argv) {
  CLI::App app("Lists inputs, outputs, parameters, ops, and all that is unsupported.", "tcc inspect");
  ModelArguments model;
  model.add(app);
  if (std::optional<int> status = readCommandLine(app, argc, argv))
    return *status;
  CompileOptions options;
  if (plan::Status status = model.fill(options); !status.ok())
    return printError(status);
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry);
  context.loadAllAvailableDialects();
  plan::Expected<Recipe> recipe = readRecipe(options.recipePath, options.settings);
  if (!recipe)
    return printError(recipe.status());
  plan::Expected<std::string> text = frontend::inspectModel(context, model.models.front(), importOptions(options, *recipe));
  if (!text)
    return printError(text.status());
  printResult("{}", *text);
  return plan::kExitDone;
}

} // namespace tcc::tools

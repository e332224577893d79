//===- Compile.cpp - tcc MODEL: from a model to a plan file ---------------===//
#include "compiler/driver/PlanCache.h"
#include "compiler/profile/Profile.h"
#include "compiler/recipe/Recipe.h"
#include "compiler/target/Target.h"
#include "compiler/target/registry/Targets.h"
#include "frontend/Import.h"
#include "mlir/IR/MLIRContext.h"
#include "runtime/plan/InitializerLists.h"
#include "runtime/plan/Spaces.h"
#include "runtime/plan/Targets.h"
#include "runtime/plan/Verifier.h"
#include "support/AtomicFile.h"
#include "support/Json.h"
#include "support/MachineMemory.h"
#include "support/PlanNames.h"
#include "support/Status.h"
#include "tools/common/Cards.h"
#include "tools/common/CommandLine.h"
#include "tools/common/ExitStatus.h"
#include "tools/common/OutOfMemory.h"
#include "tools/common/Quantities.h"
#include "tools/common/StandardStreams.h"
#include "tools/tcc/Commands.h"
#include "tools/tcc/Report.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace tcc::tools {

namespace {
constexpr int kOutOfMemory = 41; ///< the child's exit status

bool writeAll(int to, const void *data, size_t bytes) {
  for (const char *at = static_cast<const char *>(data); bytes > 0;) {
    ssize_t done = ::write(to, at, bytes);
    if (done < 0 && errno == EINTR)
      continue;
    if (done <= 0)
      return false;
    at += done;
    bytes -= size_t(done);
  }
  return true;
}

bool writeText(int to, std::string_view text) {
  uint64_t bytes = text.size();
  return writeAll(to, &bytes, sizeof(bytes)) && writeAll(to, text.data(), text.size());
}

bool readAll(int from, void *data, size_t bytes) {
  for (char *at = static_cast<char *>(data); bytes > 0;) {
    ssize_t done = ::read(from, at, bytes);
    if (done < 0 && errno == EINTR)
      continue;
    if (done <= 0)
      return false;
    at += done;
    bytes -= size_t(done);
  }
  return true;
}

/// Reads until the end of the pipe, or until a truncated text.
std::vector<std::string> readTexts(int from) {
  std::vector<std::string> texts;
  for (uint64_t bytes = 0; readAll(from, &bytes, sizeof(bytes));) {
    std::string text(bytes, '\0');
    if (!readAll(from, text.data(), text.size()))
      return {};
    texts.push_back(std::move(text));
  }
  return texts;
}
} // namespace

/// Runs `work` in a child process and returns its result. Each target of a plan for several is compiled in this way, so
/// that its memory is returned before the next begins. The child's other changes to memory are lost. It writes texts to
/// a pipe, each preceded by its length: the exit code, the error's message, then the results. Must be called before
/// this process starts threads. Error: that of `work`, with its exit code; or the child crashed or could not be
/// started.
static Expected<std::vector<std::string>>
inOwnProcess(const std::function<Expected<std::vector<std::string>>()> &work) {
  int ends[2];
  if (::pipe(ends) != 0)
    return error("cannot make a pipe: {}", std::strerror(errno));
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) {
    ::close(ends[0]);
    ::close(ends[1]);
    return error("cannot start a process: {}", std::strerror(errno));
  }
  if (child == 0) {
    ::close(ends[0]);
    endQuietlyOnLackOfMemory(kOutOfMemory);
    // An exception must not reach the parent's code in this process.
    Expected<std::vector<std::string>> results = error("internal error: an exception of a library");
    try {
      results = work();
    } catch (const std::exception &problem) {
      endIfOutOfMemory(problem);
      results = error("internal error: {}", problem.what());
    }
    bool good = writeText(ends[1], std::to_string(static_cast<int>(results.status().code()))) &&
                writeText(ends[1], results ? "" : results.status().message());
    if (results)
      for (const std::string &text : *results)
        good = good && writeText(ends[1], text);
    std::fflush(nullptr);
    ::_exit(good ? 0 : 1);
  }
  ::close(ends[1]);
  std::vector<std::string> texts = readTexts(ends[0]);
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kOutOfMemory)
    endOutOfMemory();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || texts.size() < 2)
    return WIFSIGNALED(status) ? error("the process that compiles one target ended by signal {}", WTERMSIG(status))
                               : error("the process that compiles one target ended without a result");
  if (texts[0] != "0")
    return Status(texts[1], static_cast<StatusCode>(std::stoi(texts[0])));
  texts.erase(texts.begin(), texts.begin() + 2);
  return texts;
}

namespace {

/// Bytes reserved for all of trun except its arenas: program, library, plan (`tcc report` has the bytes of one plan).
constexpr uint64_t kBesideArenasBytes = 32ull << 20;

/// Bytes of a card that a CUDA context takes in addition to the arena: code, stacks of threads. Not measured; drivers
/// of CUDA 12 take some 300 to 500 MiB on an H100.
constexpr uint64_t kBesideCardArenaBytes = 512ull << 20;

std::string cardNames() {
  std::string names;
  for (const report::Card &card : report::cards())
    names += (names.empty() ? "" : ", ") + std::string(card.name);
  names += "; or a MIG slice's";
  for (const report::Card &slice : report::slices())
    names += (&slice == &report::slices().front() ? ": " : ", ") + std::string(slice.name);
  return names;
}

/// Whether plans for the target run in a device's own memory.
bool hasOwnMemory(const std::string &target) {
  const target::TargetKind *kind = target::findKind(target);
  return kind && kind->hasOwnMemory;
}

/// Whether the target's kernels are PTX, which ptxas compiles.
bool isPtx(const std::string &name) {
  const target::Target *target = target::findTarget(name);
  return target && target->code().format == plan::CodeObject::PTX;
}

/// `--device-memory`: bytes, or a card, which the report then uses.
Expected<uint64_t> readDeviceMemory(const std::string &text, CompileOptions &options) {
  const std::string_view wanted = plan::levelOf(options.target);
  if (!hasOwnMemory(options.target) || wanted.empty())
    return Status(fmt::format("--device-memory {}: it is a CUDA card's memory; give --target cuda:sm_90, or the card's "
                              "architecture",
                              text),
                  StatusCode::Usage);
  const report::Card *card = report::findCard(text);
  if (!card) {
    Expected<uint64_t> bytes = parseMemorySize("--device-memory", text);
    if (!bytes)
      return Status(fmt::format("{}, or a card's name: {}", bytes.message(), cardNames()), StatusCode::Usage);
    return bytes;
  }
  auto number = [](std::string_view architecture) { return std::atoi(architecture.data() + 3); };
  if (wanted.starts_with("sm_") && number(wanted) > number(card->architecture))
    return Status(fmt::format("--device-memory {}: it has the architecture {}, which does not run code for {}; compile "
                              "with --target cuda:{}",
                              text, card->architecture, wanted, card->architecture),
                  StatusCode::Usage);
  options.card = card->name;
  return card->memoryBytes;
}

/// Never throws: a dangling link is not a folder.
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
  return tcc::writeFileAtomically(path, profile.toJson(), OwnFile::Timings);
}

/// Checks the plan as trun will, before its file gets its name. Returns the plan's memory, as text.
Expected<std::string> verifyBytes(const plan::PlanReader &written) {
  const plan::Plan &plan = written.plan();
  if (std::vector<std::string> problems = plan::verifyPlan(plan); !problems.empty())
    return error("internal error: the plan does not verify: {}", problems.front());
  std::string text;
  const std::vector<std::string> names = plan::targetNames(plan);
  for (uint32_t i = 0; i < names.size(); ++i) {
    const plan::Plan one = plan::targetOf(plan, i);
    text += fmt::format("{}{}{} resident + {} transient", i ? "; " : "", names.size() > 1 ? names[i] + " " : "",
                        report::formatBytes(plan::spaceBytes(one, plan::RESIDENT)),
                        report::formatBytes(plan::spaceBytes(one, plan::TRANSIENT)));
  }
  return text;
}

/// For plans for CUDA: which assembler compiled the kernels, or that the driver will; empty for other plans.
std::string machineCodeOf(const plan::PlanReader &written) {
  const plan::Plan &plan = written.plan();
  std::string made, missing;
  for (uint32_t i = 0; i < plan::targetNames(plan).size(); ++i) {
    const plan::Plan target = plan::targetOf(plan, i);
    for (const plan::CodeObject &code : target.code_objects()) {
      if (code.format() == plan::CodeObject::PTX && code.assembled().empty())
        missing += (missing.empty() ? "" : ", ") + code.processor();
      for (const plan::CodeObject::Assembled &one : code.assembled())
        made +=
            fmt::format("{}machine code for {} by {}", made.empty() ? "" : ", ", one.architecture(), one.assembler());
    }
  }
  if (!missing.empty())
    made += fmt::format("{}no machine code for {}: the card's driver compiles the kernels when it first loads the plan",
                        made.empty() ? "" : "; ", missing);
  return made;
}

/// A plan for one target, with the notes of its compile.
struct MadePlan {
  cache::CachedPlan plan;
  bool found = false; ///< in the cache
  std::optional<cache::PlanCache> known;
  std::vector<std::string> externalFiles;
};

/// Compiles one model for one target, or takes the plan of an earlier compile. `options` must stay.
Expected<MadePlan> compileOne(const CompileOptions &options, const std::string &path) {
  Profile &profile = *options.profile;
  MadePlan made;
  if (options.store && options.storesPlan && options.dumpFolder.empty()) {
    Profile::Span span = profile.phase("look-up");
    made.known.emplace(*options.store, options);
    if (std::optional<cache::CachedPlan> earlier = made.known->find()) {
      made.plan = std::move(*earlier);
      made.found = true;
      return made;
    }
  }
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
  made.plan = {bytes.take(), compiled->warnings};
  made.externalFiles = compiled->externalFiles;
  return made;
}

/// The same in a process of its own, which also keeps the plan in the cache.
Expected<MadePlan> compileApart(const CompileOptions &options, const std::string &path) {
  Expected<std::vector<std::string>> texts = inOwnProcess([&]() -> Expected<std::vector<std::string>> {
    Expected<MadePlan> made = compileOne(options, path);
    if (!made)
      return made.status();
    if (made->known && !made->found)
      made->known->keep(made->plan, made->externalFiles);
    std::vector<std::string> results = {made->found ? "found" : "", std::move(made->plan.bytes)};
    results.insert(results.end(), made->plan.warnings.begin(), made->plan.warnings.end());
    return results;
  });
  if (!texts)
    return texts.status();
  MadePlan made;
  made.found = !texts->at(0).empty();
  made.plan = {std::move(texts->at(1)), {texts->begin() + 2, texts->end()}};
  return made;
}

/// The file for all of these plans, each of which is for one target.
Expected<std::string> combined(std::vector<MadePlan> &made, const std::string &path) {
  std::vector<plan::PlanReader> readers;
  for (MadePlan &one : made) {
    Expected<plan::PlanReader> reader = plan::PlanReader::over(one.plan.bytes, path);
    if (!reader)
      return reader.status();
    for (const plan::PlanReader &other : readers)
      if (other.plan().target() == reader->plan().target())
        return Status(fmt::format("--target: two of them are {} on this machine; name each once",
                                  other.plan().target()),
                      StatusCode::Usage);
    readers.push_back(reader.take());
  }
  return plan::combineTargets(readers);
}

/// Compiles one model for each of the options, which differ in their target; checks and writes the plan, and says on
/// standard error what the user should know.
Status makePlan(const std::vector<CompileOptions> &options, const std::string &path, bool quiet) {
  Profile &profile = *options.front().profile;
  std::vector<MadePlan> made;
  bool found = true;
  for (const CompileOptions &one : options) {
    Expected<MadePlan> plan = options.size() > 1 ? compileApart(one, path) : compileOne(one, path);
    if (!plan)
      return plan.status();
    made.push_back(plan.take());
    found &= made.back().found;
  }
  {
    Profile::Span span = profile.phase("write");
    Expected<std::string> joined = made.size() > 1 ? combined(made, path) : Expected(std::string());
    if (!joined)
      return joined.status();
    const std::string &bytes = made.size() > 1 ? *joined : made.front().plan.bytes;
    // The plan is verified in place, without a copy, since its weights make it large.
    Expected<plan::PlanReader> written = plan::PlanReader::over(bytes, path);
    if (!written)
      return written.status();
    Expected<std::string> sizes = verifyBytes(*written);
    if (!sizes)
      return sizes.status();
    if (Status status = plan::PlanWriter::writeBytes(bytes, path); !status.ok())
      return status;
    std::set<std::string> said;
    for (const MadePlan &one : made)
      for (const std::string &warning : one.plan.warnings)
        if (!quiet && said.insert(warning).second)
          printMessage("warning: {}\n", warning);
    const plan::Plan first = plan::targetOf(written->plan(), 0);
    for (const plan::Decisions::Note &note : first.decisions().notes())
      if (note.kind() == plan::kUnsaidNote && !quiet)
        printMessage("note: {}\n", note.text());
    if (!quiet)
      printMessage("{}: {}{}\n", path, *sizes, found ? " (from the cache)" : "");
    if (std::string code = machineCodeOf(*written); !quiet && !code.empty())
      printMessage("{}: {}\n", path, code);
  }
  for (MadePlan &one : made)
    if (one.known && !one.found) {
      Profile::Span span = profile.phase("keep");
      one.known->keep(one.plan, one.externalFiles);
    }
  return Status::success();
}

/// Applies `--memory-budget` and `--device-memory` to one target.
Status setMemory(CompileOptions &options, const std::string &budget, const std::string &deviceMemory,
                 const std::string &hostMemory) {
  const bool ownMemory = hasOwnMemory(options.target);
  if (Status status = setHostMemory(options, hostMemory); !status.ok())
    return status;
  uint64_t wholeBytes = ownMemory ? 0 : tcc::machineMemoryBytes();
  if (!deviceMemory.empty()) {
    Expected<uint64_t> bytes = readDeviceMemory(deviceMemory, options);
    if (!bytes)
      return bytes.status();
    wholeBytes = *bytes;
  }
  if (budget.empty())
    return Status::success();
  if (ownMemory && !wholeBytes && budget.ends_with('%'))
    return Status(
        fmt::format(
            "--memory-budget {}: the card's memory is not known; give --device-memory 80GiB, or a card's name: {}",
            budget, cardNames()),
        StatusCode::Usage);
  Expected<uint64_t> bytes = parseMemorySize("--memory-budget", budget, wholeBytes);
  if (!bytes)
    return bytes.status();
  options.budgetBytes = *bytes;
  // A percentage of the machine's memory includes all of trun, not only the arenas; one of a card's also the driver.
  if (budget.ends_with('%'))
    options.budgetBytes -= std::min(options.budgetBytes - 1, ownMemory ? kBesideCardArenaBytes : kBesideArenasBytes);
  return Status::success();
}

/// The options of each target. Error: two targets have the same name, or a memory limit does not apply to one of them.
Expected<std::vector<CompileOptions>> forEachTarget(const CompileOptions &options,
                                                    const std::vector<std::string> &names, const std::string &budget,
                                                    const std::string &deviceMemory, const std::string &hostMemory) {
  std::vector<CompileOptions> all;
  const bool anyOwnMemory = std::any_of(names.begin(), names.end(), hasOwnMemory);
  const bool anyPtx = std::any_of(names.begin(), names.end(), isPtx);
  const std::optional<Ptxas> ptxas = anyPtx ? Ptxas::find() : std::nullopt;
  for (const std::string &name : names) {
    CompileOptions &one = all.emplace_back(options);
    one.target = name;
    if (isPtx(name))
      one.ptxas = ptxas;
    const bool takesMemory = !anyOwnMemory || hasOwnMemory(name);
    if (Status status = setMemory(one, budget, takesMemory ? deviceMemory : "", takesMemory ? hostMemory : "");
        !status.ok())
      return status;
    for (size_t i = 0; i + 1 < all.size(); ++i)
      if (names[i] == name)
        return Status(fmt::format("--target {}: it is named twice", name), StatusCode::Usage);
  }
  return all;
}

} // namespace

void addPrecision(CLI::App &app, CompileOptions &options) {
  app.add_option(
         "--precision", options.precision,
         "f32, bf16 or f16 (products in that type, the rest in f32), tf32 (f32 products rounded to TF32, on CUDA), "
         "or auto: bf16 where the target has it; default: the recipe's, else f32")
      ->check(CLI::IsMember({"f32", "tf32", "bf16", "f16", "auto"}));
}

Status setHostMemory(CompileOptions &options, const std::string &text) {
  if (text.empty())
    return Status::success();
  if (!hasOwnMemory(options.target))
    return Status(fmt::format("--host-memory {}: {} has no memory of its own, so nothing is moved to the host; "
                              "--memory-budget bounds all of its memory",
                              text, options.target.empty() ? "a CPU" : options.target),
                  StatusCode::Usage);
  Expected<uint64_t> bytes = parseMemorySize("--host-memory", text);
  if (!bytes)
    return bytes.status();
  options.hostBytes = *bytes;
  return Status::success();
}

Status readEntries(const std::string &text, CompileOptions &options) {
  std::stringstream list(text);
  for (std::string entry; std::getline(list, entry, ',');) {
    if (entry == entries::kStep) // as profiles and reports call it
      entry = entries::kTrain;
    if (entry != entries::kTrain && entry != entries::kEvaluate && entry != entries::kPredict &&
        entry != entries::kGradients)
      return Status(fmt::format("--entry {}: expected train, evaluate, predict or gradients", entry),
                          StatusCode::Usage);
    if (std::find(options.entries.begin(), options.entries.end(), entry) == options.entries.end())
      options.entries.push_back(entry);
  }
  return Status::success();
}

int compileCommand(int argc, char **argv) {
  CLI::App app(
      "Compiles an ONNX forward graph into a training plan.\n"
      "Other commands: tcc report | frontier | predict-scale | gradcheck | inspect | ops, each with its own --help.",
      "tcc");
  ModelArguments model;
  model.add(app, /*several=*/true);
  std::string output, entries, timings, budget, deviceMemory, hostMemory, fit, suggestion;
  std::vector<std::string> targets;
  CompileOptions options;
  std::string cached = "all", cacheFolder, cacheSize;
  uint64_t cacheBytes = cache::ContentStore::kDefaultCapacityBytes;
  bool quiet = false, noCache = false;
  app.add_option("-o,--output", output, "the plan to write, or a folder for it; default: MODEL.tplan");
  app.add_option(
         "--target", targets,
         "cpu[:v3|:v4|:v4-bf16|:amx] or cuda:sm_80|sm_86|sm_89|sm_90|sm_100|sm_120; several make one plan with a "
         "program for each, of which trun takes the best that runs; default: this machine's level")
      ->allow_extra_args(false);
  app.add_option("--threads", options.maxWorkers,
                 "number of workers that --memory-budget assumes; the plan runs with any number; default: 8")
      ->check(CLI::Range(1, 1024));
  app.add_option("--memory-budget", budget,
                 "limit on state and arena together: 512MiB, 1.5GiB, bytes, or 60% of this machine's memory; "
                 "recomputes values where the limit requires it");
  app.add_option(
      "--device-memory", deviceMemory,
      "memory of the CUDA card, for a --memory-budget in percent: 80GiB, or a card's name, which also sets the "
      "report's rates: a100, h100, h200, b200, l4, l40s, rtx4090, …");
  app.add_option(
      "--host-memory", hostMemory,
      "limit on the memory of the host that a card's plan keeps values and state in, as 64GiB; default: none");
  app.add_option("--fit", fit, "batch: find the largest batch whose plan fits into --memory-budget")
      ->check(CLI::IsMember({"batch"}));
  app.add_option("--variants", options.variants,
                 "number of points of the time-memory frontier in the plan; trun runs the fastest that fits into free "
                 "memory")
      ->check(CLI::Range(1, 16));
  addPrecision(app, options);
  app.add_option("--entry", entries, "train,evaluate,predict,gradients; default: the first three");
  app.add_flag("--embed-weights", options.embedWeights, "store weights above 64 MiB in the plan, too");
  app.add_option("--dump-phases-to", options.dumpFolder, "write the IR after each phase into this folder");
  app.add_option("--timings", timings, "write the seconds of each phase: as JSON to this file, or with - as a table to "
                                       "standard output");
  app.add_option("--cache", cached,
                 "what the cache keeps: all; kernels, their machine code alone, so that every pass runs; none; "
                 "default: all")
      ->check(CLI::IsMember({"all", "kernels", "none"}))
      ->envname("TCC_CACHE");
  app.add_flag("--no-cache", noCache, "do not read or write the cache, as --cache none");
  app.add_option("--cache-dir", cacheFolder,
                 "folder of the cache; default: $TCC_CACHE_DIR, else $XDG_CACHE_HOME/tcc, else ~/.cache/tcc");
  app.add_option("--cache-size", cacheSize, "largest size of the cache; removes the least recently used entries first; "
                                            "default: 2GiB");
  app.add_option("--suggest-recipe", suggestion,
                 "write a recipe guessed from the graph to this file, and no plan");
  app.add_flag("--quiet", quiet, "print errors only");
  if (std::optional<int> status = readCommandLine(app, argc, argv))
    return *status;
  target::registerTargets();
  if (Status status = checkOutputs(
          app, {{"--output", OwnFile::Plan}, {"--timings", OwnFile::Timings}, {"--suggest-recipe", OwnFile::Recipe}});
      !status.ok())
    return printError(status);
  if (targets.empty())
    targets.push_back("");
  if (targets.size() > 1 && !fit.empty())
    return printError(
        Status("--fit batch is for one --target at a time; find the batch for one of them, and give it with "
               "--shape or --dim",
               StatusCode::Usage));
  if (targets.size() > 1 && !(timings.empty() && options.dumpFolder.empty()))
    return printError(Status(fmt::format("{} is for one --target at a time; compile for one alone",
                                         timings.empty() ? "--dump-phases-to" : "--timings"),
                             StatusCode::Usage));
  if (!cacheSize.empty()) {
    Expected<uint64_t> bytes = parseMemorySize("--cache-size", cacheSize);
    if (!bytes)
      return printError(bytes.status());
    cacheBytes = *bytes;
  }
  if (!fit.empty() && budget.empty())
    return printError(Status("--fit batch: it needs a budget; give one with --memory-budget", StatusCode::Usage));
  if (Status status = model.fill(options); !status.ok())
    return printError(status);
  if (Status status = readEntries(entries, options); !status.ok())
    return printError(status);
  if (!suggestion.empty() && model.models.size() > 1)
    return printError(Status("--suggest-recipe is for one model at a time", StatusCode::Usage));
  options.target = targets.front();
  if (!suggestion.empty())
    return suggestRecipe(options, suggestion, quiet);
  if (model.models.size() > 1 && !output.empty() && !isFolder(output))
    return printError(Status(fmt::format("-o {}: with several models it must be a folder that exists", output),
                                   StatusCode::Usage));
  if (model.models.size() > 1 && !timings.empty() && timings != "-")
    return printError(Status("--timings FILE is for one model at a time; --timings - prints a table for each",
                                   StatusCode::Usage));

  std::vector<std::filesystem::path> plans;
  for (const std::string &path : model.models) {
    std::filesystem::path target = std::filesystem::path(path).replace_extension(".tplan");
    if (!output.empty())
      target = isFolder(output) ? output / target.filename() : std::filesystem::path(output);
    if (auto other = std::find(plans.begin(), plans.end(), target); other != plans.end())
      return printError(
          Status(fmt::format("{} and {} would both be compiled to {}: compile one of them on its own",
                                   model.models[size_t(other - plans.begin())], path, target.string()),
                       StatusCode::Usage));
    plans.push_back(target);
  }

  std::optional<cache::ContentStore> store;
  if (cacheFolder.empty())
    cacheFolder = cache::defaultFolder();
  if (!noCache && cached != "none" && !cacheFolder.empty())
    store.emplace(cacheFolder, cacheBytes);
  options.store = store ? &*store : nullptr;
  options.storesPlan = cached == "all";
  int exitStatus = kExitDone;
  for (size_t i = 0; i < plans.size(); ++i) {
    const std::string &path = model.models[i];
    const std::filesystem::path &target = plans[i];
    options.modelPath = path;
    options.planFolder = target.parent_path().string();
    Profile profile;
    options.profile = &profile;
    Expected<std::vector<CompileOptions>> all = forEachTarget(options, targets, budget, deviceMemory, hostMemory);
    if (!all)
      return printError(all.status());
    if (!fit.empty()) {
      Expected<std::vector<FittedBatch>> batches = fitBatch(all->front());
      if (!batches) {
        exitStatus = std::max(exitStatus, printError(batches.status()));
        continue;
      }
      for (const FittedBatch &one : *batches)
        printMessage("{}: {}a batch of {} fits into {}\n", path, one.shape.empty() ? "" : one.shape + ": ", one.batch,
                     report::formatBytes(all->front().budgetBytes));
    }
    Status status = makePlan(*all, target.string(), quiet);
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

} // namespace tcc::tools

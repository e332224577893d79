//===- PredictScale.cpp - tcc predict-scale -------------------------------===//
//
// A compile for each shape of training, of a plan for ranks without code or weights, and a description of the cluster.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/EntryShapes.h"
#include "compiler/recipe/Recipe.h"
#include "compiler/target/Target.h"
#include "compiler/target/registry/Targets.h"
#include "support/AtomicFile.h"
#include "support/Json.h"
#include "tools/common/CommandLine.h"
#include "tools/common/ExitStatus.h"
#include "tools/common/Quantities.h"
#include "tools/common/StandardStreams.h"
#include "tools/tcc/Commands.h"
#include "tools/tcc/Scale.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"

#include <CLI/CLI.hpp>

namespace tcc::tools {

/// The recipe, which may set a mode, or keys that need one. Without a mode it gets one.
static Expected<Recipe> readWithRanks(CompileOptions &options) {
  Expected<Recipe> recipe = readRecipe(options.recipePath, options.settings);
  if (recipe && recipe->parallel.distributed())
    return recipe;
  // Keys of accumulators need shards; the prediction covers every mode whichever is set.
  for (const std::vector<std::string> &settings :
       {std::vector<std::string>{"parallel.mode=ddp"}, {"parallel.mode=full", "parallel.ranks=2"}}) {
    std::vector<std::string> all = options.settings;
    all.insert(all.end(), settings.begin(), settings.end());
    Expected<Recipe> ranks = readRecipe(options.recipePath, all);
    if (ranks) {
      options.settings = all;
      return ranks;
    }
    if (settings.size() == 1)
      recipe = std::move(ranks);
  }
  return recipe;
}

static report::ScaleWishes wishesOf(const CompileOptions &options, const Recipe &recipe, const plan::Plan &plan) {
  const target::Target &target = *target::findTarget(plan.target());
  report::ScaleWishes wishes;
  wishes.accumulators = recipe.parallel.accumulators;
  if (target.capabilities().keepsOnHost)
    wishes.offload = recipe.offload;
  wishes.linkBytesPerSecond = recipe.offloadBytesPerSecond.value_or(target.costs().hostBytesPerNs * 1e9);
  wishes.budgetBytes = options.budgetBytes;
  wishes.hostBytes = options.hostBytes;
  return wishes;
}

int predictScaleCommand(int argc, char **argv) {
  CLI::App app(
      "Memory and time of a training step on 1 to 4,096 devices, from one compile and a description of the cluster. "
      "Weights may be missing.",
      "tcc predict-scale");
  ModelArguments model;
  CompileOptions options;
  std::string clusterPath, html, budget, hostMemory;
  bool json = false;
  uint64_t most = 4096;
  model.add(app);
  app.add_option("--cluster", clusterPath, "the cluster (TOML); examples/clusters has some")->required();
  app.add_option("--target", options.target, "cpu[:v3|:v4] or cuda:sm_90; default: the cluster's");
  addPrecision(app, options);
  app.add_option("--memory-budget", budget,
                 "limit on a device's memory, as 30GiB: recomputation, the host's memory and shards of accumulators "
                 "keep it, as in a compile");
  app.add_option("--host-memory", hostMemory,
                 "limit on what each card's plan keeps in the host's memory, as 64GiB; default: none");
  app.add_option("--devices", most, "largest number of devices, a power of two")->check(CLI::Range(1, 1 << 20));
  auto *asJson = app.add_flag("--json", json, "print JSON for programs; docs/guide/predict-scale.md lists the keys");
  app.add_option("--html", html, "write one page with the curves")->excludes(asJson);
  if (std::optional<int> status = readCommandLine(app, argc, argv))
    return *status;
  if (Status status = checkOutputs(app, {{"--html", OwnFile::Page}}); !status.ok())
    return printError(status);
  if (Status status = model.fill(options); !status.ok())
    return printError(status);
  Expected<report::Cluster> cluster = report::readCluster(clusterPath);
  if (!cluster)
    return printError(cluster.status());
  if (options.target.empty())
    options.target = cluster->target;
  if (!budget.empty()) {
    Expected<uint64_t> bytes = parseMemorySize("--memory-budget", budget, cluster->memoryBytes);
    if (!bytes)
      return printError(bytes.status());
    options.budgetBytes = *bytes;
  }
  target::registerTargets();
  if (Status status = setHostMemory(options, hostMemory); !status.ok())
    return printError(status);
  Expected<Recipe> recipe = readWithRanks(options);
  if (!recipe)
    return printError(recipe.status());
  Expected<std::vector<DimValues>> dims = trainingShapes(options, *recipe);
  if (!dims)
    return printError(dims.status());
  options.entries = {"train"};
  options.describeOnly = true;
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry);
  std::vector<report::ShapeScale> shapes;
  report::ScaleSubject subject;
  CompileOptions unlimited = options;
  unlimited.budgetBytes = 0;
  for (const DimValues &shape : *dims) {
    options.buckets = unlimited.buckets = {shape};
    Expected<CompiledModel> compiled = compileModel(context, unlimited);
    if (!compiled)
      return printError(compiled.status());
    const plan::Plan &plan = compiled->plan;
    std::optional<CompiledModel> within;
    if (options.budgetBytes) {
      Expected<CompiledModel> limited = compileModel(context, options);
      if (limited)
        within = limited.take();
      else if (limited.status().code() != StatusCode::OverBudget)
        return printError(limited.status());
    }
    Expected<report::ScalePrediction> prediction =
        report::predictScale(plan, within ? &within->plan : nullptr, *cluster, wishesOf(options, *recipe, plan), most);
    if (!prediction)
      return printError(prediction.status());
    subject = {plan.model(), plan.target(), plan.precision()};
    shapes.push_back({shape, prediction.take()});
  }
  if (!html.empty()) {
    Status status = writeFileAtomically(html, report::scaleHtml(shapes, *cluster, subject), OwnFile::Page);
    return status.ok() ? kExitDone : printError(status);
  }
  if (json)
    printResult("{}\n", jsonText(report::scaleJson(shapes, *cluster, subject), 1));
  else
    printText(report::scaleText(shapes, *cluster, subject));
  return kExitDone;
}

} // namespace tcc::tools

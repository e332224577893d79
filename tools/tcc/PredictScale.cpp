//===- PredictScale.cpp - tcc predict-scale -------------------------------===//
//
// A compile for each shape of training, of a plan for ranks without code or weights, and a description of the cluster.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/EntryShapes.h"
#include "compiler/recipe/Recipe.h"
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

int predictScaleCommand(int argc, char **argv) {
  CLI::App app(
      "Memory and time of a training step on 1 to 4,096 devices, from one compile and a description of the cluster. "
      "Weights may be missing.",
      "tcc predict-scale");
  ModelArguments model;
  CompileOptions options;
  std::string clusterPath, html, budget;
  bool json = false;
  uint64_t most = 4096;
  model.add(app);
  app.add_option("--cluster", clusterPath, "the cluster (TOML); examples/clusters has some")->required();
  app.add_option("--target", options.target, "cpu[:v3|:v4] or cuda:sm_90; default: the cluster's");
  addPrecision(app, options);
  app.add_option("--memory-budget", budget, "limit on a device's memory in mode ddp, as 30GiB: recomputation keeps it");
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
  // A recipe may set a mode, or keys that need one.
  Expected<Recipe> recipe = readRecipe(options.recipePath, options.settings);
  if (!recipe || !recipe->parallel.distributed()) {
    options.settings.push_back("parallel.mode=ddp");
    recipe = readRecipe(options.recipePath, options.settings);
  }
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
  for (const DimValues &shape : *dims) {
    options.buckets = {shape};
    Expected<CompiledModel> compiled = compileModel(context, options);
    if (!compiled)
      return printError(compiled.status());
    const plan::Plan &plan = compiled->plan;
    Expected<report::ScalePrediction> prediction = report::predictScale(plan, *cluster, most);
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

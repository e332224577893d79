//===- FitBatch.cpp - search the largest batch within a budget ------------===//
//
// The least memory of a plan grows almost linearly with the batch: the line through two batches predicts the next one
// to try, and bisection takes over where that does not converge.
//
//===----------------------------------------------------------------------===//
#include "tools/tcc/Commands.h"

#include "compiler/driver/EntryShapes.h"
#include "compiler/recipe/Recipe.h"
#include "frontend/BatchAxis.h"
#include "frontend/Dimensions.h"
#include "tools/tcc/Report.h"

#include "mlir/IR/MLIRContext.h"
#include "runtime/plan/Spaces.h"

#include <algorithm>
#include <optional>
#include <set>

namespace tcc::tools {

namespace {

constexpr int64_t kLargestBatch = 1 << 20;

/// The batch of a model: a symbolic dimension, or the sample axis of inputs with fixed shapes.
struct BatchName {
  std::string symbol;
  std::vector<frontend::SampledInput> inputs;

  void set(CompileOptions &options, int64_t batch) const {
    if (!symbol.empty()) {
      for (auto &bucket : options.buckets)
        bucket[symbol] = batch;
      options.dims[symbol] = {batch};
      return;
    }
    for (const frontend::SampledInput &input : inputs) {
      std::vector<int64_t> &shape = options.shapes.try_emplace(input.name, input.dims).first->second;
      if (input.axis < int64_t(shape.size()))
        shape[size_t(input.axis)] = batch;
    }
  }
};

/// `option`: for messages.
Expected<BatchName> findBatch(const CompileOptions &options, const std::string &option) {
  Expected<Recipe> recipe = readRecipe(options.recipePath, options.settings);
  if (!recipe)
    return recipe.status();
  auto inputs = frontend::sampledInputs(options.modelPath, recipe->dataBatchAxis, recipe->model.fix);
  if (!inputs)
    return inputs.status();
  for (frontend::SampledInput &input : *inputs)
    if (auto given = recipe->model.shapes.find(input.name); given != recipe->model.shapes.end()) {
      input.dims = given->second;
      input.symbol.clear();
    }
  std::set<std::string> symbols;
  for (const frontend::SampledInput &input : *inputs)
    if (!input.symbol.empty() && !options.shapes.count(input.name))
      symbols.merge(frontend::dimensionNames(input.symbol));
  if (symbols.size() > 1) {
    std::erase_if(symbols, [](const std::string &symbol) { return symbol.find("batch") == std::string::npos; });
    if (symbols.size() != 1)
      return Status(option + ": the inputs' first axes have several symbols; give data.batch_axis in the recipe, "
                             "or --dim for all but the batch",
                    StatusCode::Usage);
  }
  if (symbols.size() == 1)
    return BatchName{*symbols.begin(), {}};
  // Fixed shapes: take the inputs whose sample axis has the first input's extent (a constant mask has another).
  BatchName name;
  auto extentOf = [&](const frontend::SampledInput &input) {
    auto given = options.shapes.find(input.name);
    const std::vector<int64_t> &dims = given == options.shapes.end() ? input.dims : given->second;
    return input.axis < int64_t(dims.size()) ? dims[size_t(input.axis)] : 0;
  };
  for (const frontend::SampledInput &input : *inputs)
    if (int64_t extent = extentOf(input);
        extent > 0 && (name.inputs.empty() || extent == extentOf(name.inputs.front())))
      name.inputs.push_back(input);
  if (name.inputs.empty())
    return Status(option + ": no input of the model has an axis of samples", StatusCode::Usage);
  return name;
}

/// Bytes that the smallest plan on the frontiers of all entries takes on its device, state included, with at most
/// `hostBytes` on the host.
uint64_t leastBytes(const plan::Plan &plan, uint64_t hostBytes) {
  const uint64_t state = plan::spaceBytes(plan, plan::RESIDENT) + plan::spaceBytes(plan, plan::HOST_RESIDENT);
  std::set<uint64_t> choices{0}; // bytes of state on the host, which all entries share
  for (const plan::Entry &entry : plan.entries())
    for (const plan::FrontierPoint &point : entry.frontier())
      choices.insert(point.moved_state_bytes());
  uint64_t least = UINT64_MAX;
  for (uint64_t moved : choices) {
    uint64_t transient = 0;
    for (const plan::Entry &entry : plan.entries()) {
      uint64_t own = entry.frontier_size() ? UINT64_MAX : 0;
      for (const plan::FrontierPoint &point : entry.frontier())
        if (point.moved_state_bytes() == moved && point.host_bytes() + moved <= hostBytes)
          own = std::min(own, point.transient_bytes());
      transient = std::max(transient, own);
    }
    if (transient != UINT64_MAX)
      least = std::min(least, state - moved + transient);
  }
  return least;
}

/// The same of a batch's plan; `settings`: more of them.
Expected<uint64_t> leastBytes(const CompileOptions &options, const BatchName &name, int64_t batch,
                              const std::vector<std::string> &settings) {
  CompileOptions trial = options;
  trial.settings.insert(trial.settings.end(), settings.begin(), settings.end());
  name.set(trial, batch);
  trial.sizesOnly = trial.ladder = true;
  trial.budgetBytes = 0;
  trial.variants = 1;
  trial.dumpFolder.clear();
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry);
  Expected<CompiledModel> compiled = compileModel(context, trial);
  if (!compiled)
    return compiled.status();
  return leastBytes(compiled->plan, options.hostBytes ? options.hostBytes : UINT64_MAX);
}

/// Bytes that the smallest plan of a batch takes, state included. Where the accumulators may be whole or shards, those
/// of shards unless whole ones fit.
Expected<uint64_t> leastBytes(const CompileOptions &options, const BatchName &name, int64_t batch) {
  Expected<uint64_t> whole = leastBytes(options, name, batch, {});
  Expected<Recipe> recipe = readRecipe(options.recipePath, options.settings);
  if (!recipe)
    return recipe.status();
  if (!whole || *whole <= options.budgetBytes || recipe->training.accumulate() <= 1 ||
      recipe->parallel.accumulators != "auto" || !recipe->parallel.mayShardAccumulators())
    return whole;
  Expected<uint64_t> shards = leastBytes(options, name, batch, {"parallel.accumulators=shards"});
  return shards && *shards < *whole ? shards : whole;
}

} // namespace

Status setBatch(CompileOptions &options, int64_t batch) {
  Expected<BatchName> name = findBatch(options, "--batch");
  if (!name)
    return name.status();
  name->set(options, batch);
  return Status::success();
}

/// The largest batch in one shape.
static Expected<int64_t> largestBatch(const CompileOptions &options, const BatchName &name) {
  int64_t fits = 1, tried = 0;
  Expected<uint64_t> least = leastBytes(options, name, fits);
  if (!least) {
    // One sample may be too few for a model: a batch normalization of one value per channel has no variance.
    Expected<uint64_t> ofTwo = leastBytes(options, name, 2);
    if (!ofTwo)
      return least.status();
    fits = 2;
    least = ofTwo;
  }
  if (*least > options.budgetBytes)
    return Status(fmt::format("--fit batch: not even a batch of {} fits into {}; it needs {} ({} bytes)", fits,
                              report::formatBytes(options.budgetBytes), report::formatBytes(*least), *least),
                  StatusCode::OverBudget);
  // `fits` fits with `fitsBytes`; `fails`, once known, does not.
  uint64_t fitsBytes = *least;
  std::optional<int64_t> fails;
  double perSample = 0;
  while (fits < kLargestBatch && (!fails || *fails - fits > 1)) {
    int64_t next = fails ? (fits + *fails) / 2 : fits * 2;
    if (perSample > 0 && tried % 3 != 2) { // every third step bisects instead of following the line
      double guess = double(fits) + double(options.budgetBytes - fitsBytes) / perSample;
      next = int64_t(std::min(guess, double(kLargestBatch)));
    }
    next = std::clamp(next, fits + 1, fails ? *fails - 1 : kLargestBatch);
    ++tried;
    Expected<uint64_t> bytes = leastBytes(options, name, next);
    if (!bytes)
      return bytes.status().withContext(fmt::format("--fit batch: a batch of {}", next));
    if (*bytes > fitsBytes)
      perSample = double(*bytes - fitsBytes) / double(next - fits);
    if (*bytes <= options.budgetBytes) {
      fits = next;
      fitsBytes = *bytes;
    } else {
      fails = next;
    }
  }
  return fits;
}

Expected<std::vector<FittedBatch>> fitBatch(CompileOptions &options) {
  Expected<BatchName> name = findBatch(options, "--fit batch");
  if (!name)
    return name.status();
  Expected<Recipe> recipe = readRecipe(options.recipePath, options.settings);
  if (!recipe)
    return recipe.status();
  if (!name->symbol.empty() && options.dims.contains(name->symbol))
    return Status(fmt::format("--fit batch finds {0}, and --dim {0}=… gives it: leave one of them out", name->symbol),
                  StatusCode::Usage);
  auto shapes = trainingShapes(options, *recipe);
  if (!shapes)
    return shapes.status();
  if (shapes->size() == 1) {
    Expected<int64_t> batch = largestBatch(options, *name);
    if (!batch)
      return batch.status();
    name->set(options, *batch);
    return std::vector{FittedBatch{"", *batch}};
  }
  if (name->symbol.empty())
    return Status("--fit batch: the model's batch is fixed, and the shapes differ; export it with a symbolic batch",
                  StatusCode::Usage);
  for (DimValues &shape : *shapes)
    shape.erase(name->symbol);
  std::vector<DimValues> fitted;
  std::vector<FittedBatch> batches;
  for (const DimValues &shape : *shapes) {
    if (std::ranges::any_of(fitted, [&](const DimValues &other) {
          DimValues rest = other;
          rest.erase(name->symbol);
          return rest == shape;
        }))
      continue; // two buckets that differed in their batch alone
    CompileOptions one = options;
    one.buckets = {shape};
    const std::string text = EntryShape{shape, {}, ""}.text();
    Expected<int64_t> batch = largestBatch(one, *name);
    if (!batch)
      return batch.status().withContext("for " + text);
    fitted.push_back(shape);
    fitted.back()[name->symbol] = *batch;
    batches.push_back({text, *batch});
  }
  options.buckets = std::move(fitted);
  return batches;
}

} // namespace tcc::tools

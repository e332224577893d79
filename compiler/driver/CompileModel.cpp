//===- CompileModel.cpp - from a model to a plan --------------------------===//
//
// Reads the recipe, imports the model, runs the phases of Pipeline.h and emits the plan; meanwhile kernels are compiled
// in the background. Each phase ends with the module verified, the later ones also with verify-phase.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/CompileModel.h"

#include "compiler/cache/ContentStore.h"
#include "compiler/codegen/KernelSet.h"
#include "compiler/codegen/ObjectCode.h"
#include "compiler/dialect/Joined.h"
#include "compiler/dialect/TrainDialect.h"
#include "compiler/driver/EntryShapes.h"
#include "compiler/driver/Pipeline.h"
#include "compiler/emit/Emit.h"
#include "compiler/kernels/Kernels.h"
#include "compiler/profile/Profile.h"
#include "compiler/recipe/Recipe.h"
#include "compiler/target/Target.h"
#include "compiler/target/registry/Targets.h"
#include "frontend/Import.h"
#include "passes/Common.h"
#include "passes/FrontierRows.h"
#include "passes/Lowering.h"
#include "passes/RecipeAttribute.h"
#include "passes/training/ParameterGroups.h"
#include "runtime/plan/Shards.h"
#include "runtime/plan/Verifier.h"
#include "support/AtomicFile.h"
#include "support/BytesText.h"
#include "support/PlanNames.h"
#include "support/recipe/Kinds.h"
#include "support/recipe/MetricGoal.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <mutex>
#include <set>

using namespace mlir;

namespace tcc {

namespace {

/// Adds the time of each pass, verification included, to the profile. A pass that runs on several functions is one part
/// of the phase, whatever the number of threads.
class PassClock : public mlir::PassInstrumentation {
public:
  PassClock(Profile &profile, std::string phase) : profile(profile), phase(std::move(phase)) {}

  void runBeforePass(mlir::Pass *pass, mlir::Operation *op) override {
    // Adaptors that run other passes have no name.
    if (pass->getArgument().empty())
      return;
    Profile::Span span = profile.part(phase, pass->getArgument().str());
    std::lock_guard lock(mutex);
    running[{pass, op}] = std::move(span);
  }
  void runAfterPass(mlir::Pass *pass, mlir::Operation *op) override { finish(pass, op); }
  void runAfterPassFailed(mlir::Pass *pass, mlir::Operation *op) override { finish(pass, op); }

private:
  void finish(mlir::Pass *pass, mlir::Operation *op) {
    Profile::Span span;
    std::lock_guard lock(mutex);
    if (auto found = running.find({pass, op}); found != running.end()) {
      span = std::move(found->second);
      running.erase(found);
    }
  }

  Profile &profile;
  std::string phase;
  std::mutex mutex;
  std::map<std::pair<mlir::Pass *, mlir::Operation *>, Profile::Span> running; // only looked up, never walked
};

/// Default number of threads that memory is planned for. Constant, since a plan must not depend on the host.
constexpr uint32_t kDefaultMaxWorkers = 8;

class Compiler {
public:
  Compiler(MLIRContext &context, const CompileOptions &options)
      : context(context), options(options), profile(options.profile ? *options.profile : unread) {}

  Expected<CompiledModel> run() {
    Expected<Recipe> read = readRecipe(options.recipePath, options.settings);
    if (!read)
      return read.status();
    recipe = read.take();
    if (options.describeOnly) { // predictions for other modes start from this one
      recipe.parallel.mode = "ddp", recipe.parallel.ranks = recipe.parallel.shardWithinNode = 0;
      recipe.parallel.accumulators = "whole";
    }
    if (Status status = chooseTarget(); !status.ok())
      return status;
    if (Status status = importModel(); !status.ok())
      return status;
    // Diagnostics of passes are for the user: they become the error's text.
    std::string messages;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() == DiagnosticSeverity::Warning) {
        if (std::string text = diagnostic.str(); !llvm::is_contained(model.warnings, text)) // once for all shapes
          model.warnings.push_back(std::move(text));
        return success();
      }
      if (diagnostic.getSeverity() != DiagnosticSeverity::Error)
        return failure();
      if (!messages.empty())
        messages += "\n";
      std::string place;
      // The location of the function itself names no node.
      if (auto name = dyn_cast<NameLoc>(diagnostic.getLocation()); name && name.getName() != "forward")
        place = "node " + name.getName().str() + ": ";
      messages += place + diagnostic.str();
      return success();
    });
    if (Status status = runAllSteps(messages); !status.ok())
      return status;
    return emitPlan(messages);
  }

private:
  /// Runs all phases. If a window's sums may be whole or shards, and a plan with whole ones misses the memory budget or
  /// meets it by a longer update, runs them again with shards, and takes the cheaper plan. Without a budget sums are
  /// whole.
  Status runAllSteps(std::string &messages) {
    ParallelSettings &parallel = recipe.parallel;
    if (!options.budgetBytes || parallel.accumulators != "auto" || !parallel.mayShardAccumulators())
      return runSteps(messages);
    OwningOpRef<ModuleOp> imported = model.module->clone();
    const std::vector<std::string> warnings = model.warnings;
    Attempt whole;
    whole.status = runSteps(messages);
    const bool misses = whole.status.code() == StatusCode::OverBudget;
    const int64_t elements = accumulatedElements();
    if (elements == 0 || !(misses || (whole.status.ok() && costOf(train::names::kUpdateCost) > leastCost())))
      return whole.status;
    const double least = leastCost();
    setAside(whole, messages);
    model.module = std::move(imported);
    model.warnings = warnings;
    parallel.accumulators = "shards";
    describeCompile();
    Attempt shards;
    shards.status = runSteps(messages);
    const uint64_t sent = uint64_t(elements) * (parallel.reduceDtype == "f32" ? 4 : 2) *
                          uint64_t(recipe.training.accumulate() - 1) * uint64_t(parallel.shardRanks() - 1) /
                          uint64_t(parallel.shardRanks());
    setAside(shards, messages);
    shards.cost += double(sent) / plan::kNominalLinkBytesPerNs;
    bool takesShards = shards.status.ok() && shards.cost < whole.cost;
    if (misses)
      takesShards = shards.status.code() != StatusCode::OverBudget || shards.needed < whole.needed;
    Attempt &taken = takesShards ? shards : whole;
    model.module = std::move(taken.module);
    kernels = std::move(taken.kernels);
    model.warnings = std::move(taken.warnings);
    messages = std::move(taken.messages);
    parallel.accumulators = takesShards ? "shards" : "whole";
    if (taken.status.ok()) {
      const std::string budget = bytesText(options.budgetBytes), sums = bytesText(uint64_t(elements) * 4);
      auto longer = [&](const Attempt &one) { return fmt::format("{:.2f} %", 100 * (one.cost / least - 1)); };
      train::addNote(
          *model.module, "accumulators", "",
          misses
              ? fmt::format("shards, which send {} more in an update: with whole ones, {}, no plan fits into the "
                            "memory budget of {}",
                            bytesText(sent), sums, budget)
              : fmt::format("{}: within the memory budget of {} an update takes {} longer than without one if they "
                            "are whole, {}{}",
                            takesShards ? "shards" : "whole", budget, longer(whole),
                            shards.status.ok() ? longer(shards) + " if they are shards" : "and shards do not fit",
                            shards.status.ok() ? ", with nothing beside the " + bytesText(sent) + " more that are sent"
                                               : ""));
    }
    return taken.status;
  }

  /// The outcome of all phases under one choice.
  struct Attempt {
    Status status;
    double cost = 0;    ///< of an update
    int64_t needed = 0; ///< the smallest budget, where none fits
    OwningOpRef<ModuleOp> module;
    std::unique_ptr<codegen::KernelSet> kernels;
    std::vector<std::string> warnings;
    std::string messages;
  };

  /// Moves what the phases made into the attempt, so that they can run again.
  void setAside(Attempt &attempt, std::string &messages) {
    attempt.cost = costOf(train::names::kUpdateCost);
    if (auto needed = (*model.module)->getAttrOfType<IntegerAttr>(train::names::kOverBudget))
      attempt.needed = needed.getInt();
    attempt.module = std::move(model.module);
    attempt.kernels = std::move(kernels);
    attempt.warnings = std::move(model.warnings);
    attempt.messages = std::move(messages);
    messages.clear();
    beforeCalls = nullptr;
  }

  /// Elements of all gradients that a window adds up.
  int64_t accumulatedElements() {
    int64_t elements = 0;
    for (train::VariableOp variable : model.module->getOps<train::VariableOp>())
      if (auto type = cast<RankedTensorType>(variable.getType());
          variable.getRole() == roles::kAccumulator && type.getRank() > 0)
        elements += type.getNumElements();
    return elements;
  }

  /// The cost of an update that nothing limits.
  double leastCost() { return costOf(train::names::kLeastCost); }

  /// Runs all phases. If a later one finds that calls which the target chose by default need too much memory, or too
  /// much time within the budget, runs the phases from that choice on again, without these calls. The ladder of each
  /// program depends on the model alone, and the cheaper plan within the budget is taken: so a smaller budget never
  /// gives a larger peak.
  Status runSteps(std::string &messages) {
    Status status = runStepsFrom(0, messages);
    if (!beforeCalls || !(*model.module)->hasAttr(train::names::kCallsByDefault))
      return status;
    const std::string budget = bytesText(options.budgetBytes);
    const double cost = costOf(train::names::kUpdateCost);
    const bool isDearer = status.ok() && cost > costOf(train::names::kLeastCost);
    std::string why;
    if (auto refused = (*model.module)->getAttrOfType<StringAttr>(train::names::kCallsRefused))
      why = refused.str();
    else if (status.code() == StatusCode::OverBudget)
      why = "with its library's scratch no plan fits into the memory budget of " + budget;
    else if (isDearer)
      why = "within the memory budget of " + budget + " an update takes less time without its library's scratch";
    else if (status.ok() && options.ladder)
      why = "the smallest plans are made without its library's scratch";
    if (why.empty())
      return status;
    const bool addsRungs = status.ok() && options.ladder;
    OwningOpRef<ModuleOp> withCalls = std::move(model.module);
    std::unique_ptr<codegen::KernelSet> theirKernels = std::move(kernels);
    messages.clear();
    model.module = std::move(beforeCalls);
    (*model.module)->setAttr(train::names::kCallsRefused, StringAttr::get(&context, why));
    status = runStepsFrom(callsChosenAt, messages);
    if (addsRungs && status.ok())
      mergeLadders(*model.module, *withCalls);
    if (addsRungs || (isDearer && (!status.ok() || costOf(train::names::kUpdateCost) >= cost))) {
      model.module = std::move(withCalls);
      kernels = std::move(theirKernels);
      messages.clear();
      return Status::success();
    }
    return status;
  }

  /// Joins the ladders of two modules with the same entries.
  static void mergeLadders(ModuleOp from, ModuleOp to) {
    for (auto function : to.getOps<func::FuncOp>()) {
      auto other = from.lookupSymbol<func::FuncOp>(function.getName());
      auto points = function->getAttrOfType<ArrayAttr>(train::names::kFrontier);
      auto more = other ? other->getAttrOfType<ArrayAttr>(train::names::kFrontier) : ArrayAttr();
      if (!points || !more)
        continue;
      SmallVector<Attribute> all;
      for (ArrayAttr list : {points, more})
        for (Attribute point : list) {
          NamedAttrList row(cast<DictionaryAttr>(point));
          row.set("chosen", BoolAttr::get(to.getContext(), false)); // a ladder chooses nothing
          all.push_back(row.getDictionary(to.getContext()));
        }
      function->setAttr(train::names::kFrontier, train::withoutBeatenRows(to.getContext(), all));
    }
  }

  /// Runs phases up to the last one, or to the one that refuses calls by default.
  Status runStepsFrom(size_t first, std::string &messages) {
    for (size_t i = first; i < steps.size(); ++i) {
      const bool refused = (*model.module)->hasAttr(train::names::kCallsRefused);
      if (steps[i].phase == Phase::Decompose && !refused && recipe.attentionCalls == "auto" &&
          model.module->walk([](train::AttentionOp) { return WalkResult::interrupt(); }).wasInterrupted()) {
        beforeCalls = model.module->clone();
        callsChosenAt = i;
      }
      if (Status status = runStep(i, messages); !status.ok())
        return status;
      if (!refused && (*model.module)->hasAttr(train::names::kCallsRefused))
        break;
    }
    return Status::success();
  }

  /// A cost that the phase of memory noted on the module; 0: none.
  double costOf(StringRef name) {
    auto cost = (*model.module)->getAttrOfType<FloatAttr>(name);
    return cost ? cost.getValueAsDouble() : 0;
  }

  /// Runs one phase, and what the driver does at its place.
  Status runStep(size_t index, const std::string &messages) {
    const Pipeline::Step &step = steps[index];
    if (step.phase == Phase::Order || step.phase == Phase::Memory)
      startKernels(/*all=*/step.phase == Phase::Memory);
    if (step.phase == Phase::BuildUpdate)
      warnOfCuts();
    if (failed(runPasses(step)))
      return Status(messages.empty() ? "internal error: phase " + nameOf(step.phase).str() + " failed" : messages,
                    (*model.module)->hasAttr(train::names::kOverBudget) ? StatusCode::OverBudget : StatusCode::Fault);
    dump(step.phase, index + 1);
    return dumpStatus;
  }

  /// Refuses gradients of a recipe that has several, and a loss scale with stages.
  Status checkPhases() {
    if (!recipe.stages.empty() && recipe.train.scalesLoss())
      return error("{}[[stage]] does not go with a loss scale (f16): skipped updates would count differently for each "
                   "parameter; use bf16 or f32",
                   recipe.at("stage"));
    if (!pipeline().splits() || !wants(entries::kGradients))
      return Status::success();
    if (!recipe.stages.empty())
      return error(
          "gradients: the recipe has stages ([[stage]]), each with gradients of its own; compile without them, "
          "and with model.trainable, for gradients");
    return error("gradients: the recipe has several losses ([[phase]]); compile with one, as by a recipe with [loss] "
                 "output = \"{}\"",
                 recipe.loss.output.empty() ? "NAME" : recipe.loss.output);
  }

  Status chooseTarget() {
    std::string &precision = recipe.train.precision;
    if (!options.precision.empty())
      precision = options.precision;
    if (options.forceF64) { // nothing is rounded where derivatives are checked
      precision = "f32";
      recipe.train.lossScaleKind = "none";
    }
    Expected<std::string> name = target::resolveTarget(options.target, precision == "bf16" || precision == "auto");
    if (!name)
      return name.status();
    targetName = *name;
    target = target::findTarget(targetName);
    if (options.maxWorkers && target->capabilities().slots)
      return Status(fmt::format("--threads {}: {} has a fixed number of slots for scratch, {}; leave --threads out",
                                options.maxWorkers, targetName, target->capabilities().slots),
                    StatusCode::Usage);
    if (options.variants > 1 && target->capabilities().slots)
      return Status(fmt::format("--variants {}: a plan for {} holds one; compile one for each budget (--memory-budget)",
                                options.variants, targetName),
                    StatusCode::Usage);
    if (precision == "tf32" && !target->capabilities().multipliesTf32)
      return Status(fmt::format("--precision tf32: {} does not multiply in TF32; use bf16 or f32, or compile for a "
                                "machine that does (--target {})",
                                targetName, target::firstTargetWith(&target::Capabilities::multipliesTf32)),
                    StatusCode::Usage);
    if (recipe.parallel.distributed() && !target->capabilities().collectives && !options.describeOnly)
      return error("{}parallel.mode \"{}\": {} has no collectives yet; compile for a CPU (--target cpu), or leave "
                   "[parallel] out",
                   recipe.at("parallel.mode"), recipe.parallel.mode, targetName);
    if (options.forceF64) {
      recipe.parallel = {}; // derivatives are checked by one process,
      recipe.stages.clear(); // those of all parameters
    }
    if (precision == "auto")
      precision = target->capabilities().multipliesBf16 ? "bf16" : "f32";
    return Status::success();
  }

  /// The model in the shape of these dimensions; `key` is the recipe key that has them.
  Expected<ImportedModel> importShape(const DimValues &dims, const std::string &key) {
    frontend::ImportOptions import = importOptions(options, recipe, dims);
    if (auto where = recipe.where.find(key); where != recipe.where.end())
      import.where["model.dims"] = where->second;
    if (hasNoRecipe())
      import.model.batchNorm = "as-exported"; // the graph alone decides
    if (options.entries.empty() ||
        llvm::any_of(options.entries, [](StringRef entry) { return entry != entries::kPredict; }))
      import.lossOf = lossValues(recipe);
    import.forceF64 = options.forceF64;
    return frontend::importModel(context, options.modelPath, import);
  }

  Status importModel() {
    Profile::Span clock = profile.phase("import");
    auto first = trainingShapes(options, recipe);
    if (!first)
      return first.status();
    Expected<ImportedModel> imported = importShape(first->front(), shapesKey(recipe));
    if (!imported)
      return imported.status();
    model = imported.take();
    if (recipe.adapter.base != "f32" && !(model.quantized.empty() && model.ranges.empty()))
      return error(
          "{}adapter.base \"{}\": {} is a quantised model, whose weights are rounded to integers again at export; "
          "leave adapter.base out",
          recipe.at("adapter.base"), recipe.adapter.base, options.modelPath);
    bool normalises = false;
    model.module->walk([&](train::BatchNormOp op) {
      normalises |= op.getSync();
      if (model.batchStatistics.empty())
        model.batchStatistics = train::nodeName(op.getLoc()).str();
    });
    if (recipe.parallel.batchNorm == "sync" && !normalises)
      return error(
          "{}parallel.batch_norm \"sync\": {} has no BatchNormalization that trains; export it in train() mode or "
          "set model.batch_norm = \"train\", or leave parallel.batch_norm out",
          recipe.at("parallel.batch_norm"), options.modelPath);
    if (Status status = chooseEntries(); !status.ok())
      return status;
    // With adapters all weights of the file are frozen, so a value that the exporter computed may replace a weight.
    const bool trains = wants(entries::kTrain) && recipe.adapter.targets.empty();
    if (trains && !model.refusals.empty())
      return frontend::refusalOf(options.modelPath, model.refusals);
    if (!trains)
      model.unsaid.clear();
    if (wants(entries::kTrain) && !model.inferenceWarning.empty())
      model.warnings.push_back(model.inferenceWarning);
    if (Status status = checkEvaluations(); !status.ok())
      return status;
    if (Status status = checkPhases(); !status.ok())
      return status;
    if (Status status = importShapes(first->front()); !status.ok())
      return status;
    describeCompile();
    steps = pipeline().steps();
    dump(Phase::Import, 0);
    return dumpStatus;
  }

  /// Imports the other shapes of the plan; with several, each becomes a module within the module. `known`: the shape of
  /// the model.
  Status importShapes(const DimValues &known) {
    auto shapes = entryShapes(options, recipe, entries);
    if (!shapes)
      return shapes.status();
    severalShapes = shapes->size() > 1;
    for (const EntryShape &shape : *shapes)
      if (recipe.parallel.shardsParameters() && !shape.numbers.contains(entries::kTrain))
        return error(
            "{}{}: with parallel.mode \"{}\" evaluation gathers the parameters as training does, in training's "
            "shapes; leave it out, or evaluate the run's checkpoints with a plan for --set parallel.mode=none",
            recipe.at(shape.key), shape.key, recipe.parallel.mode);
    auto setDims = [](ModuleOp module, const DimValues &values) {
      Builder builder(module.getContext());
      NamedAttrList dims;
      for (const auto &[name, extent] : values)
        dims.append(name, builder.getI64IntegerAttr(extent));
      module->setAttr(train::names::kDims, dims.getDictionary(module.getContext()));
    };
    if (!severalShapes && shapes->front().dims == known) {
      setDims(*model.module, known);
      return Status::success();
    }
    OwningOpRef<ModuleOp> whole = ModuleOp::create(model.module->getLoc());
    for (EntryShape &shape : *shapes) {
      OwningOpRef<ModuleOp> part;
      if (shape.dims == known) {
        part = model.module->clone();
      } else {
        Expected<ImportedModel> other = importShape(shape.dims, shape.key);
        if (!other)
          return other.status().withContext(fmt::format("for {}", shape.text()));
        if (Status same = checkWeights(*other, shape); !same.ok())
          return same;
        part = std::move(other->module);
      }
      setDims(*part, shape.dims);
      if (!severalShapes) {
        model.module = std::move(part);
        return Status::success();
      }
      Builder builder(&context);
      NamedAttrList numbers;
      llvm::SmallVector<StringRef> own;
      for (const auto &[entry, number] : shape.numbers)
        numbers.append(entry, builder.getI64IntegerAttr(int64_t(number)));
      for (const std::string &entry : entries)
        if (shape.numbers.contains(entry))
          own.push_back(entry);
      part->setSymName(fmt::format("@{}", whole->getBody()->getOperations().size()));
      (*part)->setAttr(train::names::kShapeNumbers, numbers.getDictionary(&context));
      (*part)->setAttr(train::names::kEntries, builder.getStrArrayAttr(own));
      whole->getBody()->push_back(part.release());
    }
    model.module = std::move(whole);
    return Status::success();
  }

  /// Error: an import in another shape made other weights of the file.
  Status checkWeights(const ImportedModel &other, const EntryShape &shape) const {
    for (const auto &[one, two] : {std::pair(&model, &other), std::pair(&other, &model)})
      for (const auto &[name, initializer] : one->initializers)
        if (auto found = two->initializers.find(name);
            found == two->initializers.end() || !std::ranges::equal(found->second.type.dims(), initializer.type.dims()))
          return error("{}: for {} the graph has not the same weights as for the first shape ({}); compile a plan for "
                       "each, and give the trained weights of one to the other ({})",
                       options.modelPath, shape.text(), name, "trun --from RUN");
    return Status::success();
  }

  /// Writes the target and the recipe into the module, and into those of its shapes, where passes read them.
  void describeCompile() {
    describeCompile(*model.module);
    for (ModuleOp shape : model.module->getOps<ModuleOp>())
      describeCompile(shape);
  }
  void describeCompile(ModuleOp described) {
    Operation *module = described;
    Builder builder(&context);
    module->setAttr(target::kTargetAttribute, builder.getStringAttr(targetName));
    module->setAttr(train::names::kSlots, builder.getI64IntegerAttr(maxWorkers()));
    if (recipe.train.precision == "tf32")
      module->setAttr(target::kTf32Attribute, builder.getUnitAttr());
    if (recipe.convolutions == "kernels")
      module->setAttr(target::kConvolutionKernelsAttribute, builder.getUnitAttr());
    if (recipe.offloadBytesPerSecond)
      module->setAttr(target::kHostBytesAttribute, builder.getF64FloatAttr(*recipe.offloadBytesPerSecond / 1e9));
    if (recipe.sliceBytes)
      module->setAttr(target::kSliceBytesAttribute, builder.getI64IntegerAttr(*recipe.sliceBytes));
    if (!module->hasAttr(train::names::kEntries))
      module->setAttr(train::names::kEntries,
                      builder.getStrArrayAttr(llvm::SmallVector<StringRef>(entries.begin(), entries.end())));
    train::setRecipe(described, recipe);
  }

  /// evaluate.*: replaces other trainers' names of metrics by ours, unless the graph has an output of that name, and
  /// checks that evaluations compute the metrics of `evaluate.best` and `evaluate.stop.metric`.
  Status checkEvaluations() {
    func::FuncOp forward = train::lookupFunction(*model.module, "forward");
    std::set<std::string> outputs;
    for (unsigned i = 0; i < forward.getNumResults(); ++i)
      if (auto name = forward.getResultAttrOfType<StringAttr>(i, train::names::kName))
        outputs.insert(name.str());
    plan::Evaluation &evaluation = *recipe.training.mutable_evaluation();
    for (std::string &name : *evaluation.mutable_metrics())
      if (std::string_view metric = metricOfAlias(name); !metric.empty() && !outputs.contains(name))
        name = metric;
    const std::vector<std::string> metrics(evaluation.metrics().begin(), evaluation.metrics().end());
    for (auto [key, text] : {std::pair("evaluate.best", &evaluation.best()),
                             std::pair("evaluate.stop.metric", &evaluation.stop_metric())}) {
      Expected<MetricGoal> goal = parseGoal(key, *text);
      if (!goal)
        return error("{}{}", recipe.at(key), goal.message());
      // Averages count as available: trun may average the weights even if the recipe does not ask for it.
      if (recipe.phases.empty() && !text->empty())
        if (Status known = checkGoal(key, *goal, evaluationKeys(recipe.loss.kind, metrics, /*averages=*/true));
            !known.ok())
          return error("{}{}", recipe.at(key), known.message());
    }
    return Status::success();
  }

  /// The entries asked for, else training, evaluation and prediction: without a recipe and a loss in the graph,
  /// prediction alone. A recipe means training: there a missing loss is an error. `gradients` keeps every gradient at
  /// once, which takes more memory than training, so it is made on request.
  Status chooseEntries() {
    entries = options.entries;
    func::FuncOp forward = train::lookupFunction(*model.module, "forward");
    bool hasOutputs = false;
    for (unsigned i = 0; i < forward.getNumResults(); ++i)
      hasOutputs |= !forward.getResultAttr(i, train::names::kInner);
    if (recipe.parallel.shardsParameters())
      return chooseShardedEntries();
    if (!entries.empty()) {
      if (wants(entries::kPredict) && !hasOutputs && forward.getNumResults() > 0)
        return error("{}: predict has nothing to compute: none of the graph's outputs can be imported (tcc inspect "
                     "says why); compile without it, as with --entry train,evaluate",
                     options.modelPath);
      return Status::success();
    }
    entries = {entries::kTrain, entries::kEvaluate};
    if (hasOutputs || forward.getNumResults() == 0)
      entries.push_back(entries::kPredict);
    bool scalar = llvm::any_of(forward.getResultTypes(), [](Type type) {
      auto tensor = cast<RankedTensorType>(type);
      return tensor.getRank() == 0 && isa<FloatType>(tensor.getElementType());
    });
    if (hasNoRecipe() && !scalar) {
      entries = {entries::kPredict};
      model.warnings.push_back("no loss: there is no recipe and the graph has no scalar output, so the plan can only "
                               "predict; give a recipe with loss.kind, loss.of and loss.target to train");
    }
    return Status::success();
  }

  /// With sharded parameters a plan has only the entries that all ranks run together: training and its evaluations.
  Status chooseShardedEntries() {
    for (const std::string &entry : entries)
      if ((entry != entries::kTrain && entry != entries::kEvaluate) || !wants(entries::kTrain))
        return error(
            "--entry {}: no rank has all parameters (parallel.mode \"{}\"), and training and the evaluations in "
            "between gather them; compile a plan for {} with --set parallel.mode=none, which reads the run's "
            "checkpoints",
            entry, recipe.parallel.mode, entry);
    if (entries.empty()) {
      entries = {entries::kTrain, entries::kEvaluate};
      model.warnings.push_back(
          fmt::format("parallel.mode \"{}\": the plan trains, and evaluates while it does; compile "
                      "another without [parallel] to evaluate or predict with the run's checkpoints",
                      recipe.parallel.mode));
    }
    return Status::success();
  }

  /// True if nothing says how to train. Keys of `compiler` do not count: they only change how values are computed.
  bool hasNoRecipe() const {
    return options.recipePath.empty() &&
           llvm::all_of(options.settings, [](StringRef setting) { return setting.ltrim().starts_with("compiler."); });
  }

  bool wants(StringRef entry) const { return llvm::is_contained(entries, entry); }

  Pipeline pipeline() const { return {options, recipe, *target, entries, hasNoRecipe(), severalShapes}; }

  /// Warns of parameters that get no gradient because every path to the loss ends at an op without a derivative
  /// (Round, Sign, a comparison). Paths cut by a stop_gradient are intended.
  void warnOfCuts() {
    warnOfCuts(*model.module);
    std::set<std::string> phases;
    for (ModuleOp part : model.module->getOps<ModuleOp>())
      if (auto own = train::recipeOf(part); succeeded(own) && phases.insert(own->phase).second) // its first shape
        warnOfCuts(part);
  }
  void warnOfCuts(ModuleOp module) {
    auto list = module->getAttrOfType<ArrayAttr>(train::names::kUnused);
    if (!list)
      return;
    using Cut = std::pair<std::string, std::string>; // op, node
    std::vector<std::pair<Cut, std::vector<std::string>>> cuts;
    for (auto entry : list.getAsRange<DictionaryAttr>()) {
      auto op = entry.getAs<StringAttr>("cut");
      if (!op || op.getValue() == train::StopGradientOp::getOperationName())
        continue;
      Cut cut{op.getValue().substr(op.getValue().find('.') + 1).str(), entry.getAs<StringAttr>("node").str()};
      auto found = llvm::find_if(cuts, [&](auto &other) { return other.first == cut; });
      if (found == cuts.end())
        found = cuts.insert(cuts.end(), {cut, {}});
      found->second.push_back(entry.getAs<StringAttr>("name").str());
    }
    constexpr size_t kNamed = 4;
    for (auto &[cut, names] : cuts) {
      std::string more = names.size() > kNamed + 1 ? fmt::format(" and {} more", names.size() - kNamed) : "";
      if (!more.empty())
        names.resize(kNamed);
      model.warnings.push_back(fmt::format(
          "{}: {}{}: not trained: every path to the loss ends at an op without a gradient, first at {} (node {}); "
          "write a straight-through estimator as x + (f(x) - x).detach() and export with optimize=False, or freeze the "
          "parameters with model.frozen",
          model.name, fmt::join(names, ", "), more, cut.first, cut.second));
    }
  }

  LogicalResult runPasses(const Pipeline::Step &step) {
    const std::string name = nameOf(step.phase).str();
    Profile::Span clock = profile.phase(name);
    FailureOr<OpPassManager> parsed = parsePassPipeline(step.passes);
    if (failed(parsed))
      return failure();
    PassManager passes(&context, ModuleOp::getOperationName());
    static_cast<OpPassManager &>(passes) = std::move(*parsed);
    passes.enableVerifier(false); // once at the end of the phase: after each pass it took a fifth of a long compile
    passes.addInstrumentation(std::make_unique<PassClock>(profile, name));
    // Run one part after the other, so that only the first error is reported.
    const bool inParts = !model.module->getOps<ModuleOp>().empty() && context.isMultithreadingEnabled();
    if (inParts)
      context.disableMultithreading();
    LogicalResult result = passes.run(*model.module);
    if (inParts)
      context.enableMultithreading();
    return succeeded(result) ? mlir::verify(*model.module) : result;
  }

  /// Compiles kernels in the background while memory is planned: no kernel depends on the offsets of buffers, and few
  /// on the order of instructions. Those that later passes may change wait for the last call, with `all`.
  void startKernels(bool all) {
    if (options.sizesOnly || options.describeOnly)
      return;
    if (!kernels) {
      kernels = std::make_unique<codegen::KernelSet>(target->code(), &profile, options.store);
      if (severalShapes)
        kernels->shareAlike();
    }
    for (auto function : model.module->getOps<func::FuncOp>())
      if (function->hasAttr(train::names::kEntry))
        function.walk([&](Operation *op) {
          if (auto joined = dyn_cast<train::JoinedOp>(op))
            kernels->add(joined);
          else if (auto fused = dyn_cast<train::FusedOp>(op);
                   fused && !fused->hasAttr(train::names::kCall) && !isa<train::JoinedOp>(fused->getParentOp()))
            // Which kernels share a launch is known only once `order` has run.
            if (all || (!train::mayShrinkScratch(fused, maxWorkers()) &&
                        (!pipeline().joinsKernels() || fused.getLoopKernel())))
              kernels->add(fused);
          if (op->hasAttr(train::names::kCall))
            kernels->addKernelsOf(op);
        });
    kernels->start();
  }

  uint32_t maxWorkers() const {
    if (uint32_t slots = target->capabilities().slots)
      return slots;
    return options.maxWorkers ? options.maxWorkers : kDefaultMaxWorkers;
  }

  Expected<CompiledModel> emitPlan(std::string &messages) {
    CompiledModel compiled;
    {
      Profile::Span clock = profile.phase("emit");
      emit::EmitOptions emit;
      emit.recipe = &recipe;
      emit.model = &model;
      emit.target = target;
      emit.card = options.card;
      emit.maxWorkers = maxWorkers();
      emit.embedWeights = options.embedWeights;
      emit.planFolder = options.planFolder;
      emit.sizesOnly = options.sizesOnly;
      emit.describeOnly = options.describeOnly;
      emit.kernels = kernels.get();
      if (options.ptxas) {
        emit.assembler = options.ptxas->version;
        emit.assemble = [this](const std::string &ptx, const std::string &architecture) {
          return assemble(ptx, architecture);
        };
      }
      Expected<plan::Plan> plan = emit::emitPlan(*model.module, compiled.writer, emit);
      if (!plan)
        return messages.empty() ? plan.status() : Status(messages + "\n" + plan.message());
      compiled.plan = plan.take();
    }
    compiled.warnings = model.warnings;
    compiled.externalFiles = model.externalFiles;
    compiled.storage = model.storage;
    return compiled;
  }

  /// Machine code of all kernels, or that of an earlier compile.
  Expected<std::string> assemble(const std::string &ptx, const std::string &architecture) {
    Profile::Span clock = profile.part("emit", "ptxas");
    const cache::Key key = cache::KeyBuilder("cubin").add(options.ptxas->version).add(architecture).add(ptx).finish();
    if (std::optional<std::string> known = options.store ? options.store->get(key) : std::nullopt)
      return std::move(*known);
    Expected<std::string> code = options.ptxas->assemble(ptx, architecture);
    if (code && options.store)
      options.store->put(key, *code);
    return code;
  }

  /// `--dump-phases-to`: writes the whole module and the passes of the next step, by which tcc-opt makes the next file
  /// from this one. A failure is kept in `dumpStatus` and fails the compile.
  void dump(Phase phase, size_t next) {
    if (options.dumpFolder.empty() || !dumpStatus.ok())
      return;
    std::string text;
    llvm::raw_string_ostream stream(text);
    stream << StringRef(kPhaseMark) << nameOf(phase) << "\n";
    if (next < steps.size())
      stream << "// next " << nameOf(steps[next].phase) << ": " << steps[next].passes << "\n";
    model.module->print(stream, OpPrintingFlags().enableDebugInfo(true, false));
    stream << "\n";
    dumpStatus = tcc::makeFolders(options.dumpFolder);
    if (dumpStatus.ok())
      dumpStatus =
          tcc::writeFileAtomically(fmt::format("{}/{}-{}.mlir", options.dumpFolder, ++dumped, nameOf(phase).str()),
                                   text, OwnFile::Phase);
  }

  MLIRContext &context;
  const CompileOptions &options;
  Recipe recipe;
  std::string targetName; ///< as it is registered
  const target::Target *target = nullptr;
  ImportedModel model;
  std::vector<std::string> entries;
  bool severalShapes = false; ///< until parts are merged, the module holds one for each shape
  std::vector<Pipeline::Step> steps;
  Profile unread, &profile;
  OwningOpRef<ModuleOp> beforeCalls; ///< the module before calls were chosen by default, where that may have happened
  size_t callsChosenAt = 0;          ///< the step that chooses them
  std::unique_ptr<codegen::KernelSet> kernels;
  unsigned dumped = 0;
  Status dumpStatus;
};

} // namespace

void registerDialects(DialectRegistry &registry) {
  target::registerTargets();
  registerPipelinePasses();
  registry.insert<train::TrainDialect, func::FuncDialect, arith::ArithDialect, scf::SCFDialect, math::MathDialect,
                  vector::VectorDialect, cf::ControlFlowDialect, LLVM::LLVMDialect>();
  train::registerKernels(registry);
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}

std::vector<frontend::LossValue> lossValues(const Recipe &recipe) {
  std::vector<frontend::LossValue> values;
  auto add = [&](const Recipe &part) {
    for (const std::string &name : part.loss.of) {
      auto where = part.where.find("loss.of");
      if (llvm::none_of(values, [&](const frontend::LossValue &value) { return value.name == name; }))
        values.push_back({name, where == part.where.end() ? "" : where->second});
    }
  };
  // `recipe.loss` repeats the first of several losses, but without the line of its table: add the tables first.
  for (const Recipe &part : recipe.losses)
    add(part);
  add(recipe);
  for (const Recipe &part : recipe.phases)
    add(part);
  return values;
}

frontend::ImportOptions importOptions(const CompileOptions &options, const Recipe &recipe, const DimValues &dims) {
  frontend::ImportOptions import;
  import.dims = dims;
  import.shapes = recipe.model.shapes;
  for (const auto &[name, shape] : options.shapes)
    import.shapes[name] = shape;
  import.dequantize = options.dequantize;
  import.absentData = options.describeOnly;
  import.model = recipe.model;
  import.model.syncBatchNorm = recipe.parallel.batchNorm == "sync";
  import.recipeFile = recipe.file;
  import.where = recipe.where;
  import.batchAxis = recipe.dataBatchAxis;
  return import;
}

Expected<frontend::ImportOptions> importOptions(const CompileOptions &options, const Recipe &recipe) {
  auto shapes = trainingShapes(options, recipe);
  if (!shapes)
    return shapes.status();
  return importOptions(options, recipe, shapes->front());
}

Expected<CompiledModel> compileModel(MLIRContext &context, const CompileOptions &options) {
  context.loadAllAvailableDialects();
  return Compiler(context, options).run();
}

Expected<std::vector<plan::StageSummary>> stagesOf(const Recipe &recipe, const ImportedModel *model) {
  std::vector<plan::StageSummary> stages;
  uint64_t first = 1;
  for (const Recipe &part : stageRecipes(recipe)) {
    const StageSettings &settings = recipe.stages[stages.size()];
    plan::StageSummary stage{part.phase, first, settings.until, settings.lrScale, {}};
    if (model) {
      auto own = train::matchingParameters(train::trainableParameters(*model->module), settings.trainable,
                                           part.at("parameters"), "stage.trainable");
      if (!own)
        return own.status();
      for (train::VariableOp parameter : *own)
        stage.parameters.push_back(parameter.getSymName().str());
    }
    stages.push_back(std::move(stage));
    first = settings.until + 1;
  }
  return stages;
}

} // namespace tcc

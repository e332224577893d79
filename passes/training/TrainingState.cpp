//===- TrainingState.cpp - trained parameters and their state --------------===//
#include "passes/training/TrainingState.h"

#include "compiler/dialect/WeightFacts.h"
#include "passes/Common.h"
#include "passes/optimizers/BlockMoments.h"
#include "passes/training/RankSums.h"
#include "runtime/plan/Shards.h"
#include "support/BytesText.h"
#include "support/PlanNames.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace tcc::train {

std::string gradientState(llvm::StringRef parameter) { return (parameter + "/gradient").str(); }

llvm::StringRef gradientName(func::FuncOp backward, unsigned result) {
  return backward.getResultAttrOfType<StringAttr>(result, names::kGradientOf).getValue();
}

unsigned endOfGradients(func::FuncOp backward) {
  unsigned end = 2;
  while (end < backward.getNumResults() && backward.getResultAttr(end, names::kGradientOf))
    ++end;
  return end;
}

unsigned endOfTerms(func::FuncOp backward) {
  unsigned end = endOfGradients(backward);
  while (end < backward.getNumResults() &&
         outputs::isTerm(backward.getResultAttrOfType<StringAttr>(end, names::kName).getValue()))
    ++end;
  return end;
}

std::string termState(llvm::StringRef output) { return ("loss/" + output).str(); }

bool accumulatesInState(const Recipe &recipe) {
  return recipe.training.accumulate() > 1 || recipe.parallel.virtualRanks > 0;
}

Type updateType(Type element) { return element.isF64() ? element : Type(Float32Type::get(element.getContext())); }

namespace {

class StateMaker {
public:
  StateMaker(ModuleOp module, func::FuncOp backward, const Recipe &recipe)
      : module(module), backward(backward), recipe(recipe), builder(module.getContext()) {}

  FailureOr<TrainingState> run() {
    made.optimizer = findOptimizer(recipe.training.optimizer().kind());
    if (!made.optimizer)
      return fail("optimizer.kind") << "unknown optimizer `" << recipe.training.optimizer().kind()
                                    << "`; known: " << optimizerKinds();
    made.settings = ruleOf(recipe);
    if (made.optimizer->check)
      if (std::string problem = made.optimizer->check(made.settings); !problem.empty())
        return fail("optimizer.nesterov") << problem;

    std::vector<VariableOp> parameters, others;
    SymbolTable symbols(module);
    llvm::DenseSet<Operation *> trainable;
    for (unsigned i = 2, end = endOfGradients(backward); i < end; ++i) {
      parameters.push_back(symbols.lookup<VariableOp>(gradientName(backward, i)));
      trainable.insert(parameters.back());
    }
    for (VariableOp variable : module.getOps<VariableOp>())
      if (!trainable.contains(variable) &&
          (variable.getRole() == roles::kParameter || variable.getRole() == roles::kFrozen))
        others.push_back(variable);
    if (parameters.empty() && recipe.stage)
      return fail("parameters") << "stage " << *recipe.stage + 1 << ": the loss reaches none of its parameters"
                                << firstReason() << "; see its `trainable`";
    if (parameters.empty() && !recipe.phase.empty())
      return fail("model.trainable") << "phase \"" << recipe.phase << "\": its loss reaches none of its parameters"
                                     << firstReason() << "; see `loss` and `parameters` of the phase";
    if (parameters.empty())
      return fail("model.trainable") << "there is nothing to train: the loss reaches no trainable parameter"
                                     << firstReason()
                                     << "; see model.trainable and model.frozen, train adapters of frozen matrices "
                                        "([adapter]), or compile with "
                                        "--entry evaluate,predict";
    auto grouped = groupParameters(parameters, others, recipe, made.settings.numbers.at("weight_decay"), readOrder());
    if (!grouped)
      return mlir::emitError(module.getLoc()) << grouped.message();
    made.groups = grouped.take();
    for (auto [index, group] : llvm::enumerate(made.groups))
      for (const std::string &name : group.parameters)
        groupOf[name] = unsigned(index);
    recordGroups();
    builder.setInsertionPointToEnd(module.getBody());
    if (recipe.parallel.sharded())
      module->setAttr(names::kRanks, builder.getI64IntegerAttr(recipe.parallel.shardRanks()));
    if (recipe.parallel.shardsParameters())
      module->setAttr(names::kPrefetch, builder.getI64IntegerAttr(recipe.parallel.prefetch));
    if (recipe.parallel.sharded() && recipe.overlap)
      module->setAttr(names::kRunsBeside, builder.getUnitAttr());
    std::vector<VariableOp> all(parameters);
    all.insert(all.end(), others.begin(), others.end());
    if (Status status = checkPatterns(recipe.optimizer.momentsExempt, recipe.at("optimizer.moments_exempt"),
                                      "optimizer.moments_exempt", all);
        !status.ok())
      return mlir::emitError(module.getLoc()) << status.message();
    for (VariableOp parameter : parameters)
      declareStates(parameter);
    noteMoments();
    // Parameters that another phase trains are sharded here, too.
    for (VariableOp variable : others)
      if (variable->hasAttr(names::kOfPhase) && recipe.parallel.shardsParameters())
        holdShard(variable);
    warnOfAssumedShapes();
    if (accumulatesInState(recipe)) {
      for (const TrainedParameter &parameter : made.parameters)
        declareSum(gradientState(parameter.name),
                   stateType(recipe.parallel.shardsAccumulators() ? parameter.held : parameter.type), parameter.group);
      declareSum(kSumState.str(), backward.getResultTypes()[0], -1);
      declareSum(kWeightState.str(), backward.getResultTypes()[1], -1);
      for (unsigned i = endOfGradients(backward), end = endOfTerms(backward); recipe.parallel.distributed() && i < end;
           ++i)
        declareSum(termState(backward.getResultAttrOfType<StringAttr>(i, names::kName).getValue()),
                   backward.getResultTypes()[i], -1);
    }
    return std::move(made);
  }

private:
  InFlightDiagnostic fail(const std::string &key) { return mlir::emitError(module.getLoc()) << recipe.at(key); }

  /// Declares the variable of a sum over a window, and one per level of the tree over virtual ranks.
  void declareSum(const std::string &name, Type type, int64_t group) {
    declare(name, type, roles::kAccumulator, 0, group);
    for (int64_t level = 0; level < recipe.parallel.heldLevels(); ++level)
      declare(heldState(name, level), type, roles::kAccumulator, 0, group);
    made.sums.push_back(name);
  }

  /// The reason why the first parameter without a gradient has none.
  std::string firstReason() {
    auto list = module->getAttrOfType<ArrayAttr>(names::kUnused);
    if (!list || list.empty())
      return "";
    auto entry = cast<DictionaryAttr>(list[0]);
    auto text = [&](llvm::StringRef key) { return entry.getAs<StringAttr>(key).str(); };
    return " (" + text("name") + ": " + text("reason") + (text("node").empty() ? "" : ", node " + text("node")) + ")";
  }

  /// Parameters in the order in which the model first reads them.
  std::vector<std::string> readOrder() {
    std::vector<std::string> order;
    llvm::StringSet<> seen;
    for (ReadOp read : backward.getBody().front().getOps<ReadOp>())
      if (seen.insert(read.getVariable()).second)
        order.push_back(read.getVariable().str());
    return order;
  }

  /// Moments and accumulators of half-precision parameters are kept in f32.
  RankedTensorType stateType(RankedTensorType type) {
    return RankedTensorType::get(type.getShape(), updateType(type.getElementType()));
  }
  /// The type in which an optimizer stores its state for values of type `type`.
  RankedTensorType momentType(RankedTensorType type) {
    RankedTensorType wide = stateType(type);
    bool narrow = made.settings.moments == "bf16" && wide.getElementType().isF32();
    return narrow ? RankedTensorType::get(type.getShape(), builder.getBF16Type()) : wide;
  }

  /// True if the parameter's moments are kept as codes of 8 bits. A shard has to hold whole blocks: the codes of others
  /// would depend on the number of ranks.
  bool isBlocked(VariableOp parameter) {
    const auto type = cast<RankedTensorType>(parameter.getType());
    const int64_t elements = type.getNumElements();
    const bool cut =
        recipe.parallel.sharded() && plan::shardsCutBlocks(uint64_t(elements), uint64_t(recipe.parallel.shardRanks()));
    if (!storesBlocks(made.settings) || !updateType(type.getElementType()).isF32() || dividesByZero(elements))
      return false;
    if (elements < kLeastBlockedElements || matchesAnyPattern(recipe.optimizer.momentsExempt, parameter))
      return false;
    if (cut)
      cutShards.push_back(parameter.getSymName().str());
    return !cut;
  }
  /// Zeros fill up the last block, and would be divided by zero without an eps.
  bool dividesByZero(int64_t elements) const {
    auto eps = made.settings.numbers.find("eps");
    return elements % plan::kDynamicBlock && eps != made.settings.numbers.end() && eps->second == 0;
  }
  RankedTensorType codesType(RankedTensorType type) {
    return RankedTensorType::get({blocksOf(type.getNumElements()), plan::kDynamicBlock},
                                 builder.getIntegerType(8, /*isSigned=*/false));
  }
  RankedTensorType magnitudesType(RankedTensorType type) {
    return RankedTensorType::get({blocksOf(type.getNumElements()), 1}, builder.getF32Type());
  }

  void declareMoment(llvm::StringRef name, RankedTensorType whole, double fill, int64_t group) {
    VariableOp moment = declare(name, heldType(recipe.parallel, whole), roles::kOptimizer, fill, group);
    if (recipe.parallel.sharded())
      moment->setAttr(names::kWhole, TypeAttr::get(whole));
  }

  VariableOp declare(llvm::StringRef name, Type type, llvm::StringRef role, double fill, int64_t group) {
    return VariableOp::create(builder, NameLoc::get(builder.getStringAttr(name)), name, type, role,
                              builder.getF64FloatAttr(fill), nullptr, group);
  }

  /// Reduces the variable to this rank's shard.
  void holdShard(VariableOp variable) {
    const auto type = cast<RankedTensorType>(variable.getType());
    variable.setType(heldType(recipe.parallel, type));
    variable->setAttr(names::kWhole, TypeAttr::get(type));
  }

  void declareStates(VariableOp parameter) {
    std::string name = parameter.getSymName().str();
    const auto type = cast<RankedTensorType>(parameter.getType());
    TrainedParameter entry{name,
                           type,
                           heldType(recipe.parallel, type),
                           groupOf.lookup(name),
                           isBlocked(parameter),
                           {},
                           "",
                           "",
                           torchShape(parameter)};
    if (auto stages = parameter->getAttrOfType<IntegerAttr>(names::kStages); stages && recipe.stage)
      if (uint64_t missing = ((uint64_t(1) << *recipe.stage) - 1) & ~stages.getValue().getZExtValue())
        entry.skipped = "@" + std::to_string(missing);
    parameter.setGroup(entry.group);
    if (recipe.parallel.shardsParameters())
      holdShard(parameter);
    for (const OptimizerState &state : made.optimizer->states(made.settings, entry.torch)) {
      MomentState moment{name + "/" + state.name, "", state.range};
      if (entry.blocked) {
        moment.magnitudes = moment.variable + std::string(states::kMagnitudesSuffix);
        // 1, the last number, times the magnitude.
        declareMoment(moment.variable, codesType(type), state.fill == 0 ? 0 : 255, entry.group);
        declareMoment(moment.magnitudes, magnitudesType(type), state.fill, entry.group);
      } else {
        declareMoment(moment.variable, momentType(type), state.fill, entry.group);
      }
      entry.states.push_back(std::move(moment));
    }
    // The runtime copies the weights into it when a run starts: --init may have replaced them.
    if (recipe.averagesOnDevice()) {
      entry.average = name + std::string(states::kEmaSuffix);
      VariableOp average = declare(entry.average, stateType(type), roles::kEma, 0, entry.group);
      if (recipe.parallel.shardsParameters())
        holdShard(average);
    }
    made.parameters.push_back(std::move(entry));
  }

  /// Notes what codes of 8 bits save and how far they round, and how many moments stay in f32.
  void noteMoments() {
    if (!storesBlocks(made.settings))
      return;
    int64_t blocked = 0, wide = 0;
    uint64_t saved = 0;
    double furthest = 0;
    for (const TrainedParameter &parameter : made.parameters) {
      (parameter.blocked ? blocked : wide) += parameter.type.getNumElements();
      const int64_t elements = parameter.held.getNumElements(), blocks = blocksOf(elements);
      for (const MomentState &moment : parameter.states)
        if (parameter.blocked) {
          saved += uint64_t(4 * elements - blocks * (plan::kDynamicBlock + 4));
          furthest = std::max(furthest, double(plan::dynamicRounding(moment.range)));
        }
    }
    std::string text =
        llvm::formatv("8 bits for {0} elements of parameters, f32 for {1}: parameters of fewer than {2} elements, and "
                      "those of optimizer.moments_exempt",
                      blocked, wide, kLeastBlockedElements);
    if (!cutShards.empty())
      text += "; shards of " + cutShards.front() +
              (cutShards.size() > 1 ? " and " + std::to_string(cutShards.size() - 1) + " others" : "") +
              " would cut blocks of 256 elements";
    if (saved)
      text += llvm::formatv("; {0} less than in f32, and moments within {1:F2} % of the largest in their block",
                            bytesText(saved), 100 * furthest);
    addNote(module, "moments", "", text);
  }

  TorchShape torchShape(VariableOp parameter) const {
    if (std::optional<WeightFacts> known = weightFacts(parameter))
      return known->torch;
    return TorchShape::asStored(cast<RankedTensorType>(parameter.getType()).getShape().vec());
  }

  /// Emits one warning for all parameters whose torch shape is assumed, since their updates depend on it.
  void warnOfAssumedShapes() {
    std::string list;
    for (const TrainedParameter &parameter : made.parameters)
      if (made.optimizer->readsShape && !parameter.torch.assumption.empty())
        list += (list.empty() ? "" : "; ") + parameter.name + ": " + parameter.torch.assumption;
    if (!list.empty())
      mlir::emitWarning(module.getLoc())
          << "optimizer \"" << made.optimizer->kind
          << "\" depends on a parameter's shape in torch, which this export does not note; assumed are " << list
          << ". An export with torch.onnx.export(..., dynamo=True) notes it";
  }

  void recordGroups() {
    llvm::SmallVector<Attribute> entries;
    for (const ParameterGroup &group : made.groups) {
      llvm::SmallVector<llvm::StringRef> members(group.parameters.begin(), group.parameters.end());
      entries.push_back(
          builder.getDictionaryAttr({builder.getNamedAttr("name", builder.getStringAttr(group.name)),
                                     builder.getNamedAttr("lr_scale", builder.getF64FloatAttr(group.lrScale)),
                                     builder.getNamedAttr("weight_decay", builder.getF64FloatAttr(group.weightDecay)),
                                     builder.getNamedAttr("parameters", builder.getStrArrayAttr(members))}));
    }
    module->setAttr(names::kGroups, builder.getArrayAttr(entries));
  }

  ModuleOp module;
  func::FuncOp backward;
  const Recipe &recipe;
  OpBuilder builder;
  llvm::StringMap<unsigned> groupOf;  ///< by a parameter's name
  std::vector<std::string> cutShards; ///< parameters with moments in f32 because shards would cut blocks
  TrainingState made;
};

} // namespace

FailureOr<TrainingState> declareTrainingState(ModuleOp module, func::FuncOp backward, const Recipe &recipe) {
  return StateMaker(module, backward, recipe).run();
}

} // namespace tcc::train

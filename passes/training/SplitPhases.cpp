//===- SplitPhases.cpp - a module for each [[phase]] or [[stage]] ----------===//
//
// Each phase of a recipe is compiled in a copy of the imported module in which other phases' parameters are frozen:
// passes see an ordinary model with one loss. merge-parts joins the entries of all copies over the same variables.
// Stages
// ([[stage]]) are compiled in the same way; they also share the optimizer's state. In a plan of several shapes, the
// module of each shape is split.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/Passes.h"
#include "passes/RecipeAttribute.h"
#include "passes/training/ParameterGroups.h"
#include "support/PlanNames.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_SPLITPHASESPASS
#include "passes/Passes.h.inc"

namespace {

Expected<std::vector<VariableOp>> parametersOf(ModuleOp module, const Recipe &phase) {
  return matchingParameters(trainableParameters(module), phase.phaseParameters, phase.at("parameters"),
                            phase.stage ? "stage.trainable" : "phase.parameters");
}

/// Marks the parameters that some phase trains: if parameters are sharded, these are sharded in all phases. Records
/// which stages train each. Error: a glob that matches no parameter.
Status markParameters(ModuleOp module, const std::vector<Recipe> &phases) {
  for (const Recipe &phase : phases) {
    auto own = parametersOf(module, phase);
    if (!own)
      return own.status();
    for (VariableOp parameter : *own) {
      parameter->setAttr(names::kOfPhase, UnitAttr::get(module.getContext()));
      if (!phase.stage)
        continue;
      auto before = parameter->getAttrOfType<IntegerAttr>(names::kStages);
      const uint64_t bits = (before ? before.getValue().getZExtValue() : 0) | uint64_t(1) << *phase.stage;
      parameter->setAttr(names::kStages, Builder(module.getContext()).getI64IntegerAttr(int64_t(bits)));
    }
  }
  return Status::success();
}

/// Freezes the parameters that the phase does not name.
void restrictToPhase(ModuleOp module, const Recipe &phase) {
  auto own = parametersOf(module, phase); // markParameters has checked the globs
  for (VariableOp parameter : trainableParameters(module))
    if (!llvm::is_contained(*own, parameter))
      parameter.setRole(roles::kFrozen);
}

struct SplitPhasesPass : impl::SplitPhasesPassBase<SplitPhasesPass> {
  void runOnOperation() override {
    ModuleOp whole = getOperation();
    FailureOr<Recipe> recipe = recipeOf(whole);
    if (failed(recipe))
      return signalPassFailure();
    const std::vector<Recipe> phases = recipe->stages.empty() ? recipe->phases : stageRecipes(*recipe);
    llvm::SmallVector<ModuleOp> shapes(whole.getOps<ModuleOp>());
    if (shapes.empty())
      shapes.push_back(whole);
    std::vector<ModuleOp> parts;
    for (ModuleOp shape : shapes) {
      if (Status status = markParameters(shape, phases); !status.ok()) {
        mlir::emitError(whole.getLoc()) << status.message();
        return signalPassFailure();
      }
      for (size_t i = 0; i < phases.size(); ++i)
        if (i == 0 || builds(shape, entries::kTrain))
          parts.push_back(partOf(shape, phases[i], *recipe, /*isFirst=*/i == 0));
    }
    Block *body = whole.getBody();
    while (!body->empty())
      body->back().erase();
    for (ModuleOp part : parts)
      body->push_back(part);
  }

private:
  /// A copy of the module for one phase. Evaluation and prediction belong to the first phase.
  ModuleOp partOf(ModuleOp shape, Recipe phase, const Recipe &recipe, bool isFirst) {
    phase.train.precision = recipe.train.precision;
    phase.train.lossScaleKind = recipe.train.lossScaleKind;
    *phase.training.mutable_loss_scale() = recipe.training.loss_scale();
    phase.adapter = {}; // its parameters are here already
    ModuleOp part = shape.clone();
    part.setSymName(phase.phase + shape.getSymName().value_or("").str());
    if (!isFirst)
      part->setAttr(names::kEntries, Builder(&getContext()).getStrArrayAttr({entries::kTrain}));
    restrictToPhase(part, phase);
    setRecipe(part, phase);
    return part;
  }
};

} // namespace

} // namespace tcc::train

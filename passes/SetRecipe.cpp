//===- SetRecipe.cpp - the recipe that a module is compiled with ----------===//
#include "passes/Passes.h"
#include "passes/RecipeAttribute.h"

namespace tcc::train {
#define GEN_PASS_DEF_SETRECIPEPASS
#include "passes/Passes.h.inc"

namespace {
struct SetRecipePass : impl::SetRecipePassBase<SetRecipePass> {
  using SetRecipePassBase::SetRecipePassBase;

  void runOnOperation() override {
    Recipe recipe;
    if (Status status = applySettings(recipe, {settings.begin(), settings.end()}); !status.ok()) {
      getOperation().emitError("set-recipe: ") << status.message();
      return signalPassFailure();
    }
    setRecipe(getOperation(), recipe);
  }
};
} // namespace

} // namespace tcc::train

//===- RecipeAttribute.h - the recipe as an attribute -----------*- C++ -*-===//
//
// A module carries the recipe that it is compiled with as the attribute `train.recipe`, which the driver writes after
// the import. So a pass needs nothing but the module.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_RECIPEATTRIBUTE_H
#define TCC_PASSES_RECIPEATTRIBUTE_H

#include "compiler/recipe/Recipe.h"

#include "mlir/IR/BuiltinOps.h"

namespace tcc::train {

/// Writes the recipe except the settings of the importer (model.*) and of the run's data (data.*).
void setRecipe(mlir::ModuleOp module, const Recipe &recipe);

/// Returns the module's recipe, or the default recipe if the module has none. A malformed attribute is reported at the
/// module.
mlir::FailureOr<Recipe> recipeOf(mlir::ModuleOp module);

} // namespace tcc::train

#endif // TCC_PASSES_RECIPEATTRIBUTE_H

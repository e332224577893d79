//===- RecipeAttribute.h - the recipe as an attribute -----------*- C++ -*-===//
//
// A module carries the recipe that it is compiled with, as the attribute `train.recipe`: the driver writes it after the
// import, passes read it. So a module says by itself what its next pass makes of it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_RECIPEATTRIBUTE_H
#define TCC_PASSES_RECIPEATTRIBUTE_H

#include "compiler/recipe/Recipe.h"

#include "mlir/IR/BuiltinOps.h"

namespace tcc::train {

/// Writes the recipe, but for what belongs to the importer (model.*) and to the run's data (data.*).
void setRecipe(mlir::ModuleOp module, const Recipe &recipe);

/// The module's recipe; that of defaults if it has none. An attribute of another form is reported at the module.
mlir::FailureOr<Recipe> recipeOf(mlir::ModuleOp module);

} // namespace tcc::train

#endif // TCC_PASSES_RECIPEATTRIBUTE_H

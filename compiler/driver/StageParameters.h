//===- StageParameters.h - the stages of a recipe, for reports --*- C++ -*-===//
#ifndef TCC_COMPILER_DRIVER_STAGEPARAMETERS_H
#define TCC_COMPILER_DRIVER_STAGEPARAMETERS_H

#include "compiler/model/ImportedModel.h"
#include "compiler/recipe/Recipe.h"
#include "runtime/plan/Stages.h"

#include <vector>

namespace tcc {

/// The stages of a run by the recipe, each with the model's parameters that it trains; without a model, no parameters.
/// Error: a glob that matches no parameter, with its line in the recipe.
Expected<std::vector<plan::StageSummary>> stagesOf(const Recipe &recipe, const ImportedModel *model);

} // namespace tcc

#endif // TCC_COMPILER_DRIVER_STAGEPARAMETERS_H

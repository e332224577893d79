//===- Suggest.h - guess a recipe from the graph ----------------*- C++ -*-===//
#ifndef TCC_FRONTEND_SUGGEST_H
#define TCC_FRONTEND_SUGGEST_H

#include "frontend/Import.h"

namespace tcc::frontend {

/// A recipe (TOML with comments) for a model, by what its graph shows: the loss by the last ops and the shapes of its outputs,
/// values for settings, sizes for open dimensions, axes of samples; comments say what is frozen and what to check. Sizes are
/// tried: the first with which the model can be imported stand. What `options` gives stays. Errors: a model that cannot be
/// read, or imported with any size tried.
Expected<std::string> suggestRecipe(mlir::MLIRContext &context, const std::string &path, const ImportOptions &options);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_SUGGEST_H

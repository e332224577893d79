//===- Suggest.h - guess a recipe from the graph ----------------*- C++ -*-===//
#ifndef TCC_FRONTEND_SUGGEST_H
#define TCC_FRONTEND_SUGGEST_H

#include "frontend/Import.h"

namespace tcc::frontend {

/// Returns a recipe (TOML with comments) for a model's graph: the loss from the last ops and the shapes of outputs,
/// values for settings, sizes for open dimensions, sample axes; comments say what is frozen and what to check. Sizes
/// are tried until the model can be imported. `options` takes precedence. Errors: a model that cannot be read, or not
/// be imported with any size tried.
Expected<std::string> suggestRecipe(mlir::MLIRContext &context, const std::string &path, const ImportOptions &options);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_SUGGEST_H

//===- Passes.h - the passes of the compiler --------------------*- C++ -*-===//
//
// One pass, one file; Passes.td says what each does, with IR before and after. The factory functions here take inputs that
// textual options cannot carry: the recipe and the importer's facts about initializers.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_PASSES_H
#define TCC_PASSES_PASSES_H

#include "compiler/recipe/Recipe.h"
#include "compiler/dialect/TrainDialect.h"
#include "compiler/model/Initializer.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace tcc::train {

#define GEN_PASS_DECL
#include "passes/Passes.h.inc"

/// add-adapters with the recipe's [adapter]. `initializers` outlives the pass. Errors name the recipe's line: a glob that
/// matches nothing, or nothing that can be adapted.
std::unique_ptr<mlir::Pass> createAddAdaptersPass(const Recipe &recipe,
                                                  const std::map<std::string, Initializer> *initializers);

/// attach-loss with the recipe's [loss]. Errors name the recipe's line and the graph's outputs.
std::unique_ptr<mlir::Pass> createAttachLossPass(const Recipe &recipe);

/// The inputs of build-update. The pointed-to objects outlive the pass.
struct BuildUpdateOptions {
  const Recipe *recipe = nullptr;
  /// By name: for @selectors, and for globs that match the exporter's name of a parameter.
  const std::map<std::string, Initializer> *initializers = nullptr;
  /// Which entries to make; each needs the function that it comes from (@backward, @loss, @forward).
  bool train = true, evaluate = true, predict = true, gradients = true;
  /// `predict` runs dropout and batch norm as the graph says, and `predict_inference` in inference mode; else `predict` does.
  bool predictAsExported = false;
};
std::unique_ptr<mlir::Pass> createBuildUpdatePass(const BuildUpdateOptions &options);

#define GEN_PASS_REGISTRATION
#include "passes/Passes.h.inc"

} // namespace tcc::train

#endif // TCC_PASSES_PASSES_H

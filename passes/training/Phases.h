//===- Phases.h - the programs of [[phase]] in one module --------*- C++ -*-===//
//
// Each phase of a recipe is compiled in a copy of the imported module, where other phases' parameters are frozen:
// passes see an ordinary model with one loss. Then the entries of all copies become one module over the same variables.
// So is each stage ([[stage]]); stages share the optimizer's state, too.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_TRAINING_PHASES_H
#define TCC_PASSES_TRAINING_PHASES_H

#include "compiler/recipe/Recipe.h"
#include "frontend/Import.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <map>
#include <string>
#include <vector>

namespace tcc::train {

/// Marks the parameters that some phase trains: where ranks share parameters, those are in shards for all phases. Notes
/// the stages that train each. Error: a glob that matches no parameter.
Status markPhaseParameters(mlir::ModuleOp module, const std::vector<Recipe> &phases,
                           const std::map<std::string, frontend::Initializer> &initializers);

/// Freezes the parameters of `module` that the phase does not name. Error: a glob that matches no parameter.
Status restrictToPhase(mlir::ModuleOp module, const Recipe &phase,
                       const std::map<std::string, frontend::Initializer> &initializers);

/// Removes writes (running statistics) from @loss whose mode-dependent op the loss does not need: a phase computes what
/// its loss depends on, no more.
void dropForeignWrites(mlir::ModuleOp module);

/// One module with the entries of all; `modules` are in the order of the phases. Entries of training and state of the
/// optimizers get the phase's name; of stages, entries alone.
mlir::OwningOpRef<mlir::ModuleOp> mergePhases(std::vector<mlir::OwningOpRef<mlir::ModuleOp>> modules,
                                              const std::vector<Recipe> &phases);

} // namespace tcc::train

#endif // TCC_PASSES_TRAINING_PHASES_H

//===- Phases.h - the programs of [[phase]] in one module --------*- C++ -*-===//
//
// Each phase of a recipe is compiled in a copy of the imported module in which other phases' parameters are frozen:
// passes see an ordinary model with one loss. Then the entries of all copies are merged into one module over the same
// variables. Stages ([[stage]]) are compiled in the same way; they also share the optimizer's state.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_TRAINING_PHASES_H
#define TCC_PASSES_TRAINING_PHASES_H

#include "compiler/model/Initializer.h"
#include "compiler/recipe/Recipe.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <map>
#include <string>
#include <vector>

namespace tcc::train {

/// Marks the parameters that some phase trains: if parameters are sharded, these are sharded in all phases. Records
/// which stages train each. Error: a glob that matches no parameter.
Status markPhaseParameters(mlir::ModuleOp module, const std::vector<Recipe> &phases,
                           const std::map<std::string, Initializer> &initializers);

/// Freezes the parameters of `module` that the phase does not name. Error: a glob that matches no parameter.
Status restrictToPhase(mlir::ModuleOp module, const Recipe &phase,
                       const std::map<std::string, Initializer> &initializers);

/// Removes writes (running statistics) from @loss whose mode-dependent op the loss does not depend on: a phase only
/// computes values that its loss needs.
void dropForeignWrites(mlir::ModuleOp module);

/// One module with the entries of all `modules`, which are in the order of the phases. The phase's name is added to the
/// names of training entries and of the optimizers' state; for stages, to those of entries only.
mlir::OwningOpRef<mlir::ModuleOp> mergePhases(std::vector<mlir::OwningOpRef<mlir::ModuleOp>> modules,
                                              const std::vector<Recipe> &phases);

} // namespace tcc::train

#endif // TCC_PASSES_TRAINING_PHASES_H

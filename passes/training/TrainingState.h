//===- TrainingState.h - what is trained, and its state ---------*- C++ -*-===//
#ifndef TCC_PASSES_TRAINING_TRAININGSTATE_H
#define TCC_PASSES_TRAINING_TRAININGSTATE_H

#include "passes/Passes.h"
#include "passes/optimizers/Optimizer.h"
#include "passes/training/ParameterGroups.h"

#include <string>
#include <vector>

namespace tcc::train {

/// A parameter that the loss reaches.
struct TrainedParameter {
  std::string name;
  mlir::RankedTensorType type;
  mlir::RankedTensorType held; ///< of the part that a rank updates: `type`, or its shard
  unsigned group;
  std::vector<std::string> states; ///< the optimizer's, by variable name
  std::string average;             ///< its average's variable; empty: none
  std::string skipped;             ///< "@BITS" of the stages before that did not train it; empty: all did
  frontend::TorchShape torch;
};

/// The parameters of an update and the variables that it keeps beside them.
struct TrainingState {
  const Optimizer *optimizer = nullptr;
  OptimizerSettings settings; ///< complete
  std::vector<ParameterGroup> groups;
  std::vector<TrainedParameter> parameters; ///< in the order of @backward's gradients
  std::vector<std::string> sums;            ///< over a window: variables
};

/// Variables that hold a window's sums of the loss's numerator and denominator; of a parameter's gradients.
inline constexpr llvm::StringLiteral kSumState = "loss/sum", kWeightState = "loss/weight";
/// Of one of several losses, by the name of its output; only where `update` sums it over ranks.
std::string termState(llvm::StringRef output);
std::string gradientState(llvm::StringRef parameter);
/// The parameter whose gradient is result `result` of @backward.
llvm::StringRef gradientName(mlir::func::FuncOp backward, unsigned result);
/// The number of results of @backward before those behind the gradients: numbers of several losses.
unsigned endOfGradients(mlir::func::FuncOp backward);
/// Are the sums of a window state?
bool accumulatesInState(const Recipe &recipe);
/// The type that an update computes in: f32, or f64 for a parameter of f64.
mlir::Type updateType(mlir::Type element);

/// Finds the optimizer and the parameters of @backward, sorts them into groups, and declares the variables of moments,
/// averages and a window's sums. Errors name the recipe's key: an unknown optimizer, nothing to train, a glob that
/// matches nothing.
mlir::FailureOr<TrainingState> declareTrainingState(mlir::ModuleOp module, mlir::func::FuncOp backward,
                                                    const Recipe &recipe, const BuildUpdateOptions &options);

} // namespace tcc::train

#endif // TCC_PASSES_TRAINING_TRAININGSTATE_H

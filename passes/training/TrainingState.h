//===- TrainingState.h - trained parameters and their state -----*- C++ -*-===//
#ifndef TCC_PASSES_TRAINING_TRAININGSTATE_H
#define TCC_PASSES_TRAINING_TRAININGSTATE_H

#include "passes/Passes.h"
#include "passes/optimizers/Optimizer.h"
#include "passes/training/ParameterGroups.h"

#include <string>
#include <vector>

namespace tcc::train {

/// A moment of a parameter.
struct MomentState {
  std::string variable;
  std::string magnitudes;                              ///< variable of its blocks' magnitudes; empty: no blocks
  plan::DynamicKind range = plan::DynamicKind::Signed; ///< of its codes
};

/// A parameter that the loss reaches.
struct TrainedParameter {
  std::string name;
  mlir::RankedTensorType type;
  mlir::RankedTensorType held; ///< type of the part that a rank updates: `type`, or its shard's
  unsigned group;
  bool blocked;                    ///< moments are codes of 8 bits: its update is computed in blocks
  std::vector<MomentState> states; ///< the optimizer's state
  std::string average;             ///< variable of its moving average; empty: none
  std::string skipped;             ///< "@BITS" of earlier stages that did not train it; empty: all did
  TorchShape torch;
};

/// The parameters of an update and the variables that it keeps beside them.
struct TrainingState {
  const Optimizer *optimizer = nullptr;
  OptimizerRule settings;
  std::vector<ParameterGroup> groups;
  std::vector<TrainedParameter> parameters; ///< in the order of @backward's gradients
  std::vector<std::string> sums;            ///< variables of sums over a window
};

/// Variables that hold a window's sums of the loss's numerator and denominator.
inline constexpr llvm::StringLiteral kSumState = "loss/sum", kWeightState = "loss/weight";
/// The variable of a window's sum for one of several losses, by the name of its output (used if `update` sums it over
/// ranks), and for a parameter's gradient.
std::string termState(llvm::StringRef output);
std::string gradientState(llvm::StringRef parameter);
/// The parameter whose gradient is result `result` of @backward.
llvm::StringRef gradientName(mlir::func::FuncOp backward, unsigned result);
/// The number of the first result of @backward behind the gradients: there are the numbers of several losses.
unsigned endOfGradients(mlir::func::FuncOp backward);
/// The number of the first result behind those: from there on it returns train.outputs.
unsigned endOfTerms(mlir::func::FuncOp backward);
/// True if the sums of a window are kept in state variables.
bool accumulatesInState(const Recipe &recipe);
/// The type that an update computes in: f32, or f64 for a parameter of f64.
mlir::Type updateType(mlir::Type element);

/// Finds the optimizer and the parameters of @backward, sorts them into groups, and declares the variables of moments,
/// averages and a window's sums. Errors name the recipe's key: an unknown optimizer, nothing to train, a glob that
/// matches nothing.
mlir::FailureOr<TrainingState> declareTrainingState(mlir::ModuleOp module, mlir::func::FuncOp backward,
                                                    const Recipe &recipe);

} // namespace tcc::train

#endif // TCC_PASSES_TRAINING_TRAININGSTATE_H

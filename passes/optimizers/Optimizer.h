//===- Optimizer.h - what an optimizer is -----------------------*- C++ -*-===//
//
// An optimizer is one declaration in one file: its numbers and their defaults (PyTorch's), the state that each
// parameter gets, the run-time scalars that its formula reads, and the formula. Numbers that change during a run
// (learning rate, bias corrections) are scalars that the runtime fills in; whether a term is there at all (momentum,
// weight decay) is decided when the plan is made.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_OPTIMIZERS_OPTIMIZER_H
#define TCC_PASSES_OPTIMIZERS_OPTIMIZER_H

#include "compiler/Recipe.h"
#include "compiler/dialect/Builders.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tcc::train {

/// Numbers by name, defaults filled in.
using OptimizerNumbers = std::map<std::string, double>;

/// One state variable for each parameter: "<parameter>/<name>", of its shape.
struct OptimizerState {
  std::string name;
  double fill = 0;
};

/// One parameter's update while it is being built. Values are f32 (f64 for a model of f64).
struct UpdateStep {
  Expr weight;
  Expr gradient;            ///< averaged and clipped
  std::vector<Expr> states; ///< current values; the rule assigns the next ones
  const OptimizerNumbers &numbers;
  bool nesterov;
  double weightDecay;                               ///< of the parameter's group
  std::function<Expr(llvm::StringRef)> scalar;      ///< run-time scalar, e.g. "beta1"
  std::function<Expr(llvm::StringRef)> groupScalar; ///< run-time scalar of the parameter's group, e.g. "lr"
};

struct Optimizer {
  llvm::StringLiteral kind;
  std::vector<std::pair<std::string, double>> defaults;
  /// Scalars that the rule may read ("g." stands for "g<group>."); it reads no others.
  std::vector<std::string> scalars;
  std::function<std::vector<OptimizerState>(const OptimizerNumbers &)> states;
  /// The parameter's next value.
  std::function<Expr(UpdateStep &)> update;
  /// What is wrong with the settings, with a way out; empty where nothing is. Null where anything goes.
  std::function<std::string(const OptimizerNumbers &, bool nesterov)> check = nullptr;
};

/// The optimizer of this kind, or null.
const Optimizer *findOptimizer(llvm::StringRef kind);
/// "sgd, adam, adamw", for messages.
std::string optimizerKinds();
/// The recipe's numbers over the kind's defaults.
OptimizerNumbers optimizerNumbers(const Optimizer &optimizer, const OptimizerSettings &settings);

Optimizer makeSgd();
Optimizer makeAdam();
Optimizer makeAdamW();

} // namespace tcc::train

#endif // TCC_PASSES_OPTIMIZERS_OPTIMIZER_H

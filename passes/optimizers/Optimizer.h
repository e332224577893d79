//===- Optimizer.h - the interface of an optimizer --------------*- C++ -*-===//
//
// An optimizer is one declaration in one file: the state that each parameter gets, the run-time scalars that its
// formula reads, and the formula. Numbers that change during a run (learning rate, bias corrections) are scalars that
// the runtime fills in; whether a term exists at all (momentum, weight decay) is decided at compile time.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_OPTIMIZERS_OPTIMIZER_H
#define TCC_PASSES_OPTIMIZERS_OPTIMIZER_H

#include "compiler/dialect/Builders.h"
#include "compiler/model/TorchShape.h"
#include "compiler/recipe/Recipe.h"
#include "runtime/plan/DynamicMap.h"

#include <functional>
#include <string>
#include <vector>

namespace tcc::train {

/// One state variable for each parameter: "<parameter>/<name>", of its shape.
struct OptimizerState {
  std::string name;
  plan::DynamicKind range = plan::DynamicKind::Signed; ///< of its values, for codes of 8 bits
  double fill = 0;
};

/// What an optimizer's formula depends on at compile time. `numbers` holds every number of the kind.
struct OptimizerRule {
  std::string kind;
  std::map<std::string, double> numbers;
  bool nesterov = false;
  std::set<std::string> flags;   ///< those that are on: centered, amsgrad, maximize
  std::string adjustLr, moments; ///< as in OptimizerSettings
};

/// True for moments that are kept as codes of 8 bits where a parameter is large enough.
inline bool storesBlocks(const OptimizerRule &rule) { return rule.moments == "8bit"; }

/// One parameter's update while it is being built. Values are f32 (f64 for a model of f64).
struct UpdateStep {
  Expr weight;
  Expr gradient;                       ///< averaged and clipped
  std::vector<Expr> states;            ///< current values; the rule assigns the next ones
  llvm::ArrayRef<int64_t> storedShape; ///< of the weight
  const TorchShape &torch;             ///< the weight's shape in torch; values have the stored shape
  const OptimizerRule &settings;
  double weightDecay;                               ///< of the parameter's group
  std::function<Expr(llvm::StringRef)> scalar;      ///< run-time scalar, e.g. "beta1"
  std::function<Expr(llvm::StringRef)> groupScalar; ///< run-time scalar of the parameter's group, e.g. "lr"
  /// Values may have another form than the weight: that of blocks, where moments are codes of 8 bits, and if ranks
  /// share the update, that of this rank's shard. `whole` gives one the stored shape, on every rank, `own` does the
  /// reverse, `total` adds a number over the ranks.
  std::function<Expr(const Expr &)> whole, own, total;

  double number(const char *name) const { return settings.numbers.at(name); }
  bool flag(const char *name) const { return settings.flags.count(name) != 0; }
};

/// A kind's numbers, their defaults and its flags are declared with the recipe's keys (optimizerKinds).
struct Optimizer {
  llvm::StringLiteral kind;
  /// The only scalars that the rule reads ("g." stands for "g<group>.").
  std::vector<std::string> scalars;
  /// The state of a parameter that has this shape in torch.
  std::function<std::vector<OptimizerState>(const OptimizerRule &, const TorchShape &)> states;
  /// The parameter's next value.
  std::function<Expr(UpdateStep &)> update;
  /// Returns what is wrong with the settings and what to do; empty if they are valid. Null if all settings are valid.
  std::function<std::string(const OptimizerRule &)> check = nullptr;
  /// The formula depends on a parameter's shape in torch, not on its elements alone.
  bool readsShape = false;
};

/// The optimizer of this kind, or null.
const Optimizer *findOptimizer(llvm::StringRef kind);
/// "sgd, adam, adamw", for messages.
std::string optimizerKinds();
/// The recipe's optimizer, with the kind's defaults for numbers that the recipe does not give.
OptimizerRule ruleOf(const Recipe &recipe);

/// The gradient plus the group's weight decay times the weight, if there is a decay.
Expr decayedGradient(const UpdateStep &step);
/// The weight, scaled by 1 − lr·decay if there is a decay.
Expr decayedWeight(const UpdateStep &step);
/// torch.lerp(average, gradient, 1 − kept), in the one of its two forms that is exact at the nearer end. `keptValue`,
/// the number at compile time, decides the form; `kept` and `rest` are the run-time scalars of it and of 1 − it.
Expr lerpToGradient(const Expr &average, const Expr &gradient, double keptValue, const Expr &kept, const Expr &rest);

Optimizer makeSgd();
Optimizer makeAdam();
Optimizer makeAdamW();
Optimizer makeRmsProp();
Optimizer makeAdagrad();
Optimizer makeMuon();
Optimizer makeLion();
Optimizer makeLamb();

/// AdamW's next weight from its two moments (states 0 and 1); shared with other kinds.
Expr updateAdamW(UpdateStep &step, const Expr &eps);

} // namespace tcc::train

#endif // TCC_PASSES_OPTIMIZERS_OPTIMIZER_H

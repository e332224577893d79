//===- Optimizer.h - the interface of an optimizer --------------*- C++ -*-===//
//
// An optimizer is one declaration in one file: the state that each parameter gets, the run-time scalars that its
// formula reads, and the formula. Numbers that change during a run
// (learning rate, bias corrections) are scalars that the runtime fills in; whether a term is there at all (momentum,
// weight decay) is decided when the plan is made.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_OPTIMIZERS_OPTIMIZER_H
#define TCC_PASSES_OPTIMIZERS_OPTIMIZER_H

#include "compiler/recipe/Recipe.h"
#include "compiler/dialect/Builders.h"
#include "frontend/TorchShape.h"

#include <functional>
#include <string>
#include <vector>

namespace tcc::train {

/// One state variable for each parameter: "<parameter>/<name>", of its shape.
struct OptimizerState {
  std::string name;
  double fill = 0;
};

/// One parameter's update while it is being built. Values are f32 (f64 for a model of f64).
struct UpdateStep {
  Expr weight;
  Expr gradient;                                    ///< averaged and clipped
  std::vector<Expr> states;                         ///< current values; the rule assigns the next ones
  llvm::ArrayRef<int64_t> storedShape;              ///< of the weight
  const frontend::TorchShape &torch;                ///< the weight's shape in torch; values have the stored shape
  const OptimizerSettings &settings;                ///< with every number of the kind
  double weightDecay;                               ///< of the parameter's group
  std::function<Expr(llvm::StringRef)> scalar;      ///< run-time scalar, e.g. "beta1"
  std::function<Expr(llvm::StringRef)> groupScalar; ///< run-time scalar of the parameter's group, e.g. "lr"
  /// Where ranks share the update, values are vectors of the own shard. `whole` makes of one a value of the stored
  /// shape on every rank, `own` the reverse, `total` adds the ranks' numbers. Null: every rank computes all of it.
  std::function<Expr(const Expr &)> wholeOfShard = nullptr, shardOfWhole = nullptr, sumOfShards = nullptr;

  Expr whole(const Expr &value) const { return wholeOfShard ? wholeOfShard(value) : value; }
  Expr own(const Expr &value) const { return shardOfWhole ? shardOfWhole(value) : value; }
  Expr total(const Expr &number) const { return sumOfShards ? sumOfShards(number) : number; }

  double number(const char *name) const { return settings.numbers.at(name); }
  bool flag(const char *name) const { return settings.flags.count(name) != 0; }
};

/// A kind's numbers, their defaults and its flags stand with the recipe's keys (optimizerKinds).
struct Optimizer {
  llvm::StringLiteral kind;
  /// Scalars that the rule may read ("g." stands for "g<group>."); it reads no others.
  std::vector<std::string> scalars;
  /// The state of a parameter that has this shape in torch.
  std::function<std::vector<OptimizerState>(const OptimizerSettings &, const frontend::TorchShape &)> states;
  /// The parameter's next value.
  std::function<Expr(UpdateStep &)> update;
  /// The problem of the settings, with a way out; empty if there is none. Null if anything is valid.
  std::function<std::string(const OptimizerSettings &)> check = nullptr;
  /// The formula depends on a parameter's shape in torch, not on its elements alone.
  bool readsShape = false;
};

/// The optimizer of this kind, or null.
const Optimizer *findOptimizer(llvm::StringRef kind);
/// "sgd, adam, adamw", for messages.
std::string optimizerKinds();
/// The recipe's settings, with the kind's defaults for the numbers that it leaves open.
OptimizerSettings completeSettings(const OptimizerSettings &settings);

/// The gradient, with the group's weight decay of the weight added where there is one.
Expr decayedGradient(const UpdateStep &step);
/// The weight, scaled by 1 − lr·decay where there is a decay.
Expr decayedWeight(const UpdateStep &step);
/// torch.lerp(average, gradient, 1 − kept): of its two forms the one that is exact at the nearer end. `keptValue` is
/// the number, which decides the form; `kept` and `rest` are the scalars of it and of 1 − it.
Expr lerpToGradient(const Expr &average, const Expr &gradient, double keptValue, const Expr &kept, const Expr &rest);

Optimizer makeSgd();
Optimizer makeAdam();
Optimizer makeAdamW();
Optimizer makeRmsProp();
Optimizer makeAdagrad();
Optimizer makeMuon();
Optimizer makeLion();
Optimizer makeLamb();

/// AdamW's next weight from its two moments (states 0 and 1), as other kinds use it too.
Expr updateAdamW(UpdateStep &step, const Expr &eps);

} // namespace tcc::train

#endif // TCC_PASSES_OPTIMIZERS_OPTIMIZER_H

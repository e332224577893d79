//===- Adagrad.cpp - Adagrad -----------------------------------------------===//
//
// Duchi, Hazan and Singer, JMLR 12 (2011), as torch.optim.Adagrad computes it:
//   s ← s + g²    w ← w − lr/(1 + (t − 1)·lr_decay) · g/(√s + ε)
//
//===----------------------------------------------------------------------===//
#include "passes/optimizers/Optimizer.h"

namespace tcc::train {

static std::vector<OptimizerState> adagradStates(const OptimizerRule &settings, const TorchShape &) {
  return {{"sum", plan::DynamicKind::Unsigned, settings.numbers.at("initial_accumulator_value")}};
}

static Expr updateAdagrad(UpdateStep &step) {
  Expr gradient = decayedGradient(step);
  Expr &sum = step.states[0];
  sum = sum + gradient * gradient;
  return step.weight - step.groupScalar("decayed_lr") * gradient / (sum.apply<SqrtOp>() + step.scalar("eps"));
}

Optimizer makeAdagrad() { return {"adagrad", {"g.decayed_lr", "g.weight_decay", "eps"}, adagradStates, updateAdagrad}; }

} // namespace tcc::train

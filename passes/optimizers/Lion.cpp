//===- Lion.cpp - Lion -----------------------------------------------------===//
//
// Chen et al., "Symbolic Discovery of Optimization Algorithms", arXiv:2302.06675, algorithm 2:
//   w ← w·(1 − lr·decay) − lr·sign(β1·m + (1 − β1)·g)    m ← β2·m + (1 − β2)·g
//
//===----------------------------------------------------------------------===//
#include "passes/optimizers/Optimizer.h"

namespace tcc::train {

static std::vector<OptimizerState> lionStates(const OptimizerRule &, const TorchShape &) {
  return {{"exp_avg"}};
}

static Expr updateLion(UpdateStep &step) {
  Expr &average = step.states[0];
  Expr direction = step.scalar("beta1") * average + step.scalar("one_minus_beta1") * step.gradient;
  average = step.scalar("beta2") * average + step.scalar("one_minus_beta2") * step.gradient;
  return decayedWeight(step) - step.groupScalar("lr") * direction.apply<SignOp>();
}

Optimizer makeLion() {
  return {"lion", {"g.lr", "g.decay", "beta1", "one_minus_beta1", "beta2", "one_minus_beta2"}, lionStates, updateLion};
}

} // namespace tcc::train

//===- Adam.cpp - Adam and AdamW -------------------------------------------===//
//
// Kingma and Ba, arXiv:1412.6980; Loshchilov and Hutter, arXiv:1711.05101; as torch.optim.Adam and AdamW compute them:
//   m ← m + (g − m)(1 − β1)    v ← β2·v + (1 − β2)·g²
//   w ← w − lr/(1 − β1ᵗ) · m / (√v/√(1 − β2ᵗ) + ε)
// Adam adds weight decay to the gradient, AdamW scales the weight by 1 − lr·decay first.
//
//===----------------------------------------------------------------------===//
#include "passes/optimizers/Optimizer.h"

namespace tcc::train {

static std::vector<OptimizerState> adamStates(const OptimizerNumbers &) { return {{"exp_avg"}, {"exp_avg_sq"}}; }

/// torch.lerp: of its two forms it takes the one that is exact at the nearer end.
static Expr lerpToGradient(UpdateStep &step, const Expr &average, const Expr &gradient) {
  if (1 - step.numbers.at("beta1") < 0.5)
    return average + step.scalar("one_minus_beta1") * (gradient - average);
  return gradient - (gradient - average) * step.scalar("beta1");
}

static Expr updateMoments(UpdateStep &step, const Expr &weight, const Expr &gradient) {
  Expr &average = step.states[0], &square = step.states[1];
  average = lerpToGradient(step, average, gradient);
  square = step.scalar("beta2") * square + step.scalar("one_minus_beta2") * gradient * gradient;
  Expr denominator = square.apply<SqrtOp>() / step.scalar("bias_correction2_sqrt") + step.scalar("eps");
  return weight - step.groupScalar("step_size") * average / denominator;
}

static Expr updateAdam(UpdateStep &step) {
  Expr gradient = step.gradient;
  if (step.weightDecay != 0)
    gradient = gradient + step.groupScalar("weight_decay") * step.weight;
  return updateMoments(step, step.weight, gradient);
}

static Expr updateAdamW(UpdateStep &step) {
  Expr weight = step.weightDecay != 0 ? step.weight * step.groupScalar("decay") : step.weight;
  return updateMoments(step, weight, step.gradient);
}

static std::vector<std::pair<std::string, double>> adamDefaults(double weightDecay) {
  return {{"lr", 1e-3}, {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", weightDecay}};
}

static std::vector<std::string> adamScalars(const char *decay) {
  return {decay, "g.step_size", "beta1", "one_minus_beta1", "beta2", "one_minus_beta2", "bias_correction2_sqrt", "eps"};
}

Optimizer makeAdam() { return {"adam", adamDefaults(0), adamScalars("g.weight_decay"), adamStates, updateAdam}; }
Optimizer makeAdamW() { return {"adamw", adamDefaults(1e-2), adamScalars("g.decay"), adamStates, updateAdamW}; }

} // namespace tcc::train

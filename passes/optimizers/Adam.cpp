//===- Adam.cpp - Adam and AdamW -------------------------------------------===//
//
// Kingma and Ba, arXiv:1412.6980; Loshchilov and Hutter, arXiv:1711.05101; as torch.optim.Adam and AdamW compute them:
//   m ← m + (g − m)(1 − β1)    v ← β2·v + (1 − β2)·g²
//   w ← w − lr/(1 − β1ᵗ) · m / (√v/√(1 − β2ᵗ) + ε)
// Adam adds weight decay to the gradient, AdamW scales the weight by 1 − lr·decay first. With amsgrad, v is the largest
// so far (Reddi, Kale and Kumar, arXiv:1904.09237).
//
//===----------------------------------------------------------------------===//
#include "passes/optimizers/Optimizer.h"

namespace tcc::train {

static std::vector<OptimizerState> adamStates(const OptimizerRule &settings, const TorchShape &) {
  if (settings.flags.count("amsgrad"))
    return {{"exp_avg"}, {"exp_avg_sq", plan::DynamicKind::Unsigned}, {"max_exp_avg_sq", plan::DynamicKind::Unsigned}};
  return {{"exp_avg"}, {"exp_avg_sq", plan::DynamicKind::Unsigned}};
}

static Expr updateMoments(UpdateStep &step, const Expr &weight, const Expr &gradient, const Expr &eps) {
  Expr &average = step.states[0], &square = step.states[1];
  average =
      lerpToGradient(average, gradient, step.number("beta1"), step.scalar("beta1"), step.scalar("one_minus_beta1"));
  square = step.scalar("beta2") * square + step.scalar("one_minus_beta2") * gradient * gradient;
  Expr second = square;
  if (step.flag("amsgrad")) {
    Expr &largest = step.states[2];
    largest = largest.with(MaxOp::create(*largest.builder, largest.loc, largest, square));
    second = largest;
  }
  // One reciprocal for all elements: division is the bottleneck of a kernel whose moments are in cache.
  Expr denominator = second.apply<SqrtOp>() * (1.0 / step.scalar("bias_correction2_sqrt")) + eps;
  return weight - step.groupScalar("step_size") * average / denominator;
}

static Expr updateAdam(UpdateStep &step) {
  return updateMoments(step, step.weight, decayedGradient(step), step.scalar("eps"));
}

Expr updateAdamW(UpdateStep &step, const Expr &eps) {
  return updateMoments(step, decayedWeight(step), step.gradient, eps);
}

static std::vector<std::string> adamScalars(const char *decay) {
  return {decay, "g.step_size", "beta1", "one_minus_beta1", "beta2", "one_minus_beta2", "bias_correction2_sqrt", "eps"};
}

Optimizer makeAdam() { return {"adam", adamScalars("g.weight_decay"), adamStates, updateAdam}; }
Optimizer makeAdamW() {
  return {"adamw", adamScalars("g.decay"), adamStates,
          [](UpdateStep &step) { return updateAdamW(step, step.scalar("eps")); }};
}

} // namespace tcc::train

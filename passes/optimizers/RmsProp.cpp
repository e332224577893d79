//===- RmsProp.cpp - RMSprop -----------------------------------------------===//
//
// Hinton, "Neural Networks for Machine Learning", lecture 6e, as torch.optim.RMSprop computes it:
//   v ← α·v + (1 − α)·g²    w ← w − lr·g/(√v + ε)
// `centered` subtracts the square of the average gradient from v; momentum accumulates the quotient.
//
//===----------------------------------------------------------------------===//
#include "passes/optimizers/Optimizer.h"

namespace tcc::train {

static std::vector<OptimizerState> rmsPropStates(const OptimizerRule &settings, const TorchShape &) {
  std::vector<OptimizerState> states{{"square_avg", plan::DynamicKind::Unsigned}};
  if (settings.flags.count("centered"))
    states.push_back({"grad_avg"});
  if (settings.numbers.at("momentum") > 0)
    states.push_back({"momentum_buffer"});
  return states;
}

static Expr updateRmsProp(UpdateStep &step) {
  Expr gradient = decayedGradient(step), alpha = step.scalar("alpha"), rest = step.scalar("one_minus_alpha");
  Expr &square = step.states[0];
  square = alpha * square + rest * gradient * gradient;
  Expr variance = square;
  if (step.flag("centered")) {
    Expr &average = step.states[1];
    average = lerpToGradient(average, gradient, step.number("alpha"), alpha, rest);
    variance = square - average * average;
  }
  Expr quotient = gradient / (variance.apply<SqrtOp>() + step.scalar("eps"));
  if (step.number("momentum") > 0) {
    Expr &buffer = step.states.back();
    buffer = step.scalar("momentum") * buffer + quotient;
    quotient = buffer;
  }
  return step.weight - step.groupScalar("lr") * quotient;
}

Optimizer makeRmsProp() {
  return {"rmsprop",
          {"g.lr", "g.weight_decay", "alpha", "one_minus_alpha", "eps", "momentum"},
          rmsPropStates,
          updateRmsProp};
}

} // namespace tcc::train

//===- Sgd.cpp - stochastic gradient descent -------------------------------===//
//
// torch.optim.SGD: weight decay joins the gradient, momentum accumulates it, Nesterov looks ahead.
//
//===----------------------------------------------------------------------===//
#include "passes/optimizers/Optimizer.h"

namespace tcc::train {

static std::vector<OptimizerState> sgdStates(const OptimizerRule &settings, const TorchShape &) {
  if (settings.numbers.at("momentum") == 0)
    return {};
  return {{"momentum_buffer"}};
}

static Expr updateSgd(UpdateStep &step) {
  Expr gradient = decayedGradient(step);
  if (!step.states.empty()) {
    Expr &buffer = step.states[0];
    Expr decayed = step.scalar("momentum") * buffer;
    if (step.number("dampening") == 0) {
      buffer = decayed + gradient; // the buffer starts at zero, so the first update makes it the gradient
    } else {
      Expr first = step.scalar("first_update").compare(CompareKind::ne, 0);
      buffer = first.select(gradient, decayed + step.scalar("one_minus_dampening") * gradient);
    }
    gradient = step.settings.nesterov ? gradient + step.scalar("momentum") * buffer : buffer;
  }
  return step.weight - step.groupScalar("lr") * gradient;
}

static std::string checkSgd(const OptimizerRule &settings) {
  if (settings.nesterov && (settings.numbers.at("momentum") <= 0 || settings.numbers.at("dampening") != 0))
    return "optimizer.nesterov needs momentum and no dampening: set optimizer.momentum above 0 and optimizer.dampening "
           "to 0";
  return "";
}

Optimizer makeSgd() {
  return {"sgd",
          {"g.lr", "g.weight_decay", "momentum", "one_minus_dampening", "first_update"},
          sgdStates,
          updateSgd,
          checkSgd};
}

} // namespace tcc::train

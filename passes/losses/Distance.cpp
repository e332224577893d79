//===- Distance.cpp - losses of a difference -------------------------------===//
//
// torch.nn.functional.mse_loss, l1_loss, huber_loss and smooth_l1_loss.
//
//===----------------------------------------------------------------------===//
#include "passes/losses/Loss.h"

using namespace mlir;

namespace tcc::train {
namespace {

Expr difference(const LossInputs &inputs) { return inputs.prediction - inputs.target; }

LossResult buildMse(const LossInputs &inputs) {
  Expr d = difference(inputs);
  return reduceElements(d * d, inputs);
}

LossResult buildL1(const LossInputs &inputs) { return reduceElements(difference(inputs).apply<AbsOp>(), inputs); }

/// |d| ≤ δ: d²/2, else δ(|d| − δ/2).
LossResult buildHuber(const LossInputs &inputs) {
  double delta = inputs.settings.delta;
  Expr z = difference(inputs).apply<AbsOp>();
  Expr loss = z.compare(CompareKind::le, delta).select(z * z * 0.5, (z - 0.5 * delta) * delta);
  return reduceElements(loss, inputs);
}

/// |d| < β: d²/(2β), else |d| − β/2; β = 0 is l1.
LossResult buildSmoothL1(const LossInputs &inputs) {
  double beta = inputs.settings.beta;
  if (beta == 0)
    return buildL1(inputs);
  Expr z = difference(inputs).apply<AbsOp>();
  Expr loss = z.compare(CompareKind::lt, beta).select(z * z * 0.5 / beta, z - 0.5 * beta);
  return reduceElements(loss, inputs);
}

} // namespace

const Loss kMse{"mse", LossTarget::Like, nullptr, buildMse};
const Loss kL1{"l1", LossTarget::Like, nullptr, buildL1};
const Loss kHuber{"huber", LossTarget::Like, nullptr, buildHuber};
const Loss kSmoothL1{"smooth_l1", LossTarget::Like, nullptr, buildSmoothL1};

} // namespace tcc::train

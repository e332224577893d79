//===- Dice.cpp - the soft Dice loss ---------------------------------------===//
//
// Milletari et al., arXiv:1606.04797, with sums in place of sums of squares. The ratio is formed for each sample, not
// for the batch, so that the loss is a mean over samples: accumulation over micro-batches and padded batches stay
// exact.
//
//===----------------------------------------------------------------------===//
#include "passes/losses/Loss.h"

using namespace mlir;

namespace tcc::train {
namespace {

/// 1 − (2·Σ p·y + s)/(Σ p + Σ y + s), the sums over all axes but the samples' and, where it is given, the classes'.
LossResult buildDice(const LossInputs &inputs) {
  Expr p = inputs.prediction, y = inputs.target;
  if (inputs.settings.input == "logits")
    p = p.apply<SigmoidOp>();
  llvm::SmallVector<int64_t> summed;
  for (int64_t dim = 1; dim < int64_t(shapeOf(p).size()); ++dim)
    if (dim != inputs.classAxis)
      summed.push_back(dim);
  double smooth = inputs.settings.smooth;
  Expr overlap = 2.0 * (p * y).sum(summed) + smooth, total = p.sum(summed) + y.sum(summed) + smooth;
  return reduceElements(1.0 - overlap / total, inputs);
}

std::optional<LossProblem> checkDice(const LossInputs &inputs) {
  if (!inputs.settings.classAxis || inputs.classAxis > 0)
    return std::nullopt;
  return LossProblem{"loss.class_axis", "loss.class_axis: axis 0 holds the samples of dice: name another axis"};
}

} // namespace

const Loss kDice{
    "dice", LossTarget::Like, checkDice, buildDice, false, 1, llvm::StringLiteral(""), LossInput::Probabilities};

} // namespace tcc::train

//===- BinaryCrossEntropy.cpp - losses over yes and no ---------------------===//
//
// torch.nn.functional.binary_cross_entropy and binary_cross_entropy_with_logits; torchvision.ops.sigmoid_focal_loss
// (Lin et al., arXiv:1708.02002).
//
//===----------------------------------------------------------------------===//
#include "passes/losses/Loss.h"

using namespace mlir;

namespace tcc::train {
namespace {

/// A weight vector broadcasts against the last dimension, as PyTorch's does.
std::optional<LossProblem> checkBroadcast(const LossInputs &inputs, const std::string &key, size_t count) {
  llvm::ArrayRef<int64_t> shape = shapeOf(inputs.prediction);
  int64_t last = shape.empty() ? 1 : shape.back();
  if (count <= 1 || int64_t(count) == last)
    return std::nullopt;
  return LossProblem{key, key + " has " + std::to_string(count) + " numbers, but the last dimension is " +
                              std::to_string(last) + ": give one for each, or one for all"};
}

std::optional<LossProblem> checkBinary(const LossInputs &inputs) {
  std::optional<LossProblem> problem = checkBroadcast(inputs, "loss.weight", inputs.settings.weight.size());
  return problem ? problem : checkBroadcast(inputs, "loss.pos_weight", inputs.settings.posWeight.size());
}

LossResult reduceWeighted(const LossInputs &inputs, Expr loss) {
  if (!inputs.settings.weight.empty())
    loss = loss * constantVector(loss, inputs.settings.weight, elementTypeOf(loss))
                      .reshape(shapeOf(loss).empty() ? llvm::ArrayRef<int64_t>()
                                                     : llvm::ArrayRef<int64_t>(inputs.settings.weight.size()));
  return reduceElements(loss, inputs);
}

/// −y·ln x − (1 − y)·ln(1 − x), each logarithm at least −100. If a logarithm is not finite its derivative is 0: PyTorch
/// divides by 1e-12 instead, and the derivative of the saturated sigmoid in front makes that 0 as well.
LossResult buildBce(const LossInputs &inputs) {
  const Expr &x = inputs.prediction, &y = inputs.target;
  auto clampedLog = [](const Expr &value) {
    Expr positive = value.compare(CompareKind::gt, 0);
    Expr logarithm = positive.select(value, value.like(1)).log();
    return positive.select(logarithm.with(MaxOp::create(*value.builder, value.loc, logarithm, value.like(-100))),
                           value.like(-100));
  };
  return reduceWeighted(inputs, -(y * clampedLog(x) + (1.0 - y) * clampedLog(1.0 - x)));
}

/// (1 − y)·x − (1 + (p − 1)·y)·ln σ(x)
LossResult buildBceWithLogits(const LossInputs &inputs) {
  const Expr &x = inputs.prediction, &y = inputs.target;
  Expr logarithm = logSigmoid(x);
  if (!inputs.settings.posWeight.empty()) {
    Expr positive = constantVector(x, inputs.settings.posWeight, elementTypeOf(x));
    if (shapeOf(x).empty())
      positive = positive.reshape({});
    logarithm = ((positive - 1.0) * y + 1.0) * logarithm;
  }
  return reduceWeighted(inputs, (1.0 - y) * x - logarithm);
}

/// α_t·(1 − p_t)^γ·ce, with ce of bce_with_logits, p_t = p·y + (1 − p)·(1 − y) and α_t = α·y + (1 − α)·(1 − y). 1 − p_t
/// is computed from σ(−x), which is not rounded to 0 when σ(x) is rounded to 1.
LossResult buildFocal(const LossInputs &inputs) {
  const Expr &x = inputs.prediction, &y = inputs.target;
  double alpha = inputs.settings.alpha, gamma = inputs.settings.gamma;
  Expr loss = (1.0 - y) * x - logSigmoid(x);
  if (gamma != 0) {
    Expr missed = x.apply<SigmoidOp>() * (1.0 - y) + (-x).apply<SigmoidOp>() * y;
    loss = loss * (gamma == 1 ? missed : x.with(PowOp::create(*x.builder, x.loc, missed, missed.like(gamma))));
  }
  if (alpha >= 0)
    loss = loss * (alpha * y + (1 - alpha) * (1.0 - y));
  return reduceElements(loss, inputs);
}

} // namespace

const Loss kBce{
    "bce", LossTarget::Like, checkBinary, buildBce, false, 1, llvm::StringLiteral(""), LossInput::Probabilities};
const Loss kBceWithLogits{"bce_with_logits",       LossTarget::Like, checkBinary, buildBceWithLogits, false, 1,
                              llvm::StringLiteral(""), LossInput::Logits};
const Loss kFocal{"focal", LossTarget::Like,        nullptr,          buildFocal, false,
                      1,       llvm::StringLiteral(""), LossInput::Logits};

} // namespace tcc::train

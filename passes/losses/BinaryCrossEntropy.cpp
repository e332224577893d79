//===- BinaryCrossEntropy.cpp - losses over yes and no ---------------------===//
//
// torch.nn.functional.binary_cross_entropy and binary_cross_entropy_with_logits.
//
//===----------------------------------------------------------------------===//
#include "passes/losses/Loss.h"

using namespace mlir;

namespace tcc::train {
namespace {

/// A weight vector broadcasts against the last dimension, as PyTorch's does.
std::string checkBroadcast(const LossInputs &inputs, llvm::StringRef key, size_t count) {
  llvm::ArrayRef<int64_t> shape = shapeOf(inputs.prediction);
  int64_t last = shape.empty() ? 1 : shape.back();
  if (count <= 1 || int64_t(count) == last)
    return "";
  return ("loss." + key + " has " + llvm::Twine(count) + " numbers, but the last dimension is " + llvm::Twine(last) +
          ": give one for each, or one for all")
      .str();
}

std::string checkBinary(const LossInputs &inputs) {
  std::string problem = checkBroadcast(inputs, "weight", inputs.settings.weight.size());
  return problem.empty() ? checkBroadcast(inputs, "pos_weight", inputs.settings.posWeight.size()) : problem;
}

LossResult reduceWeighted(const LossInputs &inputs, Expr loss) {
  if (!inputs.settings.weight.empty())
    loss = loss * constantVector(loss, inputs.settings.weight, elementTypeOf(loss))
                      .reshape(shapeOf(loss).empty() ? llvm::ArrayRef<int64_t>()
                                                     : llvm::ArrayRef<int64_t>(inputs.settings.weight.size()));
  return reduceElements(loss, inputs.settings);
}

/// −y·ln x − (1 − y)·ln(1 − x), each logarithm at least −100. Where a logarithm has no finite value the derivative is
/// 0: PyTorch divides by 1e-12 there, which the derivative of a saturated sigmoid before it turns into 0 as well.
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

/// (1 − y)·x − (1 + (p − 1)·y)·ln σ(x), with ln σ(x) = min(x, 0) − ln(1 + e^−|x|), written so that its derivative at 0
/// is 1/2: a last layer that starts at zero gives such logits.
LossResult buildBceWithLogits(const LossInputs &inputs) {
  const Expr &x = inputs.prediction, &y = inputs.target;
  Expr negative = x.compare(CompareKind::lt, 0);
  Expr logSigmoid = negative.select(x, x.like(0)) - negative.select(x, -x).exp().apply<Log1pOp>();
  if (!inputs.settings.posWeight.empty()) {
    Expr positive = constantVector(x, inputs.settings.posWeight, elementTypeOf(x));
    if (shapeOf(x).empty())
      positive = positive.reshape({});
    logSigmoid = ((positive - 1.0) * y + 1.0) * logSigmoid;
  }
  return reduceWeighted(inputs, (1.0 - y) * x - logSigmoid);
}

} // namespace

const LossKind kBce{"bce", false, false, checkBinary, buildBce};
const LossKind kBceWithLogits{"bce_with_logits", false, false, checkBinary, buildBceWithLogits};

} // namespace tcc::train

//===- KlDivergence.cpp - the Kullback–Leibler divergence ------------------===//
//
// torch.nn.functional.kl_div: the prediction is in log space, the target is unless log_target. "batchmean" divides by
// the samples.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/losses/Loss.h"

using namespace mlir;

namespace tcc::train {
namespace {

LossResult buildKlDiv(const LossInputs &inputs) {
  const Expr &x = inputs.prediction, &y = inputs.target;
  Expr loss = y;
  if (inputs.settings.logTarget) {
    loss = y.exp() * (y - x);
  } else {
    // y·ln y is 0 at y = 0.
    Expr positive = y.compare(CompareKind::gt, 0);
    Expr entropy = positive.select(y * positive.select(y, y.like(1)).log(), y.like(0));
    loss = entropy - y * x;
  }
  LossResult result = reduceElements(loss, inputs);
  if (inputs.settings.reduction == "batchmean") {
    const double samples = shapeOf(x).empty() ? 1 : double(shapeOf(x).front());
    result.weight = inputs.sampleWeight
                        ? sumAll(*inputs.sampleWeight) * (samples / double(shapeOf(*inputs.sampleWeight)[0]))
                        : result.sum.like(samples);
  }
  return result;
}

} // namespace

const Loss kKlDiv{
    "kl_div", LossTarget::Like, nullptr, buildKlDiv, false, 1, llvm::StringLiteral(""), LossInput::LogProbabilities};

} // namespace tcc::train

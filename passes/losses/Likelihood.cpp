//===- Likelihood.cpp - negative log-likelihoods of distributions ----------===//
//
// torch.nn.functional.poisson_nll_loss and gaussian_nll_loss.
//
//===----------------------------------------------------------------------===//
#include "passes/losses/Loss.h"

#include <cmath>
#include <numbers>

using namespace mlir;

namespace tcc::train {
namespace {

/// e^x − y·x, or x − y·ln(x + ε) where x is the rate itself. `full` adds Stirling's approximation of ln y!, for y > 1.
LossResult buildPoissonNll(const LossInputs &inputs) {
  const Expr &x = inputs.prediction, &y = inputs.target;
  Expr loss = inputs.settings.logInput ? x.exp() - y * x : x - y * (x + inputs.settings.eps.value_or(1e-8)).log();
  if (inputs.settings.full) {
    Expr large = y.compare(CompareKind::gt, 1), inside = large.select(y, y.like(1));
    Expr stirling = inside * inside.log() - inside + 0.5 * (2 * std::numbers::pi * inside).log();
    loss = loss + large.select(stirling, y.like(0));
  }
  return reduceElements(loss, inputs);
}

/// The mean's shape, the mean's without its last axis, or the mean's with one axis of extent 1.
std::optional<llvm::SmallVector<int64_t>> varianceShape(const LossInputs &inputs) {
  llvm::ArrayRef<int64_t> mean = shapeOf(inputs.predictions[0]), given = shapeOf(inputs.predictions[1]);
  llvm::SmallVector<int64_t> shape(given);
  if (!mean.empty() && given == mean.drop_back())
    shape.push_back(1);
  if (shape.size() != mean.size())
    return std::nullopt;
  unsigned repeated = 0;
  for (auto [extent, whole] : llvm::zip_equal(shape, mean)) {
    if (extent != whole && extent != 1)
      return std::nullopt;
    repeated += extent != whole;
  }
  return repeated > 1 ? std::nullopt : std::optional(shape);
}

std::optional<LossProblem> checkGaussianNll(const LossInputs &inputs) {
  if (varianceShape(inputs))
    return std::nullopt;
  return LossProblem{"loss.of",
                     "the variance, the second value that loss.of names, does not fit the mean, the first: it "
                     "has the mean's shape, that without the last axis, or that with one axis of extent 1"};
}

/// ½·(ln v + (x − y)²/v), v = max(variance, ε), where the derivative ignores the maximum, as in PyTorch; `full` adds
/// ½·ln 2π.
LossResult buildGaussianNll(const LossInputs &inputs) {
  const Expr &x = inputs.predictions[0], &y = inputs.target;
  Expr variance = inputs.predictions[1].reshape(*varianceShape(inputs));
  Expr stopped = variance.with(StopGradientOp::create(*variance.builder, variance.loc, variance, "loss.eps"));
  double epsilon = inputs.settings.eps.value_or(1e-6);
  Expr v = variance.compare(CompareKind::lt, epsilon).select((variance - stopped) + epsilon, variance);
  Expr d = x - y;
  Expr loss = 0.5 * (v.log() + d * d / v);
  if (inputs.settings.full)
    loss = loss + 0.5 * std::log(2 * std::numbers::pi);
  return reduceElements(loss, inputs);
}

} // namespace

const Loss kPoissonNll{"poisson_nll", LossTarget::Like, nullptr, buildPoissonNll};
const Loss kGaussianNll{"gaussian_nll", LossTarget::Like,  checkGaussianNll,          buildGaussianNll,
                            false,          /*predictions=*/2, "[\"mean\", \"variance\"]"};

} // namespace tcc::train

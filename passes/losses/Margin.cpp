//===- Margin.cpp - losses with a margin ----------------------------------===//
//
// torch.nn.functional.cosine_embedding_loss, triplet_margin_loss, margin_ranking_loss and hinge_embedding_loss, and the
// hinge loss of classifiers, which PyTorch lacks.
//
//===----------------------------------------------------------------------===//
#include "passes/losses/Loss.h"

using namespace mlir;

namespace tcc::train {
namespace {

Expr sumRows(const Expr &x) { return x.sum({int64_t(shapeOf(x).size()) - 1}); }

std::optional<LossProblem> checkRows(const LossInputs &inputs) {
  if (shapeOf(inputs.prediction).empty())
    return LossProblem{"loss.of",
                       inputs.settings.kind + " compares vectors along the last axis: name values of rank 1 or more"};
  return checkSameShapes(inputs);
}

/// y = 1: 1 − cos; y = −1: max(0, cos − margin); other y: 0. cos = Σ ab/√((Σ a² + ε)(Σ b² + ε)), ε = 1e-12.
LossResult buildCosineEmbedding(const LossInputs &inputs) {
  const Expr &a = inputs.predictions[0], &b = inputs.predictions[1];
  constexpr double kEpsilon = 1e-12;
  Expr squares = (sumRows(a * a) + kEpsilon) * (sumRows(b * b) + kEpsilon);
  Expr cosine = sumRows(a * b) / squares.apply<SqrtOp>();
  Expr y = inputs.target.reshape(shapeOf(cosine)), zero = cosine.like(0);
  Expr alike = y.compare(CompareKind::eq, 1).select(1.0 - cosine, zero);
  Expr apart = clampAtZero(cosine - inputs.settings.margin.value_or(0));
  return reduceElements(alike + y.compare(CompareKind::eq, -1).select(apart, zero), inputs);
}

/// torch.nn.functional.pairwise_distance: (Σ |x − y + ε|^p)^(1/p) along the last axis. Its derivative at 0 is 0.
Expr pairwiseDistance(const Expr &x, const Expr &y, const LossSettings &settings) {
  Expr d = x - y + settings.eps.value_or(1e-6);
  if (settings.p == 1)
    return sumRows(d.apply<AbsOp>());
  auto power = [](const Expr &base, double exponent) {
    return base.with(PowOp::create(*base.builder, base.loc, base, base.like(exponent)));
  };
  Expr total = sumRows(settings.p == 2 ? d * d : power(d.apply<AbsOp>(), settings.p));
  Expr isZero = total.compare(CompareKind::eq, 0), inside = isZero.select(total.like(1), total);
  return isZero.select(total.like(0), settings.p == 2 ? inside.apply<SqrtOp>() : power(inside, 1 / settings.p));
}

/// max(0, margin + d(anchor, positive) − d(anchor, negative)); swap: the negative is compared with the nearer of the
/// two.
LossResult buildTriplet(const LossInputs &inputs) {
  const Expr &anchor = inputs.predictions[0], &positive = inputs.predictions[1], &negative = inputs.predictions[2];
  Expr near = pairwiseDistance(anchor, positive, inputs.settings);
  Expr far = pairwiseDistance(anchor, negative, inputs.settings);
  if (inputs.settings.swap) {
    Expr other = pairwiseDistance(positive, negative, inputs.settings);
    far = far.with(MinOp::create(*far.builder, far.loc, far, other));
  }
  return reduceElements(clampAtZero(inputs.settings.margin.value_or(1) + near - far), inputs);
}

/// max(0, margin − y·(a − b))
LossResult buildMarginRanking(const LossInputs &inputs) {
  Expr d = inputs.predictions[0] - inputs.predictions[1];
  return reduceElements(clampAtZero(-inputs.target * d + inputs.settings.margin.value_or(0)), inputs);
}

/// max(0, margin − y·x), y = ±1
LossResult buildHinge(const LossInputs &inputs) {
  return reduceElements(clampAtZero(inputs.settings.margin.value_or(1) - inputs.target * inputs.prediction),
                        inputs);
}

/// y = 1: x; y = −1: max(0, margin − x); other y: the sum of both, as in PyTorch.
LossResult buildHingeEmbedding(const LossInputs &inputs) {
  const Expr &x = inputs.prediction, &y = inputs.target;
  Expr far = clampAtZero(inputs.settings.margin.value_or(1) - x), zero = x.like(0);
  Expr loss = y.compare(CompareKind::ne, 1).select(far, zero) + y.compare(CompareKind::ne, -1).select(x, zero);
  return reduceElements(loss, inputs);
}

} // namespace

const Loss kCosineEmbedding{"cosine_embedding", LossTarget::Rows,         checkRows, buildCosineEmbedding, false,
                                /*predictions=*/2,  "[\"first\", \"second\"]"};
const Loss kTriplet{"triplet",
                        LossTarget::None,
                        checkRows,
                        buildTriplet,
                        false,
                        /*predictions=*/3,
                        "[\"anchor\", \"positive\", \"negative\"]"};
const Loss kMarginRanking{"margin_ranking",  LossTarget::Like,         checkSameShapes, buildMarginRanking, false,
                              /*predictions=*/2, "[\"first\", \"second\"]"};
const Loss kHinge{"hinge", LossTarget::Like, nullptr, buildHinge};
const Loss kHingeEmbedding{"hinge_embedding", LossTarget::Like, nullptr, buildHingeEmbedding};

} // namespace tcc::train

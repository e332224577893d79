//===- Losses.cpp - losses inside the graph -------------------------------===//
#include "compiler/dialect/IndexRange.h"
#include "frontend/NodeImport.h"

using namespace mlir;

namespace tcc::frontend {
namespace losses { // named, since files share a translation unit
namespace {

using train::CompareKind;
using train::Expr;

/// −weight[target]·logProbability[target], with the reduction; the mean divides by the sum of the weights. Scores are
/// [N, C, d…], targets [N, d…]. Targets equal to ignore_index do not count.
Status likelihoodLoss(NodeImport &n, const Expr &logProbability) {
  Shape scores(train::shapeOf(logProbability));
  if (scores.size() < 2)
    return error("scores {} need a batch and a class dimension", typeText(logProbability));
  Shape rows = scores, target(n.shape(1));
  rows[1] = 1;
  Shape expected = scores;
  expected.erase(expected.begin() + 1);
  if (target != expected)
    return error("targets {} must have the shape of scores {} without dimension 1, the classes", typeText(n.in(1)),
                 typeText(logProbability));
  Type element = train::elementTypeOf(logProbability);
  Expr index = n.expr(n.reshape(n.in(1), rows));
  // A label outside the classes is an error in the data, unless it is ignore_index.
  Shape uncounted;
  if (n.attribute("ignore_index"))
    uncounted.push_back(n.intAttr("ignore_index", 0));
  auto isLabel = [&](Operation *op) {
    op->setAttr(train::kUncountedLabels, n.builder.getDenseI64ArrayAttr(uncounted));
  };
  auto pick = train::PickOp::create(n.builder, n.loc, n.type(rows, element), logProbability.value, index.value, 1);
  isLabel(pick);
  Expr loss = (-n.expr(pick.getResult())).reshape(target);

  std::optional<Expr> weight;
  if (n.has(2)) {
    if (n.rank(2) != 1 || n.shape(2)[0] != scores[1])
      return error("weights {} should be a vector of {} elements, one for each class", typeText(n.in(2)), scores[1]);
    auto gather = train::GatherOp::create(n.builder, n.loc, n.type(target, element), n.in(2), n.in(1), 0);
    isLabel(gather);
    weight = n.expr(gather.getResult());
  }
  if (n.attribute("ignore_index")) {
    Expr targets = n.expr(1);
    Expr ignored = n.expr(
        train::splatInt(n.builder, n.loc, targets.value.getType(), n.intAttr("ignore_index", 0)));
    Expr counted = targets.compare(CompareKind::ne, ignored);
    weight = weight ? counted.select(*weight, loss.like(0)) : counted.cast(element);
    // A score of −∞ at an ignored target, times a weight of 0, must not become NaN.
    loss = counted.select(loss, loss.like(0));
  }
  if (weight)
    loss = loss * *weight;

  std::string reduction = n.stringAttr("reduction", "mean");
  if (reduction == "none")
    return n.result(loss);
  Shape all;
  for (size_t i = 0; i < target.size(); ++i)
    all.push_back(int64_t(i));
  Expr sum = loss.sum(all).reshape({});
  if (reduction == "sum")
    return n.result(sum);
  if (reduction != "mean")
    return error("reduction is \"{}\"; it must be none, mean or sum", reduction);
  if (!weight)
    return n.result(sum / double(countOf(target)));
  return n.result(sum / weight->sum(all).reshape({}));
}

Status negativeLogLikelihood(NodeImport &n) { return likelihoodLoss(n, n.expr(0)); }

Status softmaxCrossEntropy(NodeImport &n) {
  if (n.rank(0) < 2)
    return error("scores {} need a batch and a class dimension", typeText(n.in(0)));
  Expr logProbability =
      n.expr(train::LogSoftmaxOp::create(n.builder, n.loc, n.in(0).getType(), n.in(0), 1).getResult());
  if (n.wants(1))
    (void)n.set(1, logProbability);
  return likelihoodLoss(n, logProbability);
}

constexpr OpEntry kTable[] = {
    {"NegativeLogLikelihoodLoss", 2, negativeLogLikelihood},
    {"SoftmaxCrossEntropyLoss", 2, softmaxCrossEntropy},
};

} // namespace
} // namespace losses

std::span<const OpEntry> lossOps() { return losses::kTable; }

} // namespace tcc::frontend

//===- Lamb.cpp - LAMB -----------------------------------------------------===//
//
// You et al., "Large Batch Optimization for Deep Learning", arXiv:1904.00962, algorithm 2, with φ the identity:
//   r = m̂/(√v̂ + ε) + decay·w    w ← w − lr·(‖w‖/‖r‖)·r
// m̂ and v̂ are Adam's moments with their bias corrected. The ratio of norms is 1 where one of them is 0. Norms are
// those of torch's parameters: a tensor that holds several (a recurrent layer's directions) has a ratio for each.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/optimizers/Optimizer.h"

namespace tcc::train {

static std::vector<OptimizerState> lambStates(const OptimizerRule &, const TorchShape &) {
  return {{"exp_avg"}, {"exp_avg_sq", plan::DynamicKind::Unsigned}};
}

/// The norm of each parameter in a tensor that stores several; a scalar if it stores one.
static Expr norms(const UpdateStep &step, const Expr &stored) {
  const int64_t count = step.torch.count;
  if (count == 1)
    return step.total(sumAll(stored * stored)).apply<SqrtOp>();
  Expr all = step.whole(stored), squares = all * all;
  squares = squares.reshape({count, tensorTypeOf(all).getNumElements() / count});
  return squares.sum({1}).apply<SqrtOp>();
}

static Expr updateLamb(UpdateStep &step) {
  Expr &average = step.states[0], &square = step.states[1];
  const Expr &gradient = step.gradient;
  average =
      lerpToGradient(average, gradient, step.number("beta1"), step.scalar("beta1"), step.scalar("one_minus_beta1"));
  square = step.scalar("beta2") * square + step.scalar("one_minus_beta2") * gradient * gradient;
  Expr root = square.apply<SqrtOp>() / step.scalar("bias_correction2_sqrt");
  Expr update = average / step.scalar("bias_correction1") / (root + step.scalar("eps"));
  if (step.weightDecay != 0)
    update = update + step.groupScalar("weight_decay") * step.weight;
  Expr weightNorm = norms(step, step.weight), updateNorm = norms(step, update);
  Expr one = weightNorm.like(1), both = weightNorm * updateNorm;
  Expr ratio = both.compare(CompareKind::gt, 0).select(weightNorm / updateNorm, one);
  if (step.torch.count == 1)
    return step.weight - step.groupScalar("lr") * ratio * update;
  const int64_t count = step.torch.count, all = mlir::ShapedType::getNumElements(step.storedShape);
  Expr spread = ratio.broadcast({count, all / count}).reshape(step.storedShape);
  return step.weight - step.groupScalar("lr") * step.own(spread) * update;
}

Optimizer makeLamb() {
  return {"lamb",
          {"g.lr", "g.weight_decay", "beta1", "one_minus_beta1", "beta2", "one_minus_beta2", "bias_correction1",
           "bias_correction2_sqrt", "eps"},
          lambStates,
          updateLamb,
          nullptr,
          true};
}

} // namespace tcc::train

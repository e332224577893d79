//===- Lamb.cpp - LAMB -----------------------------------------------------===//
//
// You et al., "Large Batch Optimization for Deep Learning", arXiv:1904.00962, algorithm 2, with φ the identity:
//   r = m̂/(√v̂ + ε) + decay·w    w ← w − lr·(‖w‖/‖r‖)·r
// m̂ and v̂ are Adam's moments with their bias corrected. The ratio of norms is 1 where one of them is 0.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/optimizers/Optimizer.h"

namespace tcc::train {

static std::vector<OptimizerState> lambStates(const OptimizerSettings &, llvm::ArrayRef<int64_t>) {
  return {{"exp_avg"}, {"exp_avg_sq"}};
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
  Expr weightNorm = sumAll(step.weight * step.weight).apply<SqrtOp>(),
       updateNorm = sumAll(update * update).apply<SqrtOp>();
  Expr one = weightNorm.like(1), both = weightNorm * updateNorm;
  Expr ratio = both.compare(CompareKind::gt, 0).select(weightNorm / updateNorm, one);
  return step.weight - step.groupScalar("lr") * ratio * update;
}

Optimizer makeLamb() {
  return {"lamb",
          {"g.lr", "g.weight_decay", "beta1", "one_minus_beta1", "beta2", "one_minus_beta2", "bias_correction1",
           "bias_correction2_sqrt", "eps"},
          lambStates,
          updateLamb};
}

} // namespace tcc::train

//===- Optimizer.cpp - the list of optimizers ------------------------------===//
#include "passes/optimizers/Optimizer.h"

namespace tcc::train {

static const std::vector<Optimizer> &optimizers() {
  static const std::vector<Optimizer> list{makeSgd(),     makeAdam(), makeAdamW(), makeRmsProp(),
                                           makeAdagrad(), makeMuon(), makeLion(),  makeLamb()};
  return list;
}

const Optimizer *findOptimizer(llvm::StringRef kind) {
  for (const Optimizer &optimizer : optimizers())
    if (optimizer.kind == kind)
      return &optimizer;
  return nullptr;
}

std::string optimizerKinds() {
  std::string text;
  for (const Optimizer &optimizer : optimizers())
    text += (text.empty() ? "" : ", ") + optimizer.kind.str();
  return text;
}

OptimizerRule ruleOf(const Recipe &recipe) {
  const plan::Optimizer &given = recipe.training.optimizer();
  OptimizerRule rule{given.kind(),
                     {given.numbers().begin(), given.numbers().end()},
                     given.nesterov(),
                     recipe.optimizer.flags,
                     recipe.optimizer.adjustLr,
                     recipe.optimizer.moments};
  if (const OptimizerKind *kind = findOptimizerKind(rule.kind))
    rule.numbers.insert(kind->numbers.begin(), kind->numbers.end());
  return rule;
}

Expr decayedGradient(const UpdateStep &step) {
  return step.weightDecay != 0 ? step.gradient + step.groupScalar("weight_decay") * step.weight : step.gradient;
}

Expr decayedWeight(const UpdateStep &step) {
  return step.weightDecay != 0 ? step.weight * step.groupScalar("decay") : step.weight;
}

Expr lerpToGradient(const Expr &average, const Expr &gradient, double keptValue, const Expr &kept, const Expr &rest) {
  if (1 - keptValue < 0.5)
    return average + rest * (gradient - average);
  return gradient - (gradient - average) * kept;
}

} // namespace tcc::train

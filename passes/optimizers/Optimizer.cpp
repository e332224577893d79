//===- Optimizer.cpp - the list of optimizers ------------------------------===//
#include "passes/optimizers/Optimizer.h"

namespace tcc::train {

static const std::vector<Optimizer> &optimizers() {
  static const std::vector<Optimizer> list{makeSgd(), makeAdam(), makeAdamW()};
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

OptimizerNumbers optimizerNumbers(const Optimizer &optimizer, const OptimizerSettings &settings) {
  OptimizerNumbers numbers(optimizer.defaults.begin(), optimizer.defaults.end());
  for (const auto &[name, value] : settings.numbers)
    numbers[name] = value;
  return numbers;
}

} // namespace tcc::train

//===- Gradients.cpp - apply an op's gradient rule ------------------------===//
#include "compiler/dialect/Gradients.h"

using namespace mlir;

namespace tcc::train {

LogicalResult Gradients::sweep(OpBuilder &rules, Operation *op, llvm::function_ref<bool(Value)> isActive) {
  llvm::SmallVector<Value> ofResults;
  for (Value result : op->getResults())
    ofResults.push_back(get(result));
  if (llvm::none_of(ofResults, [](Value gradient) { return bool(gradient); }))
    return success();
  auto differentiable = dyn_cast<Differentiable>(op);
  if (!differentiable)
    return failure();
  llvm::SmallVector<Value> ofOperands(op->getNumOperands());
  differentiable.buildGradient(rules, ofResults, ofOperands);
  for (auto [operand, gradient] : llvm::zip_equal(op->getOperands(), ofOperands)) {
    if (!gradient || !isActive(operand))
      continue;
    if (gradient.getType() != operand.getType())
      return op->emitError("internal error: the gradient of ")
             << op->getName() << " has type " << gradient.getType() << " for an operand of type " << operand.getType();
    contribute(operand, gradient);
  }
  return success();
}

} // namespace tcc::train

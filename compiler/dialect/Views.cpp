//===- Views.cpp - look through ops with the trait View -------------------===//
#include "compiler/dialect/Views.h"

using namespace mlir;

namespace tcc::train {

Value rootOf(Value value, llvm::SmallVectorImpl<Operation *> *views) {
  for (Operation *op = value.getDefiningOp(); isView(op); op = value.getDefiningOp()) {
    if (views)
      views->push_back(op);
    value = op->getOperand(0);
  }
  return value;
}

Value soleRootOf(Value value, llvm::SmallVectorImpl<Operation *> *views) {
  llvm::SmallVector<Operation *> crossed;
  Value root = rootOf(value, &crossed);
  for (Operation *view : crossed)
    if (!view->getResult(0).hasOneUse())
      return {};
  if (!root.hasOneUse())
    return {};
  if (views)
    views->append(crossed.begin(), crossed.end());
  return root;
}

llvm::SmallVector<OpOperand *> usesAcrossViews(Value value) {
  llvm::SmallVector<OpOperand *> uses;
  for (OpOperand &use : value.getUses())
    if (isView(use.getOwner()))
      llvm::append_range(uses, usesAcrossViews(use.getOwner()->getResult(0)));
    else
      uses.push_back(&use);
  return uses;
}

} // namespace tcc::train

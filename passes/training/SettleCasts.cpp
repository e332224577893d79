//===- SettleCasts.cpp - cancel casts after differentiation ---------------===//
//
// autocast puts a cast on each edge, and differentiation adds the gradients of these casts. A widening and a narrowing
// cast that meet cancel. A weight gradient is a sum over all samples that only f32 arithmetic reads: its product
// returns the f32 sums instead of rounding them first.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/Passes.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_SETTLECASTSPASS
#include "passes/Passes.h.inc"

namespace {

bool isNarrow(Type type) { return type.isBF16() || type.isF16(); }

/// x widened and narrowed again is x.
void removePairs(func::FuncOp function) {
  for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
    auto narrowing = dyn_cast<CastOp>(op);
    auto widening = narrowing ? narrowing.getInput().getDefiningOp<CastOp>() : CastOp();
    if (!widening || !isNarrow(elementTypeOf(narrowing.getResult())) ||
        widening.getInput().getType() != narrowing.getType() || !elementTypeOf(widening.getResult()).isF32())
      continue;
    narrowing.getResult().replaceAllUsesWith(widening.getInput());
  }
  eraseDeadOps(function);
}

/// Follows a weight gradient through sums and movements to the casts that widen a product without other readers, and
/// makes that product return f32; with `convolutions` also weight gradients of convolutions.
void widenProducts(Value gradient, bool convolutions) {
  Operation *op = gradient.getDefiningOp();
  if (!op || !gradient.hasOneUse())
    return;
  if (isa<AddOp, ReshapeOp, TransposeOp>(op)) {
    for (Value operand : op->getOperands())
      widenProducts(operand, convolutions);
    return;
  }
  auto widening = dyn_cast<CastOp>(op);
  if (!widening || !isNarrow(elementTypeOf(widening.getInput())) || !elementTypeOf(gradient).isF32())
    return;
  // Movements between the product and its widening, which then move f32 elements.
  llvm::SmallVector<Value> moved;
  Value value = widening.getInput();
  for (; value.hasOneUse() && value.getDefiningOp() && isa<ReshapeOp, TransposeOp>(value.getDefiningOp());
       value = value.getDefiningOp()->getOperand(0))
    moved.push_back(value);
  Operation *product = value.getDefiningOp();
  // Only these can return f32. The gradient of a weight that is added to an activation may come from another product.
  if (!product || !value.hasOneUse() || !(isa<MatMulOp>(product) || (convolutions && isa<ConvWeightGradOp>(product))))
    return;
  moved.push_back(value);
  for (Value part : moved)
    part.setType(RankedTensorType::get(shapeOf(part), elementTypeOf(gradient)));
  gradient.replaceAllUsesWith(moved.front());
  widening.erase();
}

struct SettleCastsPass : impl::SettleCastsPassBase<SettleCastsPass> {
  using SettleCastsPassBase::SettleCastsPassBase;

  void runOnOperation() override {
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>())
      if (!function.isDeclaration())
        removePairs(function);
    func::FuncOp backward = lookupFunction(getOperation(), "backward");
    if (!backward)
      return;
    Operation *terminator = backward.getBody().front().getTerminator();
    for (unsigned i = 0; i < terminator->getNumOperands(); ++i)
      if (backward.getResultAttr(i, names::kGradientOf))
        widenProducts(terminator->getOperand(i), !roundConvolutions);
  }
};

} // namespace
} // namespace tcc::train

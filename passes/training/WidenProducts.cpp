//===- WidenProducts.cpp - compute f16 products in f32 --------------------===//
//
// An f16 has 11 significant bits, so the product of two is exact in f32: widening both operands changes no term of a
// sum. A target without f16 products then uses its f32 products, with all their libraries and layouts.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/Passes.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_WIDENPRODUCTSPASS
#include "passes/Passes.h.inc"

namespace {

bool isHalf(Value value) { return isFloatTensor(value) && elementTypeOf(value).isF16(); }

void widen(Operation *op) {
  OpBuilder builder(op);
  Type wide = builder.getF32Type();
  for (OpOperand &operand : op->getOpOperands())
    if (isHalf(operand.get()))
      operand.set(train::cast(builder, op->getLoc(), operand.get(), wide));
  builder.setInsertionPointAfter(op);
  for (Value result : op->getResults()) {
    if (!isHalf(result))
      continue;
    result.setType(RankedTensorType::get(shapeOf(result), wide));
    Value rounded = train::cast(builder, op->getLoc(), result, builder.getF16Type());
    result.replaceAllUsesExcept(rounded, rounded.getDefiningOp());
  }
}

struct WidenProductsPass : impl::WidenProductsPassBase<WidenProductsPass> {
  void runOnOperation() override {
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>())
      if (!function.isDeclaration())
        for (Operation &op : llvm::make_early_inc_range(function.getBody().front()))
          if (isa<LibraryCall>(op))
            widen(&op);
  }
};

} // namespace
} // namespace tcc::train

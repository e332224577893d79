//===- SumAttentionRows.cpp - sums that attention's gradient reads, ahead of it -===//
//
// The gradient needs δ = Σ output·outputGrad of each row. If every tile of keys reads every query, each tile would read
// the output and recompute δ. One kernel computes it once; the gradient then reads one number a row.
//
// Runs after `fold-strides`: a reader that needs the output's rows in another order would prevent it from writing the
// output in place.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Attention.h"
#include "compiler/dialect/Views.h"
#include "compiler/target/cuda/passes/CudaPasses.h"
#include "passes/Common.h"
#include "passes/Lowering.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_SUMATTENTIONROWSPASS
#include "compiler/target/cuda/passes/CudaPasses.h.inc"

namespace {

/// `value` of a region, computed in front of the region by repeating the region's movements.
Value inFront(OpBuilder &builder, FusedOp region, Value value) {
  if (!region)
    return value;
  SmallVector<Operation *> movements;
  for (; !isa<BlockArgument>(value); value = value.getDefiningOp()->getOperand(0))
    movements.push_back(value.getDefiningOp());
  Value moved = region->getOperand(cast<BlockArgument>(value).getArgNumber());
  for (Operation *movement : llvm::reverse(movements)) {
    Operation *copy = builder.clone(*movement);
    copy->setOperand(0, moved);
    moved = copy->getResult(0);
  }
  return moved;
}

struct SumAttentionRowsPass : impl::SumAttentionRowsPassBase<SumAttentionRowsPass> {
  void runOnOperation() override {
    SmallVector<AttentionGradOp> gradients;
    getOperation().walk([&](AttentionGradOp op) { gradients.push_back(op); });
    for (AttentionGradOp op : gradients) {
      if (!op.getOutput() || tileNumbersOf(op) == TileNumbers::None)
        continue;
      AttentionShape s = attentionShapeOf(op);
      auto region = dyn_cast<FusedOp>(op->getParentOp());
      OpBuilder builder(region ? region.getOperation() : op.getOperation());
      Location loc = op.getLoc();
      Value output = cast(builder, loc, inFront(builder, region, op.getOutput()), s.sumType),
            grad = cast(builder, loc, inFront(builder, region, op.getOutputGrad()), s.sumType);
      Value delta = rowSums(builder, loc, output, grad);
      if (region) {
        region->insertOperands(region->getNumOperands(), delta);
        delta = region.getBody().front().addArgument(delta.getType(), loc);
      }
      op.getDeltaMutable().assign(delta);
      op.getOutputMutable().clear();
      if (region) {
        dropUnreadOperands(region);
        region->removeAttr(names::kScratch); // computed by another kernel now
        describeScratch(region);
      }
    }
  }
};

} // namespace
} // namespace tcc::train

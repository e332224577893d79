//===- SumAttentionRows.cpp - sums that attention's gradient reads, ahead of it -===//
//
// The gradient needs δ = Σ output·outputGrad of each row. Where every tile of keys reads every query, each would
// compute it again, and read the output for it. One kernel computes it once; the gradient then reads one number a row.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Attention.h"
#include "passes/Common.h"
#include "passes/Passes.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_SUMATTENTIONROWSPASS
#include "passes/Passes.h.inc"

namespace {

struct SumAttentionRowsPass : impl::SumAttentionRowsPassBase<SumAttentionRowsPass> {
  void runOnOperation() override {
    getOperation().walk([](AttentionGradOp op) {
      AttentionShape s = attentionShapeOf(op);
      if (!op.getOutput() || !elementTypeOf(op.getQuery()).isBF16() || !suitsTiles(s.depth, s.width))
        return;
      OpBuilder builder(op);
      Location loc = op.getLoc();
      Value output = cast(builder, loc, op.getOutput(), s.sumType),
            grad = cast(builder, loc, op.getOutputGrad(), s.sumType);
      Value product = MulOp::create(builder, loc, output, grad);
      op.getDeltaMutable().assign(reduceSum(builder, loc, product, {3}));
      op.getOutputMutable().clear();
    });
  }
};

} // namespace
} // namespace tcc::train

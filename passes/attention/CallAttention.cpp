//===- CallAttention.cpp - attention as calls of the target ---------------===//
//
// A library's attention keeps one number a row for its gradient, ours two: the second is the rounding error of the
// first, which matters where a finite mask excludes a whole row. Forms with such masks are no calls.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Attention.h"
#include "compiler/target/Target.h"
#include "passes/Common.h"
#include "passes/Lowering.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_CALLATTENTIONPASS
#include "passes/LoweringPasses.h.inc"

namespace {

class CallBuilder {
public:
  CallBuilder(const target::Target &target, bool gradients) : target(target), gradients(gradients) {}

  void replace(AttentionOp op) {
    std::vector<AttentionGradOp> grads;
    if (!isPlainAttention(op) || !findGradients(op, grads))
      return;
    OpBuilder builder(op);
    auto call =
        AttentionCallOp::create(builder, op.getLoc(), op.getOutput().getType(), op.getLogsumexp().getType(),
                                op.getQuery(), op.getKey(), op.getValue(), op.getScaleAttr(), op.getCausalAttr());
    std::vector<Operation *> calls{call};
    if (gradients)
      for (AttentionGradOp grad : grads) {
        builder.setInsertionPoint(grad);
        calls.push_back(AttentionGradCallOp::create(
            builder, grad.getLoc(), grad->getResultTypes(), grad.getQuery(), grad.getKey(), grad.getValue(),
            call.getOutput(), call.getLogsumexp(), grad.getOutputGrad(), grad.getScaleAttr(), grad.getCausalAttr()));
      }
    const bool known = llvm::all_of(calls, [&](Operation *made) { return target.call(made).has_value(); });
    if (!known) {
      for (Operation *made : llvm::reverse(calls))
        made->erase();
      return;
    }
    op.getOutput().replaceAllUsesWith(call.getOutput());
    op.getLogsumexp().replaceAllUsesWith(call.getLogsumexp());
    for (auto [number, grad] : llvm::enumerate(grads))
      if (gradients) {
        grad->replaceAllUsesWith(calls[number + 1]->getResults());
        grad->erase();
      } else {
        grad.getLogsumexpRestMutable().clear();
      }
    op->erase();
  }

private:
  /// The gradients that read what attention keeps. False: something else does, or one of them is more than attention's.
  static bool findGradients(AttentionOp op, std::vector<AttentionGradOp> &grads) {
    auto collect = [&](Value value) {
      return llvm::all_of(value.getUses(), [&](OpOperand &use) {
        auto grad = dyn_cast<AttentionGradOp>(use.getOwner());
        if (!grad || grad.getOutput() != op.getOutput() || grad.getQuery() != op.getQuery() ||
            grad.getKey() != op.getKey() || grad.getValue() != op.getValue() || !grad.getBiasGrad().empty() ||
            !isPlainAttention(grad) || grad.getScale() != op.getScale() || grad.getCausal() != op.getCausal())
          return false;
        if (!llvm::is_contained(grads, grad))
          grads.push_back(grad);
        return true;
      });
    };
    return collect(op.getLogsumexp()) && collect(op.getLogsumexpRest());
  }

  const target::Target &target;
  bool gradients;
};

struct CallAttention : impl::CallAttentionPassBase<CallAttention> {
  using CallAttentionPassBase::CallAttentionPassBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    const target::Target *target = target::targetOf(function);
    if (!function->hasAttr(names::kEntry) || !target)
      return;
    CallBuilder builder(*target, gradients);
    for (auto op : llvm::make_early_inc_range(function.getOps<AttentionOp>()))
      builder.replace(op);
  }
};

} // namespace

} // namespace tcc::train

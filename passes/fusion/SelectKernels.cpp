//===- SelectKernels.cpp - calls of the target ----------------------------===//
//
// Each op that the target has a call for gets the call's descriptor; no later pass changes that choice.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/Target.h"
#include "passes/Common.h"
#include "passes/Lowering.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_SELECTKERNELSPASS
#include "passes/LoweringPasses.h.inc"

namespace {

/// The operand of a cast to bf16 if it is a parameter or a view of one; else null.
Value roundedParameter(CastOp cast) {
  if (!elementTypeOf(cast.getResult()).isBF16() || !elementTypeOf(cast.getInput()).isF32())
    return nullptr;
  Value source = cast.getInput();
  while (auto reshape = source.getDefiningOp<ReshapeOp>())
    source = reshape->getOperand(0);
  return isa<BlockArgument>(source) ? cast.getInput() : Value();
}

/// Makes products read the f32 parameter instead of its bf16 copy, if the calls of all the copy's readers can round
/// operands while reading: no kernel writes the copy, and none is kept from the forward to the backward pass.
void readInPlace(func::FuncOp function, const target::Target &target) {
  for (auto cast : llvm::make_early_inc_range(function.getOps<CastOp>())) {
    Value source = roundedParameter(cast), copy = cast.getResult();
    llvm::SmallVector<OpOperand *> uses;
    for (OpOperand &use : copy.getUses())
      uses.push_back(&use);
    auto reads = [&](OpOperand *use) {
      auto product = dyn_cast<MatMulOp>(use->getOwner());
      if (!product || use->getOperandNumber() != 1 || product.getLhs() == copy)
        return false;
      use->set(source);
      return target.call(product).has_value();
    };
    if (!source || uses.empty())
      continue;
    if (llvm::all_of(uses, reads))
      cast.erase();
    else
      for (OpOperand *use : uses)
        use->set(copy);
  }
}

struct SelectKernels : impl::SelectKernelsPassBase<SelectKernels> {
  using SelectKernelsPassBase::SelectKernelsPassBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry) || !library)
      return;
    const target::Target *target = target::targetOf(function);
    if (!target) {
      function.emitError() << "select-kernels needs a target; set-target names one";
      return signalPassFailure();
    }
    readInPlace(function, *target);
    for (Operation &op : function.getBody().front()) {
      std::optional<target::Call> call = target->call(&op);
      if (!call)
        continue;
      op.setAttr(names::kCall, CallAttr::get(&getContext(), call->text()));
      op.setAttr(names::kScratch, target::scratchOf(&getContext(), *call));
    }
  }
};

} // namespace

} // namespace tcc::train

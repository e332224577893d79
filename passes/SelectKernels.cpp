//===- SelectKernels.cpp --------------------------------------------------===//
#include "compiler/emit/LibraryCalls.h"
#include "passes/Common.h"
#include "passes/Lowering.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_SELECTKERNELSPASS
#include "passes/LoweringPasses.h.inc"

namespace {

/// The operand that a cast to bf16 makes of a parameter, or of a view of one; null where it makes something else.
Value roundedParameter(CastOp cast) {
  if (!elementTypeOf(cast.getResult()).isBF16() || !elementTypeOf(cast.getInput()).isF32())
    return nullptr;
  Value source = cast.getInput();
  while (auto reshape = source.getDefiningOp<ReshapeOp>())
    source = reshape->getOperand(0);
  return isa<BlockArgument>(source) ? cast.getInput() : Value();
}

/// Products whose kernels can round as they read take parameters as they lie, in f32: no kernel rounds them before, and
/// no copy lies in memory from the forward to the backward pass. Only where all readers of the copy can.
void readInPlace(func::FuncOp function, emit::LibraryCalls &calls) {
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
      return calls.find(product).has_value();
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
    if (!target.empty())
      if (plan::Status status = runtime::selectLevel(target); !status.ok()) {
        function.emitError() << status.message();
        return signalPassFailure();
      }
    Builder builder(&getContext());
    emit::LibraryCalls calls;
    readInPlace(function, calls);
    for (Operation &op : function.getBody().front()) {
      std::optional<emit::LibraryCallPlan> call = calls.find(&op);
      if (!call)
        continue;
      op.setAttr(names::kLibrary, builder.getUnitAttr());
      auto set = [&](StringRef name, uint64_t value) { op.setAttr(name, builder.getI64IntegerAttr(int64_t(value))); };
      set(names::kScratchSlotBytes, call->needs.scratchSlotBytes);
      set(names::kScratchSlots, call->needs.scratchSlots);
      if (call->needs.scratchSharedBytes)
        set(names::kScratchSharedBytes, call->needs.scratchSharedBytes);
      set(names::kPartialBytes, call->needs.partialBytes);
    }
  }
};

} // namespace

} // namespace tcc::train

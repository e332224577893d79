//===- SelectKernels.cpp --------------------------------------------------===//
#include "compiler/emit/LibraryCalls.h"
#include "passes/Common.h"
#include "passes/Lowering.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_SELECTKERNELSPASS
#include "passes/LoweringPasses.h.inc"

namespace {

struct SelectKernels : impl::SelectKernelsPassBase<SelectKernels> {
  using SelectKernelsPassBase::SelectKernelsPassBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry) || !library)
      return;
    Builder builder(&getContext());
    emit::LibraryCalls calls;
    for (Operation &op : function.getBody().front()) {
      std::optional<emit::LibraryCallPlan> call = calls.find(&op);
      if (!call)
        continue;
      op.setAttr(names::kLibrary, builder.getUnitAttr());
      op.setAttr(names::kScratchSlotBytes, builder.getI64IntegerAttr(call->scratchSlotBytes));
      op.setAttr(names::kPartialBytes, builder.getI64IntegerAttr(call->partialBytes));
    }
  }
};

} // namespace

} // namespace tcc::train

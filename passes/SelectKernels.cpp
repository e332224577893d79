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

//===- MarkTileThreads.cpp - how many threads share a tile of a kernel ----===//
#include "compiler/codegen/KernelEmitter.h"
#include "compiler/dialect/Joined.h"
#include "compiler/target/Target.h"
#include "passes/Common.h"
#include "passes/Lowering.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_MARKTILETHREADSPASS
#include "passes/LoweringPasses.h.inc"

namespace {
struct MarkTileThreads : impl::MarkTileThreadsPassBase<MarkTileThreads> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    const target::Target *target = target::targetOf(function);
    if (!function->hasAttr(names::kEntry) || !target)
      return;
    for (auto fused : function.getOps<FusedOp>())
      fused->setAttr(names::kTileThreads,
                     Builder(&getContext()).getI64IntegerAttr(codegen::workOf(fused, target->code()).tileThreads));
  }
};
} // namespace

} // namespace tcc::train

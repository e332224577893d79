//===- Lowering.cpp - attributes that lowering passes share ---------------===//
#include "passes/Lowering.h"

#include "compiler/target/Target.h"

using namespace mlir;

namespace tcc::train {

namespace {

/// The kernel, if its tiles have scratch: tiles that lane groups share have none.
LoopKernel kernelWithScratch(FusedOp fused) {
  LoopKernel kernel = fused.getLoopKernel();
  const target::Target *target = target::targetOf(fused);
  return kernel && target && target->code().threaded() && kernel.getGroupTileCount() ? LoopKernel() : kernel;
}

} // namespace

void describeScratch(FusedOp fused) {
  LoopKernel kernel = kernelWithScratch(fused);
  int64_t bytes = kernel ? kernel.getScratchBytes() : 0;
  if (!bytes)
    return;
  fused->setAttr(names::kScratch, ScratchAttr::get(fused.getContext(), bytes, 0, kernel.getTileCount(), 0));
}

bool mayShrinkScratch(FusedOp fused, uint64_t slots) {
  constexpr int64_t kLeastBytes = 1 << 20; // less is not worth another form
  LoopKernel kernel = kernelWithScratch(fused);
  return kernel && kernel.getLeastScratchBytes() < kernel.getScratchBytes() &&
         kernel.getScratchBytes() * std::min<int64_t>(int64_t(slots), kernel.getTileCount()) >= kLeastBytes;
}

} // namespace tcc::train

//===- PlaceCalls.cpp - calls that read and write by strides --------------===//
#include "compiler/target/Target.h"
#include "passes/Common.h"
#include "passes/Lowering.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_PLACECALLSPASS
#include "passes/LoweringPasses.h.inc"

namespace {

struct PlaceCalls : impl::PlaceCallsPassBase<PlaceCalls> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry))
      return;
    const target::Target *target = target::targetOf(function);
    for (auto fused : function.getOps<FusedOp>()) {
      LoopKernel kernel = fused.getLoopKernel();
      if (!kernel || !kernel->hasAttr(names::kCall))
        continue;
      std::optional<target::Call> call = target->call(kernel);
      if (!call) {
        fused.emitError() << "internal error: the target has no call for an op between movements";
        return signalPassFailure();
      }
      kernel->removeAttr(names::kCall);
      kernel->removeAttr(names::kScratch);
      fused->setAttr(names::kCall, CallAttr::get(&getContext(), call->text()));
      fused->setAttr(names::kScratch, target::scratchOf(&getContext(), *call));
    }
  }
};

} // namespace

} // namespace tcc::train

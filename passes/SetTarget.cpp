//===- SetTarget.cpp - the target that a module is compiled for -----------===//
#include "compiler/target/Target.h"
#include "passes/Lowering.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_SETTARGETPASS
#include "passes/LoweringPasses.h.inc"

namespace {
struct SetTarget : impl::SetTargetPassBase<SetTarget> {
  using SetTargetPassBase::SetTargetPassBase;

  void runOnOperation() override {
    if (!target::findTarget(name)) {
      getOperation().emitError() << "there is no target '" << name << "'";
      return signalPassFailure();
    }
    getOperation()->setAttr(target::kTargetAttribute, StringAttr::get(&getContext(), name));
  }
};
} // namespace

} // namespace tcc::train

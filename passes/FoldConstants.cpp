//===- FoldConstants.cpp - evaluate what depends on constants alone --------===//
//
// One sweep in program order suffices: a folded result is a constant operand of what follows.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Fold.h"
#include "passes/Common.h"
#include "passes/Passes.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_FOLDCONSTANTSPASS
#include "passes/Passes.h.inc"

namespace {
struct FoldConstantsPass : impl::FoldConstantsPassBase<FoldConstantsPass> {
  using FoldConstantsPassBase::FoldConstantsPassBase;

  void runOnOperation() override {
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>()) {
      function.walk([&](Operation *op) {
        if (op->getNumOperands() == 0)
          return; // a constant already, or an iota: cheaper to compute than to load
        OpBuilder builder(op);
        llvm::SmallVector<Value> constants = foldIfConstant(builder, op, maxBytes);
        if (constants.empty())
          return;
        op->replaceAllUsesWith(constants);
        op->erase();
      });
      eraseDeadOps(function);
    }
  }
};
} // namespace
} // namespace tcc::train

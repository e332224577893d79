//===- DecomposeComposites.cpp - expand composites into core ops ----------===//
//
// A composite may be built from other composites, so each round examines the ops that the previous one created.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/Passes.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_DECOMPOSECOMPOSITESPASS
#include "passes/Passes.h.inc"

namespace {
struct DecomposeCompositesPass : impl::DecomposeCompositesPassBase<DecomposeCompositesPass> {
  void runOnOperation() override {
    for (func::FuncOp function : getOperation().getOps<func::FuncOp>()) {
      while (decomposeOnce(function)) {
      }
      eraseDeadOps(function);
    }
  }

private:
  static bool decomposeOnce(func::FuncOp function) {
    llvm::SmallVector<Decomposable> composites;
    function.walk([&](Decomposable op) { composites.push_back(op); });
    for (Decomposable composite : composites) {
      Operation *op = composite;
      OpBuilder builder(op);
      llvm::SmallVector<Value> values = composite.decompose(builder);
      op->replaceAllUsesWith(values);
      op->erase();
    }
    return !composites.empty();
  }
};
} // namespace
} // namespace tcc::train

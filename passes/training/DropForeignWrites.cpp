//===- DropForeignWrites.cpp - statistics of other phases' networks -------===//
#include "passes/Common.h"
#include "passes/Passes.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace tcc::train {
#define GEN_PASS_DEF_DROPFOREIGNWRITESPASS
#include "passes/Passes.h.inc"

namespace {

/// Everything that the results of @loss depend on.
llvm::DenseSet<Operation *> neededOps(func::FuncOp loss) {
  llvm::DenseSet<Operation *> needed; // only looked up, never iterated
  llvm::SmallVector<Operation *> work{loss.getBody().front().getTerminator()};
  while (!work.empty()) {
    Operation *op = work.pop_back_val();
    if (!needed.insert(op).second)
      continue;
    for (Value operand : op->getOperands())
      if (Operation *definition = operand.getDefiningOp())
        work.push_back(definition);
  }
  return needed;
}

/// True if `needed` contains one of the nearest mode-dependent ops that the value depends on, or if there are none.
bool comesFromNeeded(Value value, const llvm::DenseSet<Operation *> &needed) {
  bool any = false, good = false;
  llvm::DenseSet<Operation *> seen;
  llvm::SmallVector<Value> work{value};
  while (!work.empty()) {
    Operation *op = work.pop_back_val().getDefiningOp();
    if (!op || !seen.insert(op).second)
      continue;
    if (isa<ModeDependent>(op)) {
      any = true;
      good |= needed.contains(op);
      continue;
    }
    work.append(op->operand_begin(), op->operand_end());
  }
  return good || !any;
}

struct DropForeignWritesPass : impl::DropForeignWritesPassBase<DropForeignWritesPass> {
  void runOnOperation() override {
    func::FuncOp loss = lookupFunction(getOperation(), "loss");
    if (!loss)
      return;
    const llvm::DenseSet<Operation *> needed = neededOps(loss);
    for (WriteOp write : llvm::make_early_inc_range(loss.getBody().front().getOps<WriteOp>()))
      if (!comesFromNeeded(write.getValue(), needed))
        write.erase();
    eraseDeadOps(loss);
  }
};

} // namespace

} // namespace tcc::train

//===- BeginTransfers.cpp - let transfers run beside other instructions ---===//
//
// Planning places a store at the instruction before which it must be done, and a fetch where it begins. This pass moves
// each store behind the instruction that makes its source. Then it records how many instructions each transfer may run
// beside: a store those up to its planned place, a fetch those up to the first reader of its result. Memory was planned
// for these lives.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/memory/EntryProblem.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_BEGINTRANSFERSPASS
#include "passes/LoweringPasses.h.inc"

namespace {

struct BeginTransfers : impl::BeginTransfersPassBase<BeginTransfers> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry))
      return;
    Block &block = function.getBody().front();
    SmallVector<std::pair<Operation *, Operation *>> transfers; // and the instruction that waits for it; null: the end
    Operation *next = nullptr;
    for (Operation &op : llvm::reverse(block.without_terminator())) {
      if (isa<StoreOp>(op))
        transfers.emplace_back(&op, next);
      else if (isa<FetchOp>(op))
        transfers.emplace_back(&op, firstReader(op.getResult(0)));
      if (!isa<StoreOp>(op) && isInstruction(&op))
        next = &op;
    }
    std::reverse(transfers.begin(), transfers.end());
    for (auto [op, end] : transfers)
      if (isa<StoreOp>(op))
        moveUp(op);
    llvm::DenseMap<Operation *, int64_t> position;
    int64_t count = 0;
    for (Operation &op : block)
      if (isInstruction(&op))
        position[&op] = count++;
    Builder builder(&getContext());
    for (auto [op, end] : transfers)
      if (const int64_t beside = (end ? position.lookup(end) : count) - position.lookup(op) - 1; beside > 0)
        op->setAttr(names::kBeside, builder.getI64IntegerAttr(beside));
  }

private:
  static Operation *firstReader(Value value) {
    Operation *first = nullptr;
    for (OpOperand *use : usesAcrossViews(value))
      if (Operation *user = use->getOwner(); isInstruction(user) && (!first || user->isBeforeInBlock(first)))
        first = user;
    return first;
  }

  /// Moves a store right behind what makes its source, and behind what reads the state that it overwrites.
  static void moveUp(Operation *store) {
    Operation *after = store->getOperand(0).getDefiningOp();
    if (!after)
      return;
    auto function = store->getParentOfType<func::FuncOp>();
    for (OpOperand &use : store->getResult(0).getUses()) {
      if (!use.getOwner()->hasTrait<OpTrait::IsTerminator>())
        continue;
      auto variable = function.getResultAttrOfType<StringAttr>(use.getOperandNumber(), names::kVariable);
      BlockArgument old = variable ? StateArguments(function).lookup(variable.getValue()) : BlockArgument();
      for (Operation *fetch : old ? llvm::to_vector(old.getUsers()) : SmallVector<Operation *>())
        if (Operation *reader = isa<FetchOp>(fetch) ? firstReader(fetch->getResult(0)) : nullptr;
            reader && after->isBeforeInBlock(reader))
          after = reader;
    }
    // Stores of one source, or of results of one instruction, keep their order.
    while (isa_and_present<StoreOp>(after->getNextNode()) && after->getNextNode() != store)
      after = after->getNextNode();
    store->moveAfter(after);
  }
};

} // namespace

} // namespace tcc::train

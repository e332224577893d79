//===- Schedule.cpp -------------------------------------------------------===//
//
// Anchors (library calls, kernels of expensive ops) run in their order; what they need runs just before them; what
// frees at least what it takes runs as soon as it can. Edges from the readers of a variable to the op that writes its
// new value make updates in place possible.
//
//===----------------------------------------------------------------------===//
#include "passes/Buffers.h"
#include "passes/Common.h"
#include "passes/Lowering.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_SCHEDULEPASS
#include "passes/LoweringPasses.h.inc"

namespace {

constexpr int64_t kNegligibleBytes = 256;

class Scheduler {
public:
  explicit Scheduler(func::FuncOp function) : function(function), block(function.getBody().front()) {}

  void run() {
    collect();
    for (Operation *op : ops)
      if (isAnchor(op)) {
        place(op);
        hoist();
      }
    for (Operation *op : ops)
      place(op);
    for (Operation *op : order)
      op->moveBefore(block.getTerminator());
  }

private:
  static bool isAnchor(Operation *op) {
    if (op->hasAttr(names::kLibrary))
      return true;
    auto fused = dyn_cast<FusedOp>(op);
    if (!fused)
      return false;
    // A kernel of one expensive op, such as pooling.
    for (Operation &inner : fused.getBody().front())
      if (auto cost = dyn_cast<Cost>(&inner);
          cost && !isa<Reducible>(&inner) && !isa<ConstantOp>(&inner) && !cost.isCheapToRecompute())
        return true;
    return false;
  }

  void collect() {
    for (Operation &op : block.without_terminator())
      ops.push_back(&op);
    for (Operation *op : ops)
      for (Value operand : op->getOperands())
        if (Operation *producer = operand.getDefiningOp())
          before[op].insert(producer);
    // Readers of a variable's old value come before its new one.
    Operation *terminator = block.getTerminator();
    for (OpOperand &returned : terminator->getOpOperands()) {
      auto name = function.getResultAttrOfType<StringAttr>(returned.getOperandNumber(), names::kVariable);
      if (!name)
        continue;
      BlockArgument argument = stateArgument(function, name.getValue());
      Operation *producer = rootOf(returned.get()).getDefiningOp();
      if (!argument || !producer)
        continue;
      SmallVector<Value> work{argument};
      while (!work.empty())
        for (Operation *user : work.pop_back_val().getUsers()) {
          if (user == producer || user == terminator)
            continue;
          before[producer].insert(user);
          if (user->hasTrait<View>())
            llvm::append_range(work, user->getResults());
        }
    }
    for (Operation *op : ops) {
      missing[op] = before[op].size();
      for (Operation *earlier : before[op])
        after[earlier].push_back(op);
      for (Value operand : op->getOperands())
        readers[rootOf(operand)].insert(op);
    }
    for (Operation *op : ops)
      if (missing[op] == 0)
        ready.insert(op);
    for (Value operand : block.getTerminator()->getOperands())
      keptAlive.insert(rootOf(operand));
  }

  void place(Operation *op) {
    if (placed.contains(op))
      return;
    // An explicit stack: chains are as long as models are deep.
    SmallVector<Operation *> stack{op};
    while (!stack.empty()) {
      Operation *top = stack.back();
      if (placed.contains(top)) {
        stack.pop_back();
        continue;
      }
      Operation *needed = nullptr;
      for (Operation *earlier : before[top])
        if (!placed.contains(earlier)) {
          needed = earlier;
          break;
        }
      if (needed) {
        stack.push_back(needed);
        continue;
      }
      stack.pop_back();
      placed.insert(top);
      ready.remove(top);
      order.push_back(top);
      for (Operation *later : after[top])
        if (--missing[later] == 0 && !placed.contains(later))
          ready.insert(later);
    }
  }

  /// Bytes that running `op` now adds to what is live: its results less the operands that nobody else waits for.
  int64_t growth(Operation *op) {
    if (op->hasTrait<View>())
      return 0;
    int64_t bytes = 0;
    for (Value result : op->getResults())
      if (!isNewState(result))
        bytes += tensorBytes(result.getType());
    llvm::SmallPtrSet<Value, 8> seen;
    for (Value operand : op->getOperands()) {
      Value value = rootOf(operand);
      if (isa<BlockArgument>(value) || keptAlive.contains(value) || !seen.insert(value).second)
        continue;
      bool last = llvm::all_of(readers[value], [&](Operation *reader) {
        return reader == op || placed.contains(reader) || reader->hasTrait<View>();
      });
      // Views stand for their readers.
      for (Operation *reader : readers[value])
        if (reader->hasTrait<View>() && reader != op)
          for (Operation *viewReader : readersThrough(reader))
            last &= viewReader == op || placed.contains(viewReader);
      if (last)
        bytes -= tensorBytes(value.getType());
    }
    return bytes;
  }
  SmallVector<Operation *> readersThrough(Operation *view) {
    SmallVector<Operation *> found;
    for (Operation *user : view->getUsers()) {
      if (user->hasTrait<View>())
        llvm::append_range(found, readersThrough(user));
      else
        found.push_back(user);
    }
    return found;
  }
  bool isNewState(Value value) {
    for (OpOperand &use : value.getUses())
      if (use.getOwner() == block.getTerminator() && function.getResultAttr(use.getOperandNumber(), names::kVariable))
        return true;
    return false;
  }

  void hoist() {
    while (true) {
      Operation *best = nullptr;
      // What adds nothing to speak of may go, too: scalars that updates wait for, and an update before its gradient's
      // last reader.
      int64_t least = kNegligibleBytes + 1;
      for (Operation *op : ready) {
        if (isAnchor(op) || op->hasTrait<View>())
          continue;
        int64_t bytes = growth(op);
        if (bytes < least) {
          least = bytes;
          best = op;
        }
      }
      // A view is free; what it feeds may be what frees.
      if (!best) {
        for (Operation *op : ready)
          if (op->hasTrait<View>()) {
            best = op;
            break;
          }
      }
      if (!best)
        return;
      place(best);
    }
  }

  func::FuncOp function;
  Block &block;
  SmallVector<Operation *> ops, order;
  llvm::DenseMap<Operation *, llvm::SetVector<Operation *>> before;
  llvm::DenseMap<Operation *, SmallVector<Operation *>> after;
  llvm::DenseMap<Operation *, unsigned> missing;
  llvm::DenseMap<Value, llvm::SetVector<Operation *>> readers;
  llvm::SetVector<Operation *> ready;
  llvm::DenseSet<Operation *> placed;
  llvm::DenseSet<Value> keptAlive;
};

struct Schedule : impl::SchedulePassBase<Schedule> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (function->hasAttr(names::kEntry))
      Scheduler(function).run();
  }
};

} // namespace

} // namespace tcc::train

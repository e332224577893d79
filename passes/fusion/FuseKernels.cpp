//===- FuseKernels.cpp - group ops into generated kernels -----------------===//
//
// Groups ops into train.fused regions, one generated kernel each. First, chains with one full-size operand are
// duplicated into each kernel that reads them: reading their operand costs as much as reading their result. A copy
// joins its reader, or is dropped if one loop nest cannot compute both. Then producers and consumers are merged
// greedily in program order as long as one loop nest can compute them: same iteration space, row values of a reduction
// read at their own row, no path between them through another kernel. Reductions of equal shape that share an operand
// are merged as well. Duplicates inside one kernel are merged. Library calls are left alone.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Loop.h"
#include "passes/Common.h"
#include "passes/fusion/Fusion.h"
#include "passes/fusion/KernelGroups.h"
#include "passes/Lowering.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/Pass/Pass.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_FUSEKERNELSPASS
#include "passes/LoweringPasses.h.inc"

namespace {

using Group = KernelGroup;

KernelGroup::Shape dimsOf(Value value) {
  return KernelGroup::Shape(cast<RankedTensorType>(value.getType()).getShape());
}

/// A kernel has at most this many ops. Ordinary models need a hundred; the time to compile straight-line code, and to
/// decide whether two kernels are compatible, grows faster than the number of ops.
constexpr size_t kMostOps = 256;
/// Each reader of a tensor is compared with at most this many following readers.
constexpr size_t kMostSiblings = 256;

/// Appends an op to `sorted`, after the producers of its operands that are not placed yet. Iterative, since a long
/// chain of ops would overflow the stack.
void placeBehindProducers(Operation *op, llvm::DenseSet<Operation *> &placed, SmallVectorImpl<Operation *> &sorted) {
  SmallVector<std::pair<Operation *, unsigned>> work;
  if (placed.insert(op).second)
    work.push_back({op, 0});
  while (!work.empty()) {
    auto &[next, operand] = work.back();
    if (operand == next->getNumOperands()) {
      sorted.push_back(next);
      work.pop_back();
      continue;
    }
    Operation *producer = next->getOperand(operand++).getDefiningOp();
    if (producer && placed.insert(producer).second)
      work.push_back({producer, 0});
  }
}

class Fuser {
public:
  Fuser(func::FuncOp function, bool fuse) : block(function.getBody().front()), fuse(fuse), copies(function) {}

  void run() {
    if (fuse)
      copies.repeat();
    else
      copies.giveUpAll();
    makeGroups();
    if (fuse)
      joinReaders();
    sinkToUsers();
    numberPositions();
    if (fuse) {
      // First inside each pass: a mask that the backward pass computes from an activation belongs to the kernel that
      // uses it. In the kernel of the activation it would have to be kept in memory.
      mergeAlongEdges(/*acrossPasses=*/false);
      mergeAlongEdges(/*acrossPasses=*/true);
      mergeSiblings();
    }
    emit();
  }

private:
  /// Moves cheap ops right before their first reader, so that a kernel's ops are close together.
  void sinkToUsers() {
    SmallVector<Operation *> sorted, ops;
    llvm::DenseSet<Operation *> placed;
    for (Operation &op : block.without_terminator())
      ops.push_back(&op);
    auto sinks = [](Operation *op) { return isFusable(op) && !isa<Reducible>(op); };
    for (Operation *op : ops)
      if (!sinks(op))
        placeBehindProducers(op, placed, sorted);
    for (Value returned : block.getTerminator()->getOperands())
      if (Operation *producer = returned.getDefiningOp())
        placeBehindProducers(producer, placed, sorted);
    for (Operation *op : sorted)
      op->moveBefore(block.getTerminator());
    for (Operation *op : llvm::reverse(ops))
      if (!placed.contains(op) && op->use_empty()) {
        if (Group *group = groupOf.lookup(op))
          group->ops.remove(op);
        groupOf.erase(op);
        op->erase();
      }
  }

  //===-- Groups -----------------------------------------------------------===//

  void makeGroups() {
    for (Operation &op : block) {
      if (!isFusable(&op) && !isSoleKernel(&op))
        continue;
      auto group = std::make_unique<Group>();
      group->ops.insert(&op);
      (copies.isForward(&op) ? group->forward : group->backward) = true;
      if (auto reducible = dyn_cast<Reducible>(&op); reducible && isFusable(&op)) {
        group->space = dimsOf(op.getOperand(0));
        group->reducedDims = reducible.getReducedDims();
        group->hasReduction = true;
        group->levels = 1;
      } else {
        group->space = dimsOf(op.getResult(0));
      }
      groupOf[&op] = group.get();
      groups.push_back(std::move(group));
    }
  }

  void numberPositions() {
    unsigned position = 0;
    for (Operation &op : block)
      positions[&op] = position++;
    order.emplace(block, groupOf);
  }

  /// Merges each copy into the kernel that it was made for. If that is impossible, its reader reads the original: a
  /// copy in a kernel of its own would only duplicate the value in memory.
  void joinReaders() {
    SmallVector<Operation *> ops;
    for (Operation &op : block.without_terminator())
      ops.push_back(&op);
    for (Operation *op : llvm::reverse(ops)) {
      if (!copies.originalOf(op))
        continue;
      Group *from = groupOf.lookup(op), *to = nullptr;
      bool one = !op->use_empty();
      for (Operation *user : op->getUsers()) {
        Group *group = groupOf.lookup(user);
        one &= group && (!to || group == to);
        to = group;
      }
      if (one && compatible(*from, *to, op->getResult(0))) {
        merge(from, to);
        continue;
      }
      from->ops.clear();
      groupOf.erase(op);
      copies.giveUp(op);
    }
  }

  /// Merges two groups, and updates `order` once it exists.
  void merge(Group *from, Group *to) {
    if (order)
      order->merge(*from, *to);
    if (from->hasReduction) {
      to->space = from->space;
      to->reducedDims = from->reducedDims;
    }
    to->levels += from->levels;
    to->hasReduction |= from->hasReduction;
    to->forward |= from->forward;
    to->backward |= from->backward;
    for (Operation *op : from->ops) {
      to->ops.insert(op);
      groupOf[op] = to;
    }
    from->ops.clear();
  }

  void mergeAlongEdges(bool acrossPasses) {
    SmallVector<Operation *> ops;
    for (Operation &op : block)
      ops.push_back(&op);
    bool changed = true;
    while (changed) {
      changed = false;
      for (Operation *op : ops) {
        Group *to = groupOf.lookup(op);
        if (!to)
          continue;
        for (Value operand : op->getOperands()) {
          Group *from = groupOf.lookup(operand.getDefiningOp());
          to = groupOf.lookup(op);
          if (!from || from == to)
            continue;
          if (from->forward && to->backward && (!acrossPasses || needsGradients(*to, *from)))
            continue;
          if (from->ops.size() + to->ops.size() > kMostOps || isKnownBlocked(from, to) ||
              !compatible(*from, *to, operand))
            continue;
          if (order->pathBetween(*from, *to)) {
            blocked[{from, to}] = {from->ops.size(), to->ops.size()};
            continue;
          }
          merge(from, to);
          changed = true;
        }
      }
    }
  }

  /// True if a group depends on the backward pass: forward ops merged into it would run late, and keep their operands
  /// alive until then.
  bool needsGradients(const Group &group, const Group &except) {
    for (Operation *op : group.ops)
      for (Value operand : op->getOperands())
        if (Operation *producer = operand.getDefiningOp(); producer && !group.ops.contains(producer) &&
                                                           !except.ops.contains(producer) &&
                                                           !copies.isForward(producer) && !isa<ConstantOp>(producer))
          return true;
    return false;
  }

  /// True if a path through other groups was found and neither group has grown since: merges of others never remove it.
  bool isKnownBlocked(Group *from, Group *to) {
    auto found = blocked.find({from, to});
    return found != blocked.end() && found->second == std::pair(from->ops.size(), to->ops.size());
  }

  /// Merges kernels with equal iteration spaces that read the same tensor, if one of them has a reduction: the tensor
  /// is then read once for both.
  void mergeSiblings() {
    llvm::MapVector<Value, SmallVector<Group *>> readers;
    for (auto &group : groups)
      if (!group->ops.empty() && !isSoleKernel(group->ops.front()))
        for (Operation *op : group->ops)
          for (Value operand : op->getOperands())
            if (dimsOf(operand) == group->space && !group->ops.contains(operand.getDefiningOp()))
              if (SmallVector<Group *> &list = readers[operand]; list.empty() || list.back() != group.get())
                list.push_back(group.get());
    for (auto &[value, list] : readers) {
      if (llvm::none_of(list, [](Group *group) { return group->hasReduction; }))
        continue;
      for (size_t i = 0; i < list.size(); ++i)
        for (size_t j = i + 1; j < std::min(list.size(), i + kMostSiblings); ++j) {
          Group *a = list[i], *b = list[j];
          if (a->ops.empty() || b->ops.empty() || a->ops.size() + b->ops.size() > kMostOps || !areSiblings(*a, *b) ||
              adjacent(*a, *b) || adjacent(*b, *a) || order->pathBetween(*a, *b))
            continue;
          unsigned levels = std::max(a->levels, b->levels);
          merge(b, a);
          a->levels = levels;
        }
    }
  }

  bool adjacent(const Group &from, const Group &to) {
    return llvm::any_of(to.ops, [&](Operation *op) {
      return llvm::any_of(op->getOperands(),
                          [&](Value operand) { return from.ops.contains(operand.getDefiningOp()); });
    });
  }

  //===-- Emission -----------------------------------------------------------===//

  /// A group's ops in order, without duplicates: a copy in the same group as its original or an equal copy is erased.
  SmallVector<Operation *> withoutTwins(Group &group) {
    SmallVector<Operation *> ops(group.ops.begin(), group.ops.end()), kept;
    llvm::sort(ops, [&](Operation *a, Operation *b) { return positions[a] < positions[b]; });
    ValueNumbers numbers;
    for (Operation *op : ops) {
      Operation *twin = numbers.findOrAdd(op);
      if (!twin) {
        kept.push_back(op);
        continue;
      }
      op->replaceAllUsesWith(twin->getResults());
      group.ops.remove(op);
      op->erase();
    }
    return kept;
  }

  void emit() {
    for (auto &group : groups) {
      if (group->ops.empty())
        continue;
      SmallVector<Operation *> ops = withoutTwins(*group);
      llvm::SetVector<Value> inputs;
      SmallVector<Value> outputs;
      for (Operation *op : ops) {
        for (Value operand : op->getOperands())
          if (!group->ops.contains(operand.getDefiningOp()))
            inputs.insert(operand);
        for (Value result : op->getResults())
          // An op that emits its own loops writes all of its results, also the unread ones.
          if (!isInner(result, *group) || isa<LoopKernel>(op))
            outputs.push_back(result);
      }
      SmallVector<Type> types;
      for (Value output : outputs)
        types.push_back(output.getType());
      OpBuilder builder(ops.back());
      SmallVector<Location> locations;
      for (Operation *op : ops)
        locations.push_back(op->getLoc());
      auto fused =
          FusedOp::create(builder, FusedLoc::get(builder.getContext(), locations), types, inputs.getArrayRef());
      Block *body = new Block;
      fused.getBody().push_back(body);
      IRMapping mapping;
      for (Value input : inputs)
        mapping.map(input, body->addArgument(input.getType(), fused.getLoc()));
      builder.setInsertionPointToEnd(body);
      for (Operation *op : ops)
        builder.clone(*op, mapping);
      SmallVector<Value> yielded;
      for (Value output : outputs)
        yielded.push_back(mapping.lookup(output));
      YieldOp::create(builder, fused.getLoc(), yielded);
      describeScratch(fused);
      for (auto [output, result] : llvm::zip(outputs, fused.getResults()))
        output.replaceAllUsesWith(result);
      for (Operation *op : llvm::reverse(ops))
        op->erase();
    }
    // A kernel takes the position of its last op, so a consumer of an earlier result may now precede it.
    sortTopologically();
  }

  void sortTopologically() {
    SmallVector<Operation *> sorted, pending;
    for (Operation &op : block.without_terminator())
      pending.push_back(&op);
    llvm::DenseSet<Operation *> placed;
    for (Operation *op : pending)
      placeBehindProducers(op, placed, sorted);
    for (Operation *op : sorted)
      op->moveBefore(block.getTerminator());
  }

  Block &block;
  bool fuse;
  RepeatedChains copies;
  std::vector<std::unique_ptr<Group>> groups;
  llvm::DenseMap<Operation *, Group *> groupOf;
  llvm::DenseMap<std::pair<Group *, Group *>, std::pair<size_t, size_t>> blocked; // sizes when a path was found
  llvm::DenseMap<Operation *, unsigned> positions;
  std::optional<KernelOrder> order; ///< of groups, from numberPositions on
};

/// Forms the kernels of a loop's body, which then contains only kernels and views.
void fuseBody(LoopOp loop, bool fuse) {
  Block &block = loop.getBlock();
  for (auto constant : llvm::make_early_inc_range(block.getOps<ConstantOp>()))
    if (!constant.getValue().isSplat()) { // stored in memory
      constant->moveBefore(loop);
      loop.getFixedMutable().append(constant.getResult());
      constant.getResult().replaceAllUsesWith(block.addArgument(constant.getType(), constant.getLoc()));
    }
  OpBuilder builder(loop.getContext());
  NextOp next = loop.getNext();
  llvm::SmallVector<Value> values(next->getOperands());
  const auto states = int32_t(next.getStates().size());
  builder.setInsertionPoint(next);
  for (Value &value : values) // a constant is made by a kernel
    if (auto constant = value.getDefiningOp<ConstantOp>()) {
      auto fused = FusedOp::create(builder, loop.getLoc(), TypeRange{value.getType()}, ValueRange());
      fused.getBody().push_back(new Block);
      OpBuilder inner = OpBuilder::atBlockEnd(&fused.getBody().front());
      YieldOp::create(inner, loop.getLoc(), inner.clone(*constant)->getResults());
      value = fused.getResult(0);
    }
  func::ReturnOp::create(builder, next.getLoc(), values);
  next.erase();
  auto function = func::FuncOp::create(
      loop.getLoc(), "body", builder.getFunctionType(block.getArgumentTypes(), ValueRange(values).getTypes()));
  function.getBody().takeBody(loop.getBody());
  Fuser(function, fuse).run();
  loop.getBody().takeBody(function.getBody());
  function->destroy();
  auto terminator = cast<func::ReturnOp>(loop.getBlock().getTerminator());
  builder.setInsertionPoint(terminator);
  NextOp::create(builder, terminator.getLoc(), terminator.getOperands().take_front(size_t(states)),
                 terminator.getOperands().drop_front(size_t(states)));
  terminator.erase();
}

struct FuseKernels : impl::FuseKernelsPassBase<FuseKernels> {
  using FuseKernelsPassBase::FuseKernelsPassBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!function->hasAttr(names::kEntry))
      return;
    for (auto loop : llvm::make_early_inc_range(function.getOps<LoopOp>()))
      fuseBody(loop, fuse);
    Fuser(function, fuse).run();
  }
};

} // namespace

} // namespace tcc::train

//===- KernelGroups.cpp - groups of ops while kernels are formed ----------===//
#include "passes/fusion/KernelGroups.h"

#include "compiler/dialect/OwnElement.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/fusion/Fusion.h"

#include <queue>

using namespace mlir;

namespace tcc::train {

namespace {

/// A row is read once per level; beyond this many levels, storing values between kernels is cheaper.
constexpr unsigned kMostLevels = 4;

using Group = KernelGroup;
using Shape = KernelGroup::Shape;

Shape shapeOf(Value value) { return Shape(cast<RankedTensorType>(value.getType()).getShape()); }

Shape rowShape(const Group &group) {
  Shape row = group.space;
  for (int64_t dim : group.reducedDims)
    row[dim] = 1;
  return row;
}

/// True if every output of the group has one of two shapes.
bool allShaped(const Group &group, const Shape &full, const Shape &row) {
  for (Operation *op : group.ops)
    for (Value result : op->getResults()) {
      Shape shape = shapeOf(result);
      if (shape != full && shape != row && !isInner(result, group))
        return false;
    }
  return true;
}

bool onlyUsedIn(const Group &from, Value value, const Group &to) {
  for (Operation *op : from.ops)
    for (Value result : op->getResults())
      for (Operation *user : result.getUsers())
        if (!from.ops.contains(user) && !(result == value && to.ops.contains(user)))
          return false;
  return true;
}

unsigned leaves(const Group &group) {
  llvm::SmallPtrSet<Value, 8> full;
  for (Operation *op : group.ops)
    for (Value operand : op->getOperands())
      if (!group.ops.contains(operand.getDefiningOp()) && elementsOf(operand) > 1)
        full.insert(operand);
  return full.size();
}

unsigned operandsOfMerged(const Group &a, const Group &b) {
  llvm::SmallPtrSet<Value, 32> inputs;
  unsigned outputs = 0;
  for (const Group *group : {&a, &b})
    for (Operation *op : group->ops) {
      for (Value operand : op->getOperands()) {
        Operation *producer = operand.getDefiningOp();
        if (!a.ops.contains(producer) && !b.ops.contains(producer))
          inputs.insert(operand);
      }
      for (Value result : op->getResults())
        if (llvm::any_of(result.getUsers(),
                         [&](Operation *user) { return !a.ops.contains(user) && !b.ops.contains(user); }))
          ++outputs;
    }
  return inputs.size() + outputs;
}

bool isElementwiseChain(const Group &group) {
  return llvm::all_of(group.ops, [](Operation *op) {
    return op->hasTrait<Pointwise>() || isMovement(op) || isa<ConstantOp>(op) || !op->getNumOperands();
  });
}

/// Elements of the value that the lookup in `to` reads, directly or through the elementwise ops and moves that have
/// joined it; none if the group also reads the value in another way.
std::optional<int64_t> lookedUp(Value value, const Group &to) {
  int64_t reads = 0;
  llvm::SetVector<Value> work;
  work.insert(value);
  for (size_t i = 0; i < work.size(); ++i)
    for (OpOperand &use : work[i].getUses()) {
      Operation *user = use.getOwner();
      if (!to.ops.contains(user))
        return std::nullopt;
      if (user != to.ops.front())
        work.insert(user->getResult(0));
      else if (looksUpFew(use))
        reads += elementsOf(user->getResult(0));
      else
        return std::nullopt;
    }
  return reads;
}

/// True if `to` is a lookup that alone reads the chain `from`, at so few elements that it reads less of the chain's
/// operands than a kernel of the chain would write.
bool joinsLookup(const Group &from, Value value, const Group &to) {
  if (!isElementwiseChain(from) || !onlyUsedIn(from, value, to))
    return false;
  std::optional<int64_t> reads = lookedUp(value, to);
  return reads && *reads * leaves(from) <= elementsOf(value);
}

/// True for a one-element value, or a chain of pointwise ops that only `to` reads, through a transpose, slice or the
/// like.
bool movesThrough(const Group &from, Value value, ArrayRef<Operation *> users, const Group &to) {
  if (!onlyUsedIn(from, value, to))
    return false;
  if (elementsOf(value) == 1)
    return true;
  if (!isElementwiseChain(from))
    return false;
  const bool movesOnly = llvm::all_of(from.ops, isMovement);
  // A computed value is not recomputed at each place that reads it; a moved one costs nothing.
  for (Operation *user : users)
    if (user->hasTrait<Pointwise>() || isa<Reducible>(user) ||
        (!movesOnly && elementsOf(user->getResult(0)) > elementsOf(value)))
      return false;
  return leaves(from) <= 1;
}

/// The readers of a value in a group. A value may have many more readers than a group has ops.
SmallVector<Operation *> usersIn(Value value, const Group &group) {
  SmallVector<Operation *> users;
  if (!value.hasNUsesOrMore(unsigned(group.ops.size()) + 1)) {
    for (Operation *user : value.getUsers())
      if (group.ops.contains(user))
        users.push_back(user);
    return users;
  }
  for (Operation *op : group.ops)
    if (llvm::is_contained(op->getOperands(), value))
      users.push_back(op);
  return users;
}

bool fitsNest(const Group &from, const Group &to, Value value) {
  if (isSoleKernel(from.ops.front()) || operandsOfMerged(from, to) > kMostOperands)
    return false;
  if (isSoleKernel(to.ops.front()))
    return joinsLookup(from, value, to);
  Shape shape = shapeOf(value);
  SmallVector<Operation *> users = usersIn(value, to);
  bool sameKey = from.space == to.space && from.reducedDims == to.reducedDims;
  // A value with neither its group's full shape nor its row shape is read at other elements: only whole elementwise
  // chains without other readers can be computed through another index map.
  if (from.hasReduction) {
    Shape row = rowShape(from);
    bool isRow = shape == row && shape != from.space;
    if (to.hasReduction && !sameKey)
      return false;
    if (to.hasReduction && from.levels + to.levels > kMostLevels)
      return false;
    for (Operation *user : users) {
      if (isa<Reducible>(user)) {
        if (isRow || shapeOf(user->getOperand(0)) != from.space)
          return false;
        continue;
      }
      Shape result = shapeOf(user->getResult(0));
      bool pointwise = llvm::all_of(user->getOpOperands(),
                                    [&](OpOperand &use) { return use.get() != value || readsItsOwnElement(use); });
      if (isRow) {
        bool toRow = pointwise && result == row;
        bool toFull = isa<BroadcastOp>(user) && result == from.space;
        if (!toRow && !toFull)
          return false;
      } else if (!pointwise || result != from.space) {
        return false;
      }
    }
    if (!to.hasReduction && to.space != from.space && to.space != row)
      return false;
    // Everything in `to` has to be full or row shaped, since its outputs will be.
    return allShaped(to, from.space, row);
  }
  if (to.hasReduction) {
    Shape row = rowShape(to);
    if (from.space == to.space)
      return allShaped(from, to.space, row);
    if (from.space == row) {
      for (Operation *user : users)
        if (!(isa<BroadcastOp>(user) && shapeOf(user->getResult(0)) == to.space) &&
            !(user->hasTrait<Pointwise>() && shapeOf(user->getResult(0)) == row))
          return false;
      return allShaped(from, row, row);
    }
    return movesThrough(from, value, users, to);
  }
  if (from.space == to.space && allShaped(from, to.space, to.space))
    return true;
  return movesThrough(from, value, users, to);
}

/// True if the merged groups would read a reduction's result at another row than the current one: the reduction would
/// run again for each element.
bool movesRows(const Group &from, const Group &to) {
  auto staysInPlace = [](Operation *op) {
    return op->hasTrait<Pointwise>() || isa<BroadcastOp, Reducible>(op) || op->getNumOperands() == 0;
  };
  bool moves = false;
  SmallVector<Operation *> work;
  for (const Group *group : {&from, &to})
    for (Operation *op : group->ops) {
      moves |= !staysInPlace(op);
      if (isa<Reducible>(op))
        work.push_back(op);
    }
  if (!moves || work.empty())
    return false;
  llvm::SmallPtrSet<Operation *, 16> seen(work.begin(), work.end());
  while (!work.empty())
    for (OpOperand &use : work.pop_back_val()->getUses()) {
      Operation *user = use.getOwner();
      if (!from.ops.contains(user) && !to.ops.contains(user))
        continue;
      if (!staysInPlace(user) && !readsItsOwnElement(use))
        return true;
      if (!seen.insert(user).second)
        continue;
      work.push_back(user);
    }
  return false;
}

/// True if the group reduces the last dimension (extents of 1 behind it, as in weights of 1×1 convolutions, do not
/// count), and it is long enough to be worth a loop of its own. Several reduced dimensions may be better traversed in
/// another order.
bool reducesRows(const Group &group) {
  constexpr int64_t kLeastRow = 256;
  if (group.reducedDims.size() != 1)
    return false;
  llvm::ArrayRef<int64_t> behind = llvm::ArrayRef(group.space).drop_front(size_t(group.reducedDims[0]));
  return behind.front() >= kLeastRow && llvm::all_of(behind.drop_front(), [](int64_t extent) { return extent == 1; });
}

} // namespace

bool isSoleKernel(Operation *op) {
  if (op->hasAttr(names::kCall) || op->hasTrait<View>() || isFusable(op) || isa<ConstantOp>(op))
    return false;
  return isa<Fusible>(op) || isa<LoopKernel>(op);
}

bool isInner(Value value, const Group &group) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) { return group.ops.contains(user); });
}

bool compatible(const Group &from, const Group &to, Value value) {
  return fitsNest(from, to, value) && !movesRows(from, to);
}

bool areSiblings(const Group &a, const Group &b) {
  if (a.space != b.space || a.levels > 2 || b.levels > 2 || (!a.hasReduction && !b.hasReduction) ||
      operandsOfMerged(a, b) > kMostOperands)
    return false;
  if (a.hasReduction && b.hasReduction)
    return a.reducedDims == b.reducedDims;
  const Group &reduction = a.hasReduction ? a : b, &other = a.hasReduction ? b : a;
  return a.forward == b.forward && a.backward == b.backward && reducesRows(reduction) &&
         allShaped(other, reduction.space, rowShape(reduction)) && !movesRows(a, b);
}

namespace {

/// Most edges that one search visits. Ordinary models need a few dozen; in programs with thousands of readers of one
/// value, the search must not visit each pair of them.
constexpr unsigned kMostEdges = 10'000;
/// Distance between the labels of neighbours, so that nodes can move without relabelling others.
constexpr uint64_t kGap = uint64_t(1) << 32;

} // namespace

KernelOrder::KernelOrder(Block &block, const llvm::DenseMap<Operation *, KernelGroup *> &groupOf) : groupOf(groupOf) {
  llvm::DenseMap<const KernelGroup *, Operation *> lastOf;
  for (Operation &op : block)
    if (KernelGroup *group = groupOf.lookup(&op))
      lastOf[group] = &op;
  nodes.emplace_back();
  // A group has the position of its last op: no op between its ops reads the others.
  for (Operation &op : block) {
    KernelGroup *group = groupOf.lookup(&op);
    if (group && lastOf[group] != &op)
      continue;
    Node node;
    node.group = group;
    node.op = &op;
    node.before = unsigned(nodes.size()) - 1;
    nodes.back().after = unsigned(nodes.size());
    (group ? nodeOfGroup[group] : nodeOfOp[&op]) = unsigned(nodes.size());
    nodes.push_back(node);
  }
  nodes.back().after = 0;
  relabel();
}

unsigned KernelOrder::nodeOf(Operation *op) const {
  if (KernelGroup *group = groupOf.lookup(op))
    return nodeOfGroup.lookup(group);
  return nodeOfOp.lookup(op);
}

void KernelOrder::relabel() {
  uint64_t label = 0;
  unsigned node = 0;
  do {
    nodes[node].label = label;
    label += kGap;
    node = nodes[node].after;
  } while (node);
}

bool KernelOrder::pathBetween(const KernelGroup &a, const KernelGroup &b) {
  unsigned first = nodeOfGroup.lookup(&a), last = nodeOfGroup.lookup(&b);
  if (isBefore(last, first))
    std::swap(first, last);
  reached.clear();
  ++searches;
  unsigned edges = 0;
  // Visit the latest nodes first: most paths run through the last edge from the forward to the backward pass, near the
  // loss.
  std::priority_queue<std::pair<uint64_t, unsigned>> work;
  bool found = false;
  auto leave = [&](unsigned from) {
    auto visit = [&](Operation *op) {
      for (Operation *user : op->getUsers()) {
        if (++edges > kMostEdges)
          found = true;
        unsigned next = nodeOf(user);
        if (next == last)
          found |= from != first;
        else if (next != from && isBefore(next, last) && nodes[next].seen != searches) {
          nodes[next].seen = searches;
          reached.push_back(next);
          work.push({nodes[next].label, next});
        }
        if (found)
          return;
      }
    };
    if (!nodes[from].group)
      return visit(nodes[from].op);
    for (Operation *op : nodes[from].group->ops) {
      visit(op);
      if (found)
        return;
    }
  };
  leave(first);
  while (!work.empty() && !found) {
    unsigned next = work.top().second;
    work.pop();
    leave(next);
  }
  return found;
}

void KernelOrder::unlink(unsigned node) {
  nodes[nodes[node].before].after = nodes[node].after;
  if (nodes[node].after)
    nodes[nodes[node].after].before = nodes[node].before;
}

void KernelOrder::insertAfter(unsigned place, ArrayRef<unsigned> moved) {
  if (moved.empty())
    return;
  unsigned behind = nodes[place].after;
  uint64_t space = behind ? nodes[behind].label - nodes[place].label : (moved.size() + 1) * kGap;
  const uint64_t step = space / (moved.size() + 1);
  unsigned before = place;
  for (unsigned node : moved) {
    nodes[node].before = before;
    nodes[before].after = node;
    nodes[node].label = nodes[before].label + step;
    before = node;
  }
  nodes[before].after = behind;
  if (behind)
    nodes[behind].before = before;
  if (step == 0)
    relabel();
}

void KernelOrder::merge(const KernelGroup &from, const KernelGroup &to) {
  unsigned kept = nodeOfGroup.lookup(&to), other = nodeOfGroup.lookup(&from);
  // Nodes that the earlier one reaches move behind the later one, in the same order.
  std::sort(reached.begin(), reached.end(), [&](unsigned a, unsigned b) { return isBefore(a, b); });
  for (unsigned node : reached)
    unlink(node);
  insertAfter(isBefore(kept, other) ? other : kept, reached);
  reached.clear();
  if (isBefore(kept, other)) {
    unlink(kept);
    insertAfter(other, kept);
  }
  unlink(other);
  nodeOfGroup.erase(&from);
}

} // namespace tcc::train

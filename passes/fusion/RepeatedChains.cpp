//===- RepeatedChains.cpp - duplicate cheap chains into their readers -----===//
#include "compiler/dialect/Views.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/OpOrder.h"
#include "passes/fusion/Fusion.h"
#include "passes/fusion/KernelGroups.h"
#include "support/PlanNames.h"

using namespace mlir;

namespace tcc::train {

namespace {

/// Longest chain that is recomputed for another kernel.
constexpr unsigned kLongestRepeatedChain = 16;
/// A smaller value is stored for a lookup: that takes less time than the kernel that may be added, since the lookup no
/// longer waits for the value's kernel.
constexpr int64_t kLeastLookedUp = int64_t(4) << 20;

bool isSplatConstant(Value value) {
  auto constant = value.getDefiningOp<ConstantOp>();
  return constant && isa<SplatElementsAttr>(constant.getValue());
}
/// True if only fusible ops read the value, so that none needs it in memory.
bool isReadByKernelsAlone(Value value) { return llvm::all_of(value.getUsers(), isFusable); }
bool isSmallBroadcast(Value value) {
  auto broadcast = value.getDefiningOp<BroadcastOp>();
  return broadcast && elementsOf(broadcast.getInput()) * 4 <= elementsOf(value);
}

} // namespace

bool isFusable(Operation *op) {
  if (op->hasAttr(names::kCall) || op->hasTrait<View>() || !isa<Fusible>(op) || isa<LoopKernel>(op))
    return false;
  if (isa<Reducible>(op))
    return true;
  if (auto constant = dyn_cast<ConstantOp>(op))
    return isa<SplatElementsAttr>(constant.getValue());
  auto cost = dyn_cast<Cost>(op);
  return cost && cost.isCheapToRecompute();
}

bool isCheapElement(Operation *op) { return isFusable(op) && !isa<Reducible>(op) && op->getNumResults() == 1; }

bool isMovement(Operation *op) {
  return op->getNumOperands() == 1 && !op->hasTrait<Pointwise>() && isCheapElement(op) &&
         cast<Fusible>(op).getOperandMap(0);
}

bool looksUpFew(OpOperand &use) {
  Operation *op = use.getOwner();
  auto fusible = dyn_cast<Fusible>(op);
  const unsigned number = use.getOperandNumber();
  return fusible && isSoleKernel(op) && !isa<LoopKernel>(op) && op->getNumResults() == 1 &&
         fusible.readsOneElement(number) && !fusible.getOperandMap(number) &&
         elementsOf(op->getResult(0)) * 4 <= elementsOf(use.get()) &&
         tensorBytes(use.get().getType()) >= kLeastLookedUp;
}

int64_t elementsOf(Value value) { return cast<RankedTensorType>(value.getType()).getNumElements(); }
Extents extentsOf(Value value) { return Extents(cast<RankedTensorType>(value.getType()).getShape()); }

llvm::DenseSet<Operation *> lossOps(func::FuncOp function) {
  llvm::DenseSet<Operation *> needed;
  SmallVector<Operation *> work;
  bool gradients = false;
  Operation *terminator = function.getBody().front().getTerminator();
  for (OpOperand &returned : terminator->getOpOperands()) {
    auto name = function.getResultAttrOfType<StringAttr>(returned.getOperandNumber(), names::kName);
    // State, gradients and their norm exist only if the loss is differentiated.
    if (!name || name.getValue().starts_with(outputs::kGradientPrefix) || name.getValue() == outputs::kGradNorm) {
      gradients = true;
      continue;
    }
    if (Operation *producer = returned.get().getDefiningOp(); producer && needed.insert(producer).second)
      work.push_back(producer);
  }
  if (!gradients)
    return {};
  while (!work.empty())
    for (Value operand : work.pop_back_val()->getOperands())
      if (Operation *producer = operand.getDefiningOp(); producer && needed.insert(producer).second)
        work.push_back(producer);
  return needed;
}

llvm::DenseSet<Operation *> forwardOps(func::FuncOp function) {
  llvm::DenseSet<Operation *> needed = lossOps(function);
  // Elementwise ops of the backward pass on forward values alone can run in the forward pass: a mask may then be kept
  // instead of the value that it is computed from.
  for (Operation &op : function.getBody().front().without_terminator()) {
    if (needed.contains(&op) || op.hasAttr(names::kRepeated) || !(op.hasTrait<View>() || isCheapElement(&op)))
      continue;
    bool ofForward = false, ofOthers = false;
    for (Value operand : op.getOperands())
      if (Operation *producer = operand.getDefiningOp(); producer && !isa<ConstantOp>(producer))
        (needed.contains(producer) ? ofForward : ofOthers) = true;
    if (ofForward && !ofOthers)
      needed.insert(&op);
  }
  return needed;
}

//===----------------------------------------------------------------------===//
// ValueNumbers
//===----------------------------------------------------------------------===//

Value ValueNumbers::numberOf(Value value) const {
  auto found = numbers.find(value);
  return found == numbers.end() ? value : found->second;
}

Operation *ValueNumbers::findOrAdd(Operation *op) {
  size_t hash = OperationEquivalence::computeHash(
      op, [&](Value operand) { return hash_value(numberOf(operand)); }, OperationEquivalence::ignoreHashValue,
      OperationEquivalence::IgnoreLocations);
  auto [begin, end] = known.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    bool equal = OperationEquivalence::isEquivalentTo(
        op, it->second, [&](Value a, Value b) { return success(numberOf(a) == numberOf(b)); }, nullptr,
        OperationEquivalence::IgnoreLocations);
    if (!equal)
      continue;
    for (auto [result, earlier] : llvm::zip_equal(op->getResults(), it->second->getResults()))
      numbers[result] = numberOf(earlier);
    return it->second;
  }
  known.insert({hash, op});
  return nullptr;
}

//===----------------------------------------------------------------------===//
// RepeatedChains
//===----------------------------------------------------------------------===//

RepeatedChains::RepeatedChains(func::FuncOp function)
    : block(function.getBody().front()), forward(forwardOps(function)), loss(lossOps(function)) {
  ValueNumbers numbers;
  for (Operation &op : block.without_terminator()) {
    bool copy = op.hasAttr(names::kRepeated);
    op.removeAttr(names::kRepeated);
    if (!copy && !isFusable(&op))
      continue;
    if (Operation *earlier = numbers.findOrAdd(&op); copy && earlier)
      originals[&op] = earlier;
  }
}

/// The one full-size operand of an op in a cheap chain: nullopt if there are several, null if there is none. Smaller
/// operands (a bias row, a scalar) do not count.
std::optional<Value> RepeatedChains::singleLeaf(Operation *op) {
  Value leaf;
  for (Value operand : op->getOperands()) {
    if (elementsOf(operand) * 4 <= elementsOf(op->getResult(0)) || isSplatConstant(operand) ||
        isSmallBroadcast(operand))
      continue;
    if (leaf && leaf != operand)
      return std::nullopt;
    leaf = operand;
  }
  return leaf;
}

/// The number of ops to recompute a value from the operand at the chain's start; kLongestRepeatedChain + 1 if it is no
/// chain.
unsigned RepeatedChains::chainLength(Value value) {
  unsigned length = 0;
  while (Operation *op = value.getDefiningOp()) {
    if (!isCheapElement(op))
      break;
    std::optional<Value> leaf = singleLeaf(op);
    if (!leaf || ++length > kLongestRepeatedChain)
      return length == 0 ? 0 : kLongestRepeatedChain + 1;
    if (!*leaf)
      break;
    value = *leaf;
  }
  return length;
}

bool RepeatedChains::isChain(Value value) {
  Operation *op = value.getDefiningOp();
  return op && isCheapElement(op) && elementsOf(value) > 1 && singleLeaf(op) &&
         chainLength(value) <= kLongestRepeatedChain;
}

/// True if recomputing the value would read the result of a collective, through any number of the chain's ops.
bool RepeatedChains::startsAtCollective(Value value) {
  for (unsigned length = 0; length <= kLongestRepeatedChain; ++length) {
    Operation *op = rootOf(value).getDefiningOp();
    if (!op || isa<Collective>(op))
      return op;
    std::optional<Value> leaf = isCheapElement(op) ? singleLeaf(op) : std::nullopt;
    if (!leaf || !*leaf)
      return false;
    value = *leaf;
  }
  return false;
}

/// True if recomputing `op` takes at most `most` cheap ops; subtracts their number from `most`.
bool RepeatedChains::isTreeWithin(Operation *op, unsigned &most) {
  if (most == 0)
    return false;
  --most;
  return llvm::all_of(op->getOperands(), [&](Value operand) {
    Operation *producer = operand.getDefiningOp();
    return !producer || !isCheapElement(producer) || isTreeWithin(producer, most);
  });
}

bool RepeatedChains::isTrivial(Operation *op) {
  unsigned most = kLongestRepeatedChain;
  return op->getNumOperands() == 0 || (elementsOf(op->getResult(0)) == 1 && isTreeWithin(op, most));
}

/// True for a cast to a wider type, unless its result is stored for other readers and its operand is not.
bool RepeatedChains::widens(Operation *op) {
  auto cast = dyn_cast<CastOp>(op);
  return cast && isFloatTensor(cast.getInput()) &&
         tensorBytes(cast.getInput().getType()) < tensorBytes(cast.getType()) &&
         (isReadByKernelsAlone(cast.getResult()) || !isReadByKernelsAlone(cast.getInput()));
}

void RepeatedChains::repeat() {
  // Backwards, so that a chain's consumers have their own copies before its producers are processed.
  SmallVector<Operation *> ops;
  for (Operation &op : block)
    ops.push_back(&op);
  OpOrder order(block);
  for (Operation *op : llvm::reverse(ops)) {
    if (!isCheapElement(op))
      continue;
    Value result = op->getResult(0);
    bool trivial = isTrivial(op);
    bool wider = !trivial && elementsOf(result) > 1 && widens(op);
    if (!trivial && !wider && !isChain(result))
      continue;
    SmallVector<OpOperand *> uses, lookups;
    const bool gathered = !trivial && forward.contains(op) && startsAtCollective(result);
    bool materialised = false, kept = false;
    for (OpOperand &use : result.getUses()) {
      Operation *user = use.getOwner();
      if (!isFusable(user)) {
        if (looksUpFew(use) && forward.contains(op) == forward.contains(user))
          lookups.push_back(&use);
        else
          materialised = true;
      } else if (gathered && !loss.contains(user))
        materialised = true;
      else if (trivial || !forward.contains(op) || forward.contains(user))
        uses.push_back(&use);
      else
        kept = true;
    }
    if (materialised || kept) // the value is stored in any case
      materialised |= !lookups.empty();
    else
      uses.append(lookups);
    // Users in program order, whatever the order of the use list.
    llvm::sort(uses, [&](OpOperand *a, OpOperand *b) {
      return a->getOwner() == b->getOwner() ? a->getOperandNumber() < b->getOperandNumber()
                                            : order.isBefore(a->getOwner(), b->getOwner());
    });
    // The first reader may share the producer's kernel. It gets a copy all the same if the op widens, since the
    // producer's kernel would otherwise write the wider value, or if the value is stored for others and its operands
    // are smaller.
    bool fromFirst = wider || (materialised && (trivial || !*singleLeaf(op)));
    Operation *original = originals.lookup(op);
    llvm::DenseMap<Operation *, Value> copies;
    for (size_t i = fromFirst ? 0 : 1; i < uses.size(); ++i) {
      Operation *user = uses[i]->getOwner();
      if (!fromFirst && user == uses[0]->getOwner())
        continue;
      Value &copy = copies[user];
      if (!copy) {
        OpBuilder builder(user);
        Operation *clone = builder.clone(*op);
        order.add(clone);
        originals[clone] = original ? original : op;
        if (forward.contains(op) && forward.contains(user))
          forward.insert(clone);
        if (loss.contains(op) && loss.contains(user))
          loss.insert(clone);
        copy = clone->getResult(0);
      }
      uses[i]->set(copy);
    }
  }
}

void RepeatedChains::giveUp(Operation *copy) {
  Operation *original = originals.lookup(copy);
  copy->getResult(0).replaceAllUsesWith(original->getResult(0));
  originals.erase(copy);
  forward.erase(copy);
  loss.erase(copy);
  copy->erase();
}

void RepeatedChains::giveUpAll() {
  SmallVector<Operation *> ops;
  for (Operation &op : block.without_terminator())
    ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops))
    if (originals.contains(op))
      giveUp(op);
}

} // namespace tcc::train

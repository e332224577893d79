//===- MinimizeSaved.cpp - the least that the backward pass keeps ----------===//
//
// Between the forward and the backward pass everything that the backward pass reads of the forward pass lies in memory,
// and there the peak is. What an elementwise op made can be computed again where it is read, from what it was made of,
// so that there is a choice of what to keep: the activation or what it was the activation of, the normalised value or
// the one before and two numbers for each row, a mask or nothing.
//
// The choice with the fewest bytes is a minimum cut, as in PyTorch's min-cut partitioner (Horace He, Shangdi Yu,
// "Transcending Runtime-Memory Tradeoffs in Checkpointing by being Fusion Aware", MLSys 2023). Each forward value is a
// pair of nodes joined by an edge that costs its bytes; from a value an edge of no limit leads to each value that is
// computed from it element by element. What cannot be computed again (library calls, reductions) hangs on the source,
// what the backward pass reads on the sink. What has to lie in memory for a library call of the backward pass is given:
// cut for nothing, like variables, inputs and constants.
//
// The pass executes no more than what fused kernels do without reading more: values whose computation would read more
// tensors than it saves are kept.
//
//===----------------------------------------------------------------------===//
#include "compiler/planning/MinimumCut.h"
#include "passes/Common.h"
#include "passes/Fusion.h"
#include "passes/Lowering.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_MINIMIZESAVEDPASS
#include "passes/LoweringPasses.h.inc"

namespace {

/// Smaller values are kept without asking.
constexpr int64_t kNegligibleSavedBytes = 256;
/// Most ops that a reader computes again, and most tensors of full size that it reads for one value.
constexpr unsigned kMostRepeatedOps = 64, kMostLeaves = 2;
/// Each round keeps the values whose computation was found too dear, and cuts again.
constexpr unsigned kMostRounds = 8;

class SavedValues {
public:
  explicit SavedValues(func::FuncOp function)
      : block(function.getBody().front()), forward(forwardOps(function)), loss(lossOps(function)) {}

  void run() {
    collect();
    if (readers.empty())
      return;
    for (unsigned round = 0; round < kMostRounds; ++round) {
      solve();
      if (!keepDearOnes())
        break;
    }
    rewrite();
  }

private:
  /// A forward value in memory, its views left out.
  struct Candidate {
    bool repeatable = false;       ///< its op can run in the reader's kernel
    bool inMemory = false;         ///< the forward pass writes it in any case
    bool given = false;            ///< and it is there in the backward pass, too
    int entering = 0, leaving = 0; ///< nodes
  };

  static Value rootOfViews(Value value) {
    while (Operation *op = value.getDefiningOp()) {
      if (!op->hasTrait<View>())
        break;
      value = op->getOperand(0);
    }
    return value;
  }

  /// One element takes one of each operand, and lanes that lie side by side read side by side.
  static bool readsInOrder(Operation *op) {
    if (op->hasTrait<Pointwise>() || op->getNumOperands() == 0)
      return true;
    if (op->getNumOperands() != 1)
      return false;
    AffineMap map = cast<Fusible>(op).getOperandMap(0);
    if (!map)
      return isa<RandomOp>(op);
    if (map.getNumResults() == 0 || map.getNumDims() == 0)
      return true;
    AffineExpr last = map.getResult(map.getNumResults() - 1),
               lane = getAffineDimExpr(map.getNumDims() - 1, op->getContext());
    return !last.isFunctionOfDim(map.getNumDims() - 1) ||
           isa<AffineConstantExpr>(simplifyAffineExpr(last - lane, map.getNumDims(), 0));
  }

  void collect() {
    llvm::DenseMap<Operation *, unsigned> stage; // library calls and views on the way to an op
    for (Operation &op : block.without_terminator()) {
      if (!forward.contains(&op))
        continue;
      unsigned at = 0;
      for (Value operand : op.getOperands())
        if (Operation *producer = operand.getDefiningOp())
          at = std::max(at, stage.lookup(producer) + !isFusable(producer));
      stage[&op] = at;
      if (op.hasTrait<View>() || isa<ConstantOp>(op))
        continue;
      for (Value result : op.getResults())
        values.insert({result, Candidate()});
    }
    for (auto &[value, candidate] : values) {
      Operation *op = value.getDefiningOp();
      candidate.repeatable = isCheapElement(op) && readsInOrder(op);
      candidate.inMemory = !isFusable(op);
      candidate.given = tensorBytes(value.getType()) <= kNegligibleSavedBytes;
      look(value, value, candidate, stage);
    }
  }

  /// What the users of `value`, or of a view of it, say.
  void look(Value root, Value value, Candidate &candidate, const llvm::DenseMap<Operation *, unsigned> &stage) {
    Operation *producer = root.getDefiningOp();
    for (OpOperand &use : value.getUses()) {
      Operation *user = use.getOwner();
      bool ahead = forward.contains(user);
      if (user->hasTrait<View>()) {
        candidate.repeatable = false; // it has to lie in memory for the view
        candidate.inMemory = true;
        look(root, user->getResult(0), candidate, stage);
      } else if (!ahead && !isFusable(user)) {
        candidate.given = true;
      } else if (!ahead) {
        readers.push_back(&use);
      } else if (!loss.contains(user)) {
        continue; // made at once only if that is what is kept
      } else if (!isFusable(user) || stage.lookup(user) > stage.lookup(producer) + !isFusable(producer)) {
        candidate.inMemory = true;
      }
    }
  }

  //===-- The cut ------------------------------------------------------------===//

  void solve() {
    using planning::FlowNetwork;
    FlowNetwork network;
    int source = network.addNode(), sink = network.addNode();
    for (auto &[value, candidate] : values) {
      candidate.entering = network.addNode();
      candidate.leaving = network.addNode();
    }
    for (auto &[value, candidate] : values) {
      if (candidate.given)
        continue; // cut for nothing
      // Bytes decide; between equals, what the forward pass writes anyway.
      int64_t bytes = tensorBytes(value.getType());
      network.addEdge(candidate.entering, candidate.leaving, candidate.inMemory ? bytes * 32 : bytes * 33);
      if (!candidate.repeatable || kept.contains(value))
        network.addEdge(source, candidate.entering, FlowNetwork::kUnlimited);
      else
        for (Value operand : value.getDefiningOp()->getOperands())
          if (auto found = values.find(rootOfViews(operand)); found != values.end())
            network.addEdge(found->second.leaving, candidate.entering, FlowNetwork::kUnlimited);
    }
    for (OpOperand *use : readers)
      network.addEdge(values.find(rootOfViews(use->get()))->second.leaving, sink, FlowNetwork::kUnlimited);
    sinkSide = network.cut(source, sink);
  }

  /// True if the backward pass computes the value again instead of reading it.
  bool isRepeated(Value value) {
    auto found = values.find(value);
    return found != values.end() && found->second.repeatable && !kept.contains(value) && !found->second.given &&
           sinkSide[size_t(found->second.entering)];
  }

  struct Tree {
    llvm::SmallPtrSet<Operation *, 16> ops;
    llvm::SmallPtrSet<Value, 4> leaves; ///< of full size
  };
  void growTree(Value value, int64_t fullBytes, Tree &tree) {
    if (tree.ops.size() > kMostRepeatedOps)
      return;
    Operation *op = value.getDefiningOp();
    if (!isRepeated(value)) {
      if (!(op && isa<ConstantOp>(op)) && tensorBytes(value.getType()) * 4 > fullBytes)
        tree.leaves.insert(rootOfViews(value));
      return;
    }
    if (tree.ops.insert(op).second)
      for (Value operand : op->getOperands())
        growTree(operand, fullBytes, tree);
  }

  bool keepDearOnes() {
    bool changed = false;
    for (OpOperand *use : readers) {
      Value value = use->get();
      if (!isRepeated(value))
        continue;
      Tree tree;
      growTree(value, tensorBytes(value.getType()), tree);
      if (tree.ops.size() > kMostRepeatedOps || tree.leaves.size() > kMostLeaves)
        changed |= kept.insert(value).second;
    }
    return changed;
  }

  //===-- The copies -----------------------------------------------------------===//

  void rewrite() {
    llvm::DenseMap<Operation *, llvm::DenseMap<Value, Value>> copiesOf; // per reader
    for (OpOperand *use : readers)
      if (isRepeated(use->get()))
        use->set(copyFor(use->getOwner(), use->get(), copiesOf[use->getOwner()]));
  }

  Value copyFor(Operation *reader, Value value, llvm::DenseMap<Value, Value> &copies) {
    if (!isRepeated(value))
      return value;
    if (Value known = copies.lookup(value))
      return known;
    Operation *op = value.getDefiningOp();
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(copyFor(reader, operand, copies));
    OpBuilder builder(reader);
    Operation *copy = builder.clone(*op);
    copy->setOperands(operands);
    copy->setAttr(names::kRepeated, builder.getUnitAttr());
    return copies[value] = copy->getResult(0);
  }

  Block &block;
  llvm::DenseSet<Operation *> forward, loss;
  llvm::MapVector<Value, Candidate> values; ///< in program order
  SmallVector<OpOperand *> readers;         ///< operands of cheap backward ops that are forward values
  llvm::DenseSet<Value> kept;
  std::vector<bool> sinkSide;
};

struct MinimizeSaved : impl::MinimizeSavedPassBase<MinimizeSaved> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (function->hasAttr(names::kEntry))
      SavedValues(function).run();
  }
};

} // namespace

} // namespace tcc::train

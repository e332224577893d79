//===- MinimizeSaved.cpp - a minimum cut of the values kept for backward --===//
//
// All forward values that the backward pass reads are in memory between the two passes, and that is where the peak is.
// The reader of an elementwise op's result can recompute it from the op's operands, so the pass may choose the values
// to keep: the activation or its operand, the normalised value or the original with two numbers for each row, a mask or
// nothing.
//
// The choice with the fewest bytes is a minimum cut, as in PyTorch's min-cut partitioner (Horace He, Shangdi Yu,
// "Transcending Runtime-Memory Tradeoffs in Checkpointing by being Fusion Aware", MLSys 2023). Each forward value is a
// pair of nodes joined by an edge that costs its bytes; an unlimited edge leads from a value to each value computed
// from it element by element. Values that cannot be recomputed (library calls, reductions) are connected to the source,
// those that the backward pass reads to the sink. Operands of the backward pass's library calls are in memory in any
// case: they are free to cut, like variables, inputs and constants.
//
// Values whose recomputation would read more tensors than it saves are kept: the pass only adds work to fused kernels,
// never reads.
//
// A value that is kept for a library call is free for the cut, but not for its other readers: each reads it once more,
// and keeps it alive until then. If a kernel reads the operands of such a value in any case, it recomputes the value
// and reads one tensor less: the gradient of batch norm and ReLU computes the mask from the normalised value that it
// needs anyway, and the activation dies after its last library call.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Views.h"
#include "compiler/planning/MinimumCut.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/fusion/Fusion.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_MINIMIZESAVEDPASS
#include "passes/LoweringPasses.h.inc"

namespace {

/// Smaller values are always kept.
constexpr int64_t kNegligibleSavedBytes = 256;
/// Most ops that a reader recomputes for one value, and most full-size tensors that it reads for that.
constexpr unsigned kMostRepeatedOps = 64, kMostLeaves = 2;
/// Each round keeps the values whose recomputation is too expensive, and cuts again.
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
    giveUpSecondReads();
    rewrite();
  }

private:
  /// A forward value. Its views are not candidates themselves.
  struct Candidate {
    bool repeatable = false;       ///< its op can run in the reader's kernel
    bool inMemory = false;         ///< the forward pass writes it in any case
    bool given = false;            ///< it is in memory during the backward pass in any case
    int entering = 0, leaving = 0; ///< nodes
  };

  /// True if a result element needs one element of each operand, and adjacent lanes read adjacent elements.
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

  /// Derives a candidate's flags from the users of `value`, which is `root` or a view of it.
  void look(Value root, Value value, Candidate &candidate, const llvm::DenseMap<Operation *, unsigned> &stage) {
    Operation *producer = root.getDefiningOp();
    for (OpOperand &use : value.getUses()) {
      Operation *user = use.getOwner();
      bool ahead = forward.contains(user);
      if (user->hasTrait<View>()) {
        candidate.repeatable = false; // a view needs it in memory
        candidate.inMemory = true;
        look(root, user->getResult(0), candidate, stage);
      } else if (!ahead && !isFusable(user)) {
        candidate.given = true;
      } else if (!ahead) {
        readers.push_back(&use);
      } else if (!loss.contains(user)) {
        continue; // an elementwise op that runs in the forward pass only if its result is kept
      } else if (!isFusable(user) || (stage.lookup(user) > stage.lookup(producer) + !isFusable(producer) &&
                                      !RepeatedChains::isChain(root))) {
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
        continue; // no edge: cutting it costs nothing
      // Bytes decide; among equals, values that the forward pass writes anyway are preferred.
      int64_t bytes = tensorBytes(value.getType());
      network.addEdge(candidate.entering, candidate.leaving, candidate.inMemory ? bytes * 32 : bytes * 33);
      if (!candidate.repeatable || kept.contains(value))
        network.addEdge(source, candidate.entering, FlowNetwork::kUnlimited);
      else
        for (Value operand : value.getDefiningOp()->getOperands())
          if (auto found = values.find(rootOf(operand)); found != values.end())
            network.addEdge(found->second.leaving, candidate.entering, FlowNetwork::kUnlimited);
    }
    for (OpOperand *use : readers)
      network.addEdge(values.find(rootOf(use->get()))->second.leaving, sink, FlowNetwork::kUnlimited);
    sinkSide = network.cut(source, sink);
  }

  /// True if the backward pass computes the value again instead of reading it.
  bool isRepeated(Value value) {
    auto found = values.find(value);
    return found != values.end() && found->second.repeatable && !kept.contains(value) && !found->second.given &&
           sinkSide[size_t(found->second.entering)];
  }

  /// The same for one reader, which may recompute values beyond the cut.
  bool isRepeatedFor(Operation *reader, Value value) {
    if (isRepeated(value))
      return true;
    auto found = secondReads.find(reader);
    return found != secondReads.end() && found->second.contains(value);
  }

  struct Tree {
    llvm::SmallPtrSet<Operation *, 16> ops;
    llvm::SmallPtrSet<Value, 4> leaves; ///< of full size
  };
  static bool isSmallLeaf(Value value, int64_t fullBytes) {
    return value.getDefiningOp<ConstantOp>() || tensorBytes(value.getType()) * 4 <= fullBytes;
  }
  void growTree(Operation *reader, Value value, int64_t fullBytes, Tree &tree) {
    if (tree.ops.size() > kMostRepeatedOps)
      return;
    Operation *op = value.getDefiningOp();
    if (!isRepeatedFor(reader, value)) {
      if (!isSmallLeaf(value, fullBytes))
        tree.leaves.insert(rootOf(value));
      return;
    }
    if (tree.ops.insert(op).second)
      for (Value operand : op->getOperands())
        growTree(reader, operand, fullBytes, tree);
  }

  bool keepDearOnes() {
    bool changed = false;
    for (OpOperand *use : readers) {
      Value value = use->get();
      if (!isRepeated(value))
        continue;
      Operation *reader = use->getOwner();
      const int64_t fullBytes = tensorBytes(value.getType());
      if (!isDear(reader, value, fullBytes))
        continue;
      llvm::SmallSetVector<Value, 4> written;
      findWritten(value, written);
      llvm::SmallVector<Value> added;
      for (Value one : written)
        if (kept.insert(one).second)
          added.push_back(one);
      if (written.empty() || isDear(reader, value, fullBytes)) {
        for (Value one : added)
          kept.erase(one);
        kept.insert(value); // not in `written`, whose values it is computed from
        changed = true;
      }
      changed |= !added.empty();
    }
    return changed;
  }

  bool isDear(Operation *reader, Value value, int64_t fullBytes) {
    Tree tree;
    growTree(reader, value, fullBytes, tree);
    return tree.ops.size() > kMostRepeatedOps || tree.leaves.size() > kMostLeaves;
  }

  /// The nearest values among the operands of `value` that the forward pass writes in any case: keeping them costs no
  /// extra store.
  void findWritten(Value value, llvm::SmallSetVector<Value, 4> &written) {
    llvm::SetVector<Value> work;
    work.insert(value);
    for (size_t i = 0; i < work.size() && i < kMostRepeatedOps; ++i)
      for (Value operand : work[i].getDefiningOp()->getOperands())
        if (isRepeated(operand)) {
          if (values.find(operand)->second.inMemory)
            written.insert(operand);
          else
            work.insert(operand);
        }
  }

  //===-- Recompute instead of reading given values -----------------------------===//

  void giveUpSecondReads() {
    numberLevels();
    llvm::SmallPtrSet<Value, 8> reliedOn; // values that repeated ops read, which must stay stored
    llvm::DenseMap<Value, llvm::SmallSetVector<OpOperand *, 4>> usesOf; // readers by the leaves of their trees
    llvm::DenseMap<OpOperand *, unsigned> number;
    llvm::DenseMap<Operation *, llvm::SmallVector<OpOperand *>> operandsOf;
    auto noteLeaves = [&](OpOperand *use) {
      Tree tree;
      growTree(use->getOwner(), use->get(), fullBytesOf(use->getOwner()), tree);
      for (Value leaf : tree.leaves)
        usesOf[leaf].insert(use);
    };
    for (OpOperand *use : readers) {
      number[use] = unsigned(number.size());
      operandsOf[use->getOwner()].push_back(use);
      noteLeaves(use);
    }
    for (auto &[value, candidate] : values) {
      if (!candidate.given || !candidate.repeatable || reliedOn.contains(value) ||
          tensorBytes(value.getType()) <= kNegligibleSavedBytes)
        continue;
      // All of its readers recompute it, or none: one remaining reader would keep it alive.
      llvm::MapVector<Operation *, Tree> repeated;
      bool all = true;
      llvm::SmallVector<OpOperand *> uses = usesOf.lookup(value).takeVector();
      llvm::sort(uses, [&](OpOperand *a, OpOperand *b) { return number.lookup(a) < number.lookup(b); });
      for (OpOperand *use : uses) {
        Operation *reader = use->getOwner();
        Tree tree, again;
        growTree(reader, use->get(), fullBytesOf(reader), tree);
        if (!all || !tree.leaves.contains(value) || repeated.contains(reader))
          continue;
        all = tensorBytes(value.getType()) * 4 > fullBytesOf(reader) &&
              reach(value, fullBytesOf(reader), readAround(reader, value), again) &&
              tree.ops.size() + again.ops.size() <= kMostRepeatedOps;
        repeated[reader] = std::move(again);
      }
      if (!all)
        continue;
      for (auto &[reader, tree] : repeated) {
        for (Operation *op : tree.ops)
          secondReads[reader].insert(op->getResult(0));
        llvm::for_each(operandsOf.lookup(reader), noteLeaves);
        reliedOn.insert(tree.leaves.begin(), tree.leaves.end());
      }
    }
  }

  /// Counts the library calls and reductions before each op: only ops of one level can share a kernel with their users.
  void numberLevels() {
    for (Operation &op : block.without_terminator()) {
      unsigned at = 0;
      for (Value operand : op.getOperands())
        if (Operation *producer = operand.getDefiningOp())
          at = std::max(at, level.lookup(producer) + (!isFusable(producer) || isa<Reducible>(producer)));
      level[&op] = at;
    }
  }

  /// Bytes of a reader's iteration space.
  static int64_t fullBytesOf(Operation *reader) {
    return tensorBytes(isa<Reducible>(reader) ? reader->getOperand(0).getType() : reader->getResult(0).getType());
  }

  /// The full-size forward values other than `except` that the reader's kernel reads; that kernel is taken to include
  /// the reader's elementwise users.
  llvm::SmallPtrSet<Value, 8> readAround(Operation *reader, Value except) {
    const int64_t fullBytes = fullBytesOf(reader);
    llvm::SetVector<Operation *> ops;
    ops.insert(reader);
    Tree read;
    for (size_t i = 0; i < ops.size() && i < kMostRepeatedOps; ++i) {
      for (Value operand : ops[i]->getOperands())
        if (Operation *producer = rootOf(operand).getDefiningOp(); producer && forward.contains(producer))
          growTree(ops[i], operand, fullBytes, read);
      if (isa<Reducible>(ops[i]))
        continue;
      for (Operation *user : ops[i]->getUsers())
        if (isFusable(user) && level.lookup(user) == level.lookup(reader) && fullBytesOf(user) == fullBytes &&
            (user->hasTrait<Pointwise>() || isa<Reducible>(user)))
          ops.insert(user);
    }
    read.leaves.erase(except);
    return llvm::SmallPtrSet<Value, 8>(read.leaves.begin(), read.leaves.end());
  }

  /// True if `value` can be computed from `given` and small values; `tree` gets the ops and the values that they read.
  bool reach(Value value, int64_t fullBytes, const llvm::SmallPtrSet<Value, 8> &given, Tree &tree) {
    if (given.contains(value)) {
      tree.leaves.insert(value);
      return true;
    }
    if (isSmallLeaf(value, fullBytes))
      return true;
    auto found = values.find(value);
    if (found == values.end() || !found->second.repeatable || kept.contains(value) ||
        tree.ops.size() > kMostRepeatedOps)
      return false;
    return !tree.ops.insert(value.getDefiningOp()).second ||
           llvm::all_of(value.getDefiningOp()->getOperands(),
                        [&](Value operand) { return reach(operand, fullBytes, given, tree); });
  }

  //===-- The copies -----------------------------------------------------------===//

  void rewrite() {
    llvm::DenseMap<Operation *, llvm::DenseMap<Value, Value>> copiesOf; // per reader
    for (OpOperand *use : readers)
      if (isRepeatedFor(use->getOwner(), use->get()))
        use->set(copyFor(use->getOwner(), use->get(), copiesOf[use->getOwner()]));
  }

  Value copyFor(Operation *reader, Value value, llvm::DenseMap<Value, Value> &copies) {
    if (!isRepeatedFor(reader, value))
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
  llvm::DenseMap<Operation *, unsigned> level;
  llvm::DenseMap<Operation *, llvm::DenseSet<Value>> secondReads; ///< per reader: given values that it recomputes
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

//===- FuseColumnSums.cpp - sums of columns in kernels of rows -----------===//
//
// A kernel of rows, such as a norm's gradient, reduces the last dimension. Sums of columns of the same tensors are in
// other kernels, which read them again. For each kernel of rows the pass collects the sums whose large operands it
// reads or writes, and appends their ops to its region. A kernel of sums may lose some of its results: fuse-kernels has
// merged the sums of different norms that share one tensor.
//
// A sum may see the tensor in another shape, [rows, columns] instead of [samples, positions, columns]: its ops are
// rebuilt in the shape of the kernel of rows.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/ColumnSums.h"
#include "compiler/dialect/Views.h"
#include "compiler/target/Target.h"
#include "passes/Common.h"
#include "passes/Lowering.h"
#include "passes/fusion/Fusion.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/Pass/Pass.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace tcc::train {

#define GEN_PASS_DEF_FUSECOLUMNSUMSPASS
#include "passes/LoweringPasses.h.inc"

namespace {

/// Least share of the traffic that has to be saved.
constexpr int64_t kLeastShare = 16;

int64_t bytesOf(Value value) { return tensorBytes(value.getType()); }
OperandRange yieldedBy(FusedOp fused) { return cast<YieldOp>(fused.getBody().front().getTerminator()).getValues(); }
Value operandOf(FusedOp fused, Value argument) {
  return fused->getOperand(cast<BlockArgument>(argument).getArgNumber());
}

/// The tensor that a kernel's reductions are over, and how they see it.
struct ReducedShape {
  Extents full;
  bool ofRows = false; ///< the last dimension is reduced; else all others are

  int64_t columns() const { return full.back(); }
  int64_t elements() const {
    int64_t count = 1;
    for (int64_t extent : full)
      count *= extent;
    return count;
  }
  Extents row() const {
    Extents shape(full);
    shape.back() = 1;
    return shape;
  }
  Extents column() const {
    Extents shape(full.size(), 1);
    shape.back() = full.back();
    return shape;
  }
  Extents columnDims() const {
    Extents dims;
    for (size_t dim = 0; dim + 1 < full.size(); ++dim)
      dims.push_back(int64_t(dim));
    return dims;
  }
};

/// Nothing if some reduction of the kernel has another form.
std::optional<ReducedShape> reducedShapeOf(FusedOp fused) {
  std::optional<ReducedShape> shape;
  if (fused.getLoopKernel() || fused.getTileElements() || fused->hasAttr(names::kParts))
    return std::nullopt;
  for (Operation &op : fused.getBody().front().without_terminator()) {
    if (!isa<Reducible>(op))
      continue;
    auto reduce = dyn_cast<ReduceOp>(&op);
    if (!reduce)
      return std::nullopt;
    ReducedShape own{extentsOf(reduce.getInput())};
    if (own.full.size() < 2 || own.columns() == 1)
      return std::nullopt;
    Extents dims, others = own.columnDims();
    auto isOne = [&](int64_t dim) { return own.full[size_t(dim)] == 1; };
    llvm::copy_if(reduce.getDims(), std::back_inserter(dims), [&](int64_t dim) { return !isOne(dim); });
    llvm::erase_if(others, isOne);
    own.ofRows = dims == Extents{int64_t(own.full.size()) - 1};
    if ((!own.ofRows && dims != others) || (shape && (shape->full != own.full || shape->ofRows != own.ofRows)))
      return std::nullopt;
    shape = own;
  }
  return shape;
}

/// Results of a kernel of sums that can move into a kernel of rows.
struct SumMove {
  mutable FusedOp sums; ///< a handle
  SmallVector<unsigned> results;
  int64_t count = 0;      ///< sums among the ops of these results
  int64_t savedBytes = 0; ///< that the kernel of sums no longer reads
};

class SumMover {
public:
  SumMover(FusedOp rows, const ReducedShape &shape) : rows(rows), shape(shape) {
    for (auto [operand, argument] : llvm::zip_equal(rows->getOperands(), rows.getBody().front().getArguments()))
      if (extentsOf(operand) == shape.full)
        known[rootOf(operand)] = argument;
    for (auto [result, value] : llvm::zip_equal(rows.getResults(), yieldedBy(rows)))
      if (extentsOf(result) == shape.full)
        known[result] = value;
  }

  /// The results of a kernel of sums that read no other large tensor; at most `most` sums.
  SumMove find(FusedOp sums, const ReducedShape &own, int64_t most) {
    SumMove move{sums, {}};
    if (own.columns() != shape.columns() || own.elements() != shape.elements())
      return move;
    llvm::SmallPtrSet<Operation *, 8> counted;
    llvm::SmallPtrSet<Value, 8> leaves, kept; // large operands of moved and of other results
    for (auto [index, value] : llvm::enumerate(yieldedBy(sums))) {
      const llvm::SetVector<Operation *> slice = sliceOf(value);
      llvm::SmallPtrSet<Operation *, 8> reductions;
      for (Operation *op : slice)
        if (isa<ReduceOp>(op) && !counted.contains(op))
          reductions.insert(op);
      const bool moves = llvm::any_of(slice, llvm::IsaPred<ReduceOp>) && elementsOf(value) <= shape.columns() &&
                         int64_t(counted.size() + reductions.size()) <= most &&
                         llvm::all_of(slice, [&](Operation *op) { return canMove(sums, op, own); });
      for (Operation *op : slice)
        for (Value operand : op->getOperands())
          if (isa<BlockArgument>(operand) && elementsOf(operand) == shape.elements())
            (moves ? leaves : kept).insert(operand);
      if (!moves)
        continue;
      counted.insert(reductions.begin(), reductions.end());
      move.results.push_back(unsigned(index));
    }
    move.count = int64_t(counted.size());
    for (Value leaf : leaves)
      if (!kept.contains(leaf))
        move.savedBytes += bytesOf(leaf);
    if (!move.results.empty() && !readersBefore(move))
      return SumMove{sums, {}};
    return move;
  }

  /// True if no moved sum needs another one, which would be computed by the same kernel.
  bool areIndependent(ArrayRef<SumMove> moves) {
    const llvm::SetVector<Operation *> waiting = *readersBefore(moves);
    return llvm::all_of(moves, [&](const SumMove &move) {
      return llvm::none_of(move.sums->getOperands(), [&](Value operand) {
        Operation *maker = operand.getDefiningOp();
        return maker && (waiting.contains(maker) ||
                         llvm::any_of(moves, [&](const SumMove &other) { return maker == other.sums; }));
      });
    });
  }

  /// Appends the results to the kernel of rows, which becomes a new one.
  void apply(ArrayRef<SumMove> moves, int64_t parts) {
    const llvm::SetVector<Operation *> waiting = *readersBefore(moves);
    Block &old = rows.getBody().front();
    auto *body = new Block;
    OpBuilder inside(rows.getContext());
    inside.setInsertionPointToEnd(body);
    IRMapping mapping;
    llvm::SetVector<Value> operands;
    auto argumentOf = [&](Value operand) -> Value {
      if (operands.insert(operand))
        body->addArgument(operand.getType(), operand.getLoc());
      return body->getArgument(unsigned(llvm::find(operands, operand) - operands.begin()));
    };
    for (BlockArgument argument : old.getArguments())
      mapping.map(argument, argumentOf(operandOf(rows, argument)));
    auto become = [&](Operation *op, Operation *copy) {
      mapping.map(op, copy);
      for (auto [from, to] : llvm::zip_equal(op->getResults(), copy->getResults()))
        mapping.map(from, to);
    };
    for (Operation &op : old.without_terminator())
      become(&op, inside.clone(op, mapping));
    SmallVector<Value> yielded, replaced;
    SmallVector<Location> locations{rows.getLoc()};
    OpBuilder outside(rows);
    for (const SumMove &move : moves) {
      const ReducedShape own = *reducedShapeOf(move.sums);
      locations.push_back(move.sums.getLoc());
      for (unsigned index : move.results) {
        Value value = yieldedBy(move.sums)[index];
        for (Operation *op : sliceOf(value)) {
          if (mapping.contains(op))
            continue;
          for (Value operand : op->getOperands())
            if (isa<BlockArgument>(operand) && !mapping.contains(operand))
              mapping.map(operand, leafOf(move.sums, operand, own, mapping, outside, argumentOf));
          become(op, rebuilt(op, own, mapping, inside));
        }
        yielded.push_back(mapping.lookup(value));
        replaced.push_back(move.sums.getResult(index));
      }
    }
    // A result that only the moved sums read is no longer stored.
    llvm::SmallPtrSet<Operation *, 4> emptied;
    for (const SumMove &move : moves)
      if (move.results.size() == move.sums->getNumResults())
        emptied.insert(move.sums);
    for (auto [result, value] : llvm::zip_equal(rows.getResults(), yieldedBy(rows)))
      if (!isReadOnlyBy(result, emptied)) {
        yielded.push_back(mapping.lookup(value));
        replaced.push_back(result);
      }
    YieldOp::create(inside, rows.getLoc(), yielded);
    mergeTwins(*body);
    auto fused = FusedOp::create(outside, FusedLoc::get(rows.getContext(), locations),
                                 body->getTerminator()->getOperandTypes(), operands.getArrayRef());
    fused.getBody().push_back(body);
    fused->setAttr(names::kParts, outside.getI64IntegerAttr(parts));
    Operation *last = fused;
    for (auto [from, to] : llvm::zip_equal(replaced, fused.getResults())) {
      Value value = to;
      if (to.getType() != from.getType()) {
        auto view = ReshapeOp::create(outside, from.getLoc(), from.getType(), to);
        value = view;
        last = view;
      }
      from.replaceAllUsesWith(value);
    }
    for (Operation *op : waiting) {
      op->moveAfter(last);
      last = op;
    }
  }

private:
  /// Merges equal ops: the sums need values that the rows need, too.
  static void mergeTwins(Block &body) {
    ValueNumbers numbers;
    SmallVector<Operation *> dead;
    for (Operation &op : body.without_terminator())
      if (Operation *twin = numbers.findOrAdd(&op)) {
        op.replaceAllUsesWith(twin->getResults());
        dead.push_back(&op);
      }
    for (Operation *op : dead)
      op->erase();
  }

  /// The ops of a region that a value needs, in order.
  static llvm::SetVector<Operation *> sliceOf(Value value) {
    llvm::SetVector<Operation *> ops;
    SmallVector<Value> work{value};
    while (!work.empty())
      if (Operation *op = work.pop_back_val().getDefiningOp(); op && ops.insert(op))
        llvm::append_range(work, op->getOperands());
    SmallVector<Operation *> sorted = ops.takeVector();
    llvm::sort(sorted, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    return {sorted.begin(), sorted.end()};
  }

  /// A shape of the kernel of sums, in the kernel of rows; nothing if there is none.
  std::optional<Extents> inRows(ArrayRef<int64_t> from, const ReducedShape &own) const {
    if (own.full == shape.full)
      return Extents(from);
    if (from == ArrayRef<int64_t>(own.full))
      return shape.full;
    if (from == ArrayRef<int64_t>(own.row()))
      return shape.row();
    if (from == ArrayRef<int64_t>(own.column()))
      return shape.column();
    return from.size() <= 1 ? std::optional(Extents(from)) : std::nullopt;
  }

  bool canMove(FusedOp sums, Operation *op, const ReducedShape &own) {
    if (own.full != shape.full) { // has to be rebuilt
      auto constant = dyn_cast<ConstantOp>(op);
      if (op->getNumResults() != 1 || (constant && !constant.getValue().isSplat()) ||
          (!constant && !op->hasTrait<Pointwise>() && !isa<BroadcastOp, ReduceOp>(op)) ||
          !inRows(extentsOf(op->getResult(0)), own))
        return false;
    }
    return llvm::all_of(op->getOperands(), [&](Value operand) {
      if (!isa<BlockArgument>(operand))
        return true;
      Value outer = operandOf(sums, operand);
      if (!inRows(extentsOf(operand), own))
        return false;
      if (elementsOf(operand) == shape.elements())
        return extentsOf(operand) == own.full && known.contains(rootOf(outer)) &&
               known.lookup(rootOf(outer)).getType() == typed(outer, shape.full);
      Operation *maker = outer.getDefiningOp();
      return elementsOf(operand) < shape.elements() && (!maker || (maker != rows && maker->isBeforeInBlock(rows)));
    });
  }

  static RankedTensorType typed(Value value, ArrayRef<int64_t> extents) {
    return RankedTensorType::get(extents, cast<RankedTensorType>(value.getType()).getElementType());
  }

  /// The ops before the kernel of rows that need a moved sum, in order; nothing if the kernel itself does.
  std::optional<llvm::SetVector<Operation *>> readersBefore(ArrayRef<SumMove> moves) {
    llvm::SmallPtrSet<Value, 16> late;
    Operation *first = rows;
    for (const SumMove &move : moves) {
      for (unsigned index : move.results)
        late.insert(move.sums.getResult(index));
      if (move.sums->isBeforeInBlock(first))
        first = move.sums;
    }
    llvm::SetVector<Operation *> found;
    for (Operation *op = first;; op = op->getNextNode()) {
      const bool reads = llvm::any_of(op->getOperands(), [&](Value operand) { return late.contains(operand); });
      if (op == rows)
        return reads ? std::nullopt : std::optional(std::move(found));
      if (!reads)
        continue;
      found.insert(op);
      late.insert(op->result_begin(), op->result_end());
    }
  }

  /// The value in the new region of an operand of a kernel of sums.
  Value leafOf(FusedOp sums, Value operand, const ReducedShape &own, IRMapping &mapping, OpBuilder &outside,
               function_ref<Value(Value)> argumentOf) {
    Value outer = operandOf(sums, operand);
    if (elementsOf(operand) == shape.elements())
      return mapping.lookup(known.lookup(rootOf(outer)));
    const RankedTensorType type = typed(outer, *inRows(extentsOf(operand), own));
    if (type != outer.getType())
      outer = ReshapeOp::create(outside, outer.getLoc(), type, outer);
    return argumentOf(outer);
  }

  Operation *rebuilt(Operation *op, const ReducedShape &own, IRMapping &mapping, OpBuilder &inside) {
    if (own.full == shape.full)
      return inside.clone(*op, mapping);
    const RankedTensorType type = typed(op->getResult(0), *inRows(extentsOf(op->getResult(0)), own));
    if (auto reduce = dyn_cast<ReduceOp>(op))
      return ReduceOp::create(inside, op->getLoc(), type, reduce.getKind(), mapping.lookup(reduce.getInput()),
                              shape.columnDims());
    if (auto constant = dyn_cast<ConstantOp>(op))
      return ConstantOp::create(inside, op->getLoc(), cast<SplatElementsAttr>(constant.getValue()).resizeSplat(type));
    SmallVector<Value> operands =
        llvm::map_to_vector(op->getOperands(), [&](Value operand) { return mapping.lookup(operand); });
    return inside.create(OperationState(op->getLoc(), op->getName(), operands, type, op->getAttrs()));
  }

  /// True if all readers of a result, across views, are these kernels.
  static bool isReadOnlyBy(Value result, const llvm::SmallPtrSetImpl<Operation *> &readers) {
    return llvm::all_of(usesAcrossViews(result), [&](OpOperand *use) { return readers.contains(use->getOwner()); });
  }

  FusedOp rows;
  const ReducedShape &shape;
  llvm::DenseMap<Value, Value> known; ///< large tensors that the kernel has: root → value of its region
};

/// Erases a kernel, and the views of its results, which nothing reads.
void eraseWithViews(FusedOp fused) {
  SmallVector<Operation *> dead{fused};
  for (size_t i = 0; i < dead.size(); ++i)
    llvm::append_range(dead, dead[i]->getUsers());
  for (Operation *op : llvm::reverse(dead))
    op->erase();
}

/// The kernel without some of its results; null if none is left.
FusedOp removeResults(FusedOp fused, ArrayRef<unsigned> gone) {
  if (gone.size() == fused->getNumResults()) {
    fused.erase();
    return nullptr;
  }
  OpBuilder builder(fused);
  Block &block = fused.getBody().front();
  SmallVector<Value> yielded, results;
  for (auto [index, value] : llvm::enumerate(yieldedBy(fused)))
    if (!llvm::is_contained(gone, unsigned(index))) {
      yielded.push_back(value);
      results.push_back(fused.getResult(unsigned(index)));
    }
  block.getTerminator()->setOperands(yielded);
  SmallVector<Operation *> ops(llvm::make_pointer_range(block.without_terminator()));
  for (Operation *op : llvm::reverse(ops))
    if (op->use_empty())
      op->erase();
  SmallVector<Value> operands;
  for (unsigned i = block.getNumArguments(); i-- > 0;)
    if (block.getArgument(i).use_empty())
      block.eraseArgument(i);
    else
      operands.insert(operands.begin(), fused->getOperand(i));
  auto rest = FusedOp::create(builder, fused.getLoc(), TypeRange(ValueRange(yielded)), operands);
  rest.getBody().takeBody(fused.getBody());
  for (auto [from, to] : llvm::zip_equal(results, rest.getResults()))
    from.replaceAllUsesWith(to);
  fused.erase();
  return rest;
}

class ColumnFuser {
public:
  /// `parts`, `leastRows`: 0: as the model says.
  ColumnFuser(Block &block, const target::CodeModel &code, int64_t parts, int64_t leastRows)
      : code(code), parts(parts), leastRows(leastRows ? leastRows : code.grid.walkRows) {
    for (FusedOp kernel : block.getOps<FusedOp>())
      if (std::optional<ReducedShape> shape = reducedShapeOf(kernel))
        (shape->ofRows ? rowKernels : sumKernels).push_back(kernel);
  }

  void run() {
    for (FusedOp kernel : rowKernels)
      fuse(kernel);
  }

private:
  /// The parts of a kernel's rows; 1: too few rows or too many columns.
  int64_t partsOf(const ReducedShape &shape) {
    if (code.threadsOfWalk(shape.columns()) == 0)
      return 1;
    const int64_t wanted = parts ? parts : code.grid.walkParts;
    const int64_t least = parts ? parts / 2 : code.fewestWalkParts(shape.columns());
    const int64_t count = shape.elements() / shape.columns();
    const int64_t found = jointCutOf(shape.full, shape.columnDims(), std::min(wanted, count / leastRows)).count();
    return found >= least ? found : 1;
  }

  void fuse(FusedOp kernel) {
    const ReducedShape shape = *reducedShapeOf(kernel);
    const int64_t count = partsOf(shape);
    auto isWhole = [&](Value value) { return extentsOf(value) == shape.full || extentsOf(value) == shape.row(); };
    if (count == 1 || !llvm::all_of(kernel.getResults(), isWhole))
      return;
    const int64_t threads = code.threadsOfWalk(shape.columns());
    int64_t sumsLeft = code.grid.walkSums / int64_t(llvm::divideCeil(shape.columns(), threads)), saved = 0;
    int64_t pointersLeft = kMostOperands - int64_t(kernel->getNumOperands() + kernel->getNumResults());
    SumMover mover(kernel, shape);
    SmallVector<SumMove> moves;
    for (FusedOp sums : sumKernels) {
      SumMove move = mover.find(sums, *reducedShapeOf(sums), sumsLeft);
      const auto pointers = int64_t(sums->getNumOperands() + move.results.size()); // at most
      if (move.savedBytes == 0 || pointers > pointersLeft)
        continue;
      sumsLeft -= move.count;
      pointersLeft -= pointers;
      saved += move.savedBytes;
      moves.push_back(std::move(move));
    }
    int64_t traffic = saved;
    for (Value value : kernel->getOperands())
      traffic += bytesOf(value);
    for (Value value : kernel->getResults())
      traffic += bytesOf(value);
    if (moves.empty() || saved * kLeastShare < traffic || !mover.areIndependent(moves))
      return;
    mover.apply(moves, count);
    for (const SumMove &move : moves) {
      llvm::erase(sumKernels, move.sums);
      if (FusedOp rest = removeResults(move.sums, move.results))
        sumKernels.push_back(rest);
    }
    eraseWithViews(kernel);
  }

  const target::CodeModel &code;
  int64_t parts, leastRows;
  SmallVector<FusedOp> rowKernels, sumKernels;
};

struct FuseColumnSums : impl::FuseColumnSumsPassBase<FuseColumnSums> {
  using FuseColumnSumsPassBase::FuseColumnSumsPassBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    const target::Target *target = target::targetOf(function);
    if (function->hasAttr(names::kEntry) && target && target->code().threaded())
      ColumnFuser(function.getBody().front(), target->code(), parts, rows).run();
  }
};

} // namespace

} // namespace tcc::train

//===- Fused.cpp - queries on fused regions -------------------------------===//
#include "compiler/dialect/ColumnSums.h"
#include "compiler/dialect/Joined.h"
#include "compiler/dialect/OwnElement.h"
#include "compiler/dialect/TrainDialect.h"
#include "compiler/dialect/Views.h"
#include "runtime/plan/plan.pb.h"

using namespace mlir;

namespace tcc::train {

SmallVector<ReduceOp> columnSumsOf(FusedOp fused) {
  SmallVector<ReduceOp> columns;
  Reducible rows;
  llvm::ArrayRef<int64_t> full;
  SmallVector<int64_t> columnDims;
  llvm::SmallPtrSet<Operation *, 16> late; // ops that depend on a sum of columns
  auto shapeOf = [](Value value) { return cast<RankedTensorType>(value.getType()).getShape(); };
  for (Operation &op : fused.getBody().front().without_terminator()) {
    const bool isLate =
        llvm::any_of(op.getOperands(), [&](Value operand) { return late.contains(operand.getDefiningOp()); });
    if (isLate) {
      const int64_t elements = cast<RankedTensorType>(op.getResult(0).getType()).getNumElements();
      int64_t columnElements = 1;
      for (auto [dim, extent] : llvm::enumerate(full))
        columnElements *= llvm::is_contained(columnDims, int64_t(dim)) ? 1 : extent;
      if (isa<Reducible>(op) || elements > columnElements)
        return {};
      late.insert(&op);
      continue;
    }
    auto reducible = dyn_cast<Reducible>(&op);
    if (!reducible)
      continue;
    if (full.empty())
      full = shapeOf(op.getOperand(0));
    if (shapeOf(op.getOperand(0)) != full)
      return {};
    auto lane = int64_t(full.size()) - 1;
    while (lane > 0 && full[size_t(lane)] == 1)
      --lane;
    const SmallVector<int64_t> dims = reducible.getReducedDims();
    if (llvm::is_contained(dims, lane)) {
      if (llvm::any_of(dims, [&](int64_t dim) { return dim != lane; }) || full[size_t(lane)] == 1)
        return {};
      rows = reducible;
      continue;
    }
    auto reduce = dyn_cast<ReduceOp>(&op);
    if (!reduce || (!columns.empty() && dims != columnDims))
      return {};
    columnDims = dims;
    columns.push_back(reduce);
    late.insert(&op);
  }
  return rows ? columns : SmallVector<ReduceOp>();
}

namespace {

/// The passes of a kernel over each of its rows (codegen/IterationSpace.h): a value of level n needs the row's
/// reductions of the levels below n.
struct Levels {
  explicit Levels(FusedOp fused) : columns(columnSumsOf(fused)) {
    Block &body = fused.getBody().front();
    Reducible first;
    for (Operation &op : body.without_terminator()) {
      unsigned needed = 0;
      for (Value operand : op.getOperands())
        needed = std::max(needed, level.lookup(operand));
      if (auto reducible = dyn_cast<Reducible>(&op); reducible && !llvm::is_contained(columns, &op)) {
        if (!first) {
          first = reducible;
          full = shapeOf(op.getOperand(0));
        } else if (shapeOf(op.getOperand(0)) != full || reducible.getReducedDims() != first.getReducedDims()) {
          staged = false; // recomputed for each element that reads it
        }
        ++needed;
        count = std::max(count, needed);
      }
      for (Value result : op.getResults())
        level[result] = needed;
    }
    for (ReduceOp column : columns) // added up by the last pass
      level[column.getResult()] = count + 1;
  }

  unsigned of(Value value) const { return level.lookup(value); }
  bool isFull(Value value) const { return shapeOf(value) == full; }
  static llvm::ArrayRef<int64_t> shapeOf(Value value) { return cast<RankedTensorType>(value.getType()).getShape(); }

  /// The last level that reads the argument, if each of its elements is read only for the same element or for
  /// reductions of its row; else nothing.
  std::optional<unsigned> lastElementwiseRead(BlockArgument argument) const {
    if (count > 0 && !isFull(argument))
      return std::nullopt;
    unsigned last = 0;
    llvm::SmallPtrSet<Operation *, 8> seen;
    SmallVector<Value> work{argument};
    while (!work.empty()) {
      Value value = work.pop_back_val();
      for (OpOperand &use : value.getUses()) {
        Operation *user = use.getOwner();
        if (isa<YieldOp>(user)) {
          last = std::max(last, of(value));
          continue;
        }
        if (!isa<Reducible>(user) && !readsItsOwnElement(use))
          return std::nullopt;
        if (!seen.insert(user).second)
          continue;
        if (isa<Reducible>(user))
          last = std::max(last, of(user->getResult(0)) - 1);
        else
          llvm::append_range(work, user->getResults());
      }
    }
    return last;
  }

  SmallVector<ReduceOp> columns; ///< sums of columns, beside the reductions of rows
  llvm::DenseMap<Value, unsigned> level;
  llvm::ArrayRef<int64_t> full;
  unsigned count = 0;
  bool staged = true;
};

} // namespace

bool readsItsOwnElement(OpOperand &use) {
  Operation *user = use.getOwner();
  if (user->hasTrait<Pointwise>())
    return true;
  auto fusible = dyn_cast<Fusible>(user);
  AffineMap map = fusible && user->getNumResults() == 1 ? fusible.getOperandMap(use.getOperandNumber()) : AffineMap();
  return map && map.isIdentity() && Levels::shapeOf(use.get()) == Levels::shapeOf(user->getResult(0));
}

LoopKernel FusedOp::getLoopKernel() {
  for (Operation &op : getBody().front())
    if (auto kernel = dyn_cast<LoopKernel>(&op))
      return kernel;
  return nullptr;
}

static constexpr StringRef kTileElements = "train.tile_elements";

std::optional<int64_t> FusedOp::getTileElements() {
  auto elements = (*this)->getAttrOfType<IntegerAttr>(kTileElements);
  return elements ? std::optional(elements.getInt()) : std::nullopt;
}

bool FusedOp::setTileElements(int64_t elements) {
  Block &body = getBody().front();
  Levels levels(*this);
  if (getLoopKernel() || !levels.staged || !levels.columns.empty() || elements <= 0)
    return false;
  int64_t whole = 1; // elements of a row of the reductions, or else of the result; tiles must not cut a row
  if (levels.count > 0) {
    SmallVector<int64_t> reduced;
    bool parallel = false; // there is an inner dimension that is not reduced
    for (Operation &op : body)
      if (auto reducible = dyn_cast<Reducible>(&op))
        reduced = reducible.getReducedDims();
    for (auto dim = int64_t(levels.full.size()) - 1; dim >= 0; --dim) {
      int64_t extent = levels.full[size_t(dim)];
      bool isReduced = llvm::is_contained(reduced, dim);
      if (isReduced && parallel)
        return false; // rows would be interleaved
      parallel |= !isReduced && extent > 1;
      if (isReduced)
        whole *= extent;
    }
  } else {
    llvm::ArrayRef<int64_t> shape;
    for (Value value : cast<YieldOp>(body.getTerminator()).getValues()) {
      if (!shape.empty() && Levels::shapeOf(value) != shape)
        return false;
      shape = Levels::shapeOf(value);
    }
    while (shape.size() > 1 && shape.back() == 1)
      shape = shape.drop_back();
    if (shape.empty())
      return false;
    whole = shape.back();
  }
  if (elements % whole != 0)
    return false;
  (*this)->setAttr(kTileElements, IntegerAttr::get(IntegerType::get(getContext(), 64), elements));
  return true;
}

bool FusedOp::readsByTiles(unsigned operand) {
  if (getLoopKernel())
    return false;
  Levels levels(*this);
  return levels.staged && levels.columns.empty() &&
         levels.lastElementwiseRead(getBody().front().getArgument(operand)).has_value();
}

int FusedOp::getRequiredInPlaceOperand() {
  LoopKernel kernel = getLoopKernel();
  if (!kernel || kernel.getInPlaceOperand() < 0)
    return -1;
  auto argument = dyn_cast<BlockArgument>(kernel->getOperand(kernel.getInPlaceOperand()));
  return argument ? int(argument.getArgNumber()) : -1;
}

SmallVector<std::pair<unsigned, unsigned>> FusedOp::getInPlacePairs() {
  SmallVector<std::pair<unsigned, unsigned>> pairs;
  Block &body = getBody().front();
  if (getLoopKernel()) {
    if (int operand = getRequiredInPlaceOperand(); operand >= 0)
      pairs.push_back({unsigned(operand), 0});
    return pairs;
  }
  // A kernel with reductions processes its rows one by one, each with one pass per level: a row is read by the
  // reductions of level 0, by those of level 1 that need them, and so on. Only a result of the last pass that reads the
  // row may overwrite it. Sums of columns are added up in the last pass, before it writes.
  Levels levels(*this);
  if (!levels.staged)
    return pairs;
  OperandRange values = cast<YieldOp>(body.getTerminator()).getValues();
  for (BlockArgument argument : body.getArguments()) {
    std::optional<unsigned> last = levels.lastElementwiseRead(argument);
    if (!last)
      continue;
    for (auto [index, value] : llvm::enumerate(values))
      if (value.getType() == argument.getType() &&
          (levels.count == 0 || (levels.isFull(value) && levels.of(value) >= *last)))
        pairs.push_back({argument.getArgNumber(), unsigned(index)});
  }
  return pairs;
}

MatMulOp RowwiseOp::getProduct() { return *getBody().front().getOps<MatMulOp>().begin(); }
FusedOp RowwiseOp::getKernel() { return *getBody().front().getOps<FusedOp>().begin(); }

SmallVector<FusedOp> JoinedOp::getMembers() { return llvm::to_vector(getBody().front().getOps<FusedOp>()); }

LogicalResult JoinedOp::verify() {
  Block &body = getBody().front();
  unsigned operand = 0, result = 0;
  for (Operation &op : body) {
    if (!isa<FusedOp>(op))
      return emitOpError("holds ") << op.getName() << ", which is no kernel";
    for (Value value : op.getOperands())
      if (operand == body.getNumArguments() || value != body.getArgument(operand++))
        return emitOpError("the kernels' operands are not its own, one kernel after the other");
    for (Type type : op.getResultTypes())
      if (result == getNumResults() || type != getResult(result++).getType())
        return emitOpError("its results are not the kernels', one kernel after the other");
  }
  if (operand != body.getNumArguments() || result != getNumResults() || body.getArgumentTypes() != getOperandTypes())
    return emitOpError("has operands or results that are no kernel's");
  return success();
}

SmallVector<std::pair<unsigned, unsigned>> JoinedOp::getInPlacePairs() {
  SmallVector<std::pair<unsigned, unsigned>> pairs;
  unsigned operands = 0, results = 0;
  for (FusedOp member : getMembers()) {
    for (auto [operand, result] : member.getInPlacePairs())
      pairs.push_back({operands + operand, results + result});
    operands += member->getNumOperands();
    results += member->getNumResults();
  }
  return pairs;
}

LogicalResult RowwiseOp::verify() {
  Block &body = getBody().front();
  if (!llvm::hasSingleElement(body.getOps<MatMulOp>()) || !llvm::hasSingleElement(body.getOps<FusedOp>()))
    return emitOpError("needs one matmul and one kernel");
  FusedOp kernel = getKernel();
  Value rows = kernel->getNumOperands() ? rootOf(kernel->getOperand(0)) : Value();
  if (!rows || rows.getDefiningOp() != getProduct())
    return emitOpError("the kernel's first operand is not the product");
  if (!llvm::equal(kernel->getResults(), cast<YieldOp>(body.getTerminator()).getValues()))
    return emitOpError("its results are not the kernel's");
  for (auto [number, argument] : llvm::enumerate(body.getArguments())) {
    bool isRead = number < 2
                      ? getProduct()->getOperand(unsigned(number)) == argument
                      : number - 1 < kernel->getNumOperands() && kernel->getOperand(unsigned(number) - 1) == argument;
    if (!isRead)
      return emitOpError("operand ") << number
                                     << " is out of place: the product's two come first, then the kernel's others";
  }
  return success();
}

SmallVector<std::pair<unsigned, unsigned>> RowwiseOp::getInPlacePairs() {
  SmallVector<std::pair<unsigned, unsigned>> pairs;
  for (auto [operand, result] : getKernel().getInPlacePairs())
    if (operand > 0)
      pairs.push_back({operand + 1, result});
  return pairs;
}

void RowwiseOp::buildCall(plan::Instruction &instruction) {
  getProduct().buildCall(instruction);
  plan::MatmulCall &call = *instruction.mutable_matmul();
  call.mutable_row_kernel();
  call.set_row_operands(int32_t(getKernel()->getNumOperands() + getKernel()->getNumResults()) - 1);
}

} // namespace tcc::train

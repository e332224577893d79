//===- RowRegion.cpp - the row-wise users of a large product --------------===//
//
// Walks forwards from the product, op by op, as long as a row of the result needs the same row of the operands, which
// follows from index maps (Fusible::getOperandMap) for most ops. Then ops that do not lead to another large value leave
// the region: they run once, on the rows of all chunks. Finally operands from outside are added: small ones are sliced
// into rows; a large one that is only a broadcast, comparison or iota is recomputed for each chunk.
//
//===----------------------------------------------------------------------===//
#include "passes/fusion/RowRegion.h"

#include "compiler/dialect/Builders.h"
#include "passes/Common.h"

using namespace mlir;

namespace tcc::train {

namespace {

/// A value is large if its row has at least 1/kLargeShare as many elements as a row of the product.
constexpr int64_t kLargeShare = 16;

/// The row dimensions after a reshape. Each group of dimensions that the reshape merges or splits must hold only row
/// dimensions, or none.
std::optional<RowDims> rowsThroughReshape(llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> to,
                                          const RowDims &rows) {
  RowDims result;
  size_t i = 0, j = 0;
  SmallVector<int64_t> seen;
  while (i < from.size() || j < to.size()) {
    SmallVector<int64_t> left, right;
    int64_t a = 1, b = 1;
    do {
      bool takeLeft = i < from.size() && (a <= b || j == to.size());
      if (takeLeft) {
        a *= from[i];
        if (from[i] != 1)
          left.push_back(int64_t(i));
        ++i;
      } else if (j < to.size()) {
        b *= to[j];
        if (to[j] != 1)
          right.push_back(int64_t(j));
        ++j;
      } else {
        return std::nullopt;
      }
    } while (a != b);
    size_t inside = llvm::count_if(left, [&](int64_t dim) { return llvm::is_contained(rows, dim); });
    if (inside == 0)
      continue;
    if (inside != left.size())
      return std::nullopt;
    llvm::append_range(seen, left);
    llvm::append_range(result, right);
  }
  return seen == rows ? std::optional<RowDims>(result) : std::nullopt; // in the same order
}

struct ProductDims {
  int64_t lhsRow, lhsSum, rhsSum, rhsColumn;
  explicit ProductDims(MatMulOp op)
      : lhsRow(op.getTransA() ? 2 : 1), lhsSum(op.getTransA() ? 1 : 2), rhsSum(op.getTransB() ? 2 : 1),
        rhsColumn(op.getTransB() ? 1 : 2) {}
};

RowAccess sameRow(RowDims dims) { return {RowAccess::kSameRow, std::move(dims)}; }
constexpr auto otherRows = [] { return RowAccess{RowAccess::kOtherRows}; };

/// The row of operand `operand` that a row of the result needs.
RowAccess accessOf(Operation *op, unsigned operand, const RowDims &rows) {
  Value from = op->getOperand(operand), to = op->getResult(0);
  if (auto product = dyn_cast<MatMulOp>(op)) {
    ProductDims dims(product);
    if (shapeOf(to)[0] != 1)
      return otherRows();
    if (operand == 2)
      return sameRow(rows);
    if (rows == RowDims{1})
      return operand == 0 ? sameRow({dims.lhsRow}) : RowAccess{RowAccess::kNoRow};
    if (rows == RowDims{2})
      return operand == 1 ? sameRow({dims.rhsColumn}) : RowAccess{RowAccess::kNoRow};
    return otherRows();
  }
  if (isa<ReshapeOp>(op)) {
    std::optional<RowDims> found = rowsThroughReshape(shapeOf(to), shapeOf(from), rows);
    return found ? sameRow(*found) : otherRows();
  }
  if (auto reducible = dyn_cast<Reducible>(op))
    return sameRow(rows); // the reduced dimension stays, with extent 1
  if (isa<ArgMaxOp>(op) || (isa<PickOp>(op) && operand == 0))
    return sameRow(rows);
  auto fusible = dyn_cast<Fusible>(op);
  AffineMap map = fusible && !isa<RandomOp>(op) ? fusible.getOperandMap(operand) : AffineMap();
  if (!map)
    return otherRows();
  RowDims found(rows.size(), -1);
  for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
    auto plain = dyn_cast<AffineDimExpr>(simplifyAffineExpr(expr, map.getNumDims(), 0));
    for (auto [i, row] : llvm::enumerate(rows)) {
      if (!expr.isFunctionOfDim(unsigned(row)))
        continue;
      if (!plain || found[i] >= 0 || shapeOf(from)[dim] != shapeOf(to)[size_t(row)])
        return otherRows();
      found[i] = int64_t(dim);
    }
  }
  if (llvm::all_of(found, [](int64_t dim) { return dim < 0; }))
    return {RowAccess::kNoRow};
  return llvm::is_contained(found, -1) ? otherRows() : sameRow(found);
}

/// The row dimensions of the result if operand `operand` has `rows`.
std::optional<RowDims> rowsOfResult(Operation *op, unsigned operand, const RowDims &rows) {
  Value from = op->getOperand(operand), to = op->getResult(0);
  std::optional<RowDims> result;
  if (auto product = dyn_cast<MatMulOp>(op)) {
    ProductDims dims(product);
    if (operand == 0 && rows == RowDims{dims.lhsRow})
      result = RowDims{1};
    if (operand == 1 && rows == RowDims{dims.rhsColumn})
      result = RowDims{2};
    if (operand == 2)
      result = rows;
  } else if (isa<ReshapeOp>(op)) {
    result = rowsThroughReshape(shapeOf(from), shapeOf(to), rows);
  } else if (shapeOf(from).size() == shapeOf(to).size() && (isa<Reducible, ArgMaxOp, PickOp>(op))) {
    result = rows;
  } else if (auto fusible = dyn_cast<Fusible>(op); fusible && fusible.getOperandMap(operand)) {
    AffineMap map = fusible.getOperandMap(operand);
    result.emplace();
    for (int64_t row : rows) {
      auto plain = dyn_cast<AffineDimExpr>(simplifyAffineExpr(map.getResult(unsigned(row)), map.getNumDims(), 0));
      if (!plain)
        return std::nullopt;
      result->push_back(plain.getPosition());
    }
  }
  if (!result)
    return std::nullopt;
  if (!isa<ReshapeOp>(op))
    for (auto [now, before] : llvm::zip_equal(*result, rows))
      if (shapeOf(to)[size_t(now)] != shapeOf(from)[size_t(before)])
        return std::nullopt;
  RowAccess back = accessOf(op, operand, *result);
  return back.kind == RowAccess::kSameRow && back.dims == rows ? result : std::nullopt;
}

/// The row dimension of an operand of a sum over the rows: the contracted one.
std::optional<RowDims> summedRows(Operation *op, unsigned operand) {
  if (auto product = dyn_cast<MatMulOp>(op)) {
    ProductDims dims(product);
    if (shapeOf(product.getResult())[0] != 1 || operand > 1)
      return std::nullopt;
    return RowDims{operand == 0 ? dims.lhsSum : dims.rhsSum};
  }
  return std::nullopt;
}

class RegionFinder {
public:
  RegionFinder(MatMulOp product, int64_t rowDim) : product(product) {
    region.rows = shapeOf(product.getResult())[size_t(rowDim)];
    rowElements = tensorTypeOf(product.getResult()).getNumElements() / region.rows;
    region.rowsOf[product.getResult()] = {rowDim};
  }

  RowRegionOrWhy run() {
    walkForwards();
    if (!reducesRows)
      return {};
    if (why.empty())
      keepWhatLeadsToLarge();
    if (why.empty())
      takeOperands();
    if (why.empty())
      checkCircles();
    if (why.empty())
      findExits();
    if (!why.empty())
      return {std::nullopt, why};
    countWaiting();
    return {std::move(region), ""};
  }

private:
  bool isLarge(Value value) const {
    return tensorTypeOf(value).getNumElements() / region.rows * kLargeShare > rowElements;
  }
  bool hasRows(Value value) const { return region.rowsOf.contains(value); }
  bool readsLarge(Operation *op) const {
    return llvm::any_of(op->getOperands(), [&](Value value) { return hasRows(value) && isLarge(value); });
  }

  static std::string nameOf(Operation *op) {
    if (op->hasTrait<OpTrait::IsTerminator>())
      return "a result of the entry";
    StringRef node = nodeName(op->getLoc());
    return node.empty() ? op->getName().stripDialect().str() : node.str();
  }

  /// True if the op is moved into the region. A cheap op that is only recomputed for it also stays outside.
  bool isOwn(Operation *op) const { return region.ops.contains(op) && !madeAnew.contains(op); }

  void refuse(Operation *reader) {
    if (why.empty())
      why = "read by " + nameOf(reader);
  }

  //===-- Users of the product --------------------------------------------------===//

  void walkForwards() {
    candidates.insert(product);
    for (Operation *op = product->getNextNode(); op; op = op->getNextNode()) {
      if (llvm::none_of(op->getOperands(), [&](Value value) { return hasRows(value); }))
        continue;
      bool large = readsLarge(op);
      if (large && isSum(op)) {
        sums.insert(op);
        continue;
      }
      std::optional<RowDims> rows = rowsOf(op);
      if (!rows) {
        if (large)
          refuse(op);
        continue;
      }
      if (isa<MatMulOp>(op)) {
        if (!large)
          continue;
        ends.insert(op); // its users do not work on rows
        endRows[op->getResult(0)] = *rows;
        continue;
      }
      reducesRows |= large && !isLarge(op->getResult(0));
      region.rowsOf[op->getResult(0)] = *rows;
      candidates.insert(op);
    }
  }

  std::optional<RowDims> rowsOf(Operation *op) const {
    if (op->getNumResults() != 1 || op->getNumRegions() != 0)
      return std::nullopt;
    std::optional<RowDims> rows;
    for (OpOperand &operand : op->getOpOperands())
      if (hasRows(operand.get())) {
        std::optional<RowDims> found = rowsOfResult(op, operand.getOperandNumber(), region.rowsOf.at(operand.get()));
        if (!found || (rows && *rows != *found))
          return std::nullopt;
        rows = found;
      }
    for (OpOperand &operand : op->getOpOperands())
      if (accessOf(op, operand.getOperandNumber(), *rows).kind == RowAccess::kOtherRows)
        return std::nullopt;
    return rows;
  }

  bool isSum(Operation *op) const {
    if (auto reduce = dyn_cast<ReduceOp>(op))
      return reduce.getKind() == ReduceKind::sum && llvm::all_of(region.rowsOf.at(reduce.getInput()), [&](int64_t dim) {
               return llvm::is_contained(reduce.getDims(), dim);
             });
    if (!isa<MatMulOp>(op))
      return false;
    for (OpOperand &operand : op->getOpOperands())
      if (hasRows(operand.get()) && summedRows(op, operand.getOperandNumber()) != region.rowsOf.at(operand.get()))
        return false;
    return true;
  }

  void keepWhatLeadsToLarge() {
    llvm::DenseSet<Operation *> kept;
    for (Operation *op : llvm::reverse(candidates.getArrayRef())) {
      Value result = op->getResult(0);
      bool needed = isLarge(result) || readsLarge(op) || llvm::any_of(result.getUsers(), [&](Operation *user) {
                      return kept.contains(user) || sums.contains(user) || ends.contains(user);
                    });
      if (needed)
        kept.insert(op);
      else
        region.rowsOf.erase(result);
    }
    for (Operation *op : candidates)
      if (kept.contains(op))
        region.ops.insert(op);
    for (Operation *op : ends) {
      region.ops.insert(op);
      region.rowsOf[op->getResult(0)] = endRows[op->getResult(0)];
    }
    region.ops.insert_range(sums);
    region.sums = sums;
  }

  //===-- Operands from outside ------------------------------------------------===//

  void takeOperands() {
    SmallVector<Operation *> own(region.ops.begin(), region.ops.end());
    for (Operation *op : own)
      for (OpOperand &operand : op->getOpOperands()) {
        if (Operation *producer = operand.get().getDefiningOp(); producer && isOwn(producer))
          continue;
        RowAccess access = region.access(operand);
        if (access.kind == RowAccess::kOtherRows)
          refuse(op);
        if (access.kind == RowAccess::kSameRow)
          takeOperand(operand.get(), access.dims);
      }
    llvm::SmallVector<Operation *> sorted = region.ops.takeVector();
    llvm::sort(sorted, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    region.ops.insert_range(sorted);
  }

  void takeOperand(Value value, const RowDims &rows) {
    auto [known, fresh] = region.rowsOf.try_emplace(value, rows);
    if (!fresh) {
      if (known->second != rows && why.empty())
        why = "rows of `" + nodeName(value.getLoc()).str() + "` are read in two orders";
      return;
    }
    Operation *op = value.getDefiningOp();
    if (op && isMadeAnew(op, rows)) {
      region.ops.insert(op);
      madeAnew.insert(op);
      for (OpOperand &operand : op->getOpOperands())
        if (RowAccess access = accessOf(op, operand.getOperandNumber(), rows); access.kind == RowAccess::kSameRow)
          takeOperand(operand.get(), access.dims);
    } else if (!areAdjacent(value, rows) && why.empty()) {
      why = "rows of `" + nodeName(value.getLoc()).str() + "` do not lie side by side";
    }
  }

  /// True for an op that is recomputed in each chunk: cheap and large, or a constant.
  bool isMadeAnew(Operation *op, const RowDims &rows) const {
    if (auto constant = dyn_cast<ConstantOp>(op))
      return isa<SplatElementsAttr>(constant.getValue());
    if (!isLarge(op->getResult(0)) || op->getNumResults() != 1 || isa<RandomOp>(op))
      return false;
    if (auto iota = dyn_cast<IotaOp>(op))
      return !llvm::is_contained(rows, iota.getDim());
    auto cost = dyn_cast<Cost>(op);
    return cost && cost.isCheapToRecompute() && op->getNumOperands() > 0 &&
           llvm::all_of(op->getOpOperands(), [&](OpOperand &operand) {
             return accessOf(op, operand.getOperandNumber(), rows).kind != RowAccess::kOtherRows;
           });
  }

  /// The region must not read an outside value that depends on all rows of the region's results.
  void checkCircles() {
    llvm::DenseSet<Operation *> after;
    for (Operation &op : *product->getBlock()) {
      bool inside = region.ops.contains(&op);
      for (Value operand : op.getOperands()) {
        Operation *producer = operand.getDefiningOp();
        if (!producer)
          continue;
        if (inside && after.contains(producer) && why.empty())
          why = nameOf(&op) + " needs all rows at once, through " + nameOf(producer);
        if ((!inside || madeAnew.contains(&op)) && (isOwn(producer) || after.contains(producer)))
          after.insert(&op);
      }
    }
  }

  void findExits() {
    for (Operation *op : region.ops) {
      if (region.sums.contains(op))
        continue;
      Value result = op->getResult(0);
      bool outside = llvm::any_of(result.getUsers(), [&](Operation *user) { return !region.ops.contains(user); });
      if (!isOwn(op) || !outside)
        continue;
      region.exits.insert(result);
      if (!areAdjacent(result, region.rowsOf[result]))
        why = "rows of `" + nodeName(result.getLoc()).str() + "` do not lie side by side";
    }
  }

  void countWaiting() {
    llvm::DenseSet<Operation *> later; // ops that depend on products at the region's end
    for (Operation &op : *product->getBlock())
      if (!region.ops.contains(&op) && llvm::any_of(op.getOperands(), [&](Value operand) {
            Operation *producer = operand.getDefiningOp();
            return producer && (ends.contains(producer) || later.contains(producer));
          }))
        later.insert(&op);
    for (Operation *op : sums) {
      SmallVector<Operation *> readers(op->getUsers());
      for (size_t i = 0; i < readers.size(); ++i)
        if (readers[i]->hasTrait<View>())
          llvm::append_range(readers, readers[i]->getUsers());
      if (llvm::any_of(readers, [&](Operation *reader) {
            return later.contains(reader) && !reader->hasTrait<OpTrait::IsTerminator>();
          }))
        region.waitingBytes += tensorBytes(op->getResult(0).getType());
    }
  }

  MatMulOp product;
  RowRegion region;
  int64_t rowElements;
  llvm::SetVector<Operation *> candidates, ends, sums;
  llvm::DenseMap<Value, RowDims> endRows;
  llvm::DenseSet<Operation *> madeAnew;
  bool reducesRows = false;
  std::string why;
};

} // namespace

bool areAdjacent(Value value, const RowDims &dims) {
  for (size_t i = 1; i < dims.size(); ++i)
    for (int64_t between = dims[i - 1] + 1; between <= dims[i]; ++between)
      if (dims[i] < dims[i - 1] || (between < dims[i] && shapeOf(value)[size_t(between)] != 1))
        return false;
  return llvm::is_sorted(dims);
}

RowAccess RowRegion::access(OpOperand &operand) const {
  Operation *op = operand.getOwner();
  if (!sums.contains(op))
    return accessOf(op, operand.getOperandNumber(), rowsOf.at(op->getResult(0)));
  if (isa<ReduceOp>(op))
    return sameRow(rowsOf.at(operand.get()));
  std::optional<RowDims> rows = summedRows(op, operand.getOperandNumber());
  return rows ? sameRow(*rows) : RowAccess{RowAccess::kNoRow}; // an addend
}

RowRegionOrWhy findRowRegion(MatMulOp product, int64_t rowDim) { return RegionFinder(product, rowDim).run(); }

} // namespace tcc::train

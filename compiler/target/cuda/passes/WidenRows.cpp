//===- WidenRows.cpp - compute on padded rows instead of sliced ones -------===//
#include "compiler/target/cuda/passes/CudaPasses.h"

#include "compiler/dialect/Builders.h"
#include "compiler/dialect/Pointwise.h"

#include <cmath>

using namespace mlir;

namespace tcc::train {

namespace {

class RowWidener {
public:
  explicit RowWidener(SliceOp slice)
      : slice(slice), extent(shapeOf(slice.getResult()).back()), whole(shapeOf(slice.getInput()).back()) {}

  void run() {
    findOps();
    wide[slice.getResult()] = slice.getInput();
    endInZeros.insert(slice.getInput());
    leaveAll(slice.getResult());
    for (Operation *op : ops)
      widen(op);
    for (Operation *op : llvm::reverse(ops))
      if (op->use_empty())
        op->erase();
    slice->erase();
  }

private:
  bool hasRows(Value value) const {
    ArrayRef<int64_t> shape = shapeOf(value);
    return !shape.empty() && shape.back() == extent;
  }
  SmallVector<int64_t> wideShape(Value value) const {
    SmallVector<int64_t> shape(shapeOf(value));
    shape.back() = whole;
    return shape;
  }

  /// True if an elementwise op's operand can be recomputed on whole rows without reading the slice.
  bool isMadeAnew(Value value) const {
    Operation *op = value.getDefiningOp();
    if (!op || !hasRows(value))
      return false;
    if (auto constant = dyn_cast<ConstantOp>(op))
      return constant.getValue().isSplat();
    if (auto repeated = dyn_cast<BroadcastOp>(op)) {
      ArrayRef<int64_t> from = shapeOf(repeated.getInput());
      return from.empty() || from.back() == 1;
    }
    return isa<IotaOp>(op) ||
           (isElementwise(op) && llvm::all_of(op->getOperands(), [&](Value operand) { return isMadeAnew(operand); }));
  }
  static bool isElementwise(Operation *op) { return op->hasTrait<Pointwise>() && op->getNumResults() == 1; }

  /// Ops that compute on whole rows, in order. All of them are of one block, as the slice is.
  void findOps() {
    llvm::SmallPtrSet<Operation *, 32> found;
    for (Operation &op : llvm::make_range(std::next(slice->getIterator()), slice->getBlock()->end())) {
      auto isWide = [&](Value value) {
        Operation *maker = value.getDefiningOp();
        return maker == slice || found.contains(maker);
      };
      if (!llvm::any_of(op.getOperands(), isWide))
        continue;
      const bool elementwise =
          isElementwise(&op) && hasRows(op.getResult(0)) && llvm::all_of(op.getOperands(), [&](Value operand) {
            return (isWide(operand) && hasRows(operand)) || isMadeAnew(operand);
          });
      const bool view = isa<ReshapeOp>(op) && hasRows(op.getResult(0));
      if (elementwise || view) {
        found.insert(&op);
        ops.push_back(&op);
      }
    }
  }

  Value wideOf(OpBuilder &builder, Value value) {
    if (auto known = wide.find(value); known != wide.end())
      return known->second;
    Operation *op = value.getDefiningOp();
    auto type = RankedTensorType::get(wideShape(value), elementTypeOf(value));
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPoint(op);
    Operation *copy;
    if (auto constant = dyn_cast<ConstantOp>(op)) {
      copy = ConstantOp::create(builder, op->getLoc(), cast<DenseElementsAttr>(constant.getValue()).resizeSplat(type));
    } else {
      copy = builder.clone(*op);
      copy->getResult(0).setType(type);
      if (isElementwise(op))
        for (OpOperand &operand : copy->getOpOperands())
          operand.set(wideOf(builder, operand.get()));
    }
    return wide[value] = copy->getResult(0);
  }

  void widen(Operation *op) {
    OpBuilder builder(op);
    if (isa<ReshapeOp>(op) && op->getResult(0).getType() == op->getOperand(0).getType()) {
      wide[op->getResult(0)] = wideOf(builder, op->getOperand(0));
      leaveAll(op->getResult(0));
      return;
    }
    Operation *copy = builder.clone(*op);
    for (OpOperand &operand : copy->getOpOperands())
      operand.set(wideOf(builder, operand.get()));
    Value result = op->getResult(0);
    copy->getResult(0).setType(RankedTensorType::get(wideShape(result), elementTypeOf(result)));
    wide[result] = copy->getResult(0);
    if (isa<CastOp, ReshapeOp>(op) && endInZeros.contains(copy->getOperand(0)))
      endInZeros.insert(copy->getResult(0));
    leaveAll(result);
  }

  void leaveAll(Value value) {
    for (OpOperand &use : llvm::make_early_inc_range(value.getUses()))
      if (!llvm::is_contained(ops, use.getOwner()))
        leave(use);
  }

  /// Rewrites a use by an op that does not compute on whole rows.
  void leave(OpOperand &use) {
    Operation *reader = use.getOwner();
    Value value = wide[use.get()];
    OpBuilder builder(reader);
    const int64_t last = int64_t(shapeOf(value).size()) - 1;
    if (auto reduce = dyn_cast<ReduceOp>(reader);
        reduce && isFloatTensor(value) && reduce.getDims() == ArrayRef<int64_t>{last} && neutralOf(reduce.getKind())) {
      use.set(endingWith(builder, value, *neutralOf(reduce.getKind())));
    } else if (auto pick = dyn_cast<PickOp>(reader);
               pick && use.getOperandNumber() == 0 && int64_t(pick.getDim()) == last && endInZeros.contains(value)) {
      use.set(value); // an out-of-range index picks 0 as before: the padding is 0
    } else if (auto pad = dyn_cast<PadOp>(reader); pad && pad.getType() == value.getType() && isAtEnd(pad)) {
      pad.getResult().replaceAllUsesWith(endingWith(builder, value, 0));
      pad->erase();
    } else {
      const SmallVector<int64_t> starts(size_t(last) + 1, 0), steps(size_t(last) + 1, 1);
      use.set(SliceOp::create(builder, reader->getLoc(), use.get().getType(), value, starts, steps));
    }
  }

  static bool isAtEnd(PadOp pad) {
    return llvm::all_of(pad.getLow(), [](int64_t low) { return low == 0; }) &&
           llvm::all_of(pad.getSteps(), [](int64_t step) { return step == 1; }) && pad.getValue().isZero();
  }

  static std::optional<double> neutralOf(ReduceKind kind) {
    switch (kind) {
    case ReduceKind::sum:
      return 0;
    case ReduceKind::max:
      return -HUGE_VAL;
    case ReduceKind::min:
      return HUGE_VAL;
    default:
      return std::nullopt;
    }
  }

  /// The rows with their padding replaced by a constant.
  Value endingWith(OpBuilder &builder, Value value, double constant) {
    const Location loc = value.getLoc();
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointAfterValue(value);
    auto places = RankedTensorType::get(shapeOf(value), builder.getI32Type());
    Value place = IotaOp::create(builder, loc, places, int64_t(shapeOf(value).size()) - 1);
    Value inside = compare(builder, loc, CompareKind::lt, place, splatInt(builder, loc, places, extent));
    return select(builder, loc, inside, value, splat(builder, loc, value.getType(), constant));
  }

  SliceOp slice;
  const int64_t extent, whole;
  SmallVector<Operation *> ops;
  llvm::DenseMap<Value, Value> wide;
  llvm::DenseSet<Value> endInZeros; ///< wide values padded with 0, except in rows that hold an infinity or NaN
};

} // namespace

void widenRows(SliceOp slice) { RowWidener(slice).run(); }

} // namespace tcc::train

//===- Fold.cpp - fold constants by the naive evaluators --------*- C++ -*-===//
#include "compiler/dialect/Fold.h"

#include "compiler/dialect/Builders.h"

using namespace mlir;

namespace tcc::train {

/// True if the result for splats is a splat, so that one element determines it.
static bool keepsSplats(Operation *op) {
  return op->hasTrait<Pointwise>() || isa<ReshapeOp, TransposeOp, BroadcastOp, SliceOp, ReverseOp>(op);
}

/// Limit of one fold to a fraction of a second: naive evaluators take some 10 ns for each operation.
constexpr double kMostFoldWork = 1 << 24;

/// Number of elements read and computed, plus the op's operations. A splat whose result is no splat counts with all
/// elements.
static double foldWork(Operation *op) {
  double work = 0;
  for (Type type :
       llvm::concat<const Type>(llvm::to_vector(op->getOperandTypes()), llvm::to_vector(op->getResultTypes())))
    work += double(tensorBytes(type)) / double(elementBytes(cast<RankedTensorType>(type).getElementType()));
  auto cost = dyn_cast<Cost>(op);
  return cost ? work + cost.getFlops() : work;
}

llvm::SmallVector<Value> foldIfConstant(OpBuilder &builder, Operation *op, int64_t maxResultBytes) {
  auto reference = dyn_cast<Reference>(op);
  if (!reference || isa<ConstantOp>(op))
    return {};
  // A tensor without elements is constant, whichever op computes it, both as a result and as an operand.
  auto isEmpty = [](Type type) { return cast<RankedTensorType>(type).getNumElements() == 0; };
  auto emptyOf = [](Type type) { return HostTensor(cast<RankedTensorType>(type)).toAttribute(); };
  if (op->getNumResults() > 0 && llvm::all_of(op->getResultTypes(), isEmpty)) {
    llvm::SmallVector<Value> constants;
    for (Type type : op->getResultTypes())
      constants.push_back(ConstantOp::create(builder, op->getLoc(), emptyOf(type)));
    return constants;
  }
  llvm::SmallVector<ElementsAttr> values;
  bool allSplat = op->getNumOperands() > 0;
  for (Value operand : op->getOperands()) {
    auto constant = operand.getDefiningOp<ConstantOp>();
    if (!constant && !isEmpty(operand.getType()))
      return {};
    values.push_back(constant ? constant.getValue() : ElementsAttr(emptyOf(operand.getType())));
    auto dense = dyn_cast<DenseElementsAttr>(values.back());
    allSplat &= dense && dense.isSplat();
  }
  bool splat = allSplat && keepsSplats(op);
  if (!splat && foldWork(op) > kMostFoldWork)
    return {};
  auto representative = [&](Type type) {
    return splat ? RankedTensorType::get({}, cast<RankedTensorType>(type).getElementType())
                 : cast<RankedTensorType>(type);
  };
  llvm::SmallVector<HostTensor> operands, results;
  for (Type type : op->getResultTypes()) {
    if (tensorBytes(representative(type)) > maxResultBytes)
      return {};
    results.emplace_back(representative(type));
  }
  if (splat && !op->hasTrait<Pointwise>())
    results[0] =
        HostTensor::fromAttribute(cast<DenseElementsAttr>(values[0]).resizeSplat(representative(values[0].getType())));
  else {
    for (ElementsAttr value : values)
      operands.push_back(HostTensor::fromAttribute(
          splat ? cast<DenseElementsAttr>(value).resizeSplat(representative(value.getType())) : value));
    reference.evaluate(operands, results);
  }
  llvm::SmallVector<Value> constants;
  for (auto [result, type] : llvm::zip_equal(results, op->getResultTypes())) {
    DenseElementsAttr value = result.toAttribute();
    if (splat)
      value = value.resizeSplat(cast<RankedTensorType>(type));
    constants.push_back(ConstantOp::create(builder, op->getLoc(), value));
  }
  return constants;
}

Value foldOrSelf(OpBuilder &builder, Value value, int64_t maxResultBytes) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return value;
  unsigned number = cast<OpResult>(value).getResultNumber();
  llvm::SmallVector<Value> constants = foldIfConstant(builder, op, maxResultBytes);
  if (constants.empty())
    return value;
  for (auto [i, constant] : llvm::enumerate(constants))
    if (i != number)
      constant.getDefiningOp()->erase();
  if (op->use_empty())
    op->erase();
  return constants[number];
}

} // namespace tcc::train

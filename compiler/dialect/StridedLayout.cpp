//===- StridedLayout.cpp - strides of operands behind views ---------------===//
#include "compiler/dialect/StridedLayout.h"

#include "compiler/dialect/Builders.h"

using namespace mlir;

namespace tcc::train {

namespace {

void dropSingleStrides(StridedLayout &layout, llvm::ArrayRef<int64_t> shape) {
  for (auto [stride, extent] : llvm::zip_equal(layout.strides, shape))
    stride = extent == 1 ? 0 : stride;
}

/// True if all results are sums of multiples of dimensions and a constant.
bool isLinear(AffineMap map) {
  bool linear = true;
  for (AffineExpr expr : map.getResults())
    expr.walk([&](AffineExpr part) {
      linear &= llvm::is_contained(
          {AffineExprKind::Add, AffineExprKind::Mul, AffineExprKind::Constant, AffineExprKind::DimId}, part.getKind());
    });
  return linear;
}

/// The layout of a tensor of `shape`, given that `map` maps its coordinates to those of the tensor with `layout`.
std::optional<StridedLayout> composed(AffineMap map, const StridedLayout &layout, llvm::ArrayRef<int64_t> shape) {
  if (!map || map.getNumDims() != shape.size() || map.getNumResults() != layout.strides.size() || !isLinear(map))
    return std::nullopt;
  llvm::SmallVector<int64_t> at(shape.size(), 0);
  auto position = [&] {
    int64_t sum = layout.offset;
    llvm::SmallVector<int64_t> coordinates = map.compose(at);
    for (auto [stride, coordinate] : llvm::zip_equal(layout.strides, coordinates))
      sum += stride * coordinate;
    return sum;
  };
  StridedLayout result;
  result.offset = position();
  for (int64_t &coordinate : at) {
    coordinate = 1;
    result.strides.push_back(position() - result.offset);
    coordinate = 0;
  }
  dropSingleStrides(result, shape);
  return result;
}

/// The layout under another shape. Matches groups of dimensions with equally many elements: dimensions of `from` in a
/// group can be merged if each stride is the next stride times the next extent.
std::optional<StridedLayout> reshaped(llvm::ArrayRef<int64_t> from, const StridedLayout &layout,
                                      llvm::ArrayRef<int64_t> to) {
  StridedLayout result{layout.offset, llvm::SmallVector<int64_t>(to.size(), 0)};
  if (llvm::is_contained(from, 0))
    return std::nullopt;
  size_t i = 0, j = 0;
  while (i < from.size() && j < to.size()) {
    int64_t left = from[i++], right = to[j++];
    size_t begin = j - 1;
    int64_t stride = layout.strides[i - 1];
    while (left != right) {
      if (right < left) {
        right *= to[j++];
        continue;
      }
      // `left` elements so far, one every `stride`.
      if (from[i] > 1 && left > 1 && stride != layout.strides[i] * from[i])
        return std::nullopt;
      if (from[i] > 1)
        stride = layout.strides[i];
      left *= from[i++];
    }
    for (size_t d = j; d-- > begin;) {
      result.strides[d] = stride;
      stride *= to[d];
    }
  }
  dropSingleStrides(result, to);
  return result;
}

} // namespace

StridedLayout denseLayout(llvm::ArrayRef<int64_t> shape) {
  StridedLayout layout{0, llvm::SmallVector<int64_t>(shape.size())};
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0; stride *= shape[d])
    layout.strides[d] = stride;
  dropSingleStrides(layout, shape);
  return layout;
}

bool isInside(const StridedLayout &layout, llvm::ArrayRef<int64_t> shape, int64_t elements) {
  int64_t first = layout.offset, last = layout.offset;
  for (auto [stride, extent] : llvm::zip_equal(layout.strides, shape)) {
    if (extent == 0)
      return true;
    (stride < 0 ? first : last) += stride * (extent - 1);
  }
  return first >= 0 && last < elements;
}

std::optional<StridedLayout> layoutOfResult(Operation *movement, const StridedLayout &operand) {
  Value from = movement->getOperand(0), to = movement->getResult(0);
  if (movement->hasTrait<View>())
    return reshaped(shapeOf(from), operand, shapeOf(to));
  auto fusible = dyn_cast<Fusible>(movement);
  return fusible ? composed(fusible.getOperandMap(0), operand, shapeOf(to)) : std::nullopt;
}

std::optional<StridedLayout> layoutOfOperand(Operation *movement, unsigned number, const StridedLayout &result) {
  Value from = movement->getOperand(number), to = movement->getResult(0);
  if (movement->hasTrait<View>())
    return reshaped(shapeOf(to), result, shapeOf(from));
  auto fusible = dyn_cast<Fusible>(movement);
  return fusible ? composed(fusible.getResultMap(number), result, shapeOf(from)) : std::nullopt;
}

std::optional<PlacedTensor> placeOfOperand(LoopKernel kernel, unsigned operand) {
  Value value = kernel->getOperand(operand);
  llvm::SmallVector<Operation *> movements;
  while (Operation *op = value.getDefiningOp()) {
    if (op->getNumOperands() != 1)
      return std::nullopt;
    movements.push_back(op);
    value = op->getOperand(0);
  }
  std::optional<StridedLayout> layout = denseLayout(shapeOf(value));
  for (Operation *op : llvm::reverse(movements))
    if (layout = layoutOfResult(op, *layout); !layout)
      return std::nullopt;
  return PlacedTensor{cast<BlockArgument>(value).getArgNumber(), std::move(*layout)};
}

std::optional<PlacedTensor> placeOfResult(LoopKernel kernel, unsigned result) {
  Value value = kernel->getResult(result);
  llvm::SmallVector<OpOperand *> uses;
  while (true) {
    if (!value.hasOneUse())
      return std::nullopt;
    OpOperand &use = *value.use_begin();
    if (isa<YieldOp>(use.getOwner())) {
      std::optional<StridedLayout> layout = denseLayout(shapeOf(value));
      for (OpOperand *step : llvm::reverse(uses))
        if (layout = layoutOfOperand(step->getOwner(), step->getOperandNumber(), *layout); !layout)
          return std::nullopt;
      return PlacedTensor{use.getOperandNumber(), std::move(*layout)};
    }
    uses.push_back(&use);
    value = use.getOwner()->getResult(0);
  }
}

} // namespace tcc::train

//===- Shape.cpp - constants, views and data movement -----------*- C++ -*-===//
//
// These ops move elements: each is a map from result coordinates to operand coordinates, which the evaluator, the
// kernel and the gradient (its transpose) share.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/Lane.h"
#include "compiler/dialect/Verify.h"

using namespace mlir;

namespace tcc::train {

/// Moving elements costs only memory traffic; inside a kernel it is free.
#define TCC_MOVEMENT(OP)                                                                                               \
  double OP::getFlops() { return 0; }                                                                                  \
  bool OP::isCheapToRecompute() { return true; }

TCC_MOVEMENT(IotaOp)
TCC_MOVEMENT(ReshapeOp)
TCC_MOVEMENT(TransposeOp)
TCC_MOVEMENT(BroadcastOp)
TCC_MOVEMENT(ReverseOp)

/// results[i] = operands[source(i)], by coordinates.
template <typename Source> static void move(const HostTensor &from, HostTensor &to, Source source) {
  for (int64_t i = 0; i < to.size(); ++i) {
    int64_t index = ravel(source(unravel(i, to.shape())), from.shape());
    if (to.isFloat())
      to.setDouble(i, from.getDouble(index));
    else
      to.setInt(i, from.getInt(index));
  }
}

//===----------------------------------------------------------------------===//
// constant
//===----------------------------------------------------------------------===//
OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValueAttr(); }
double ConstantOp::getFlops() { return 0; }
void ConstantOp::evaluate(llvm::ArrayRef<HostTensor>, llvm::MutableArrayRef<HostTensor> results) {
  results[0] = HostTensor::fromAttribute(getValue());
}
AffineMap ConstantOp::getOperandMap(unsigned) { return {}; }
/// Only for splats: other constants are kernel operands.
Value ConstantOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord>) {
  auto dense = cast<DenseElementsAttr>(getValue());
  assert(dense.isSplat() && "only splats are inlined into kernels");
  HostTensor one = HostTensor::fromAttribute(dense.resizeSplat(RankedTensorType::get({}, dense.getElementType())));
  if (one.isFloat())
    return builder.floatConstant(one.elementType(), one.getDouble(0));
  return builder.intConstant(one.elementType(), one.getInt(0));
}

//===----------------------------------------------------------------------===//
// iota
//===----------------------------------------------------------------------===//
LogicalResult IotaOp::verify() { return verifyDim(*this, getDim(), shapeOf(getResult()).size()); }
void IotaOp::evaluate(llvm::ArrayRef<HostTensor>, llvm::MutableArrayRef<HostTensor> results) {
  for (int64_t i = 0; i < results[0].size(); ++i)
    results[0].setInt(i, unravel(i, results[0].shape())[getDim()]);
}
AffineMap IotaOp::getOperandMap(unsigned) { return {}; }
Value IotaOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  Type element = elementTypeOf(getResult()), lanes = builder.laneType(element);
  Lane coord(builder, builder.coordValue(coords[getDim()]));
  if (isa<FloatType>(element))
    return coord.make<arith::SIToFPOp>(lanes, coord.value);
  return coord.value.getType() == lanes ? coord : coord.make<arith::TruncIOp>(lanes, coord.value);
}

//===----------------------------------------------------------------------===//
// reshape
//===----------------------------------------------------------------------===//
LogicalResult ReshapeOp::verify() {
  auto from = tensorTypeOf(getInput()), to = tensorTypeOf(getResult());
  if (from.getElementType() != to.getElementType())
    return emitOpError("changes the element type; use train.cast");
  if (from.getNumElements() != to.getNumElements())
    return emitOpError("turns ") << from.getNumElements() << " elements into " << to.getNumElements();
  return success();
}
OpFoldResult ReshapeOp::fold(FoldAdaptor) {
  if (getInput().getType() == getType())
    return getInput();
  if (auto inner = getInput().getDefiningOp<ReshapeOp>()) {
    getInputMutable().assign(inner.getInput());
    return getResult();
  }
  return {};
}
void ReshapeOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  std::copy_n(operands[0].data(), operands[0].sizeBytes(), results[0].data());
}
void ReshapeOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                              llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(1);
  if (resultGradients[0] && isFloatTensor(getInput()))
    operandGradients[0] = reshape(builder, getLoc(), resultGradients[0], shapeOf(getInput()));
}

namespace {
/// Groups of dimensions of two shapes that cover the same elements: [fromBegin, fromEnd) and [toBegin, toEnd).
struct ReshapeGroup {
  size_t fromBegin, fromEnd, toBegin, toEnd;
};
} // namespace

/// The finest such groups, in order, so that most dimensions map one to one, without division.
static llvm::SmallVector<ReshapeGroup> groupsOf(llvm::ArrayRef<int64_t> from, llvm::ArrayRef<int64_t> to) {
  llvm::SmallVector<ReshapeGroup> groups;
  size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    ReshapeGroup group{i, i, j, j};
    int64_t left = 1, right = 1;
    if (i < from.size())
      left = from[i++];
    if (j < to.size())
      right = to[j++];
    while (left != right) {
      if (left < right && i < from.size())
        left *= from[i++];
      else if (j < to.size())
        right *= to[j++];
      else
        left *= from[i++];
    }
    group.fromEnd = i;
    group.toEnd = j;
    groups.push_back(group);
  }
  return groups;
}

AffineMap ReshapeOp::getOperandMap(unsigned) {
  llvm::ArrayRef<int64_t> from = shapeOf(getInput()), to = shapeOf(getResult());
  MLIRContext *context = getContext();
  llvm::SmallVector<AffineExpr> exprs;
  if (tensorTypeOf(getInput()).getNumElements() == 0)
    return AffineMap::get(to.size(), 0, llvm::SmallVector<AffineExpr>(from.size(), getAffineConstantExpr(0, context)),
                          context);
  for (const ReshapeGroup &group : groupsOf(from, to)) {
    AffineExpr linear = getAffineConstantExpr(0, context);
    for (size_t d = group.toBegin; d < group.toEnd; ++d)
      linear = linear * to[d] + (to[d] == 1 ? getAffineConstantExpr(0, context) : getAffineDimExpr(d, context));
    // Row-major digits of `linear` by the operand's extents; the first needs no modulus.
    int64_t below = 1;
    llvm::SmallVector<AffineExpr> digits;
    bool leading = true;
    for (size_t d = group.fromBegin; d < group.fromEnd; ++d)
      below *= from[d];
    for (size_t d = group.fromBegin; d < group.fromEnd; ++d) {
      below /= from[d];
      AffineExpr digit = linear.floorDiv(below);
      if (from[d] == 1)
        digit = getAffineConstantExpr(0, context);
      else if (!leading)
        digit = digit % from[d];
      leading &= from[d] == 1;
      exprs.push_back(digit);
    }
  }
  return AffineMap::get(to.size(), 0, exprs, context);
}

Value ReshapeOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  llvm::ArrayRef<int64_t> from = shapeOf(getInput()), to = shapeOf(getResult());
  llvm::SmallVector<Coord> source;
  for (const ReshapeGroup &group : groupsOf(from, to)) {
    size_t wideFrom = 0, wideTo = 0;
    Coord linear = builder.uniform(int64_t(0));
    for (size_t d = group.toBegin; d < group.toEnd; ++d)
      if (to[d] != 1)
        linear = wideTo++ ? builder.add(builder.affine(linear, to[d], 0), coords[d]) : coords[d];
    for (size_t d = group.fromBegin; d < group.fromEnd; ++d)
      wideFrom += from[d] != 1;
    if (wideFrom <= 1) {
      for (size_t d = group.fromBegin; d < group.fromEnd; ++d)
        source.push_back(from[d] == 1 ? builder.uniform(int64_t(0)) : linear);
      continue;
    }
    int64_t below = 1;
    for (size_t d = group.fromBegin; d < group.fromEnd; ++d)
      below *= from[d];
    bool leading = true;
    for (size_t d = group.fromBegin; d < group.fromEnd; ++d) {
      below /= from[d];
      if (from[d] == 1) {
        source.push_back(builder.uniform(int64_t(0)));
        continue;
      }
      source.push_back(digitOf(builder, linear, below, leading ? 0 : from[d]));
      leading = false;
    }
  }
  return builder.operand(0, source);
}

//===----------------------------------------------------------------------===//
// transpose
//===----------------------------------------------------------------------===//
LogicalResult TransposeOp::verify() {
  auto from = tensorTypeOf(getInput()), to = tensorTypeOf(getResult());
  llvm::ArrayRef<int64_t> permutation = getPermutation();
  llvm::SmallVector<int64_t> sorted(permutation);
  llvm::sort(sorted);
  if (int64_t(sorted.size()) != from.getRank() || to.getRank() != from.getRank() ||
      from.getElementType() != to.getElementType())
    return emitOpError("needs one dimension number for each of ")
           << from.getRank() << " dimensions, and one element type";
  for (int64_t i = 0; i < from.getRank(); ++i)
    if (sorted[i] != i)
      return emitOpError("has a permutation that does not name each dimension once");
  for (int64_t i = 0; i < from.getRank(); ++i)
    if (to.getDimSize(i) != from.getDimSize(permutation[i]))
      return emitOpError("result dimension ") << i << " is not operand dimension " << permutation[i];
  return success();
}
OpFoldResult TransposeOp::fold(FoldAdaptor) {
  llvm::ArrayRef<int64_t> outer = getPermutation();
  if (llvm::all_of(llvm::enumerate(outer), [](auto entry) { return int64_t(entry.index()) == entry.value(); }))
    return getInput();
  if (auto inner = getInput().getDefiningOp<TransposeOp>()) {
    llvm::SmallVector<int64_t> composed;
    for (int64_t dim : outer)
      composed.push_back(inner.getPermutation()[dim]);
    setPermutation(composed);
    getInputMutable().assign(inner.getInput());
    return getResult();
  }
  return {};
}
void TransposeOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  move(operands[0], results[0], [&](const llvm::SmallVector<int64_t> &at) {
    llvm::SmallVector<int64_t> from(at.size());
    for (auto [i, dim] : llvm::enumerate(getPermutation()))
      from[dim] = at[i];
    return from;
  });
}
AffineMap TransposeOp::getOperandMap(unsigned) {
  llvm::SmallVector<unsigned> inverse(getPermutation().size());
  for (auto [i, dim] : llvm::enumerate(getPermutation()))
    inverse[dim] = i;
  return AffineMap::getPermutationMap(inverse, getContext());
}
/// The last dimension stays the last.
bool TransposeOp::readsNeighbours(unsigned, unsigned dim, int64_t) {
  return dim + 1 == getPermutation().size() && getPermutation()[dim] == int64_t(dim);
}
Value TransposeOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  llvm::SmallVector<Coord> source(coords);
  for (auto [i, dim] : llvm::enumerate(getPermutation()))
    source[dim] = coords[i];
  return builder.operand(0, source);
}
void TransposeOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(1);
  llvm::SmallVector<int64_t> inverse(getPermutation().size());
  for (auto [i, dim] : llvm::enumerate(getPermutation()))
    inverse[dim] = i;
  if (resultGradients[0] && isFloatTensor(getInput()))
    operandGradients[0] = transpose(builder, getLoc(), resultGradients[0], inverse);
}

//===----------------------------------------------------------------------===//
// broadcast
//===----------------------------------------------------------------------===//
LogicalResult BroadcastOp::verify() {
  auto from = tensorTypeOf(getInput()), to = tensorTypeOf(getResult());
  auto common = broadcastShapes(from.getShape(), to.getShape());
  if (from.getElementType() != to.getElementType() || !common || llvm::ArrayRef(*common) != to.getShape())
    return emitOpError("cannot widen ") << from << " to " << to;
  return success();
}
OpFoldResult BroadcastOp::fold(FoldAdaptor) {
  if (getInput().getType() == getType())
    return getInput();
  if (auto inner = getInput().getDefiningOp<BroadcastOp>()) {
    getInputMutable().assign(inner.getInput());
    return getResult();
  }
  return {};
}
void BroadcastOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  llvm::ArrayRef<int64_t> from = operands[0].shape();
  move(operands[0], results[0], [&](const llvm::SmallVector<int64_t> &at) {
    llvm::SmallVector<int64_t> source;
    for (size_t i = 0; i < from.size(); ++i)
      source.push_back(from[i] == 1 ? 0 : at[at.size() - from.size() + i]);
    return source;
  });
}
AffineMap BroadcastOp::getOperandMap(unsigned) {
  llvm::ArrayRef<int64_t> from = shapeOf(getInput());
  size_t rank = shapeOf(getResult()).size();
  llvm::SmallVector<AffineExpr> exprs;
  for (size_t i = 0; i < from.size(); ++i)
    exprs.push_back(from[i] == 1 ? getAffineConstantExpr(0, getContext())
                                 : getAffineDimExpr(rank - from.size() + i, getContext()));
  return AffineMap::get(rank, 0, exprs, getContext());
}
bool BroadcastOp::readsNeighbours(unsigned, unsigned, int64_t) { return true; }
Value BroadcastOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  llvm::ArrayRef<int64_t> from = shapeOf(getInput());
  llvm::SmallVector<Coord> source;
  for (size_t i = 0; i < from.size(); ++i)
    source.push_back(from[i] == 1 ? builder.uniform(int64_t(0)) : coords[coords.size() - from.size() + i]);
  return builder.operand(0, source);
}
void BroadcastOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(1);
  if (resultGradients[0] && isFloatTensor(getInput()))
    operandGradients[0] = unbroadcast(builder, getLoc(), resultGradients[0], shapeOf(getInput()));
}

//===----------------------------------------------------------------------===//
// reverse
//===----------------------------------------------------------------------===//
LogicalResult ReverseOp::verify() {
  if (getInput().getType() != getType())
    return emitOpError("changes the type");
  return verifyDims(*this, getDims(), shapeOf(getInput()).size());
}
void ReverseOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  move(operands[0], results[0], [&](llvm::SmallVector<int64_t> at) {
    for (int64_t dim : getDims())
      at[dim] = operands[0].shape()[dim] - 1 - at[dim];
    return at;
  });
}
AffineMap ReverseOp::getOperandMap(unsigned) {
  llvm::ArrayRef<int64_t> shape = shapeOf(getInput());
  llvm::SmallVector<AffineExpr> exprs;
  for (size_t i = 0; i < shape.size(); ++i) {
    AffineExpr at = getAffineDimExpr(i, getContext());
    exprs.push_back(llvm::is_contained(getDims(), int64_t(i)) ? shape[i] - 1 - at : at);
  }
  return AffineMap::get(shape.size(), 0, exprs, getContext());
}
Value ReverseOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  llvm::SmallVector<Coord> source(coords);
  for (int64_t dim : getDims())
    source[dim] = builder.affine(coords[dim], -1, shapeOf(getInput())[dim] - 1);
  return builder.operand(0, source);
}
void ReverseOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                              llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(1);
  if (resultGradients[0] && isFloatTensor(getInput()))
    operandGradients[0] = ReverseOp::create(builder, getLoc(), getType(), resultGradients[0], getDims());
}

} // namespace tcc::train

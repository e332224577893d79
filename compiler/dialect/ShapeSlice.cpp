//===- ShapeSlice.cpp - slice, pad and concat -------------------*- C++ -*-===//
//
// slice and pad are each other's gradients; concat's is slices.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/Lane.h"
#include "compiler/dialect/Verify.h"

using namespace mlir;

namespace tcc::train {

double SliceOp::getFlops() { return 0; }
bool SliceOp::isCheapToRecompute() { return true; }
double PadOp::getFlops() { return 0; }
bool PadOp::isCheapToRecompute() { return true; }
double ConcatOp::getFlops() { return 0; }
/// Each element tests every operand's range: cheap for few operands.
bool ConcatOp::isCheapToRecompute() { return getNumOperands() <= 4; }

static void copyElement(const HostTensor &from, int64_t source, HostTensor &to, int64_t target) {
  int64_t width = elementBytes(to.elementType());
  std::copy_n(from.data() + source * width, width, to.data() + target * width);
}

//===----------------------------------------------------------------------===//
// slice
//===----------------------------------------------------------------------===//
LogicalResult SliceOp::verify() {
  auto from = tensorTypeOf(getInput()), to = tensorTypeOf(getResult());
  int64_t rank = from.getRank();
  if (to.getRank() != rank || int64_t(getStarts().size()) != rank || int64_t(getSteps().size()) != rank ||
      from.getElementType() != to.getElementType())
    return emitOpError("needs a start and a step for each of ") << rank << " dimensions, and one element type";
  for (int64_t i = 0; i < rank; ++i) {
    int64_t count = to.getDimSize(i), first = getStarts()[i], last = first + (count - 1) * getSteps()[i];
    if (getSteps()[i] == 0)
      return emitOpError("has step 0 in dimension ") << i;
    if (count > 0 && (std::min(first, last) < 0 || std::max(first, last) >= from.getDimSize(i)))
      return emitOpError("reads elements ")
             << first << " to " << last << " of dimension " << i << ", which has " << from.getDimSize(i);
  }
  return success();
}
OpFoldResult SliceOp::fold(FoldAdaptor) {
  bool whole = getInput().getType() == getType();
  for (auto [i, extent] : llvm::enumerate(shapeOf(getResult())))
    whole &= getStarts()[i] == 0 && (getSteps()[i] == 1 || extent <= 1);
  return whole ? getInput() : OpFoldResult();
}
void SliceOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  for (int64_t i = 0; i < results[0].size(); ++i) {
    llvm::SmallVector<int64_t> at = unravel(i, results[0].shape());
    for (size_t d = 0; d < at.size(); ++d)
      at[d] = getStarts()[d] + at[d] * getSteps()[d];
    copyElement(operands[0], ravel(at, operands[0].shape()), results[0], i);
  }
}
AffineMap SliceOp::getOperandMap(unsigned) {
  llvm::SmallVector<AffineExpr> exprs;
  for (size_t i = 0; i < getStarts().size(); ++i)
    exprs.push_back(getAffineDimExpr(i, getContext()) * getSteps()[i] + getStarts()[i]);
  return AffineMap::get(getStarts().size(), 0, exprs, getContext());
}
bool SliceOp::readsNeighbours(unsigned, unsigned dim, int64_t count) {
  return getSteps()[dim] == 1 && getStarts()[dim] % count == 0;
}
Value SliceOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  llvm::SmallVector<Coord> source;
  for (size_t i = 0; i < coords.size(); ++i)
    source.push_back(builder.affine(coords[i], getSteps()[i], getStarts()[i]));
  return builder.operand(0, source);
}
void SliceOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                            llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(1);
  if (!resultGradients[0] || !isFloatTensor(getInput()))
    return;
  // Pad with the same starts and steps; a slice with a negative step is a mirrored one with a positive step.
  Value gradient = resultGradients[0];
  llvm::SmallVector<int64_t> low(getStarts()), steps(getSteps()), mirrored;
  for (size_t i = 0; i < low.size(); ++i) {
    int64_t count = shapeOf(getResult())[i];
    if (count <= 1)
      steps[i] = 1;
    if (count == 0)
      low[i] = 0;
    if (steps[i] < 0) {
      low[i] += (count - 1) * steps[i];
      steps[i] = -steps[i];
      mirrored.push_back(i);
    }
  }
  if (!mirrored.empty())
    gradient = ReverseOp::create(builder, getLoc(), gradient.getType(), gradient, mirrored);
  operandGradients[0] =
      PadOp::create(builder, getLoc(), getInput().getType(), gradient, low, steps, llvm::APFloat(0.0));
}

//===----------------------------------------------------------------------===//
// pad
//===----------------------------------------------------------------------===//
LogicalResult PadOp::verify() {
  auto from = tensorTypeOf(getInput()), to = tensorTypeOf(getResult());
  int64_t rank = from.getRank();
  if (to.getRank() != rank || int64_t(getLow().size()) != rank || int64_t(getSteps().size()) != rank ||
      from.getElementType() != to.getElementType())
    return emitOpError("needs a low and a step for each of ") << rank << " dimensions, and one element type";
  for (int64_t i = 0; i < rank; ++i) {
    int64_t count = from.getDimSize(i), last = getLow()[i] + (count - 1) * getSteps()[i];
    if (getLow()[i] < 0 || getSteps()[i] < 1)
      return emitOpError("has a negative low or a step below 1 in dimension ") << i;
    if (count > 0 && last >= to.getDimSize(i))
      return emitOpError("puts element ")
             << count - 1 << " of dimension " << i << " at " << last << ", beyond its " << to.getDimSize(i);
  }
  return success();
}
void PadOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  for (int64_t i = 0; i < results[0].size(); ++i)
    results[0].setDouble(i, getValue().convertToDouble());
  for (int64_t i = 0; i < operands[0].size(); ++i) {
    llvm::SmallVector<int64_t> at = unravel(i, operands[0].shape());
    for (size_t d = 0; d < at.size(); ++d)
      at[d] = getLow()[d] + at[d] * getSteps()[d];
    copyElement(operands[0], i, results[0], ravel(at, results[0].shape()));
  }
}
AffineMap PadOp::getOperandMap(unsigned) { return {}; }
bool PadOp::readsNeighbours(unsigned, unsigned dim, int64_t count) {
  return getSteps()[dim] == 1 && getLow()[dim] % count == 0;
}
Value PadOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  llvm::ArrayRef<int64_t> from = shapeOf(getInput()), to = shapeOf(getResult());
  Type element = elementTypeOf(getInput());
  Value padding = builder.constant(element, getValue().convertToDouble());
  llvm::SmallVector<Coord> source;
  Value inside;
  auto require = [&](Value condition) {
    inside = inside ? arith::AndIOp::create(builder.builder, builder.loc, inside, condition).getResult() : condition;
  };
  for (size_t d = 0; d < coords.size(); ++d) {
    int64_t low = getLow()[d], step = getSteps()[d];
    if (low == 0 && step == 1 && from[d] == to[d]) {
      source.push_back(coords[d]);
      continue;
    }
    Coord offset = builder.affine(coords[d], 1, -low);
    if (step == 1) {
      require(builder.inBounds(offset, from[d]));
      source.push_back(offset);
      continue;
    }
    // Offsets that are no multiple of the step are between elements.
    require(builder.inBounds(offset, from[d] == 0 ? 0 : (from[d] - 1) * step + 1));
    Coord quotient = digitOf(builder, offset, step, 0);
    Lane back(builder, builder.coordValue(builder.affine(quotient, step, 0)));
    require(equal(back, back.with(builder.coordValue(offset))));
    source.push_back(quotient);
  }
  return inside ? builder.operandIf(0, source, inside, padding) : builder.operand(0, source);
}
void PadOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                          llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(1);
  if (resultGradients[0] && isFloatTensor(getInput()))
    operandGradients[0] =
        SliceOp::create(builder, getLoc(), getInput().getType(), resultGradients[0], getLow(), getSteps());
}

//===----------------------------------------------------------------------===//
// concat
//===----------------------------------------------------------------------===//
LogicalResult ConcatOp::verify() {
  auto to = tensorTypeOf(getResult());
  if (failed(verifyDim(*this, getDim(), to.getRank())))
    return failure();
  if (getNumOperands() == 0)
    return emitOpError("needs at least one operand");
  int64_t total = 0;
  for (Value input : getInputs()) {
    llvm::SmallVector<int64_t> shape(shapeOf(input));
    if (int64_t(shape.size()) != to.getRank() || elementTypeOf(input) != to.getElementType())
      return emitOpError("has an operand of another rank or element type than its result");
    total += shape[getDim()];
    shape[getDim()] = to.getDimSize(getDim());
    if (llvm::ArrayRef(shape) != to.getShape())
      return emitOpError("has operands that differ outside dimension ") << getDim();
  }
  if (total != to.getDimSize(getDim()))
    return emitOpError("has operands with ")
           << total << " elements along dimension " << getDim() << ", its result has " << to.getDimSize(getDim());
  return success();
}
void ConcatOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  int64_t start = 0;
  for (const HostTensor &operand : operands) {
    for (int64_t i = 0; i < operand.size(); ++i) {
      llvm::SmallVector<int64_t> at = unravel(i, operand.shape());
      at[getDim()] += start;
      copyElement(operand, i, results[0], ravel(at, results[0].shape()));
    }
    start += operand.shape()[getDim()];
  }
}
AffineMap ConcatOp::getOperandMap(unsigned) { return {}; }
AffineMap ConcatOp::getResultMap(unsigned operand) {
  int64_t start = 0;
  for (unsigned i = 0; i < operand; ++i)
    start += shapeOf(getOperand(i))[getDim()];
  llvm::SmallVector<AffineExpr> exprs;
  for (size_t i = 0; i < shapeOf(getResult()).size(); ++i)
    exprs.push_back(getAffineDimExpr(i, getContext()) + (int64_t(i) == int64_t(getDim()) ? start : 0));
  return AffineMap::get(exprs.size(), 0, exprs, getContext());
}
Value ConcatOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  // For each operand: its element if the coordinate is in its range, else the value so far.
  Value result = builder.constant(elementTypeOf(getResult()), 0);
  int64_t start = 0;
  for (unsigned i = 0; i < getNumOperands(); ++i) {
    int64_t extent = shapeOf(getOperand(i))[getDim()];
    llvm::SmallVector<Coord> source(coords);
    source[getDim()] = builder.affine(coords[getDim()], 1, -start);
    result = builder.operandIf(i, source, builder.inBounds(source[getDim()], extent), result);
    start += extent;
  }
  return result;
}
void ConcatOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                             llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(getNumOperands());
  if (!resultGradients[0] || !isFloatTensor(getResult()))
    return;
  llvm::SmallVector<int64_t> starts(shapeOf(getResult()).size(), 0), steps(starts.size(), 1);
  for (auto [i, input] : llvm::enumerate(getInputs())) {
    operandGradients[i] = SliceOp::create(builder, getLoc(), input.getType(), resultGradients[0], starts, steps);
    starts[getDim()] += shapeOf(input)[getDim()];
  }
}

} // namespace tcc::train

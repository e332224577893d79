//===- Quantization.cpp - fake quantisation, observed ranges, 4 bits -*- C++ -*-===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/FourBits.h"
#include "compiler/dialect/Indexing.h"
#include "compiler/dialect/Lane.h"
#include "compiler/dialect/Pointwise.h"
#include "compiler/dialect/Verify.h"

#include <cmath>
#include <numeric>

using namespace mlir;

namespace tcc::train {

//===----------------------------------------------------------------------===//
// fake_quantize
//===----------------------------------------------------------------------===//
TCC_POINTWISE(FakeQuantizeOp, 8)

void FakeQuantizeOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  for (int64_t i = 0; i < results[0].size(); ++i) {
    const double scale = operands[1].getDouble(i), zeroPoint = operands[2].getDouble(i);
    double q = std::nearbyint(operands[0].getDouble(i) / scale) + zeroPoint;
    if (!std::isnan(q))
      q = std::min(std::max(q, double(int64_t(getLow()))), double(int64_t(getHigh())));
    results[0].setDouble(i, (q - zeroPoint) * scale);
  }
}

Value FakeQuantizeOp::emitElement(ElementBuilder &b, unsigned, llvm::ArrayRef<Coord> coords) {
  Lane x(b, b.operand(0, coords)), scale(b, b.operand(1, coords)), zeroPoint(b, b.operand(2, coords));
  Lane q = (x / scale).roundEven() + zeroPoint;
  // maximumf and minimumf keep NaN.
  q = q.make<arith::MaximumFOp>(q.value, q.like(double(int64_t(getLow()))).value);
  q = q.make<arith::MinimumFOp>(q.value, q.like(double(int64_t(getHigh()))).value);
  return (q - zeroPoint) * scale;
}

Value FakeQuantizeOp::buildPassing(OpBuilder &builder) {
  // 16-bit types in f32, as emitElement computes them.
  Type wide = elementTypeOf(getInput()).isF64() ? Type(builder.getF64Type()) : builder.getF32Type();
  auto widened = [&](Value value) { return Expr(builder, getLoc(), value).cast(wide); };
  Expr q = (widened(getInput()) / widened(getScale())).apply<RoundOp>() + widened(getZeroPoint());
  return AndOp::create(builder, getLoc(), q.compare(CompareKind::ge, double(int64_t(getLow()))),
                       q.compare(CompareKind::le, double(int64_t(getHigh()))));
}

/// g where the quotient is in range
void FakeQuantizeOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                   llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(3);
  if (!resultGradients[0])
    return;
  Expr g(builder, getLoc(), resultGradients[0]);
  operandGradients[0] = g.with(buildPassing(builder)).select(g, g.like(0));
}

//===----------------------------------------------------------------------===//
// observed_range
//===----------------------------------------------------------------------===//

LogicalResult ObservedRangeOp::verify() {
  for (Value value : {getLow(), getHigh(), getNextLow(), getNextHigh()})
    if (!shapeOf(value).empty() || value.getType() != getLow().getType())
      return emitOpError("needs scalars of one type for its range");
  if (tensorTypeOf(getInput()).getNumElements() == 0)
    return emitOpError("observes a tensor without elements");
  return success();
}
double ObservedRangeOp::getFlops() { return 2.0 * double(tensorTypeOf(getInput()).getNumElements()); }

void ObservedRangeOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (int64_t i = 0; i < operands[0].size(); ++i) {
    const double x = operands[0].getDouble(i);
    low = std::isnan(x) || x < low ? x : low; // NaN stays
    high = std::isnan(x) || x > high ? x : high;
  }
  const double rate = getRate().convertToDouble(), before[] = {operands[1].getDouble(0), operands[2].getDouble(0)};
  results[0].setDouble(0, before[0] + rate * (low - before[0]));
  results[1].setDouble(0, before[1] + rate * (high - before[1]));
}

llvm::SmallVector<Value> ObservedRangeOp::decompose(OpBuilder &builder) {
  Expr x(builder, getLoc(), getInput());
  llvm::SmallVector<int64_t> dims(shapeOf(x).size());
  std::iota(dims.begin(), dims.end(), 0);
  auto moved = [&](ReduceKind kind, Value average) -> Value {
    Expr old = x.with(average);
    Expr now = x.with(reduce(builder, getLoc(), kind, x, dims)).reshape({}).cast(elementTypeOf(average));
    return old + (now - old) * getRate().convertToDouble();
  };
  return {moved(ReduceKind::min, getLow()), moved(ReduceKind::max, getHigh())};
}

llvm::SmallVector<Value> ObservedRangeOp::buildInference(OpBuilder &) { return {getLow(), getHigh()}; }

//===----------------------------------------------------------------------===//
// unpack
//===----------------------------------------------------------------------===//
LogicalResult UnpackOp::verify() {
  if (getCode() == FourBitCode::int8 || !fits(layoutOf(*this, getShape()), *this))
    return emitOpError("reads another number of bytes, scales or zero points than its layout has");
  if (bool(getNested()) != bool(getMap()) || (getMap() && shapeOf(getMap()) != llvm::ArrayRef<int64_t>{256}))
    return emitOpError("needs the 256 numbers of its nested scales");
  if (getAxis() >= getShape().size())
    return emitOpError("axis is out of bounds");
  if (shapeOf(getResult()) != llvm::ArrayRef(getIndices() ? gatheredShape(getShape(), shapeOf(getIndices()), getAxis())
                                                          : llvm::SmallVector<int64_t>(getShape())))
    return emitOpError("result must have the shape, or shape[:axis] ++ indices ++ shape[axis+1:]");
  return success();
}
double UnpackOp::getFlops() { return 20.0 * double(tensorTypeOf(getResult()).getNumElements()); }
bool UnpackOp::isCheapToRecompute() { return true; }

/// The number of an element's block in a grid, from its coordinates.
static int64_t numberInGrid(llvm::ArrayRef<int64_t> at, llvm::ArrayRef<int64_t> blocks,
                            llvm::ArrayRef<int64_t> strides) {
  int64_t number = 0;
  for (auto [coordinate, block, stride] : llvm::zip_equal(at, blocks, strides))
    number += coordinate / block * stride;
  return number;
}

void UnpackOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  const size_t axis = getAxis(), indexRank = getIndices() ? shapeOf(getIndices()).size() : 1;
  llvm::ArrayRef<int64_t> shape = results[0].shape();
  const unsigned nested = getZeros() ? 3 : 2;
  auto scaleAt = [&](int64_t i) -> double {
    if (!getNested())
      return operands[1].getDouble(i);
    auto numberAt = [&](int64_t at) { return float(operands[nested].getDouble(at)); };
    const float number = float(operands[nested + 1].getDouble(operands[1].getInt(i)));
    return number * numberAt(1 + i / plan::kDynamicBlock) + numberAt(0);
  };
  for (int64_t i = 0; i < results[0].size(); ++i) {
    llvm::SmallVector<int64_t> at(shape.size());
    int64_t rest = i;
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d])
      at[d] = rest % shape[d];
    if (getIndices()) {
      int64_t position = 0;
      for (size_t d = 0; d < indexRank; ++d)
        position = position * shape[axis + d] + at[axis + d];
      const int64_t row = resolve(operands.back().getInt(position), getShape()[axis]);
      at.erase(at.begin() + axis, at.begin() + axis + indexRank);
      at.insert(at.begin() + axis, row);
    }
    int64_t number = 0;
    for (auto [coordinate, stride] : llvm::zip_equal(at, getStrides()))
      number += coordinate * stride;
    auto numberOf = [&](const HostTensor &codes, int64_t n) {
      const unsigned code = unsigned(codes.getInt(n / 2)) >> plan::bitOfCode(planCode(getCode()), uint64_t(n)) & 15U;
      return plan::numbersOf(planCode(getCode()))[code];
    };
    float value = numberOf(operands[0], number);
    if (getZeros()) {
      const int64_t zero = numberInGrid(at, getBlocks(), getZeroStrides());
      value -= operands[2].isFloat() ? float(operands[2].getDouble(zero)) : numberOf(operands[2], zero);
    }
    const int64_t scale =
        getBlocks().empty() ? number / int64_t(getBlock()) : numberInGrid(at, getBlocks(), getScaleStrides());
    results[0].setDouble(i, double(value) * scaleAt(scale));
  }
}

AffineMap UnpackOp::getOperandMap(unsigned operand) {
  if (!getIndices() || operand + 1 != getNumOperands())
    return {};
  return AffineMap::getMultiDimIdentityMap(shapeOf(getResult()).size(), getContext())
      .getSliceMap(getAxis(), shapeOf(getIndices()).size());
}

/// The entry of `numbers` that `code` names: a tree of selects, since a kernel has no tables.
static Lane choose(Lane code, llvm::ArrayRef<float> numbers, Type element) {
  llvm::SmallVector<Lane> level;
  for (float number : numbers)
    level.push_back(code.with(code.b->constant(element, double(number))));
  for (int64_t bit = 1; level.size() > 1; bit *= 2) {
    const Lane upper = (code & code.likeInt(bit)).compare(arith::CmpIPredicate::ne, code.likeInt(0));
    for (size_t i = 0; i < level.size() / 2; ++i)
      level[i] = upper.select(level[2 * i + 1], level[2 * i]);
    level.truncate(level.size() / 2);
  }
  return level.front();
}

Value UnpackOp::emitElement(ElementBuilder &b, unsigned, llvm::ArrayRef<Coord> coords) {
  llvm::SmallVector<Coord> at(coords);
  if (getIndices()) {
    const size_t axis = getAxis(), indexRank = shapeOf(getIndices()).size();
    const int64_t extent = getShape()[axis];
    Type element = elementTypeOf(getIndices());
    Coord row = indexAt(b, getNumOperands() - 1, coords.slice(axis, indexRank), element, extent,
                        [&](Value index) { return emitResolve(b.builder, b.loc, index, element, extent); });
    at.assign(coords.begin(), coords.begin() + axis);
    at.push_back(row);
    llvm::append_range(at, coords.drop_front(axis + indexRank));
  }
  Coord number = b.uniform(int64_t(0));
  for (auto [coordinate, stride] : llvm::zip_equal(at, getStrides()))
    number = b.add(number, b.affine(coordinate, stride, 0));
  Type i32 = b.builder.getI32Type(), f32 = b.builder.getF32Type();
  // The integer or number of NF4 that a code of an operand stands for.
  auto numberAt = [&](unsigned operand, Coord of) {
    Lane byte(b, b.operand(operand, {digitOf(b, of, 2, 0)}));
    Lane bits = byte.make<arith::ExtUIOp>(b.laneType(i32), byte.value);
    Lane position = byte.make<arith::TruncIOp>(b.laneType(i32), b.coordValue(of));
    Lane shift = (position & position.likeInt(1)).shiftLeft(2); // 4 for odd numbers
    if (getCode() == FourBitCode::nf4)
      shift = shift ^ shift.likeInt(4);
    Lane code = bits.make<arith::ShRUIOp>(bits.value, shift.value) & bits.likeInt(15);
    if (getCode() == FourBitCode::nf4)
      return choose(code, plan::kNf4Numbers, f32);
    if (getCode() == FourBitCode::sint4) // codes from 8 on are negative
      code = code ^ code.likeInt(8);
    return (getCode() == FourBitCode::uint4 ? code : code + code.likeInt(-8)).toFloat();
  };
  auto inGrid = [&](llvm::ArrayRef<int64_t> strides) {
    Coord sum = b.uniform(int64_t(0));
    for (auto [coordinate, block, stride] : llvm::zip_equal(at, getBlocks(), strides))
      if (stride != 0)
        sum = b.add(sum, b.affine(digitOf(b, coordinate, block, 0), stride, 0));
    return sum;
  };
  Lane value = numberAt(0, number);
  if (getZeros()) {
    Coord zero = inGrid(getZeroStrides());
    value = value - (elementTypeOf(getZeros()).isF32() ? Lane(b, b.operand(2, {zero})) : numberAt(2, zero));
  }
  const Coord scale = getBlocks().empty() ? digitOf(b, number, int64_t(getBlock()), 0) : inGrid(getScaleStrides());
  if (!getNested())
    return value * Lane(b, b.operand(1, {scale}));
  const unsigned nested = getZeros() ? 3 : 2;
  Coord code = indexAt(b, 1, {scale}, elementTypeOf(getScales()), 256, [&](Value byte) -> Value {
    auto lanes = dyn_cast<VectorType>(byte.getType()); // none where all share the scale
    Type i64 = b.builder.getI64Type();
    return arith::ExtUIOp::create(b.builder, b.loc, lanes ? VectorType::get(lanes.getShape(), i64) : i64, byte);
  });
  const Coord magnitude = b.affine(digitOf(b, scale, plan::kDynamicBlock, 0), 1, 1);
  Lane share(b, b.operand(nested + 1, {code})), mean(b, b.operand(nested, {b.uniform(int64_t(0))}));
  return value * (share * Lane(b, b.operand(nested, {magnitude})) + mean);
}

} // namespace tcc::train

//===- Quantization.cpp - fake quantisation and observed ranges -*- C++ -*-===//
#include "compiler/dialect/Builders.h"
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

} // namespace tcc::train

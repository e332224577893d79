//===- Reduction.cpp - sums, maxima and other reductions --------------------===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/Lane.h"
#include "compiler/dialect/Verify.h"

#include <cmath>
#include <limits>

using namespace mlir;

namespace tcc::train {

//===----------------------------------------------------------------------===//
// reduce
//===----------------------------------------------------------------------===//
LogicalResult ReduceOp::verify() {
  if (failed(verifyDims(*this, getDims(), shapeOf(getInput()).size())))
    return failure();
  if (elementTypeOf(getInput()) != elementTypeOf(getResult()))
    return emitOpError("changes the element type");
  return verifyKeepsDims(*this, shapeOf(getInput()), shapeOf(getResult()), getDims());
}

double ReduceOp::getFlops() { return double(tensorTypeOf(getInput()).getNumElements()); }

/// The neutral element as a number; for integers the ends of the type.
static double floatIdentity(ReduceKind kind) {
  switch (kind) {
  case ReduceKind::sum:
    return 0;
  case ReduceKind::prod:
    return 1;
  case ReduceKind::max:
    return -HUGE_VAL;
  case ReduceKind::min:
    return HUGE_VAL;
  }
  llvm_unreachable("every reduction is listed");
}
static int64_t intIdentity(ReduceKind kind, Type element) {
  unsigned width = element.getIntOrFloatBitWidth();
  bool isUnsigned = element.isUnsignedInteger() || width == 1;
  llvm::APInt least = isUnsigned ? llvm::APInt::getMinValue(width) : llvm::APInt::getSignedMinValue(width);
  llvm::APInt largest = isUnsigned ? llvm::APInt::getMaxValue(width) : llvm::APInt::getSignedMaxValue(width);
  if (kind == ReduceKind::max || kind == ReduceKind::min) {
    const llvm::APInt &end = kind == ReduceKind::max ? least : largest;
    return isUnsigned ? int64_t(end.getZExtValue()) : end.getSExtValue();
  }
  return kind == ReduceKind::prod;
}

static double combine(ReduceKind kind, double x, double y) {
  switch (kind) {
  case ReduceKind::sum:
    return x + y;
  case ReduceKind::prod:
    return x * y;
  case ReduceKind::max:
    return std::isnan(x) || std::isnan(y) ? NAN : std::max(x, y);
  case ReduceKind::min:
    return std::isnan(x) || std::isnan(y) ? NAN : std::min(x, y);
  }
  llvm_unreachable("every reduction is listed");
}
static int64_t combine(ReduceKind kind, int64_t x, int64_t y, bool isUnsigned) {
  bool less = isUnsigned ? uint64_t(x) < uint64_t(y) : x < y;
  switch (kind) {
  case ReduceKind::sum:
    return int64_t(uint64_t(x) + uint64_t(y));
  case ReduceKind::prod:
    return int64_t(uint64_t(x) * uint64_t(y));
  case ReduceKind::max:
    return less ? y : x;
  case ReduceKind::min:
    return less ? x : y;
  }
  llvm_unreachable("every reduction is listed");
}

void ReduceOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  const HostTensor &in = operands[0];
  HostTensor &out = results[0];
  ReduceKind kind = getKind();
  std::vector<double> floats(out.size(), floatIdentity(kind));
  std::vector<int64_t> integers(out.size(), in.isFloat() ? 0 : intIdentity(kind, in.elementType()));
  for (int64_t i = 0; i < in.size(); ++i) {
    llvm::SmallVector<int64_t> at = unravel(i, in.shape());
    for (int64_t dim : getDims())
      at[dim] = 0;
    int64_t target = ravel(at, out.shape());
    if (in.isFloat())
      floats[target] = combine(kind, floats[target], in.getDouble(i));
    else
      integers[target] = combine(kind, integers[target], in.getInt(i), in.elementType().isUnsignedInteger());
  }
  for (int64_t i = 0; i < out.size(); ++i)
    if (in.isFloat())
      out.setDouble(i, floats[i]);
    else
      out.setInt(i, integers[i]);
}

llvm::SmallVector<int64_t> ReduceOp::getReducedDims() { return llvm::SmallVector<int64_t>(getDims()); }

Value ReduceOp::emitIdentity(ElementBuilder &builder) {
  Type element = elementTypeOf(getInput());
  return isa<FloatType>(element) ? builder.floatConstant(element, floatIdentity(getKind()))
                                 : builder.intConstant(element, intIdentity(getKind(), element));
}

Value ReduceOp::emitCombine(ElementBuilder &builder, Value left, Value right) {
  Lane x(builder, left), y(builder, right);
  Type element = elementTypeOf(getInput());
  bool isUnsigned = element.isUnsignedInteger() || element.isInteger(1);
  switch (getKind()) {
  case ReduceKind::sum:
    return x + y;
  case ReduceKind::prod:
    return x * y;
  case ReduceKind::max:
    if (x.isFloat())
      return x.make<arith::MaximumFOp>(left, right);
    return isUnsigned ? x.make<arith::MaxUIOp>(left, right) : x.make<arith::MaxSIOp>(left, right);
  case ReduceKind::min:
    if (x.isFloat())
      return x.make<arith::MinimumFOp>(left, right);
    return isUnsigned ? x.make<arith::MinUIOp>(left, right) : x.make<arith::MinSIOp>(left, right);
  }
  llvm_unreachable("every reduction is listed");
}

AffineMap ReduceOp::getOperandMap(unsigned) { return {}; }

Value ReduceOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  llvm::SmallVector<Coord> source(coords);
  // One loop per reduced dimension, outermost first.
  std::function<Value(size_t, Value)> nest = [&](size_t level, Value accumulator) -> Value {
    if (level == getDims().size())
      return emitCombine(builder, accumulator, builder.operand(0, source));
    int64_t dim = getDims()[level];
    return builder.loop(0, shapeOf(getInput())[dim], accumulator,
                        [&](Value i, ValueRange carried) -> llvm::SmallVector<Value> {
                          source[dim] = builder.uniform(i);
                          return {nest(level + 1, carried[0])};
                        })[0];
  };
  return nest(0, emitIdentity(builder));
}

void ReduceOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                             llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(1);
  if (!resultGradients[0] || !isFloatTensor(getInput()))
    return;
  Expr g(builder, getLoc(), resultGradients[0]), x = g.with(getInput()), y = g.with(getResult());
  switch (getKind()) {
  case ReduceKind::sum: // g for every element
    operandGradients[0] = g.broadcast(shapeOf(x));
    return;
  case ReduceKind::max:
  case ReduceKind::min: { // g / (number of extremes) for each of them
    Expr attains = x.compare(CompareKind::eq, y), count = attains.cast(elementTypeOf(x)).sum(getDims());
    operandGradients[0] = attains.select(g / count, g.like(0));
    return;
  }
  case ReduceKind::prod: { // g·(product of the others), also where one of them or the element itself is 0
    Expr isZero = x.compare(CompareKind::eq, 0.0), zeros = isZero.cast(elementTypeOf(x)).sum(getDims());
    Expr nonZero = isZero.select(x.like(1), x);
    Expr product = g.with(reduce(builder, getLoc(), ReduceKind::prod, nonZero, getDims()));
    Expr others = product / nonZero;
    Expr counts = isZero.select(zeros.compare(CompareKind::eq, 1.0).cast(elementTypeOf(x)),
                                zeros.compare(CompareKind::eq, 0.0).cast(elementTypeOf(x)));
    operandGradients[0] = g * (others * counts);
    return;
  }
  }
}

//===----------------------------------------------------------------------===//
// argmax
//===----------------------------------------------------------------------===//
LogicalResult ArgMaxOp::verify() {
  if (failed(verifyDim(*this, getDim(), shapeOf(getInput()).size())))
    return failure();
  if (shapeOf(getInput())[getDim()] == 0)
    return emitOpError("has no element along dimension ") << getDim();
  return verifyKeepsDims(*this, shapeOf(getInput()), shapeOf(getResult()), {int64_t(getDim())});
}
double ArgMaxOp::getFlops() { return double(tensorTypeOf(getInput()).getNumElements()); }

void ArgMaxOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  const HostTensor &in = operands[0];
  bool isUnsigned = in.elementType().isUnsignedInteger();
  for (int64_t i = 0; i < results[0].size(); ++i) {
    llvm::SmallVector<int64_t> at = unravel(i, results[0].shape());
    // NaN beats every number, as in PyTorch.
    auto beats = [&](int64_t challenger, int64_t best) {
      if (in.isFloat()) {
        double x = in.getDouble(challenger), y = in.getDouble(best);
        bool better = (getSmallest() ? x < y : x > y) || (std::isnan(x) && !std::isnan(y));
        return better || (getLast() && (x == y || (std::isnan(x) && std::isnan(y))));
      }
      int64_t x = in.getInt(challenger), y = in.getInt(best);
      bool less = isUnsigned ? uint64_t(x) < uint64_t(y) : x < y;
      return x == y ? getLast() : less == getSmallest();
    };
    int64_t best = 0;
    auto linear = [&](int64_t k) {
      at[getDim()] = k;
      return ravel(at, in.shape());
    };
    for (int64_t k = 1; k < in.shape()[getDim()]; ++k)
      if (beats(linear(k), linear(best)))
        best = k;
    results[0].setInt(i, best);
  }
}

AffineMap ArgMaxOp::getOperandMap(unsigned) { return {}; }

Value ArgMaxOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  llvm::SmallVector<Coord> source(coords);
  Type element = elementTypeOf(getInput());
  bool isUnsigned = element.isUnsignedInteger() || element.isInteger(1);
  auto beats = [&](Lane x, Lane y) -> Lane {
    if (!x.isFloat()) {
      using P = arith::CmpIPredicate;
      P predicate = getSmallest() ? (getLast() ? (isUnsigned ? P::ule : P::sle) : (isUnsigned ? P::ult : P::slt))
                                  : (getLast() ? (isUnsigned ? P::uge : P::sge) : (isUnsigned ? P::ugt : P::sgt));
      return x.compare(predicate, y);
    }
    Lane better = getSmallest() ? less(x, y) : greater(x, y), nan = isNan(x), nanBefore = isNan(y);
    if (getLast())
      return better | equal(x, y) | nan;
    return better | nanBefore.select(nanBefore ^ nanBefore, nan);
  };
  source[getDim()] = builder.uniform(int64_t(0));
  Value first = builder.operand(0, source);
  auto step = [&](Value i, ValueRange carried) -> llvm::SmallVector<Value> {
    source[getDim()] = builder.uniform(i);
    Lane x(builder, builder.operand(0, source)), best(builder, carried[0]), index(builder, carried[1]);
    Lane wins = beats(x, best);
    return {wins.select(x, best).value, wins.select(index.with(builder.splat(i)), index).value};
  };
  return builder.loop(1, shapeOf(getInput())[getDim()], {first, builder.intConstant(builder.builder.getI64Type(), 0)},
                      step)[1];
}

} // namespace tcc::train

//===- ElementwiseBinary.cpp - pointwise ops of several operands -*- C++ -*-===//
//
// One entry per op, as in Elementwise.cpp: a and b are the operands, r the result, g the gradient of the result.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/ElementwiseMath.h"
#include "compiler/dialect/Lane.h"
#include "compiler/dialect/Pointwise.h"

#include <cmath>

using namespace mlir;

namespace tcc::train {

template <typename Float, typename Int>
static void mapPairs(llvm::ArrayRef<HostTensor> operands, HostTensor &result, Float onFloat, Int onInt) {
  for (int64_t i = 0; i < result.size(); ++i)
    if (operands[0].isFloat())
      result.setDouble(i, onFloat(operands[0].getDouble(i), operands[1].getDouble(i)));
    else
      result.setInt(i, onInt(operands[0].getInt(i), operands[1].getInt(i)));
}

// NOLINTBEGIN(bugprone-macro-parentheses): the arguments are whole expressions.
#define TCC_BINARY_FLAT(OP, FLOPS, VALUE, INT_VALUE, BODY, INT_BODY)                                                   \
  TCC_POINTWISE(OP, FLOPS)                                                                                             \
  void OP::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {                  \
    [[maybe_unused]] bool isUnsigned = elementTypeOf(getLhs()).isUnsignedInteger();                                    \
    mapPairs(                                                                                                          \
        operands, results[0], [&](double a, double b) -> double { return VALUE; },                                     \
        [&](int64_t a, int64_t b) -> int64_t { return INT_VALUE; });                                                   \
  }                                                                                                                    \
  Value OP::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {                             \
    Type element = elementTypeOf(getLhs());                                                                            \
    [[maybe_unused]] bool isUnsigned = element.isUnsignedInteger() || element.isInteger(1);                            \
    Lane a(builder, builder.operand(0, coords)), b(builder, builder.operand(1, coords));                               \
    if (a.isFloat())                                                                                                   \
      return BODY;                                                                                                     \
    return INT_BODY;                                                                                                   \
  }
#define TCC_BINARY(OP, FLOPS, VALUE, INT_VALUE, BODY, INT_BODY, LHS_GRADIENT, RHS_GRADIENT)                            \
  TCC_BINARY_FLAT(OP, FLOPS, VALUE, INT_VALUE, BODY, INT_BODY)                                                         \
  void OP::buildGradient(OpBuilder &builder, ValueRange resultGradients,                                               \
                         llvm::SmallVectorImpl<Value> &operandGradients) {                                             \
    operandGradients.resize(2);                                                                                        \
    if (!resultGradients[0] || !isFloatTensor(getLhs()))                                                               \
      return;                                                                                                          \
    Expr g(builder, getLoc(), resultGradients[0]);                                                                     \
    [[maybe_unused]] Expr a = g.with(getLhs()), b = g.with(getRhs()), r = g.with(getResult());                         \
    operandGradients[0] = LHS_GRADIENT;                                                                                \
    operandGradients[1] = RHS_GRADIENT;                                                                                \
  }

// The evaluators' integers: two's complement without undefined behaviour; division by 0 gives 0.
static int64_t wrap(uint64_t value) { return int64_t(value); }
static int64_t divide(int64_t a, int64_t b, bool isUnsigned) {
  if (b == 0)
    return 0;
  if (isUnsigned)
    return wrap(uint64_t(a) / uint64_t(b));
  return b == -1 ? wrap(-uint64_t(a)) : a / b;
}
static int64_t remainder(int64_t a, int64_t b, bool isUnsigned) {
  if (b == 0 || (!isUnsigned && b == -1))
    return 0;
  return isUnsigned ? wrap(uint64_t(a) % uint64_t(b)) : a % b;
}
static int64_t power(int64_t a, int64_t b, bool isUnsigned) {
  if (b < 0 && !isUnsigned)
    return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
  uint64_t result = 1, square = a;
  for (uint64_t bits = b; bits; bits >>= 1, square *= square)
    if (bits & 1)
      result *= square;
  return wrap(result);
}
static bool intLess(int64_t a, int64_t b, bool isUnsigned) { return isUnsigned ? uint64_t(a) < uint64_t(b) : a < b; }
/// IEEE 754-2019 maximum: NaN propagates, +0 is above −0.
static double maximum(double a, double b) {
  if (std::isnan(a) || std::isnan(b))
    return NAN;
  return a == b ? (std::signbit(a) ? b : a) : std::max(a, b);
}
/// Amounts outside [0, width) shift all bits out.
static int64_t shiftLeft(int64_t a, int64_t b, Value like) {
  return uint64_t(b) < elementTypeOf(like).getIntOrFloatBitWidth() ? wrap(uint64_t(a) << b) : 0;
}
static int64_t shiftRight(int64_t a, int64_t b, Value like) {
  bool inside = uint64_t(b) < elementTypeOf(like).getIntOrFloatBitWidth();
  if (elementTypeOf(like).isUnsignedInteger())
    return inside ? wrap(uint64_t(a) >> b) : 0;
  return a >> (inside ? b : 63);
}

static Lane intLess(Lane a, Lane b, bool isUnsigned) {
  return a.compare(isUnsigned ? arith::CmpIPredicate::ult : arith::CmpIPredicate::slt, b);
}
/// Division that never traps: replaces divisors 0 and −1 before it, and selects their results after it.
static Lane emitDivide(Lane a, Lane b, bool isUnsigned) {
  Lane zero = b.likeInt(0), one = b.likeInt(1), byZero = equal(b, zero);
  if (isUnsigned)
    return byZero.select(zero, a.make<arith::DivUIOp>(a.value, byZero.select(one, b).value));
  Lane byMinusOne = equal(b, b.likeInt(-1));
  Lane quotient = a.make<arith::DivSIOp>(a.value, (byZero | byMinusOne).select(one, b).value);
  return byZero.select(zero, byMinusOne.select(zero - a, quotient));
}
static Lane emitRemainder(Lane a, Lane b, bool isUnsigned) { return a - emitDivide(a, b, isUnsigned) * b; }
static Lane emitIntRemainder(Lane a, Lane b, bool isUnsigned) {
  return equal(b, b.likeInt(0)).select(b.likeInt(0), emitRemainder(a, b, isUnsigned));
}
static Lane shiftInside(Lane b) { return b.compare(arith::CmpIPredicate::ult, b.likeInt(b.width())); }
static Lane emitShiftLeft(Lane a, Lane b) {
  Lane inside = shiftInside(b), zero = a.likeInt(0);
  return inside.select(a.make<arith::ShLIOp>(a.value, inside.select(b, zero).value), zero);
}
static Lane emitShiftRight(Lane a, Lane b, bool isUnsigned) {
  Lane inside = shiftInside(b);
  if (!isUnsigned)
    return a.make<arith::ShRSIOp>(a.value, inside.select(b, b.likeInt(b.width() - 1)).value);
  return inside.select(a.make<arith::ShRUIOp>(a.value, inside.select(b, b.likeInt(0)).value), a.likeInt(0));
}
/// Square and multiply over the exponent's bits.
static Lane emitIntPower(Lane a, Lane b, bool isUnsigned) {
  ElementBuilder &builder = *a.b;
  Lane zero = a.likeInt(0), one = a.likeInt(1);
  auto step = [&](Value, ValueRange carried) -> llvm::SmallVector<Value> {
    Lane result(builder, carried[0]), square(builder, carried[1]), bits(builder, carried[2]);
    return {equal(bits & bits.likeInt(1), bits.likeInt(0)).select(result, result * square).value,
            (square * square).value, bits.shiftRightUnsigned(1).value};
  };
  Lane result(builder, builder.loop(0, a.width(), {one.value, a.value, b.value}, step)[0]);
  if (isUnsigned)
    return result;
  Lane isOdd = equal(b & one, one),
       unit = equal(a, -one).select(isOdd.select(-one, one), equal(a, one).select(one, zero));
  return less(b, zero).select(unit, result);
}

/// An exponent that is the same everywhere, if it is known.
static std::optional<double> splatExponent(PowOp op) {
  auto constant = op.getRhs().getDefiningOp<ConstantOp>();
  auto dense = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
  if (!dense || !dense.isSplat() || !isFloatTensor(op.getRhs()))
    return std::nullopt;
  return HostTensor::fromAttribute(dense.resizeSplat(RankedTensorType::get({}, dense.getElementType()))).getDouble(0);
}
/// Small integer exponents are computed as products, exact if the product is.
static Lane emitFloatPower(PowOp op, Lane a, Lane b) {
  std::optional<double> exponent = splatExponent(op);
  if (exponent == 1)
    return a;
  if (exponent == 2)
    return a * a;
  if (exponent == 3)
    return a * a * a;
  return a.with(emitPow(*a.b, a, b));
}
/// b·a^(b−1), which is 0 where b is 0.
static Expr powerSlope(PowOp op, const Expr &a, const Expr &b) {
  if (std::optional<double> exponent = splatExponent(op)) {
    if (*exponent == 0)
      return a.like(0);
    if (*exponent == 2)
      return 2.0 * a;
    return *exponent * a.with(PowOp::create(*a.builder, a.loc, a, a.like(*exponent - 1)));
  }
  Expr slope = b * a.with(PowOp::create(*a.builder, a.loc, a, b - 1.0));
  return b.compare(CompareKind::eq, 0).select(b.like(0), slope);
}
/// a^b·ln a, which is 0 where a is 0 and b is not negative.
static Expr exponentSlope(const Expr &a, const Expr &b, const Expr &r) {
  Expr isZero = a.with(AndOp::create(*a.builder, a.loc, a.compare(CompareKind::eq, 0), b.compare(CompareKind::ge, 0)));
  return isZero.select(a.like(0), r * a.log());
}
/// g where x wins over y, half of g at a tie.
static Expr winner(const Expr &g, const Expr &x, const Expr &y, CompareKind loses) {
  return x.compare(loses, y).select(g.like(0), x.compare(CompareKind::eq, y).select(g * 0.5, g));
}

TCC_BINARY(AddOp, 1, a + b, wrap(uint64_t(a) + uint64_t(b)), a + b, a + b, g, g)
TCC_BINARY(SubOp, 1, a - b, wrap(uint64_t(a) - uint64_t(b)), a - b, a - b, g, -g)
TCC_BINARY(MulOp, 1, a * b, wrap(uint64_t(a) * uint64_t(b)), a * b, a * b, g * b, g * a)
// g/b and −g·a/b²
TCC_BINARY(DivOp, 1, a / b, divide(a, b, isUnsigned), a / b, emitDivide(a, b, isUnsigned), g / b, -(g * (r / b)))
TCC_BINARY(PowOp, 40, std::pow(a, b), power(a, b, isUnsigned), emitFloatPower(*this, a, b),
           emitIntPower(a, b, isUnsigned), g *powerSlope(*this, a, b), g *exponentSlope(a, b, r))
TCC_BINARY(MaxOp, 1, maximum(a, b), intLess(a, b, isUnsigned) ? b : a, a.make<arith::MaximumFOp>(a.value, b.value),
           intLess(a, b, isUnsigned).select(b, a), winner(g, a, b, CompareKind::lt), winner(g, b, a, CompareKind::lt))
TCC_BINARY(MinOp, 1, -maximum(-a, -b), intLess(a, b, isUnsigned) ? a : b, a.make<arith::MinimumFOp>(a.value, b.value),
           intLess(a, b, isUnsigned).select(a, b), winner(g, a, b, CompareKind::gt), winner(g, b, a, CompareKind::gt))
// g and −g·trunc(a/b)
TCC_BINARY(RemOp, 60, std::fmod(a, b), remainder(a, b, isUnsigned), a.with(emitFmod(builder, a, b)),
           emitIntRemainder(a, b, isUnsigned), g, -(g * ((a - r) / b).apply<RoundOp>()))
TCC_BINARY_FLAT(ShiftLeftOp, 2, a, shiftLeft(a, b, getLhs()), a, emitShiftLeft(a, b))
TCC_BINARY_FLAT(ShiftRightOp, 2, a, shiftRight(a, b, getLhs()), a, emitShiftRight(a, b, isUnsigned))
TCC_BINARY_FLAT(AndOp, 1, a, a & b, a, a & b)
TCC_BINARY_FLAT(OrOp, 1, a, a | b, a, a | b)
TCC_BINARY_FLAT(XorOp, 1, a, a ^ b, a, a ^ b)
// NOLINTEND(bugprone-macro-parentheses)

//===----------------------------------------------------------------------===//
// compare
//===----------------------------------------------------------------------===//
TCC_POINTWISE(CompareOp, 1)

template <typename T> static bool holds(CompareKind kind, T a, T b) {
  switch (kind) {
  case CompareKind::eq:
    return a == b;
  case CompareKind::ne:
    return a != b;
  case CompareKind::lt:
    return a < b;
  case CompareKind::le:
    return a <= b;
  case CompareKind::gt:
    return a > b;
  case CompareKind::ge:
    return a >= b;
  }
  llvm_unreachable("every comparison is listed");
}

void CompareOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  const HostTensor &a = operands[0], &b = operands[1];
  bool isUnsigned = a.elementType().isUnsignedInteger();
  for (int64_t i = 0; i < results[0].size(); ++i)
    results[0].setInt(i, a.isFloat()  ? holds(getKind(), a.getDouble(i), b.getDouble(i))
                         : isUnsigned ? holds(getKind(), uint64_t(a.getInt(i)), uint64_t(b.getInt(i)))
                                      : holds(getKind(), a.getInt(i), b.getInt(i)));
}

Value CompareOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  using F = arith::CmpFPredicate;
  using I = arith::CmpIPredicate;
  static constexpr F onFloats[] = {F::OEQ, F::UNE, F::OLT, F::OLE, F::OGT, F::OGE};
  static constexpr I onSigned[] = {I::eq, I::ne, I::slt, I::sle, I::sgt, I::sge};
  static constexpr I onUnsigned[] = {I::eq, I::ne, I::ult, I::ule, I::ugt, I::uge};
  Lane a(builder, builder.operand(0, coords)), b(builder, builder.operand(1, coords));
  Type element = elementTypeOf(getLhs());
  auto kind = unsigned(getKind());
  if (a.isFloat())
    return a.compare(onFloats[kind], b);
  return a.compare(element.isUnsignedInteger() || element.isInteger(1) ? onUnsigned[kind] : onSigned[kind], b);
}

//===----------------------------------------------------------------------===//
// select
//===----------------------------------------------------------------------===//
TCC_POINTWISE(SelectOp, 1)

void SelectOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  for (int64_t i = 0; i < results[0].size(); ++i) {
    const HostTensor &chosen = operands[operands[0].getInt(i) ? 1 : 2];
    if (chosen.isFloat())
      results[0].setDouble(i, chosen.getDouble(i));
    else
      results[0].setInt(i, chosen.getInt(i));
  }
}

Value SelectOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  Lane condition(builder, builder.operand(0, coords));
  return condition.select({builder, builder.operand(1, coords)}, {builder, builder.operand(2, coords)});
}

void SelectOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                             llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(3);
  if (!resultGradients[0] || !isFloatTensor(getResult()))
    return;
  Expr g(builder, getLoc(), resultGradients[0]), condition = g.with(getCondition());
  operandGradients[1] = condition.select(g, g.like(0));
  operandGradients[2] = condition.select(g.like(0), g);
}

//===----------------------------------------------------------------------===//
// cast
//===----------------------------------------------------------------------===//
TCC_POINTWISE(CastOp, 1)

/// The range of an integer type of `width` bits: [least, limit).
static std::pair<double, double> rangeOf(unsigned width, bool isUnsigned) {
  return isUnsigned ? std::pair(0.0, std::ldexp(1.0, int(width)))
                    : std::pair(-std::ldexp(1.0, int(width) - 1), std::ldexp(1.0, int(width) - 1));
}

void CastOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  const HostTensor &in = operands[0];
  HostTensor &out = results[0];
  Type to = out.elementType();
  for (int64_t i = 0; i < out.size(); ++i) {
    if (to.isInteger(1)) {
      out.setInt(i, in.isFloat() ? in.getDouble(i) != 0 : in.getInt(i) != 0);
    } else if (out.isFloat()) {
      out.setDouble(i, in.getDouble(i));
    } else if (!in.isFloat()) {
      out.setInt(i, in.getInt(i));
    } else {
      // Out of range: the nearest end; NaN: 0.
      double x = in.getDouble(i);
      auto [least, limit] = rangeOf(to.getIntOrFloatBitWidth(), to.isUnsignedInteger());
      bool isUnsigned = to.isUnsignedInteger();
      int64_t largest = isUnsigned ? int64_t(~uint64_t(0) >> (64 - to.getIntOrFloatBitWidth()))
                                   : int64_t(~uint64_t(0) >> (65 - to.getIntOrFloatBitWidth()));
      out.setInt(i, std::isnan(x)  ? 0
                    : x >= limit   ? largest
                    : x <= least   ? (isUnsigned ? 0 : int64_t(-uint64_t(largest) - 1))
                    : isUnsigned   ? int64_t(uint64_t(x))
                                   : int64_t(x));
    }
  }
}

/// Saturating conversion. LLVM's is undefined out of range, so operands are clamped before, and results selected after.
static Lane emitFloatToInt(Lane x, IntegerType to, bool isUnsigned) {
  ElementBuilder &builder = *x.b;
  auto [least, limit] = rangeOf(to.getWidth(), isUnsigned);
  Lane above = x.compare(arith::CmpFPredicate::OGE, x.like(limit)),
       below = x.compare(arith::CmpFPredicate::OLE, x.like(least));
  Lane safe = (above | below | isNan(x)).select(x.like(0), x);
  Type lanes = builder.laneType(to);
  Lane inside = isUnsigned ? x.make<arith::FPToUIOp>(lanes, safe.value) : x.make<arith::FPToSIOp>(lanes, safe.value);
  int64_t largest = isUnsigned ? -1 : int64_t(~uint64_t(0) >> (65 - to.getWidth()));
  int64_t smallest = isUnsigned ? 0 : int64_t(-uint64_t(largest) - 1);
  return above.select(inside.likeInt(largest), below.select(inside.likeInt(smallest), inside));
}

static Lane emitIntToFloat(Lane x, Type from, Type to) {
  ElementBuilder &builder = *x.b;
  bool isUnsigned = from.isUnsignedInteger() || from.isInteger(1);
  // To f16 and bf16 convert through f64 with rounding to odd, so that the value is effectively rounded once.
  bool narrow = to.isF16() || to.isBF16();
  bool wide = narrow && from.getIntOrFloatBitWidth() > 16;
  Type lanes = builder.laneType(wide ? Type(builder.builder.getF64Type()) : to);
  Lane result = isUnsigned ? x.make<arith::UIToFPOp>(lanes, x.value) : x.make<arith::SIToFPOp>(lanes, x.value);
  return wide ? result.with(emitRoundToOdd(builder, result)) : result;
}

Value CastOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  Type from = elementTypeOf(getInput()), to = elementTypeOf(getResult());
  Lane x(builder, builder.operand(0, coords));
  Type lanes = builder.laneType(to);
  if (to.isInteger(1))
    return x.isFloat() ? x.compare(arith::CmpFPredicate::UNE, x.like(0))
                       : x.compare(arith::CmpIPredicate::ne, x.likeInt(0));
  if (x.value.getType() == lanes)
    return x;
  if (x.isFloat() && isa<FloatType>(to)) {
    if (to.isF64())
      return x.toDouble();
    return to.isF32() ? x.toSingle().value : emitRoundToOdd(builder, x);
  }
  if (x.isFloat())
    return emitFloatToInt(x, cast<IntegerType>(to), to.isUnsignedInteger());
  if (isa<FloatType>(to))
    return emitIntToFloat(x, from, to);
  if (to.getIntOrFloatBitWidth() < x.width())
    return x.make<arith::TruncIOp>(lanes, x.value);
  if (from.isUnsignedInteger() || from.isInteger(1))
    return x.make<arith::ExtUIOp>(lanes, x.value);
  return x.make<arith::ExtSIOp>(lanes, x.value);
}

void CastOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                           llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(1);
  if (resultGradients[0] && isFloatTensor(getInput()) && isFloatTensor(getResult()))
    operandGradients[0] = train::cast(builder, getLoc(), resultGradients[0], elementTypeOf(getInput()));
}

//===----------------------------------------------------------------------===//
// bitcast
//===----------------------------------------------------------------------===//
TCC_POINTWISE(BitCastOp, 0)

LogicalResult BitCastOp::verify() {
  if (shapeOf(getInput()) != shapeOf(getResult()))
    return emitOpError("changes the shape");
  if (elementBytes(elementTypeOf(getInput())) != elementBytes(elementTypeOf(getResult())))
    return emitOpError("needs element types of one size, not ") << getInput().getType() << " and " << getType();
  return success();
}

void BitCastOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  std::copy_n(operands[0].data(), operands[0].sizeBytes(), results[0].data());
  if (results[0].elementType().isInteger(1))
    for (int64_t i = 0; i < results[0].size(); ++i)
      results[0].data()[i] = operands[0].data()[i] != 0;
}

/// Casts through signless integers of the stored width. f16 and bf16, which are computed in f32, are narrowed first.
Value BitCastOp::emitElement(ElementBuilder &builder, unsigned, llvm::ArrayRef<Coord> coords) {
  Type from = elementTypeOf(getInput()), to = elementTypeOf(getResult());
  Lane x(builder, builder.operand(0, coords));
  if (from == to)
    return x;
  Type i8 = builder.builder.getI8Type(), i16 = builder.builder.getI16Type(), i32 = builder.builder.getI32Type();
  auto half = [&]() -> Type {
    Type f16 = builder.builder.getF16Type();
    return builder.lanes() == 1 ? f16 : Type(VectorType::get({builder.lanes()}, f16));
  };
  if (from.isInteger(1))
    x = x.make<arith::ExtUIOp>(builder.laneType(i8), x.value);
  else if (from.isF16())
    x = x.make<arith::TruncFOp>(half(), x.value).bitcast(i16);
  else if (from.isBF16())
    x = x.make<arith::TruncIOp>(builder.laneType(i16), x.bits().shiftRightUnsigned(16).value);
  else if (x.isFloat())
    x = x.bits();
  if (to.isInteger(1))
    return x.compare(arith::CmpIPredicate::ne, x.likeInt(0));
  if (to.isF16())
    return x.make<arith::ExtFOp>(builder.laneType(builder.builder.getF32Type()),
                                 x.make<arith::BitcastOp>(half(), x.value).value);
  if (to.isBF16())
    return x.make<arith::ExtUIOp>(builder.laneType(i32), x.value).shiftLeft(16).asFloat();
  return isa<FloatType>(to) ? x.asFloat() : x;
}

} // namespace tcc::train

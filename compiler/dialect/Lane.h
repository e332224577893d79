//===- Lane.h - arithmetic on a scalar or on lanes --------------*- C++ -*-===//
//
// A value of a kernel under construction with operators, so that scalar programs read as formulas. Every operator is
// one arith or math operation; nothing is contracted or reassociated.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_LANE_H
#define TCC_DIALECT_LANE_H

#include "compiler/dialect/Element.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/TypeUtilities.h"

namespace tcc::train {

struct Lane {
  ElementBuilder *b;
  mlir::Value value;

  Lane(ElementBuilder &b, mlir::Value value) : b(&b), value(value) {}
  operator mlir::Value() const { return value; }
  Lane with(mlir::Value other) const { return Lane(*b, other); }
  mlir::Type element() const { return mlir::getElementTypeOrSelf(value.getType()); }
  bool isFloat() const { return mlir::isa<mlir::FloatType>(element()); }
  bool isDouble() const { return element().isF64(); }
  /// Width of one element in bits.
  unsigned width() const { return element().getIntOrFloatBitWidth(); }
  /// A constant of this type.
  Lane like(double number) const { return with(b->constant(element(), number)); }
  Lane likeInt(int64_t number) const { return with(b->intConstant(element(), number)); }
  template <typename OpTy, typename... Args> Lane make(Args... args) const {
    return with(OpTy::create(b->builder, b->loc, args...));
  }

  /// The same bits under an element type of the same width.
  Lane bitcast(mlir::Type element) const { return make<mlir::arith::BitcastOp>(b->laneType(element), value); }
  /// The bits of a float as an integer, and back.
  Lane bits() const { return bitcast(b->builder.getIntegerType(width())); }
  Lane asFloat() const {
    return bitcast(width() == 64 ? mlir::Type(b->builder.getF64Type()) : b->builder.getF32Type());
  }
  /// An integer as a float of the same width.
  Lane toFloat() const {
    return make<mlir::arith::SIToFPOp>(
        b->laneType(width() == 64 ? mlir::Type(b->builder.getF64Type()) : b->builder.getF32Type()), value);
  }
  Lane toDouble() const { return make<mlir::arith::ExtFOp>(b->laneType(b->builder.getF64Type()), value); }
  Lane toSingle() const { return make<mlir::arith::TruncFOp>(b->laneType(b->builder.getF32Type()), value); }

  Lane abs() const { return make<mlir::math::AbsFOp>(value); }
  Lane sqrt() const { return make<mlir::math::SqrtOp>(value); }
  Lane floor() const { return make<mlir::math::FloorOp>(value); }
  Lane roundEven() const { return make<mlir::math::RoundEvenOp>(value); }
  Lane copySign(Lane sign) const { return make<mlir::math::CopySignOp>(value, sign.value); }
  /// NaN if this is.
  Lane minimum(double y) const { return make<mlir::arith::MinimumFOp>(value, like(y).value); }
  Lane maximum(double y) const { return make<mlir::arith::MaximumFOp>(value, like(y).value); }
  Lane nearPowerOfTwo() const { return with(b->approximatePowerOfTwo(value)); }
  Lane nearReciprocal() const { return with(b->approximateReciprocal(value)); }
  /// x·y + z, rounded once.
  Lane fma(Lane y, Lane z) const { return make<mlir::math::FmaOp>(value, y.value, z.value); }
  Lane fma(Lane y, double z) const { return fma(y, like(z)); }

  Lane compare(mlir::arith::CmpFPredicate predicate, Lane y) const {
    return make<mlir::arith::CmpFOp>(predicate, value, y.value);
  }
  Lane compare(mlir::arith::CmpIPredicate predicate, Lane y) const {
    return make<mlir::arith::CmpIOp>(predicate, value, y.value);
  }
  /// For i1: x where it holds, else y.
  Lane select(Lane x, Lane y) const { return make<mlir::arith::SelectOp>(value, x.value, y.value); }

  Lane operator&(Lane y) const { return make<mlir::arith::AndIOp>(value, y.value); }
  Lane operator|(Lane y) const { return make<mlir::arith::OrIOp>(value, y.value); }
  Lane operator^(Lane y) const { return make<mlir::arith::XOrIOp>(value, y.value); }
  Lane shiftLeft(int64_t bits) const { return make<mlir::arith::ShLIOp>(value, likeInt(bits).value); }
  Lane shiftRight(int64_t bits) const { return make<mlir::arith::ShRSIOp>(value, likeInt(bits).value); }
  Lane shiftRightUnsigned(int64_t bits) const { return make<mlir::arith::ShRUIOp>(value, likeInt(bits).value); }
};

inline Lane operator+(Lane x, Lane y) {
  return x.isFloat() ? x.make<mlir::arith::AddFOp>(x.value, y.value) : x.make<mlir::arith::AddIOp>(x.value, y.value);
}
inline Lane operator-(Lane x, Lane y) {
  return x.isFloat() ? x.make<mlir::arith::SubFOp>(x.value, y.value) : x.make<mlir::arith::SubIOp>(x.value, y.value);
}
inline Lane operator*(Lane x, Lane y) {
  return x.isFloat() ? x.make<mlir::arith::MulFOp>(x.value, y.value) : x.make<mlir::arith::MulIOp>(x.value, y.value);
}
inline Lane operator/(Lane x, Lane y) { return x.make<mlir::arith::DivFOp>(x.value, y.value); }
inline Lane operator-(Lane x) { return x.isFloat() ? x.make<mlir::arith::NegFOp>(x.value) : x.likeInt(0) - x; }
inline Lane operator+(Lane x, double y) { return x + x.like(y); }
inline Lane operator-(Lane x, double y) { return x - x.like(y); }
inline Lane operator*(Lane x, double y) { return x * x.like(y); }
inline Lane operator/(Lane x, double y) { return x / x.like(y); }
inline Lane operator+(double x, Lane y) { return y.like(x) + y; }
inline Lane operator-(double x, Lane y) { return y.like(x) - y; }
inline Lane operator*(double x, Lane y) { return y.like(x) * y; }
inline Lane operator/(double x, Lane y) { return y.like(x) / y; }

// Ordered comparisons of floats, signed ones of integers.
inline Lane less(Lane x, Lane y) {
  return x.isFloat() ? x.compare(mlir::arith::CmpFPredicate::OLT, y) : x.compare(mlir::arith::CmpIPredicate::slt, y);
}
inline Lane equal(Lane x, Lane y) {
  return x.isFloat() ? x.compare(mlir::arith::CmpFPredicate::OEQ, y) : x.compare(mlir::arith::CmpIPredicate::eq, y);
}
inline Lane greater(Lane x, Lane y) { return less(y, x); }
inline Lane less(Lane x, double y) { return less(x, x.like(y)); }
inline Lane equal(Lane x, double y) { return equal(x, x.like(y)); }
inline Lane greater(Lane x, double y) { return greater(x, x.like(y)); }
/// The opposite of an i1.
inline Lane isFalse(Lane x) { return x ^ x.likeInt(1); }
inline Lane isNan(Lane x) { return x.compare(mlir::arith::CmpFPredicate::UNO, x); }

} // namespace tcc::train

#endif // TCC_DIALECT_LANE_H

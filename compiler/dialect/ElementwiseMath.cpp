//===- ElementwiseMath.cpp - our own scalar functions -----------*- C++ -*-===//
#include "compiler/dialect/ElementwiseMath.h"

#include "compiler/dialect/Lane.h"
#include "compiler/dialect/NearFunctions.h"

using namespace mlir;

namespace tcc::train {

Value emitExp(ElementBuilder &b, Value x, bool near) {
  return near ? scalar::near::exp(Lane(b, x)) : scalar::exp(Lane(b, x));
}
Value emitExpm1(ElementBuilder &b, Value x) { return scalar::expm1(Lane(b, x)); }
Value emitLog(ElementBuilder &b, Value x) { return scalar::log(Lane(b, x)); }
Value emitLog1p(ElementBuilder &b, Value x) { return scalar::log1p(Lane(b, x)); }
Value emitTanh(ElementBuilder &b, Value x, bool near) {
  return near ? scalar::near::tanh(Lane(b, x)) : scalar::tanh(Lane(b, x));
}
Value emitSigmoid(ElementBuilder &b, Value x, bool near) {
  return near ? scalar::near::sigmoid(Lane(b, x)) : scalar::sigmoid(Lane(b, x));
}
Value emitSilu(ElementBuilder &b, Value x, bool near) { return Lane(b, x) * Lane(b, emitSigmoid(b, x, near)); }
Value emitSoftplus(ElementBuilder &b, Value x, bool near) {
  return near ? scalar::near::softplus(Lane(b, x)) : scalar::softplus(Lane(b, x));
}
Value emitErf(ElementBuilder &b, Value x, bool near) {
  return near ? scalar::near::erf(Lane(b, x)) : scalar::erf(Lane(b, x));
}
Value emitSin(ElementBuilder &b, Value x) { return scalar::sinOrCos(Lane(b, x), 0); }
Value emitCos(ElementBuilder &b, Value x) { return scalar::sinOrCos(Lane(b, x), 1); }
Value emitTan(ElementBuilder &b, Value x) { return scalar::tan(Lane(b, x)); }
Value emitAsin(ElementBuilder &b, Value x) { return scalar::asin(Lane(b, x)); }
Value emitAcos(ElementBuilder &b, Value x) { return scalar::acos(Lane(b, x)); }
Value emitAtan(ElementBuilder &b, Value x) { return scalar::atan(Lane(b, x)); }
Value emitSinh(ElementBuilder &b, Value x) { return scalar::sinh(Lane(b, x)); }
Value emitCosh(ElementBuilder &b, Value x) { return scalar::cosh(Lane(b, x)); }
Value emitAsinh(ElementBuilder &b, Value x) { return scalar::asinh(Lane(b, x)); }
Value emitAcosh(ElementBuilder &b, Value x) { return scalar::acosh(Lane(b, x)); }
Value emitAtanh(ElementBuilder &b, Value x) { return scalar::atanh(Lane(b, x)); }
Value emitGelu(ElementBuilder &b, Value x, bool tanh, bool near) {
  return near ? scalar::near::gelu(Lane(b, x), tanh) : scalar::gelu(Lane(b, x), tanh);
}
Value emitGeluDerivative(ElementBuilder &b, Value x, bool tanh, bool near) {
  return near ? scalar::near::geluDerivative(Lane(b, x), tanh) : scalar::geluDerivative(Lane(b, x), tanh);
}
Value emitPow(ElementBuilder &b, Value x, Value y) { return scalar::pow(Lane(b, x), Lane(b, y)); }

Value emitRoundToOdd(ElementBuilder &b, Value value) {
  Lane x(b, value);
  return x.isDouble() ? scalar::roundToOdd(x) : x;
}

/// Biased exponent of x ≥ 0; for subnormal numbers as if they were normal.
static Lane exponentOf(Lane x) {
  Lane subnormal = less(x, 0x1p-1022);
  Lane field = subnormal.select(x * 0x1p54, x).bits().shiftRightUnsigned(52);
  return subnormal.select(field - field.likeInt(54), field);
}

/// Long division in f64: each round subtracts the quotient's next bits from the remainder, exactly, since the new
/// remainder has no more bits than the divisor. The number of rounds suffices for the widest quotient.
Value emitFmod(ElementBuilder &b, Value left, Value right) {
  Lane x(b, left), y(b, right);
  bool wide = x.isDouble();
  if (!wide) {
    x = x.toDouble();
    y = y.toDouble();
  }
  int64_t bitsPerRound = wide ? 51 : 26,
          rounds = wide ? 43 : 12; // 51: the largest number by the smallest shifts by 2046
  Lane divisor = y.abs();
  Lane valid = less(x.abs(), HUGE_VAL) & greater(divisor, 0);
  divisor = (valid & less(divisor, HUGE_VAL)).select(divisor, divisor.like(1));
  Lane start = valid.select(x.abs(), x.like(0)), divisorExponent = exponentOf(divisor);
  Value remainder = b.loop(0, rounds, start.value, [&](Value, ValueRange carried) -> llvm::SmallVector<Value> {
    Lane r(b, carried[0]);
    Lane shift = exponentOf(r) - divisorExponent - divisorExponent.likeInt(bitsPerRound), zero = shift.likeInt(0);
    Lane scaled = scalar::scale(divisor, less(shift, zero).select(zero, shift));
    Lane quotient = (r / scaled).floor(), rest = (-quotient).fma(scaled, r);
    return {less(rest, 0).select(rest + scaled, rest).value};
  })[0];
  Lane result = Lane(b, remainder).copySign(x);
  result = equal(y.abs(), HUGE_VAL).select(x, result);
  result = valid.select(result, x.like(NAN));
  result = isNan(y).select(y, result);
  return wide ? result : result.toSingle();
}

} // namespace tcc::train

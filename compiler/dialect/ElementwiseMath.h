//===- ElementwiseMath.h - our own scalar functions -------------*- C++ -*-===//
//
// Transcendental functions as arithmetic on scalars or lanes of f32 and f64. They are inlined into kernels, so that a
// value has the same bits in a vector loop, in its masked tail and in a scalar loop, and kernels import nothing.
//
// Accuracy: within 2 ulp in f32 and 4 ulp in f64 (measured by test/kernels/ScalarFunctions: 1.6 and 3.3 at worst).
// Results below the smallest normal number are computed, not flushed. NaN in, NaN out; limits at ±∞ and ±0 are C's.
// `near`: to the accuracy of results that are rounded to 16 bits, by the machine's approximations (NearFunctions.h).
// sin, cos and tan keep this for |x| < 2^50 in f32 and 2^30 in f64, lose digits slowly above, and are NaN from 2^51 on.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_ELEMENTWISEMATH_H
#define TCC_DIALECT_ELEMENTWISEMATH_H

#include "compiler/dialect/Element.h"

namespace tcc::train {

mlir::Value emitExp(ElementBuilder &b, mlir::Value x, bool near = false);
mlir::Value emitExpm1(ElementBuilder &b, mlir::Value x);
mlir::Value emitLog(ElementBuilder &b, mlir::Value x);
mlir::Value emitLog1p(ElementBuilder &b, mlir::Value x);
mlir::Value emitTanh(ElementBuilder &b, mlir::Value x, bool near = false);
mlir::Value emitSigmoid(ElementBuilder &b, mlir::Value x, bool near = false);
mlir::Value emitSilu(ElementBuilder &b, mlir::Value x, bool near);
mlir::Value emitSoftplus(ElementBuilder &b, mlir::Value x, bool near = false);
mlir::Value emitErf(ElementBuilder &b, mlir::Value x, bool near = false);
mlir::Value emitSin(ElementBuilder &b, mlir::Value x);
mlir::Value emitCos(ElementBuilder &b, mlir::Value x);
mlir::Value emitTan(ElementBuilder &b, mlir::Value x);
mlir::Value emitAsin(ElementBuilder &b, mlir::Value x);
mlir::Value emitAcos(ElementBuilder &b, mlir::Value x);
mlir::Value emitAtan(ElementBuilder &b, mlir::Value x);
mlir::Value emitSinh(ElementBuilder &b, mlir::Value x);
mlir::Value emitCosh(ElementBuilder &b, mlir::Value x);
mlir::Value emitAsinh(ElementBuilder &b, mlir::Value x);
mlir::Value emitAcosh(ElementBuilder &b, mlir::Value x);
mlir::Value emitAtanh(ElementBuilder &b, mlir::Value x);
/// x·Φ(x) and its derivative, or those of the tanh approximation. In f32 they are within 2^-22·|x| and 2^-22 of the
/// exact values (measured: half and 0.8 of that).
mlir::Value emitGelu(ElementBuilder &b, mlir::Value x, bool tanh, bool near);
mlir::Value emitGeluDerivative(ElementBuilder &b, mlir::Value x, bool tanh, bool near);
/// C's pow, special cases included.
mlir::Value emitPow(ElementBuilder &b, mlir::Value x, mlir::Value y);
/// C's fmod: exact.
mlir::Value emitFmod(ElementBuilder &b, mlir::Value x, mlir::Value y);
/// Rounds an f64 to f32, to odd: rounding the result again, to f16 or bf16, is then correct.
mlir::Value emitRoundToOdd(ElementBuilder &b, mlir::Value f64);

} // namespace tcc::train

#endif // TCC_DIALECT_ELEMENTWISEMATH_H

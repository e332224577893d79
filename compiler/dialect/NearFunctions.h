//===- NearFunctions.h - functions for results of 16 bits -------*- C++ -*-===//
//
// Forms of the functions of ScalarFunctions.h for ops marked kOfNarrow: by a machine's approximations of 2^x and 1/x,
// which take one instruction each. `T` has the operators of `Lane`; a test runs the forms on the host, over every bf16
// and f16, with both approximations at the ends of their bounds.
//
// Bounds: a result differs from the exact one by at most 1/200 of half the distance between bf16 numbers there, and
// 1/100 of half that between f16 numbers; near the zero of gelu's derivative, of that between numbers at 1/16. So
// 16-bit results differ from correctly rounded ones only near ties. Arguments are f32. NaN, infinities, signed zeros
// and subnormal results are those of ScalarFunctions.h, but for tails of gelu, which are more exact.
//
// Method: machines flush subnormal results of an approximation to zero. So a small factor is the square of the
// approximation of its root, or scaled by 2^-24.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_NEARFUNCTIONS_H
#define TCC_DIALECT_NEARFUNCTIONS_H

#include "compiler/dialect/ScalarFunctions.h"

namespace tcc::train::scalar::near {

inline constexpr double kHalfLog2E = 0.72134752044448170368; // log₂ e / 2

template <typename T> T exp(T x) {
  T root = (x * kHalfLog2E).nearPowerOfTwo();
  return root * root;
}

/// σ(v) for y = −v/2·log₂ e − 12, as 2^−24/(2^−24 + e^−v·2^−24).
template <typename T> T sigmoidOfScaled(T y) {
  T root = y.nearPowerOfTwo();
  return root.fma(root, root.like(0x1p-24)).nearReciprocal() * 0x1p-24;
}
template <typename T> T sigmoid(T x) { return sigmoidOfScaled(x.fma(x.like(-kHalfLog2E), x.like(-12))); }

template <typename T> T tanh(T x) {
  T a = x.abs(), small = x * polynomial(x * x, {0.128764227, -0.333245724, 1.0});
  T large = ((a * (4 * kHalfLog2E)).nearPowerOfTwo() + 1.0).nearReciprocal().fma(x.like(-2), x.like(1)).copySign(x);
  return less(a, 0.25).select(small, large);
}

/// 1 − erfc|x|, where erfc is 2 to the power of a polynomial with an error of 2^-20 of erfc, so that 1 + erf x keeps
/// its digits; x·(a polynomial in x²) near 0.
template <typename T> T erf(T x) {
  T a = x.abs(), t = a.minimum(4.1), z = x * x;
  T complement = polynomial(t, {-2.304218833e-5, 5.251369439e-4, -5.442645401e-3, 3.451377526e-2, -1.532587856e-1,
                                -9.166024327e-1, -1.628080249, -4.902651562e-5})
                     .nearPowerOfTwo();
  T small = x * polynomial(z, {-2.338088118e-2, 1.120695770e-1, -3.760712147e-1, 1.128378510});
  return greater(a, 0.6).select((1.0 - complement).copySign(x), small);
}

/// max(x, 0) + ln(1 + e), e = e^−|x|.
template <typename T> T softplus(T x) {
  T e = near::exp(-x.abs());
  return x.maximum(0) + e * polynomial(e, {1.414101850e-2, -6.640178710e-2, 1.492238641e-1, -2.350385934e-1,
                                           3.310944736e-1, -4.998696446e-1, 9.999987483e-1});
}

/// The normal distribution at −a, a ≤ 16: the square root of √(2π)·φ(a), and Mills' ratio Φ(−a)/φ(a) divided by √(2π)
/// as a quotient of polynomials.
template <typename T> struct NormalTail { T a, root, numerator, reciprocal; };
template <typename T> NormalTail<T> normalTail(T x) {
  T a = x.abs().minimum(16), root = (a * (-0.5 * kHalfLog2E) * a).nearPowerOfTwo();
  return {a, root, polynomial(a, {1.580452981e-2, 1.142621867e-1, 3.527746327e-1, 4.999998973e-1}),
          polynomial(a, {3.962385579e-2, 2.861287309e-1, 9.281738867e-1, 1.503422990, 1.0}).nearReciprocal()};
}

template <typename T> T gelu(T x, bool tanh) {
  if (tanh) {
    constexpr double factor = -kTwiceSqrtTwoOverPi * kHalfLog2E;
    return x * sigmoidOfScaled(x.fma((x * x).fma(x.like(factor * kGeluCubic), x.like(factor)), x.like(-12)));
  }
  NormalTail<T> tail = normalTail(x);
  T below = tail.numerator * tail.reciprocal * tail.root * tail.root;
  return x * less(x, 0).select(below, 1.0 - below);
}

/// The derivative at −a is −w, at a it is 1 + w.
template <typename T> T geluDerivative(T x, bool tanh) {
  T w = x;
  if (tanh) {
    // With s = σ(−v), v = 2√(2/π)·(a + 0.044715a³): w = s·(a·v′·(1 − s) − 1).
    T a = x.abs().minimum(16), z = a * a;
    constexpr double factor = kTwiceSqrtTwoOverPi * kHalfLog2E;
    T s = sigmoidOfScaled(a.fma(z.fma(x.like(factor * kGeluCubic), x.like(factor)), x.like(-12)));
    T slope = a * z.fma(x.like(3 * kTwiceSqrtTwoOverPi * kGeluCubic), x.like(kTwiceSqrtTwoOverPi));
    w = s * slope.fma(1.0 - s, x.like(-1));
  } else {
    // w = φ(a)·(a − Φ(−a)/φ(a)).
    NormalTail<T> tail = normalTail(x);
    w = (-tail.numerator).fma(tail.reciprocal, tail.a * 0.39894228040143267794) * tail.root * tail.root;
  }
  return less(x, 0).select(0.0 - w, 1.0 + w);
}

} // namespace tcc::train::scalar::near

#endif // TCC_DIALECT_NEARFUNCTIONS_H

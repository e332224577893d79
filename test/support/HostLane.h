//===- HostLane.h - runs the scalar programs on the host --------*- C++ -*-===//
//
// A number with the operators of `Lane`, so that the functions of ScalarFunctions.h can be tested on many arguments
// without a compiler in between. Each operator rounds as the machine instruction does.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_SUPPORT_HOSTLANE_H
#define TCC_TEST_SUPPORT_HOSTLANE_H

#include <bit>
#include <cmath>
#include <cstdint>

namespace tcc::test {

struct HostLane {
  enum Kind { F32, F64, I32, I64, I1 } kind;
  double f = 0;
  int64_t i = 0;

  static HostLane single(float x) { return {F32, x, 0}; }
  static HostLane dbl(double x) { return {F64, x, 0}; }
  static HostLane integer(Kind kind, int64_t x) { return {kind, 0, kind == I32 ? int32_t(x) : kind == I1 ? (x & 1) : x}; }
  HostLane rounded(double x) const { return kind == F64 ? dbl(x) : single(float(x)); }

  bool isFloat() const { return kind <= F64; }
  bool isDouble() const { return kind == F64; }
  unsigned width() const { return kind == I1 ? 1 : kind == F32 || kind == I32 ? 32 : 64; }
  HostLane like(double x) const { return isFloat() ? rounded(x) : integer(kind, int64_t(x)); }
  HostLane likeInt(int64_t x) const { return integer(kind, x); }
  HostLane bits() const {
    return kind == F64 ? integer(I64, std::bit_cast<int64_t>(f)) : integer(I32, std::bit_cast<int32_t>(float(f)));
  }
  HostLane asFloat() const {
    return kind == I64 ? dbl(std::bit_cast<double>(i)) : single(std::bit_cast<float>(int32_t(i)));
  }
  HostLane toFloat() const { return kind == I64 ? dbl(double(i)) : single(float(i)); }
  HostLane toDouble() const { return dbl(f); }
  HostLane toSingle() const { return single(float(f)); }
  HostLane abs() const { return rounded(std::fabs(f)); }
  HostLane floor() const { return rounded(std::floor(f)); }
  HostLane sqrt() const { return rounded(std::sqrt(f)); }
  HostLane copySign(HostLane s) const { return rounded(std::copysign(f, s.f)); }
  HostLane fma(HostLane y, HostLane z) const {
    return kind == F64 ? dbl(std::fma(f, y.f, z.f)) : single(std::fmaf(float(f), float(y.f), float(z.f)));
  }
  /// NaN if this is.
  HostLane minimum(double y) const { return std::isnan(f) || f < like(y).f ? *this : like(y); }
  HostLane maximum(double y) const { return std::isnan(f) || f > like(y).f ? *this : like(y); }
  /// A machine's approximations, which flush subnormal numbers to zero, that many ulp away from the nearest result.
  static inline int powerUlps = 0, reciprocalUlps = 0;
  HostLane nearPowerOfTwo() const { return approximated(float(std::exp2(f)), powerUlps); }
  HostLane nearReciprocal() const { return approximated(float(1 / flushed(float(f))), reciprocalUlps); }
  static float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
  static HostLane approximated(float x, int ulps) {
    bool ordinary = std::isfinite(x) && flushed(x) != 0;
    return single(flushed(ordinary ? std::bit_cast<float>(std::bit_cast<int32_t>(x) + ulps) : x));
  }
  HostLane select(HostLane x, HostLane y) const { return i ? x : y; }
  HostLane operator&(HostLane y) const { return integer(kind, i & y.i); }
  HostLane operator|(HostLane y) const { return integer(kind, i | y.i); }
  HostLane operator^(HostLane y) const { return integer(kind, i ^ y.i); }
  HostLane shiftLeft(int64_t n) const { return integer(kind, int64_t(uint64_t(i) << n)); }
  HostLane shiftRight(int64_t n) const { return integer(kind, i >> n); }
  HostLane shiftRightUnsigned(int64_t n) const {
    return integer(kind, kind == I32 ? int64_t(uint32_t(i) >> n) : int64_t(uint64_t(i) >> n));
  }
};

// Rounding a sum, product or quotient of two f32 first to f64 and then to f32 gives the same bits as rounding once to
// f32, since 53 ≥ 2·24 + 2.
inline HostLane operator+(HostLane x, HostLane y) {
  return x.isFloat() ? x.rounded(x.f + y.f) : x.likeInt(int64_t(uint64_t(x.i) + uint64_t(y.i)));
}
inline HostLane operator-(HostLane x, HostLane y) {
  return x.isFloat() ? x.rounded(x.f - y.f) : x.likeInt(int64_t(uint64_t(x.i) - uint64_t(y.i)));
}
inline HostLane operator*(HostLane x, HostLane y) {
  return x.isFloat() ? x.rounded(x.f * y.f) : x.likeInt(int64_t(uint64_t(x.i) * uint64_t(y.i)));
}
inline HostLane operator/(HostLane x, HostLane y) { return x.rounded(x.f / y.f); }
inline HostLane operator-(HostLane x) { return x.isFloat() ? x.rounded(-x.f) : x.likeInt(-x.i); }
inline HostLane operator+(HostLane x, double y) { return x + x.like(y); }
inline HostLane operator-(HostLane x, double y) { return x - x.like(y); }
inline HostLane operator*(HostLane x, double y) { return x * x.like(y); }
inline HostLane operator/(HostLane x, double y) { return x / x.like(y); }
inline HostLane operator+(double x, HostLane y) { return y.like(x) + y; }
inline HostLane operator-(double x, HostLane y) { return y.like(x) - y; }
inline HostLane operator*(double x, HostLane y) { return y.like(x) * y; }
inline HostLane operator/(double x, HostLane y) { return y.like(x) / y; }

inline HostLane condition(bool holds) { return HostLane::integer(HostLane::I1, holds); }
inline HostLane less(HostLane x, HostLane y) { return condition(x.isFloat() ? x.f < y.f : x.i < y.i); }
inline HostLane equal(HostLane x, HostLane y) { return condition(x.isFloat() ? x.f == y.f : x.i == y.i); }
inline HostLane greater(HostLane x, HostLane y) { return less(y, x); }
inline HostLane less(HostLane x, double y) { return less(x, x.like(y)); }
inline HostLane equal(HostLane x, double y) { return equal(x, x.like(y)); }
inline HostLane greater(HostLane x, double y) { return greater(x, x.like(y)); }
inline HostLane isNan(HostLane x) { return condition(std::isnan(x.f)); }
inline HostLane isFalse(HostLane x) { return condition(!x.i); }

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_HOSTLANE_H

//===- NearFunctionTable.h - functions for results of 16 bits ---*- C++ -*-===//
//
// One line for each op with a form by a machine's approximations (NearFunctions.h): that form and the usual one, over
// lanes of the host, and the exact value in long double.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_SUPPORT_NEARFUNCTIONTABLE_H
#define TCC_TEST_SUPPORT_NEARFUNCTIONTABLE_H

#include "compiler/dialect/NearFunctions.h"
#include "test/support/ScalarFunctionTable.h"

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

namespace tcc::test {

struct NearFunction {
  std::string op;
  bool tanh; ///< the op's attribute of that name
  HostLane (*near)(HostLane), (*usual)(HostLane);
  long double (*exact)(long double);
  bool hasZero = false; ///< the exact function has a zero in (−1, −0.5), as derivatives of gelu

  std::string name() const { return op + (tanh ? "_tanh" : ""); }
};
inline void PrintTo(const NearFunction &function, std::ostream *out) { *out << function.name(); }

inline constexpr long double kRootHalf = 0.70710678118654752440L, kTwiceRootTwoOverPi = 1.59576912160573071176L;

inline long double exactGelu(long double x) { return x * erfcl(-x * kRootHalf) / 2; }
inline long double exactTanhGelu(long double x) {
  return x * exactSigmoid(kTwiceRootTwoOverPi * (x + 0.044715L * x * x * x));
}
inline long double exactGeluDerivative(long double x) {
  if (std::fabs(x) > 1e3)
    return x > 0;
  return erfcl(-x * kRootHalf) / 2 + x * 0.39894228040143267794L * expl(-x * x / 2);
}
inline long double exactTanhGeluDerivative(long double x) {
  if (std::fabs(x) > 1e3)
    return x > 0;
  long double v = kTwiceRootTwoOverPi * (x + 0.044715L * x * x * x);
  long double slope = kTwiceRootTwoOverPi * (1 + 3 * 0.044715L * x * x);
  return exactSigmoid(v) + x * slope * exactSigmoid(v) * exactSigmoid(-v);
}

inline const std::vector<NearFunction> &nearFunctions() {
  namespace usual = train::scalar;
  namespace near = train::scalar::near;
  static const std::vector<NearFunction> table = {
      {"exp", false, near::exp<HostLane>, usual::exp<HostLane>, expl},
      {"tanh", false, near::tanh<HostLane>, usual::tanh<HostLane>, tanhl},
      {"sigmoid", false, near::sigmoid<HostLane>, usual::sigmoid<HostLane>, exactSigmoid},
      {"silu", false, [](HostLane x) { return x * near::sigmoid(x); }, [](HostLane x) { return x * usual::sigmoid(x); },
       [](long double x) { return x * exactSigmoid(x); }},
      {"softplus", false, near::softplus<HostLane>, usual::softplus<HostLane>, exactSoftplus},
      {"erf", false, near::erf<HostLane>, usual::erf<HostLane>, erfl},
      {"gelu", false, [](HostLane x) { return near::gelu(x, false); }, [](HostLane x) { return usual::gelu(x, false); },
       exactGelu},
      {"gelu", true, [](HostLane x) { return near::gelu(x, true); }, [](HostLane x) { return usual::gelu(x, true); },
       exactTanhGelu},
      {"gelu_derivative", false, [](HostLane x) { return near::geluDerivative(x, false); },
       [](HostLane x) { return usual::geluDerivative(x, false); }, exactGeluDerivative, true},
      {"gelu_derivative", true, [](HostLane x) { return near::geluDerivative(x, true); },
       [](HostLane x) { return usual::geluDerivative(x, true); }, exactTanhGeluDerivative, true},
  };
  return table;
}

/// A floating-point type of 16 bits.
struct NarrowType {
  const char *name;
  int digits, least, most; ///< binary digits after the first, and the exponents of normal numbers
};
inline constexpr NarrowType kBf16 = {"bf16", 7, -126, 127}, kF16 = {"f16", 10, -14, 15};

/// The number with these bits.
inline double widened(const NarrowType &type, uint32_t bits) {
  if (type.digits == 7)
    return std::bit_cast<float>(bits << 16);
  int exponent = int(bits >> 10 & 31), mantissa = int(bits & 1023);
  double magnitude = exponent == 31 ? (mantissa ? NAN : HUGE_VAL)
                     : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                                    : std::ldexp(mantissa, -24);
  return bits >> 15 ? -magnitude : magnitude;
}
/// Half the distance between neighbours at x.
inline long double halfStepAt(const NarrowType &type, long double x) {
  int exponent = x == 0 ? type.least : std::clamp(std::ilogb(x), type.least, type.most);
  return ldexpl(1, exponent - type.digits - 1);
}
inline long double roundedTo(const NarrowType &type, long double x) {
  long double step = 2 * halfStepAt(type, x), rounded = step * rintl(x / step);
  return std::fabs(rounded) < ldexpl(1, type.most + 1) ? rounded : std::copysign(HUGE_VALL, rounded);
}

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_NEARFUNCTIONTABLE_H

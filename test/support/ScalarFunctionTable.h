//===- ScalarFunctionTable.h - our own functions and their exact values -*- C++ -*-===//
//
// One line for each function that kernels compute by our own scalar program: the program, over lanes of the host, and
// its reference in long double.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_SUPPORT_SCALARFUNCTIONTABLE_H
#define TCC_TEST_SUPPORT_SCALARFUNCTIONTABLE_H

#include "compiler/dialect/ScalarFunctions.h"
#include "test/support/HostLane.h"

#include <ostream>
#include <vector>

namespace tcc::test {

struct ScalarFunction {
  const char *name; ///< of the op
  HostLane (*program)(HostLane);
  long double (*exact)(long double);
  double largestSingle, largestDouble; ///< |x| beyond which arguments are not tried
};
inline void PrintTo(const ScalarFunction &function, std::ostream *out) { *out << function.name; }

inline long double exactSoftplus(long double x) { return fmaxl(x, 0) + log1pl(expl(-fabsl(x))); }
inline long double exactSigmoid(long double x) { return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x)); }

inline const std::vector<ScalarFunction> &scalarFunctions() {
  static const std::vector<ScalarFunction> table = {
      {"exp", train::scalar::exp<HostLane>, expl, HUGE_VAL, HUGE_VAL},
      {"log", train::scalar::log<HostLane>, logl, HUGE_VAL, HUGE_VAL},
      {"log1p", train::scalar::log1p<HostLane>, log1pl, HUGE_VAL, HUGE_VAL},
      {"tanh", train::scalar::tanh<HostLane>, tanhl, HUGE_VAL, HUGE_VAL},
      {"sigmoid", train::scalar::sigmoid<HostLane>, exactSigmoid, HUGE_VAL, HUGE_VAL},
      {"erf", train::scalar::erf<HostLane>, erfl, HUGE_VAL, HUGE_VAL},
      {"expm1", train::scalar::expm1<HostLane>, expm1l, HUGE_VAL, HUGE_VAL},
      {"softplus", train::scalar::softplus<HostLane>, exactSoftplus, HUGE_VAL, HUGE_VAL},
      {"tan", train::scalar::tan<HostLane>, tanl, 0x1p50, 0x1p30},
      {"asin", train::scalar::asin<HostLane>, asinl, HUGE_VAL, HUGE_VAL},
      {"acos", train::scalar::acos<HostLane>, acosl, HUGE_VAL, HUGE_VAL},
      {"sinh", train::scalar::sinh<HostLane>, sinhl, HUGE_VAL, HUGE_VAL},
      {"cosh", train::scalar::cosh<HostLane>, coshl, HUGE_VAL, HUGE_VAL},
      {"asinh", train::scalar::asinh<HostLane>, asinhl, HUGE_VAL, HUGE_VAL},
      {"acosh", train::scalar::acosh<HostLane>, acoshl, HUGE_VAL, HUGE_VAL},
      {"atanh", train::scalar::atanh<HostLane>, atanhl, HUGE_VAL, HUGE_VAL},
      {"atan", train::scalar::atan<HostLane>, atanl, HUGE_VAL, HUGE_VAL},
      {"sin", [](HostLane x) { return train::scalar::sinOrCos(x, 0); }, sinl, 0x1p50, 0x1p30},
      {"cos", [](HostLane x) { return train::scalar::sinOrCos(x, 1); }, cosl, 0x1p50, 0x1p30},
  };
  return table;
}

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_SCALARFUNCTIONTABLE_H

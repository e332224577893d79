//===- ScoreFormula.cpp - from a product to a weight, for any kernel ------===//
#include "compiler/kernels/ScoreFormula.h"

#include "compiler/dialect/PhiloxLanes.h"
#include "compiler/dialect/ScalarFunctions.h"

using namespace mlir;

namespace tcc::train {

PaddingRule paddingRuleOf(const AttentionShape &s) {
  // A bias of at most this excludes a key if another one is shown: no score makes up for it. (The lowest f32, by which
  // exporters exclude keys, is -3.4e38; -1e9 might be made up for, by scores that no training has.)
  constexpr double kExcludes = -1e30;
  auto isForAll = [](llvm::ArrayRef<int64_t> shape) {
    return !shape.empty() && shape[1] == 1 && shape[2] == 1 && shape[3] > 1;
  };
  auto isAlone = [&](llvm::ArrayRef<int64_t> other) { return other.empty() || isForAll(other); };
  // Keys that a finite number excludes count in rows where another term excludes all others.
  return {isForAll(s.maskShape) && (!s.maskFill || (*s.maskFill <= kExcludes && isAlone(s.biasShape))),
          isForAll(s.biasShape), isAlone(s.maskShape) ? kExcludes : -HUGE_VAL};
}

Lane ScoreFormula::score(Lane product, llvm::function_ref<Lane()> bias, llvm::function_ref<Lane()> shown,
                         std::optional<Lane> *slope) const {
  Lane x = scalesLate ? product : product * number(s.scale), derivative = number(1);
  if (s.softcap > 0) {
    Lane t = scalar::tanh(x * number(1 / s.softcap));
    derivative = 1.0 - t * t;
    x = t * number(s.softcap);
  }
  if (s.maskFill) {
    Lane isShown = shown();
    derivative = isShown.select(derivative, number(0));
    x = isShown.select(x, number(*s.maskFill));
  }
  if (slope && s.hasSlopes())
    *slope = derivative;
  if (!s.biasShape.empty())
    x = x + bias();
  if (!s.maskShape.empty() && !s.maskFill)
    x = shown().select(x, number(-HUGE_VAL));
  return x;
}

namespace {
constexpr double kLog2OfE = 1.44269504088896340736;
} // namespace

Lane ScoreFormula::expAbove(Lane score, Lane base, std::optional<Lane> rest) const {
  // Numbers that exclude keys may be all that a row has. Near -1e9 a product with log2 e is off by 64, near the lowest
  // float by more than any exponent, so that the difference comes first.
  if (exp2 && (!s.biasShape.empty() || s.maskFill)) {
    Lane x = score - base;
    return exp(rest ? x - *rest : x);
  }
  if (exp2) { // base and rest are constant in a row, so their product is hoisted
    Lane from = base * number(kLog2OfE);
    if (rest)
      from = rest->fma(number(kLog2OfE), from);
    return exp2(score.fma(number(scalesLate ? s.scale * kLog2OfE : kLog2OfE), -from));
  }
  Lane x = scalesLate ? score.fma(number(s.scale), -base) : score - base;
  return exp(rest ? x - *rest : x);
}

Lane ScoreFormula::exp(Lane x) const {
  if (exp2)
    return exp2(x * number(kLog2OfE));
  // Below `normal` the result is arbitrary; the select at the end replaces it.
  Lane normal = x.compare(arith::CmpFPredicate::UGE, number(x.isDouble() ? -708 : -87)), zero = number(0);
  if (x.isDouble()) {
    scalar::ReducedExp<Lane> parts = scalar::reduceExp<Lane>(x, nullptr);
    return normal.select((parts.rest + 1.0) * parts.power(), zero);
  }
  // Multiplications are the bottleneck. So ln 2 is a single constant, whose error is a tenth of x's own rounding error,
  // and Cephes's polynomial includes the first two terms of the series.
  Lane shifted = x.fma(number(kLog2OfE), number(0x1.8p23 + 127)), n = shifted - number(0x1.8p23 + 127);
  Lane r = n.fma(number(-0.693147180559945309417), x);
  Lane p = scalar::polynomial(
      r, {1.38145405034e-3, 8.36874547214e-3, 4.16683908056e-2, 1.66665203960e-1, 4.99999934320e-1, 1.0, 1.0});
  return normal.select(p * shifted.bits().shiftLeft(23).asFloat(), zero);
}

ScoreFormula::Logsumexp ScoreFormula::logsumexp(Lane base, Lane total) const {
  // Knuth's TwoSum: the rounding error of the sum is computed exactly.
  Lane log = scalar::log(total), sum = base + log;
  Lane ofLog = sum - base, rest = (base - (sum - ofLog)) + (log - ofLog);
  return {sum, equal(total, number(0)).select(number(0), rest)};
}

Lane ScoreFormula::kept(Lane position, llvm::ArrayRef<Lane> randomWords) const {
  Lane bits = emitPhilox(position, randomWords, uint64_t(s.dropoutId))[0];
  return isFalse(less(bits, bits.likeInt(int64_t(s.dropThreshold()))));
}

} // namespace tcc::train

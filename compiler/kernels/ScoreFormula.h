//===- ScoreFormula.h - from a product to a weight, for any kernel -*- C++ -*-===//
#ifndef TCC_KERNELS_SCOREFORMULA_H
#define TCC_KERNELS_SCOREFORMULA_H

#include "compiler/dialect/Attention.h"
#include "compiler/dialect/Lane.h"

#include <functional>

namespace tcc::train {

/// What becomes of a product of a query and a key: scale, cap, bias, masks and the exponential. Where bias and mask
/// lie, and which keys a query sees, the kernel knows.
class ScoreFormula {
public:
  ScoreFormula(const AttentionShape &shape, ElementBuilder &numbers)
      : s(shape), numbers(numbers), scalesLate(s.scale > 0 && !s.hasSlopes() && s.biasShape.empty()) {}

  Lane number(double value) const { return Lane(numbers, numbers.splat(numbers.constant(s.sumType, value))); }

  /// The score, −∞ where the mask excludes it. `bias` and `shown` (an i1) are asked where the shape has them. `slope`,
  /// if given, is set to the score's derivative by the scaled product, where the shape hasSlopes().
  Lane score(Lane product, llvm::function_ref<Lane()> bias, llvm::function_ref<Lane()> shown,
             std::optional<Lane> *slope = nullptr) const;
  /// The result of score(), scaled.
  Lane scaled(Lane score) const { return scalesLate ? score * number(s.scale) : score; }
  /// e^(scaled(score) − base − rest).
  Lane expAbove(Lane score, Lane base, std::optional<Lane> rest = std::nullopt) const;
  /// e^x; 0 where that is below the normal numbers (also for −∞), NaN stays.
  Lane exp(Lane x) const;
  /// What scores are taken relative to: 0 where all are −∞ so far.
  Lane finiteBase(Lane largest) const { return equal(largest, number(-HUGE_VAL)).select(number(0), largest); }

  /// The logarithm of a row's sum of weights, and what rounding takes from it.
  struct Logsumexp {
    Lane value, rest;
  };
  /// Of `total`, the sum of e^(score − base).
  Logsumexp logsumexp(Lane base, Lane total) const;
  /// As gradients take it: e^(score − ∞) is 0 in rows without weights.
  Lane forWeights(Lane logsumexp) const {
    return equal(logsumexp, number(-HUGE_VAL)).select(number(HUGE_VAL), logsumexp);
  }
  /// The gradient of a score with its bias: `left` is what dropout leaves of its weight.
  Lane scoreGrad(Lane weight, Lane left, Lane weightGrad, Lane delta) const {
    return s.dropout > 0 ? left * weightGrad - weight * delta : left * (weightGrad - delta);
  }
  /// What dropout leaves of a weight.
  Lane left(Lane weight, Lane kept) const { return kept.select(weight * number(s.keptScale()), number(0)); }
  /// i1: dropout keeps the weight at this element of the scores (an i64), with the four words of the run's key.
  Lane kept(Lane position, llvm::ArrayRef<Lane> randomWords) const;

  /// 2^x as a card's instruction computes it, which then computes every exponential: it errs by 2 ulp, and gives 0 below
  /// the normal numbers (PTX ISA, ex2). Null: a polynomial does.
  std::function<Lane(Lane)> exp2;

private:
  const AttentionShape &s;
  ElementBuilder &numbers;
  /// score() leaves the scale to expAbove, which multiplies and subtracts in one step: which scores are excluded or the
  /// largest does not depend on it.
  const bool scalesLate;
};

} // namespace tcc::train

#endif // TCC_KERNELS_SCOREFORMULA_H

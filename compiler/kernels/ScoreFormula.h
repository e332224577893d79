//===- ScoreFormula.h - from a product to a weight, for any kernel -*- C++ -*-===//
#ifndef TCC_KERNELS_SCOREFORMULA_H
#define TCC_KERNELS_SCOREFORMULA_H

#include "compiler/dialect/Attention.h"
#include "compiler/dialect/Lane.h"

#include <functional>

namespace tcc::train {

/// Which of a bias and a mask excludes keys for all heads and queries of a sample, as padding does. A key is padding if
/// the mask excludes it (byMask) or its bias is at most `lowest` (byBias). If some key of the sample is none, the
/// weights of padding are 0 exactly, in each row that sees such a key.
struct PaddingRule {
  bool byMask = false, byBias = false;
  double lowest = 0;

  explicit operator bool() const { return byMask || byBias; }
};
PaddingRule paddingRuleOf(const AttentionShape &s);

/// Computes a weight from the product of a query and a key: scale, cap, bias, masks and the exponential. The kernel
/// supplies the elements of bias and mask, and handles causal masks.
class ScoreFormula {
public:
  ScoreFormula(const AttentionShape &shape, ElementBuilder &numbers)
      : s(shape), numbers(numbers), scalesLate(s.scale > 0 && !s.hasSlopes() && s.biasShape.empty()) {}

  Lane number(double value) const { return Lane(numbers, numbers.splat(numbers.constant(s.sumType, value))); }

  /// The score, −∞ where the mask excludes it. Calls `bias` and `shown` (an i1) if the shape has them. `slope`, if
  /// given, is set to the score's derivative by the scaled product if the shape hasSlopes().
  Lane score(Lane product, llvm::function_ref<Lane()> bias, llvm::function_ref<Lane()> shown,
             std::optional<Lane> *slope = nullptr) const;
  /// The result of score(), scaled.
  Lane scaled(Lane score) const { return scalesLate ? score * number(s.scale) : score; }
  /// e^(scaled(score) − base − rest).
  Lane expAbove(Lane score, Lane base, std::optional<Lane> rest = std::nullopt) const;
  /// e^x; 0 if that is subnormal (also for −∞); NaN stays NaN.
  Lane exp(Lane x) const;
  /// The base that is subtracted from scores: the largest score so far, or 0 if all scores are −∞.
  Lane finiteBase(Lane largest) const { return equal(largest, number(-HUGE_VAL)).select(number(0), largest); }

  /// The logarithm of a row's sum of weights, and its rounding error.
  struct Logsumexp {
    Lane value, rest;
  };
  /// From `total`, the sum of e^(score − base).
  Logsumexp logsumexp(Lane base, Lane total) const;
  /// The logsumexp for gradients: ∞ in rows without weights, so that e^(score − ∞) is 0.
  Lane forWeights(Lane logsumexp) const {
    return equal(logsumexp, number(-HUGE_VAL)).select(number(HUGE_VAL), logsumexp);
  }
  /// The gradient of a score with its bias; `left`: its weight after dropout.
  Lane scoreGrad(Lane weight, Lane left, Lane weightGrad, Lane delta) const {
    return s.dropout > 0 ? left * weightGrad - weight * delta : left * (weightGrad - delta);
  }
  /// The weight after dropout.
  Lane left(Lane weight, Lane kept) const { return kept.select(weight * number(s.keptScale()), number(0)); }
  /// i1: dropout keeps the weight of this element of the scores (an i64), by the four words of the run's key.
  Lane kept(Lane position, llvm::ArrayRef<Lane> randomWords) const;

  /// 2^x by a card's instruction, used for every exponential: error of 2 ulp, 0 for subnormal results (PTX ISA, ex2).
  /// Null: use a polynomial.
  std::function<Lane(Lane)> exp2;

private:
  const AttentionShape &s;
  ElementBuilder &numbers;
  /// score() leaves the scale to expAbove, which applies it in a fused multiply-subtract: neither masks nor the maximum
  /// depend on the scale.
  const bool scalesLate;
};

} // namespace tcc::train

#endif // TCC_KERNELS_SCOREFORMULA_H

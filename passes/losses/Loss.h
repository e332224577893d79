//===- Loss.h - the built-in losses -----------------------------*- C++ -*-===//
//
// Each kind is one declaration: what its target looks like, and its numerator and denominator as PyTorch's function of
// the same name computes them. Gradients come from differentiating them.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_LOSSES_LOSS_H
#define TCC_PASSES_LOSSES_LOSS_H

#include "compiler/Recipe.h"
#include "compiler/dialect/Builders.h"

#include <optional>
#include <string>

namespace tcc::train {

/// What a loss is made of. The prediction is f32 or f64.
struct LossInputs {
  Expr prediction, target;
  const LossSettings &settings;
  int64_t classAxis; ///< from 0; used by kinds with classes
};

/// Scalars (rank 0) of the prediction's type. The loss is sum / weight.
struct LossResult {
  Expr sum, weight;
  std::optional<Expr> correct = {}, counted = {}; ///< kinds with classes: targets that argmax hits, targets counted
};

struct LossKind {
  llvm::StringLiteral name;
  bool hasClasses;    ///< the target holds one integer for each vector of scores along class_axis
  bool probabilities; ///< a floating-point target of the prediction's shape will do as well
  /// What is wrong with these inputs, with a way out; empty where nothing is. Shapes have been checked already.
  std::string (*check)(const LossInputs &);
  LossResult (*build)(const LossInputs &);
};

/// The kind of this name, or null.
const LossKind *findLoss(llvm::StringRef name);
/// All names, for messages: "bce, bce_with_logits, …".
std::string lossNames();

/// Reduces numerators per element: weight is their number for "mean", 1 for "sum".
LossResult reduceElements(const Expr &elements, const LossSettings &settings);
/// A constant vector of the recipe's numbers, of the given element type.
Expr constantVector(const Expr &place, llvm::ArrayRef<double> values, mlir::Type elementType);

extern const LossKind kCrossEntropy, kNll, kMse, kL1, kHuber, kSmoothL1, kBce, kBceWithLogits, kKlDiv;

} // namespace tcc::train

#endif // TCC_PASSES_LOSSES_LOSS_H

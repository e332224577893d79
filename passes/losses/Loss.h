//===- Loss.h - the built-in losses -----------------------------*- C++ -*-===//
//
// Each kind is one declaration: the form of its target, and its numerator and denominator as PyTorch's function of the
// same name computes them. Differentiation gives the gradients.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_LOSSES_LOSS_H
#define TCC_PASSES_LOSSES_LOSS_H

#include "compiler/recipe/Recipe.h"
#include "compiler/dialect/Builders.h"

#include <optional>
#include <string>

namespace tcc::train {

/// Axes of a prediction that holds one sequence of class scores for each sample.
struct SequenceAxes {
  int64_t samples, time, classes;
};

/// The operands of a loss. Predictions are f32 or f64.
struct LossInputs {
  Expr prediction; ///< the first of `predictions`
  Expr target;     ///< holds no value for LossTarget::None
  const LossSettings &settings;
  int64_t classAxis = -1; ///< from 0; for kinds with classes, and if the recipe gives one
  llvm::SmallVector<Expr> predictions = {};
  SequenceAxes axes = {0, 1, 2};                           ///< LossTarget::Sequences
  std::optional<Expr> inputLengths = {}, targetLengths = {}; ///< LossTarget::Sequences: graph inputs [samples] of i64
  std::optional<Expr> sampleWeight = {}; ///< loss.sample_weight: [samples], of the predictions' element type
  int64_t sampleAxis = 0;                ///< of the numerators: the prediction's, but 0 for sequences
};

/// Scalars (rank 0) of the prediction's type. The loss is sum / weight.
struct LossResult {
  Expr sum, weight;
  std::optional<Expr> correct = {}, counted = {}; ///< kinds with classes: targets that argmax hits, targets counted
};

/// Type and shape of a kind's target.
enum class LossTarget {
  Like,      ///< the prediction's shape, floating point
  Classes,   ///< one integer for each vector of scores along class_axis
  Rows,      ///< the prediction's shape without its last axis, floating point
  Sequences, ///< one row of labels for each sample, integers
  None       ///< the kind compares predictions with each other
};

/// A setting that does not fit the operands: the recipe's key, and a message that says what to do.
struct LossProblem {
  std::string key, text;
};

/// The kind of numbers that a loss expects as its prediction.
enum class LossInput { Any, Logits, LogProbabilities, Probabilities };

struct Loss {
  llvm::StringLiteral name;
  LossTarget target;
  std::optional<LossProblem> (*check)(const LossInputs &); ///< null: no check but that of shapes, which runs before
  LossResult (*build)(const LossInputs &);
  bool probabilities = false; ///< Classes: also takes a floating-point target of the prediction's shape
  unsigned predictions = 1;   ///< number of values that loss.of names
  llvm::StringLiteral roles = llvm::StringLiteral(""); ///< their meaning, where they are several
  LossInput input = LossInput::Any;

  bool hasClasses() const { return target == LossTarget::Classes; }
};

/// The kind of this name, or null.
const Loss *findLoss(llvm::StringRef name);
/// All names, for messages: "bce, bce_with_logits, …".
std::string lossNames();

/// Reduces numerators per element: weight is their number for "mean", 1 for "sum". With sample weights both sums are
/// weighted, each element by its sample.
LossResult reduceElements(const Expr &elements, const LossInputs &inputs);
/// The sample weights in a shape that broadcasts against `elements`, whose sample axis holds each sample's elements one
/// after another.
Expr sampleWeightsOf(const LossInputs &inputs, const Expr &elements);
/// A constant vector of the recipe's numbers, of the given element type.
Expr constantVector(const Expr &place, llvm::ArrayRef<double> values, mlir::Type elementType);

/// max(x, 0), whose derivative at 0 is 1, as PyTorch's clamp_min; NaN stays.
Expr clampAtZero(const Expr &x);
/// The error for predictions of different shapes.
std::optional<LossProblem> checkSameShapes(const LossInputs &inputs);
/// ln σ(x) = min(x, 0) − ln(1 + e^−|x|), whose derivative at 0 is 1/2: a last layer that starts at zero gives such
/// logits.
Expr logSigmoid(const Expr &x);

extern const Loss kCrossEntropy, kNll, kMse, kL1, kHuber, kSmoothL1, kBce, kBceWithLogits, kKlDiv, kCtc, kFocal,
    kDice, kCosineEmbedding, kTriplet, kMarginRanking, kHinge, kHingeEmbedding, kPoissonNll, kGaussianNll;

} // namespace tcc::train

#endif // TCC_PASSES_LOSSES_LOSS_H

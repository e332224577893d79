//===- CrossEntropy.cpp - losses over classes ------------------------------===//
//
// torch.nn.functional.cross_entropy and nll_loss. The score of the target is picked and compared with the logarithm of
// the sum of exponentials, rather than taken from a log-softmax of all classes: the gradient is then exp(x − lse)·g −
// onehot(target)·g, and no second tensor of the size of the logits exists.
//
//===----------------------------------------------------------------------===//
#include "passes/Common.h"
#include "passes/losses/Loss.h"

using namespace mlir;

namespace tcc::train {
namespace {

/// The prediction's shape with extent 1 along the class axis.
llvm::SmallVector<int64_t> rowShape(const LossInputs &inputs) {
  llvm::SmallVector<int64_t> shape(shapeOf(inputs.prediction));
  shape[inputs.classAxis] = 1;
  return shape;
}

int64_t classCount(const LossInputs &inputs) { return shapeOf(inputs.prediction)[inputs.classAxis]; }

/// The recipe's class weights in a shape that broadcasts against the prediction.
Expr classWeights(const LossInputs &inputs) {
  llvm::SmallVector<int64_t> shape(shapeOf(inputs.prediction).size(), 1);
  shape[inputs.classAxis] = classCount(inputs);
  return constantVector(inputs.prediction, inputs.settings.weight, elementTypeOf(inputs.prediction)).reshape(shape);
}

Expr logSumExp(const LossInputs &inputs) {
  const Expr &x = inputs.prediction;
  return x.with(LogSumExpOp::create(*x.builder, x.loc, RankedTensorType::get(rowShape(inputs), elementTypeOf(x)), x,
                                    inputs.classAxis));
}

Expr argMax(const LossInputs &inputs, const Expr &of) {
  return of.with(ArgMaxOp::create(
      *of.builder, of.loc, RankedTensorType::get(rowShape(inputs), of.builder->getI64Type()), of, inputs.classAxis));
}

/// The targets' classes, whether each counts, and the weight of its class.
struct CountedTargets {
  Expr index, valid;
  std::optional<Expr> weight;
};

CountedTargets countTargets(const LossInputs &inputs) {
  const Expr &x = inputs.prediction;
  Expr index = inputs.target.reshape(rowShape(inputs));
  Expr ignored = index.with(splatInt(*x.builder, x.loc, index.value.getType(), inputs.settings.ignoreIndex));
  CountedTargets targets{index, index.compare(CompareKind::ne, ignored), {}};
  if (!inputs.settings.weight.empty()) {
    Expr weights = constantVector(x, inputs.settings.weight, elementTypeOf(x));
    targets.weight = x.with(GatherOp::create(
        *x.builder, x.loc, RankedTensorType::get(rowShape(inputs), elementTypeOf(x)), weights, index, 0));
  }
  return targets;
}

LossResult reduceTargets(const LossInputs &inputs, const CountedTargets &targets, const Expr &elements) {
  const Expr zero = elements.like(0);
  Expr counted = sumAll(targets.valid.cast(elementTypeOf(elements))), numerators = elements;
  std::optional<Expr> weights = targets.weight;
  if (inputs.sampleWeight) {
    Expr ofSamples = sampleWeightsOf(inputs, elements).broadcast(shapeOf(elements));
    numerators = numerators * ofSamples;
    weights = weights ? *weights * ofSamples : ofSamples;
  }
  Expr sum = sumAll(targets.valid.select(numerators, zero));
  Expr weight = weights ? sumAll(targets.valid.select(*weights, zero)) : counted;
  if (inputs.settings.reduction == "sum")
    weight = sum.like(1);
  Expr hit =
      argMax(inputs, inputs.prediction).compare(CompareKind::eq, targets.index.cast(elements.builder->getI64Type()));
  Expr correct = sumAll(targets.valid.select(hit.cast(elementTypeOf(elements)), zero));
  return {sum, weight, correct, counted};
}

Expr pickTarget(const LossInputs &inputs, const Expr &index) {
  const Expr &x = inputs.prediction;
  return x.with(PickOp::create(*x.builder, x.loc, RankedTensorType::get(rowShape(inputs), elementTypeOf(x)), x, index,
                               inputs.classAxis));
}

LossResult buildFromClasses(const LossInputs &inputs) {
  CountedTargets targets = countTargets(inputs);
  Expr lse = logSumExp(inputs);
  Expr loss = lse - pickTarget(inputs, targets.index);
  if (targets.weight)
    loss = loss * *targets.weight;
  if (double smoothing = inputs.settings.labelSmoothing; smoothing != 0) {
    // Σ_c w_c (lse − x_c), from sums over the classes.
    double classes = double(classCount(inputs)), totalWeight = classes;
    Expr scores = inputs.prediction;
    if (targets.weight) {
      totalWeight = 0;
      for (double weight : inputs.settings.weight)
        totalWeight += weight;
      scores = scores * classWeights(inputs);
    }
    Expr spread = lse * totalWeight - scores.sum({inputs.classAxis});
    loss = loss * (1 - smoothing) + spread * (smoothing / classes);
  }
  return reduceTargets(inputs, targets, loss);
}

/// Targets that are probabilities of the classes: the denominator is the number of positions, whatever their weights.
LossResult buildFromProbabilities(const LossInputs &inputs) {
  double classes = double(classCount(inputs)), smoothing = inputs.settings.labelSmoothing;
  Expr target = inputs.target.cast(elementTypeOf(inputs.prediction));
  Expr shares = smoothing != 0 ? target * (1 - smoothing) + smoothing / classes : target;
  if (!inputs.settings.weight.empty())
    shares = shares * classWeights(inputs);
  Expr rows = (shares * (logSumExp(inputs) - inputs.prediction)).sum({inputs.classAxis});
  LossResult result = reduceElements(rows, inputs);
  Expr hit = argMax(inputs, inputs.prediction).compare(CompareKind::eq, argMax(inputs, target));
  result.correct = sumAll(hit.cast(elementTypeOf(rows)));
  result.counted = result.sum.like(double(tensorTypeOf(rows).getNumElements()));
  return result;
}

std::optional<LossProblem> checkWeights(const LossInputs &inputs) {
  size_t given = inputs.settings.weight.size();
  if (given != 0 && int64_t(given) != classCount(inputs))
    return LossProblem{"loss.weight", "loss.weight has " + std::to_string(given) + " numbers, but class_axis " +
                                          std::to_string(inputs.classAxis) + " has " +
                                          std::to_string(classCount(inputs)) + " classes: give one for each"};
  return std::nullopt;
}

LossResult buildCrossEntropy(const LossInputs &inputs) {
  return isFloatTensor(inputs.target) ? buildFromProbabilities(inputs) : buildFromClasses(inputs);
}

LossResult buildNll(const LossInputs &inputs) {
  CountedTargets targets = countTargets(inputs);
  Expr loss = -pickTarget(inputs, targets.index);
  return reduceTargets(inputs, targets, targets.weight ? loss * *targets.weight : loss);
}

} // namespace

const Loss kCrossEntropy{"cross_entropy",
                             LossTarget::Classes,
                             checkWeights,
                             buildCrossEntropy,
                             /*probabilities=*/true,
                             1,
                             llvm::StringLiteral(""),
                             LossInput::Logits};
const Loss kNll{
    "nll", LossTarget::Classes, checkWeights, buildNll, false, 1, llvm::StringLiteral(""), LossInput::LogProbabilities};

} // namespace tcc::train

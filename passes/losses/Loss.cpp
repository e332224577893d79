//===- Loss.cpp - the list of built-in losses, and shared helpers ----------===//
#include "passes/losses/Loss.h"

#include "passes/Common.h"

using namespace mlir;

namespace tcc::train {

static const Loss *const kLossKinds[] = {&kCrossEntropy,    &kNll,        &kMse,           &kL1,
                                             &kHuber,           &kSmoothL1,   &kBce,           &kBceWithLogits,
                                             &kKlDiv,           &kCtc,        &kFocal,         &kDice,
                                             &kCosineEmbedding, &kTriplet,    &kMarginRanking, &kHinge,
                                             &kHingeEmbedding,  &kPoissonNll, &kGaussianNll};

const Loss *findLoss(llvm::StringRef name) {
  for (const Loss *kind : kLossKinds)
    if (kind->name == name)
      return kind;
  return nullptr;
}

std::string lossNames() {
  std::string text;
  for (const Loss *kind : kLossKinds)
    text += (text.empty() ? "" : ", ") + kind->name.str();
  return text;
}

LossResult reduceElements(const Expr &elements, const LossInputs &inputs) {
  const bool mean = inputs.settings.reduction != "sum";
  const auto count = double(tensorTypeOf(elements).getNumElements());
  if (!inputs.sampleWeight) {
    Expr sum = sumAll(elements);
    return {sum, sum.like(mean ? count : 1)};
  }
  const Expr &weights = *inputs.sampleWeight;
  Expr sum = sumAll(elements * sampleWeightsOf(inputs, elements));
  return {sum, mean ? sumAll(weights) * (count / double(shapeOf(weights)[0])) : sum.like(1)};
}

Expr sampleWeightsOf(const LossInputs &inputs, const Expr &elements) {
  const Expr &weights = *inputs.sampleWeight;
  const int64_t samples = shapeOf(weights)[0], extent = shapeOf(elements)[inputs.sampleAxis];
  llvm::SmallVector<int64_t> shape(shapeOf(elements).size(), 1);
  shape[inputs.sampleAxis] = extent;
  return weights.reshape({samples, 1}).broadcast({samples, extent / samples}).reshape(shape);
}

Expr constantVector(const Expr &place, llvm::ArrayRef<double> values, Type elementType) {
  HostTensor tensor(RankedTensorType::get({int64_t(values.size())}, elementType));
  for (auto [i, value] : llvm::enumerate(values))
    tensor.setDouble(i, value);
  return place.with(ConstantOp::create(*place.builder, place.loc, tensor.toAttribute()));
}

Expr clampAtZero(const Expr &x) { return x.compare(CompareKind::lt, 0).select(x.like(0), x); }

Expr logSigmoid(const Expr &x) {
  Expr negative = x.compare(CompareKind::lt, 0);
  return negative.select(x, x.like(0)) - negative.select(x, -x).exp().apply<Log1pOp>();
}

std::optional<LossProblem> checkSameShapes(const LossInputs &inputs) {
  for (const Expr &prediction : inputs.predictions)
    if (shapeOf(prediction) != shapeOf(inputs.prediction))
      return LossProblem{"loss.of", "the values that loss.of names differ in shape, and " + inputs.settings.kind +
                                        " compares them element by element: name values of one shape"};
  return std::nullopt;
}

} // namespace tcc::train

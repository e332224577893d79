//===- Ctc.cpp - connectionist temporal classification ---------------------===//
//
// torch.nn.functional.ctc_loss. train.ctc does the recursions; this file converts the prediction to log-probabilities
// [samples, steps, classes] and finds the targets' lengths.
//
//===----------------------------------------------------------------------===//
#include "compiler/model/TensorLimits.h"
#include "passes/losses/Loss.h"

#include <array>
#include <limits>

using namespace mlir;

namespace tcc::train {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// ln p; −∞ without a gradient for p ≤ 0.
Expr logProbability(const Expr &p) {
  Expr positive = p.compare(CompareKind::gt, 0);
  return positive.select(positive.select(p, p.like(1)).log(), p.like(-kInfinite));
}

/// [samples, steps, classes]
Expr logProbabilities(const LossInputs &inputs) {
  Expr x = inputs.prediction;
  x = x.with(transpose(*x.builder, x.loc, x, {inputs.axes.samples, inputs.axes.time, inputs.axes.classes}));
  if (inputs.settings.input == "logits")
    return x.with(LogSoftmaxOp::create(*x.builder, x.loc, x, 2));
  return inputs.settings.input == "probs" ? logProbability(x) : x;
}

/// A target ends at its first loss.ignore_index.
Expr lengthsByPadding(const LossInputs &inputs, const Expr &target) {
  auto type = tensorTypeOf(target);
  auto integers = [&](int64_t value) { return target.with(splatInt(*target.builder, target.loc, type, value)); };
  Expr place = target.with(IotaOp::create(*target.builder, target.loc, type, 1));
  Expr end = target.compare(CompareKind::eq, integers(inputs.settings.ignoreIndex))
                 .select(place, integers(type.getDimSize(1)));
  return target.with(reduce(*target.builder, target.loc, ReduceKind::min, end, {1})).reshape({type.getDimSize(0)});
}

LossResult buildCtc(const LossInputs &inputs) {
  Expr x = logProbabilities(inputs), target = inputs.target.cast(x.builder->getI64Type());
  int64_t samples = shapeOf(x)[0], steps = shapeOf(x)[1];
  auto lengthType = RankedTensorType::get({samples}, x.builder->getI64Type());
  Expr inputLengths =
      inputs.inputLengths ? *inputs.inputLengths : x.with(splatInt(*x.builder, x.loc, lengthType, steps));
  Expr targetLengths = inputs.targetLengths ? *inputs.targetLengths : lengthsByPadding(inputs, target);
  llvm::SmallVector<Type> types = {
      RankedTensorType::get({samples}, elementTypeOf(x)),
      RankedTensorType::get({samples, steps, 2 * shapeOf(target)[1] + 1}, elementTypeOf(x))};
  auto ctc = CtcOp::create(*x.builder, x.loc, types, x, target, inputLengths, targetLengths,
                           x.builder->getI64IntegerAttr(inputs.settings.blank));
  Expr loss = x.with(ctc.getLoss());
  if (inputs.settings.zeroInfinity)
    loss = loss.compare(CompareKind::eq, kInfinite).select(loss.like(0), loss);
  if (inputs.settings.reduction == "mean") {
    Expr length = targetLengths.cast(elementTypeOf(x));
    loss = loss / length.compare(CompareKind::lt, 1).select(length.like(1), length);
  }
  return reduceElements(loss, inputs);
}

std::optional<LossProblem> checkCtc(const LossInputs &inputs) {
  int64_t classes = shapeOf(inputs.prediction)[inputs.axes.classes];
  const LossSettings &settings = inputs.settings;
  auto text = [](int64_t number) { return std::to_string(number); };
  llvm::ArrayRef<int64_t> shape = shapeOf(inputs.prediction);
  const std::array<int64_t, 3> alphas = {shape[inputs.axes.samples], shape[inputs.axes.time],
                                         2 * shapeOf(inputs.target)[1] + 1};
  if (std::string problem =
          tensorProblem(alphas, uint64_t(elementBytes(elementTypeOf(inputs.prediction))));
      !problem.empty())
    return LossProblem{settings.maxTargetLength ? "loss.max_target_length" : "loss.target",
                       "ctc keeps [samples, steps, 2·labels + 1] = [" + text(alphas[0]) + ", " + text(alphas[1]) +
                           ", " + text(alphas[2]) + "] numbers for its gradient: " + problem +
                           "; use a smaller batch, or shorter targets"};
  if (settings.blank >= classes)
    return LossProblem{"loss.blank", "loss.blank: " + text(settings.blank) + " is no class: there are classes 0 to " +
                                         text(classes - 1) + " along axis " + text(inputs.axes.classes)};
  if (settings.ignoreIndex >= 0 && settings.ignoreIndex < classes && settings.ignoreIndex != settings.blank)
    return LossProblem{"loss.ignore_index", "loss.ignore_index: " + text(settings.ignoreIndex) +
                                                " is a class: targets are padded with loss.blank, or with a number "
                                                "that is no class, such as -100"};
  return std::nullopt;
}

} // namespace

const Loss kCtc{
    "ctc", LossTarget::Sequences, checkCtc, buildCtc, false, 1, llvm::StringLiteral(""), LossInput::LogProbabilities};

} // namespace tcc::train

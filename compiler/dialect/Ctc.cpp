//===- Ctc.cpp - CTC: checks, gradient, evaluator ---------------*- C++ -*-===//
#include "compiler/dialect/Ctc.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace mlir;

namespace tcc::train {

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

template <typename OpTy> static LogicalResult verifyCtc(OpTy op, Value loss, Value alphas) {
  if (shapeOf(op.getLogProbs()).size() != 3 || shapeOf(op.getTargets()).size() != 2)
    return op.emitOpError("needs log-probabilities [samples, steps, classes] and targets [samples, labels]");
  CtcShape s = ctcShapeOf(op);
  Type element = elementTypeOf(op.getLogProbs());
  using Shape = llvm::SmallVector<int64_t>;
  for (auto [value, shape] : {std::pair<Value, Shape>{op.getTargets(), {s.samples, s.labels}},
                              {op.getInputLengths(), {s.samples}},
                              {op.getTargetLengths(), {s.samples}},
                              {loss, {s.samples}},
                              {alphas, {s.samples, s.steps, s.states()}}}) {
    bool isFloat = value == loss || value == alphas;
    if (shapeOf(value) != llvm::ArrayRef(shape) || (isFloat && elementTypeOf(value) != element))
      return op.emitOpError("has an operand or result of the type ") << value.getType() << ", which does not fit";
  }
  if (s.blank < 0 || s.blank >= s.classes)
    return op.emitOpError("has a blank that is no class");
  return success();
}

LogicalResult CtcOp::verify() { return verifyCtc(*this, getLoss(), getAlphas()); }

LogicalResult CtcGradOp::verify() {
  if (getLossGrad().getType() != getLoss().getType() || getLogProbsGrad().getType() != getLogProbs().getType())
    return emitOpError("has gradients whose types are not those of their values");
  return verifyCtc(*this, getLoss(), getAlphas());
}

/// Each state costs three exponentials and a logarithm.
static double ctcFlops(const CtcShape &s) { return 120.0 * double(s.samples) * double(s.steps) * double(s.states()); }
double CtcOp::getFlops() { return ctcFlops(ctcShapeOf(*this)); }
double CtcGradOp::getFlops() { return 1.3 * ctcFlops(ctcShapeOf(*this)); }

/// The alphas have no gradient: only the backward recursion reads them.
void CtcOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                          llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(4);
  if (resultGradients[0])
    operandGradients[0] =
        CtcGradOp::create(builder, getLoc(), getLogProbs().getType(), resultGradients[0], getLogProbs(), getTargets(),
                          getInputLengths(), getTargetLengths(), getLoss(), getAlphas(), getBlankAttr());
}

//===----------------------------------------------------------------------===//
// The naive evaluator
//===----------------------------------------------------------------------===//
namespace {

constexpr double kCtcInfinity = std::numeric_limits<double>::infinity();

/// ln(e^a + e^b + e^c), computed relative to the largest.
double logSumOf(double a, double b, double c) {
  double most = b > a ? b : a;
  most = c > most ? c : most;
  if (most == -kCtcInfinity)
    most = 0;
  return most + std::log(std::exp(a - most) + std::exp(b - most) + std::exp(c - most));
}

/// One sample: its lengths, and the classes of its states.
struct CtcSample {
  const CtcShape &s;
  const HostTensor &logProbs, &targets;
  int64_t number, steps, states;

  CtcSample(const CtcShape &s, const HostTensor &logProbs, const HostTensor &targets, const HostTensor &inputLengths,
            const HostTensor &targetLengths, int64_t number)
      : s(s), logProbs(logProbs), targets(targets), number(number),
        steps(std::clamp<int64_t>(inputLengths.getInt(number), 0, s.steps)),
        states(2 * std::clamp<int64_t>(targetLengths.getInt(number), 0, s.labels) + 1) {}

  int64_t label(int64_t state) const { return state % 2 ? targets.getInt(number * s.labels + state / 2) : s.blank; }
  bool isClass(int64_t label) const { return label >= 0 && label < s.classes; }
  int64_t at(int64_t step, int64_t label) const {
    return (number * s.steps + step) * s.classes + (isClass(label) ? label : 0);
  }
  int64_t alphaAt(int64_t step, int64_t state) const { return (number * s.steps + step) * s.states() + state; }
  double logProb(int64_t step, int64_t state) const {
    return isClass(label(state)) ? logProbs.getDouble(at(step, label(state))) : std::nan("");
  }
  /// True where an alignment may go from state − 2 to `state`.
  bool skips(int64_t state) const { return state >= 2 && state < states && label(state) != label(state - 2); }
};

} // namespace

void CtcOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  CtcShape s = ctcShapeOf(*this);
  for (int64_t i = 0; i < results[1].size(); ++i)
    results[1].setDouble(i, -kCtcInfinity);
  for (int64_t n = 0; n < s.samples; ++n) {
    CtcSample sample(s, operands[0], operands[1], operands[2], operands[3], n);
    std::vector<double> alpha(size_t(sample.states), -kCtcInfinity);
    alpha[0] = 0;
    auto before = [&](int64_t state) { return state < 0 ? -kCtcInfinity : alpha[size_t(state)]; };
    for (int64_t t = 0; t < sample.steps; ++t) {
      std::vector<double> next(alpha.size());
      for (int64_t i = 0; i < sample.states; ++i) {
        double skipped = sample.skips(i) ? before(i - 2) : -kCtcInfinity;
        next[size_t(i)] = sample.logProb(t, i) + logSumOf(before(i), before(i - 1), skipped);
        results[1].setDouble(sample.alphaAt(t, i), next[size_t(i)]);
      }
      alpha = next;
    }
    results[0].setDouble(n, 0 - logSumOf(before(sample.states - 1), before(sample.states - 2), -kCtcInfinity));
  }
}

void CtcGradOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  CtcShape s = ctcShapeOf(*this);
  const HostTensor &lossGrad = operands[0], &loss = operands[5], &alphas = operands[6];
  std::vector<double> gradient(size_t(results[0].size()), 0.0);
  for (int64_t n = 0; n < s.samples; ++n) {
    CtcSample sample(s, operands[1], operands[2], operands[3], operands[4], n);
    // β of the next step, including that step's probabilities.
    std::vector<double> behind(size_t(sample.states), -kCtcInfinity);
    behind.back() = 0;
    auto after = [&](int64_t state) { return state < sample.states ? behind[size_t(state)] : -kCtcInfinity; };
    for (int64_t t = sample.steps - 1; t >= 0; --t) {
      std::vector<double> next(behind.size());
      for (int64_t i = 0; i < sample.states; ++i) {
        double beta = logSumOf(after(i), after(i + 1), sample.skips(i + 2) ? after(i + 2) : -kCtcInfinity);
        double both = alphas.getDouble(sample.alphaAt(t, i)) + beta;
        double posterior = both == -kCtcInfinity ? 0 : std::exp(both + loss.getDouble(n));
        gradient[size_t(sample.at(t, sample.label(i)))] -= lossGrad.getDouble(n) * posterior;
        next[size_t(i)] = beta + sample.logProb(t, i);
      }
      behind = next;
    }
  }
  for (int64_t i = 0; i < results[0].size(); ++i)
    results[0].setDouble(i, gradient[size_t(i)]);
}

} // namespace tcc::train

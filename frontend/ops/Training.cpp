//===- Training.cpp - optimizer steps as ops (ai.onnx.preview.training) ---===//
//
// Adagrad, Adam and Momentum of the standard's preview: plain arithmetic on their input tensors. Inputs are rate R,
// step count T, then all tensors X, all gradients, and the states.
//
//===----------------------------------------------------------------------===//
#include "frontend/NodeImport.h"

using namespace mlir;

namespace tcc::frontend {
namespace training { // named, since files share a translation unit
namespace {

using train::CompareKind;
using train::Expr;

constexpr std::string_view kDomain = "ai.onnx.preview.training";

struct Step {
  NodeImport &n;
  Expr rate, count;
  unsigned tensors;
  Expr group(unsigned which, unsigned i) const { return n.expr(2 + which * tensors + i); }
  Expr regularised(unsigned i) const {
    Expr x = group(0, i), g = group(1, i);
    double norm = n.floatAttr("norm_coefficient", 0);
    return norm == 0 ? g : x * norm + g;
  }
  /// R and T in the shape and type of x.
  Expr like(const Expr &number, const Expr &x) const {
    return number.cast(train::elementTypeOf(x)).reshape({}).broadcast(train::shapeOf(x));
  }
  void set(unsigned which, unsigned i, const Expr &value) const { (void)n.set(which * tensors + i, value); }
  /// b^T.
  Expr power(double base, const Expr &exponent) const {
    return exponent.with(
        train::PowOp::create(n.builder, n.loc, exponent.value.getType(), exponent.like(base), exponent).getResult());
  }
};

template <unsigned kGroups, typename Update> Status forEach(NodeImport &n, Update update) {
  if (n.inputs.size() < 2 + kGroups || (n.inputs.size() - 2) % kGroups)
    return error("{} inputs are not a rate, a count and {} groups of tensors", n.inputs.size(), kGroups);
  Step step{n, n.expr(0), n.expr(1), unsigned(n.inputs.size() - 2) / kGroups};
  for (unsigned i = 0; i < step.tensors; ++i) {
    for (unsigned group = 1; group < kGroups; ++group)
      if (step.group(group, i).value.getType() != step.group(0, i).value.getType())
        return error("{} and {} belong to one tensor, and differ", typeText(step.group(group, i)),
                           typeText(step.group(0, i)));
    update(step, i);
  }
  return Status::success();
}

Status adagrad(NodeImport &n) {
  return forEach<3>(n, [&](const Step &s, unsigned i) {
    Expr x = s.group(0, i), g = s.regularised(i), squares = s.group(2, i) + g * g;
    Expr rate = s.like(s.rate, x) / (1.0 + s.like(s.count, x) * n.floatAttr("decay_factor", 0));
    s.set(0, i, x - rate * g / (squares.apply<train::SqrtOp>() + n.floatAttr("epsilon", 1e-6)));
    s.set(1, i, squares);
  });
}

Status adam(NodeImport &n) {
  const double alpha = n.floatAttr("alpha", 0.9), beta = n.floatAttr("beta", 0.999);
  return forEach<4>(n, [&](const Step &s, unsigned i) {
    Expr x = s.group(0, i), g = s.regularised(i);
    Expr mean = s.group(2, i) * alpha + g * (1 - alpha), squares = s.group(3, i) * beta + g * g * (1 - beta);
    Expr count = s.like(s.count, x), started = count.compare(CompareKind::gt, 0);
    // No correction before the first step.
    Expr correction = (1.0 - s.power(beta, count)).apply<train::SqrtOp>() / (1.0 - s.power(alpha, count));
    Expr rate = s.like(s.rate, x) * started.select(correction, correction.like(1));
    Expr next = x - rate * (mean / (squares.apply<train::SqrtOp>() + n.floatAttr("epsilon", 1e-6)));
    double after = n.floatAttr("norm_coefficient_post", 0);
    s.set(0, i, after == 0 ? next : next * (1 - after));
    s.set(1, i, mean);
    s.set(2, i, squares);
  });
}

Status momentum(NodeImport &n) {
  const double alpha = n.floatAttr("alpha", 0), beta = n.floatAttr("beta", 0);
  const std::string mode = n.stringAttr("mode", "standard");
  if (mode != "standard" && mode != "nesterov")
    return error("mode is \"{}\"; it must be standard or nesterov", mode);
  return forEach<3>(n, [&](const Step &s, unsigned i) {
    Expr x = s.group(0, i), g = s.regularised(i), started = s.like(s.count, x).compare(CompareKind::gt, 0);
    Expr velocity = s.group(2, i) * alpha + started.select(g.like(beta), g.like(1)) * g;
    s.set(0, i, x - s.like(s.rate, x) * (mode == "standard" ? velocity : g + velocity * alpha));
    s.set(1, i, velocity);
  });
}

constexpr OpEntry kTable[] = {
    {"Adagrad", 5, adagrad, 1, 1, kDomain},
    {"Adam", 6, adam, 1, 1, kDomain},
    {"Momentum", 5, momentum, 1, 1, kDomain},
};

} // namespace
} // namespace training

std::span<const OpEntry> trainingOps() { return training::kTable; }

} // namespace tcc::frontend

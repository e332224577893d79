//===- Activations.cpp - activation functions -----------------------------===//
//
// If PyTorch has the function, it is written with a select on the condition that PyTorch tests, so that derivatives at
// kinks are PyTorch's.
//
//===----------------------------------------------------------------------===//
#include "frontend/NodeImport.h"

using namespace mlir;

namespace tcc::frontend {
namespace activation { // named, since files share a translation unit
namespace {

using train::CompareKind;
using train::Expr;

template <typename OpTy> Expr call(const Expr &x) {
  return x.with(OpTy::create(*x.builder, x.loc, x.value.getType(), x.value).getResult());
}
Expr tanhOf(const Expr &x) { return call<train::TanhOp>(x); }
Expr sigmoidOf(const Expr &x) { return call<train::SigmoidOp>(x); }
Expr choose(const Expr &condition, const Expr &x, const Expr &y) { return condition.select(x, y); }
Expr positive(const Expr &x) { return x.compare(CompareKind::gt, 0); }

/// e^x − 1 for x ≤ 0; for larger x the result is not used, but must not overflow.
Expr expm1Below(const Expr &x) { return call<train::Expm1Op>(choose(positive(x), x.like(0), x)); }
/// Clamps x to two bounds; if they cross, the result is the upper bound; the derivative at the bounds is 0, as in
/// PyTorch, and NaN stays.
Expr clampOf(const Expr &x, const Expr &low, const Expr &high) {
  Expr raised = choose(x.compare(CompareKind::le, low), low, x);
  return choose(raised.compare(CompareKind::ge, high), high, raised);
}
Expr hardSigmoidOf(const Expr &x, double alpha, double beta) {
  Expr line = x * alpha + beta;
  return choose(line.compare(CompareKind::le, 0), x.like(0),
                choose(line.compare(CompareKind::ge, 1), x.like(1), line));
}

template <typename OpTy> Status simple(NodeImport &n) { return n.result(call<OpTy>(n.expr(0))); }

Status gelu(NodeImport &n) {
  bool tanh = n.stringAttr("approximate", "none") == "tanh";
  return n.result(train::GeluOp::create(n.builder, n.loc, n.in(0).getType(), n.in(0), tanh));
}
Status leakyRelu(NodeImport &n) {
  Expr x = n.expr(0);
  return n.result(choose(positive(x), x, x * n.floatAttr("alpha", 0.01)));
}
Status parametricRelu(NodeImport &n) {
  Expr x = n.expr(0);
  if (train::broadcastShapes(n.shape(0), n.shape(1)) != Shape(n.shape(0)))
    return error("slope {} does not broadcast to {}", typeText(n.in(1)), typeText(n.in(0)));
  return n.result(choose(positive(x), x, x * n.expr(1)));
}
Status elu(NodeImport &n) {
  Expr x = n.expr(0);
  return n.result(choose(positive(x), x, expm1Below(x) * n.floatAttr("alpha", 1)));
}
Status selu(NodeImport &n) {
  Expr x = n.expr(0);
  double alpha = n.floatAttr("alpha", 1.67326319217681884765625),
         gamma = n.floatAttr("gamma", 1.05070102214813232421875);
  return n.result(choose(positive(x), x, expm1Below(x) * alpha) * gamma);
}
Status celu(NodeImport &n) {
  Expr x = n.expr(0);
  double alpha = n.floatAttr("alpha", 1);
  return n.result(choose(positive(x), x, expm1Below(x / alpha) * alpha));
}
Status softsign(NodeImport &n) { return n.result(n.expr(0) / (call<train::AbsOp>(n.expr(0)) + 1.0)); }
Status mish(NodeImport &n) { return n.result(n.expr(0) * tanhOf(call<train::SoftplusOp>(n.expr(0)))); }
Expr swishOf(const Expr &x, double alpha) { return alpha == 1 ? x.apply<train::SiluOp>() : x * sigmoidOf(x * alpha); }
Status swish(NodeImport &n) { return n.result(swishOf(n.expr(0), n.floatAttr("alpha", 1))); }
/// swish(a)·b.
Status swiglu(NodeImport &n) {
  if (n.in(0).getType() != n.in(1).getType())
    return error("gate {} and value {} differ", typeText(n.in(0)), typeText(n.in(1)));
  return n.result(swishOf(n.expr(0), n.floatAttr("alpha", 1)) * n.expr(1));
}
Status hardSigmoid(NodeImport &n) {
  return n.result(hardSigmoidOf(n.expr(0), n.floatAttr("alpha", 0.2), n.floatAttr("beta", 0.5)));
}
Status hardSwish(NodeImport &n) { return n.result(n.expr(0) * hardSigmoidOf(n.expr(0), 1.0 / 6, 0.5)); }
Status thresholdedRelu(NodeImport &n) {
  Expr x = n.expr(0);
  return n.result(choose(x.compare(CompareKind::gt, n.floatAttr("alpha", 1)), x, x.like(0)));
}
Status shrink(NodeImport &n) {
  Expr x = n.expr(0);
  double lambda = n.floatAttr("lambd", 0.5), bias = n.floatAttr("bias", 0);
  return n.result(choose(x.compare(CompareKind::lt, -lambda), x + bias,
                         choose(x.compare(CompareKind::gt, lambda), x - bias, x.like(0))));
}

/// Bounds as attributes up to opset 10, as optional scalar inputs from 11 on.
Status clip(NodeImport &n) {
  Expr x = n.expr(0);
  std::optional<Expr> low, high;
  if (n.attribute("min"))
    low = x.like(n.floatAttr("min", 0));
  if (n.attribute("max"))
    high = x.like(n.floatAttr("max", 0));
  auto bound = [&](unsigned i) { return n.expr(n.broadcast(n.reshape(n.in(i), {}), n.shape(0))); };
  for (unsigned i : {1u, 2u})
    if (n.has(i) && countOf(n.shape(i)) != 1)
      return error("a bound must be one number, not {}", typeText(n.in(i)));
  if (n.has(1))
    low = bound(1);
  if (n.has(2))
    high = bound(2);
  if (low && high)
    return n.result(clampOf(x, *low, *high));
  if (low)
    return n.result(choose(x.compare(CompareKind::le, *low), *low, x));
  if (high)
    return n.result(choose(x.compare(CompareKind::ge, *high), *high, x));
  return n.result(x);
}

constexpr OpEntry kTable[] = {
    {"Relu", 1, simple<train::ReluOp>},
    {"Tanh", 1, simple<train::TanhOp>},
    {"Sigmoid", 1, simple<train::SigmoidOp>},
    {"Erf", 1, simple<train::ErfOp>},
    {"Gelu", 1, gelu},
    {"LeakyRelu", 1, leakyRelu},
    {"PRelu", 2, parametricRelu},
    {"Elu", 1, elu},
    {"Selu", 1, selu},
    {"Celu", 1, celu},
    {"Softplus", 1, simple<train::SoftplusOp>},
    {"Softsign", 1, softsign},
    {"Mish", 1, mish},
    {"Swish", 1, swish},
    {"SwiGLU", 2, swiglu},
    {"HardSigmoid", 1, hardSigmoid},
    {"HardSwish", 1, hardSwish},
    {"ThresholdedRelu", 1, thresholdedRelu},
    {"Shrink", 1, shrink},
    {"Clip", 1, clip},
    {"Gelu", 1, gelu, 1, 1, "com.microsoft"},
};

} // namespace
} // namespace activation

std::span<const OpEntry> activationOps() { return activation::kTable; }

} // namespace tcc::frontend

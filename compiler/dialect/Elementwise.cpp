//===- Elementwise.cpp - pointwise ops of one operand -----------*- C++ -*-===//
//
// One entry per op: its naive evaluator (in double or int64), its scalar program and its gradient. In an entry x is the
// operand, y the result, g the gradient of the result.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/ElementwiseMath.h"
#include "compiler/dialect/Lane.h"
#include "compiler/dialect/Pointwise.h"

#include <cmath>
#include <numbers>

using namespace mlir;

namespace tcc::train {

static constexpr double kSqrtHalf = 0.70710678118654752440;         // 1/√2
static constexpr double kTwoOverSqrtPi = 1.12837916709551257390;    // 2/√π
static constexpr double kInvSqrtTwoPi = 0.39894228040143267794;     // 1/√(2π)
static constexpr double kSqrtTwoOverPi = 0.79788456080286535588;    // √(2/π)
static constexpr double kGeluCubic = 0.044715;

template <typename Float, typename Int>
static void map(llvm::ArrayRef<HostTensor> operands, HostTensor &result, Float onFloat, Int onInt) {
  for (int64_t i = 0; i < result.size(); ++i)
    if (operands[0].isFloat())
      result.setDouble(i, onFloat(operands[0].getDouble(i)));
    else
      result.setInt(i, onInt(operands[0].getInt(i)));
}

// NOLINTBEGIN(bugprone-macro-parentheses): the arguments are whole expressions.
#define TCC_VALUE(OP, FLOPS, VALUE, INT_VALUE)                                                                         \
  TCC_POINTWISE(OP, FLOPS)                                                                                             \
  void OP::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {                  \
    [[maybe_unused]] bool isUnsigned = elementTypeOf(getInput()).isUnsignedInteger();                                  \
    map(                                                                                                               \
        operands, results[0], [&](double x) -> double { return VALUE; },                                               \
        [&](int64_t x) -> int64_t { return INT_VALUE; });                                                              \
  }
#define TCC_BODY(OP, BODY, INT_BODY)                                                                                   \
  Value OP::emitElement(ElementBuilder &b, unsigned result, llvm::ArrayRef<Coord> coords) {                            \
    [[maybe_unused]] bool isUnsigned = elementTypeOf(getInput()).isUnsignedInteger();                                  \
    Lane x(b, b.operand(0, coords));                                                                                   \
    if (x.isFloat())                                                                                                   \
      return BODY;                                                                                                     \
    return INT_BODY;                                                                                                   \
  }
#define TCC_GRADIENT(OP, GRADIENT)                                                                                     \
  void OP::buildGradient(OpBuilder &builder, ValueRange resultGradients,                                               \
                         llvm::SmallVectorImpl<Value> &operandGradients) {                                             \
    operandGradients.resize(1);                                                                                        \
    if (!resultGradients[0] || !isFloatTensor(getInput()))                                                             \
      return;                                                                                                          \
    Expr g(builder, getLoc(), resultGradients[0]);                                                                     \
    [[maybe_unused]] Expr x = g.with(getInput()), y = g.with(getResult());                                             \
    operandGradients[0] = GRADIENT;                                                                                    \
  }
#define TCC_UNARY(OP, FLOPS, VALUE, BODY, GRADIENT)                                                                    \
  TCC_VALUE(OP, FLOPS, VALUE, x)                                                                                       \
  TCC_BODY(OP, BODY, x)                                                                                                \
  TCC_GRADIENT(OP, GRADIENT)
#define TCC_UNARY_ANY(OP, FLOPS, VALUE, INT_VALUE, BODY, INT_BODY, GRADIENT)                                           \
  TCC_VALUE(OP, FLOPS, VALUE, INT_VALUE)                                                                               \
  TCC_BODY(OP, BODY, INT_BODY)                                                                                         \
  TCC_GRADIENT(OP, GRADIENT)
#define TCC_UNARY_FLAT(OP, FLOPS, VALUE, INT_VALUE, BODY, INT_BODY)                                                    \
  TCC_VALUE(OP, FLOPS, VALUE, INT_VALUE)                                                                               \
  TCC_BODY(OP, BODY, INT_BODY)

/// Whether the op's elements are computed by the machine's approximations.
static bool isNear(Operation *op, ElementBuilder &b) {
  return op->hasAttr(names::kOfNarrow) && b.approximates() && !elementTypeOf(op->getResult(0)).isF64();
}

static double signOf(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }
static Expr signExpr(const Expr &x) { return x.apply<SignOp>(); }
static Lane intSign(Lane x, bool isUnsigned) {
  Lane zero = x.likeInt(0), one = x.likeInt(1);
  return equal(x, zero).select(zero, isUnsigned ? one : less(x, zero).select(x.likeInt(-1), one));
}

// g·(−1)
TCC_UNARY_ANY(NegOp, 1, -x, int64_t(-uint64_t(x)), -x, -x, -g)
// g·sign(x), which is 0 at 0
TCC_UNARY_ANY(AbsOp, 1, std::fabs(x), x < 0 && !isUnsigned ? int64_t(-uint64_t(x)) : x, x.abs(),
              isUnsigned ? x : less(x, 0).select(-x, x), g * signExpr(x))
// g·e^x
TCC_UNARY(ExpOp, 12, std::exp(x), emitExp(b, x, isNear(*this, b)), g * y)
// g·e^x
TCC_UNARY(Expm1Op, 13, std::expm1(x), emitExpm1(b, x), g * (y + 1.0))
// g/x
TCC_UNARY(LogOp, 14, std::log(x), emitLog(b, x), g / x)
// g/(1 + x)
TCC_UNARY(Log1pOp, 18, std::log1p(x), emitLog1p(b, x), g / (1.0 + x))
// g/(2√x)
TCC_UNARY(SqrtOp, 1, std::sqrt(x), x.sqrt(), g / (2.0 * y))
// −g·x^(−3/2)/2
TCC_UNARY(RsqrtOp, 2, 1 / std::sqrt(x), 1.0 / x.sqrt(), -0.5 * (g * (y * y * y)))
// g·(1 − tanh²x)
TCC_UNARY(TanhOp, 18, std::tanh(x), emitTanh(b, x, isNear(*this, b)), g * (1.0 - y * y))
// g·σ(x)·(1 − σ(x))
TCC_UNARY(SigmoidOp, 15, 1 / (1 + std::exp(-x)), emitSigmoid(b, x, isNear(*this, b)), g * (y * (1.0 - y)))
// g·(σ(x) + y·(1 − σ(x)))
TCC_UNARY(SiluOp, 17, x / (1 + std::exp(-x)), emitSilu(b, x, isNear(*this, b)),
          g * (y + x.apply<SigmoidOp>() * (1.0 - y)))
// g·σ(x)
TCC_UNARY(SoftplusOp, 35, std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))), emitSoftplus(b, x, isNear(*this, b)),
          g *x.apply<SigmoidOp>())
// g·2/√π·e^(−x²)
TCC_UNARY(ErfOp, 25, std::erf(x), emitErf(b, x, isNear(*this, b)), g * (kTwoOverSqrtPi * (-(x * x)).exp()))
// g·cos x
TCC_UNARY(SinOp, 20, std::sin(x), emitSin(b, x), g * x.apply<CosOp>())
// −g·sin x
TCC_UNARY(CosOp, 20, std::cos(x), emitCos(b, x), -(g * x.apply<SinOp>()))
// g·(1 + tan²x)
TCC_UNARY(TanOp, 45, std::tan(x), emitTan(b, x), g * (1.0 + y * y))
// ±g/√(1 − x²)
TCC_UNARY(AsinOp, 45, std::asin(x), emitAsin(b, x), g * ((1.0 - x) * (1.0 + x)).apply<RsqrtOp>())
TCC_UNARY(AcosOp, 45, std::acos(x), emitAcos(b, x), -(g * ((1.0 - x) * (1.0 + x)).apply<RsqrtOp>()))
// g/(1 + x²)
TCC_UNARY(AtanOp, 25, std::atan(x), emitAtan(b, x), g / (1.0 + x * x))
// g·cosh x and g·sinh x
TCC_UNARY(SinhOp, 45, std::sinh(x), emitSinh(b, x), g * x.apply<CoshOp>())
TCC_UNARY(CoshOp, 25, std::cosh(x), emitCosh(b, x), g * x.apply<SinhOp>())
// g/√(x² + 1), g/√(x² − 1), g/(1 − x²)
TCC_UNARY(AsinhOp, 50, std::asinh(x), emitAsinh(b, x), g * (x * x + 1.0).apply<RsqrtOp>())
TCC_UNARY(AcoshOp, 50, std::acosh(x), emitAcosh(b, x), g * ((x - 1.0) * (x + 1.0)).apply<RsqrtOp>())
TCC_UNARY(AtanhOp, 30, std::atanh(x), emitAtanh(b, x), g / ((1.0 - x) * (1.0 + x)))
// g where x > 0. Tests y > 0, which is equivalent, since y is more often kept
TCC_UNARY_ANY(ReluOp, 1, x <= 0 ? 0 : x, x < 0 && !isUnsigned ? 0 : x,
              x.make<arith::MaximumFOp>(x.value, x.like(0).value), isUnsigned ? x : less(x, 0).select(x.like(0), x),
              y.compare(CompareKind::gt, 0).select(g, g.like(0)))

TCC_UNARY_FLAT(FloorOp, 1, std::floor(x), x, x.floor(), x)
TCC_UNARY_FLAT(CeilOp, 1, std::ceil(x), x, x.make<math::CeilOp>(x.value), x)
TCC_UNARY_FLAT(RoundOp, 1, std::nearbyint(x), x, x.roundEven(), x)
TCC_UNARY_FLAT(SignOp, 2, signOf(x), x == 0 ? 0 : x < 0 && !isUnsigned ? -1 : 1,
               greater(x, 0).select(x.like(1), less(x, 0).select(x.like(-1), x)), intSign(x, isUnsigned))
TCC_UNARY_FLAT(StopGradientOp, 0, x, x, x, x)
TCC_UNARY_FLAT(NotOp, 1, x, ~x, x, x ^ x.likeInt(-1))

TCC_VALUE(IsNanOp, 1, std::isnan(x), x)
TCC_BODY(IsNanOp, isNan(x), x)
TCC_VALUE(IsFiniteOp, 1, std::isfinite(x), x)
TCC_BODY(IsFiniteOp, less(x.abs(), HUGE_VAL), x)
// NOLINTEND(bugprone-macro-parentheses)

TCC_POINTWISE(GeluOp, 30)
TCC_POINTWISE(GeluDerivativeOp, 36)

void GeluOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  auto gelu = [&](double x) {
    return getTanh() ? 0.5 * x * (1 + std::tanh(kSqrtTwoOverPi * (x + kGeluCubic * x * x * x)))
                     : 0.5 * x * std::erfc(-x * kSqrtHalf);
  };
  map(operands, results[0], gelu, [](int64_t x) { return x; });
}
void GeluDerivativeOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  auto derivative = [&](double x) {
    if (std::fabs(x) > 1e3) // the limits, where x·0 may be ∞·0
      return x > 0 ? 1.0 : 0.0;
    if (!getTanh())
      return 0.5 * std::erfc(-x * kSqrtHalf) + x * kInvSqrtTwoPi * std::exp(-0.5 * x * x);
    // With t = tanh(u), u = k(x + cx³): (1 + t)/2 + x/2·(1 − t²)·k(1 + 3cx²).
    double u = kSqrtTwoOverPi * (x + kGeluCubic * x * x * x), cosh = std::cosh(u);
    return 1 / (1 + std::exp(-2 * u)) + 0.5 * x / (cosh * cosh) * kSqrtTwoOverPi * (1 + 3 * kGeluCubic * x * x);
  };
  map(operands, results[0], derivative, [](int64_t x) { return x; });
}

Value GeluOp::emitElement(ElementBuilder &b, unsigned result, llvm::ArrayRef<Coord> coords) {
  return emitGelu(b, b.operand(0, coords), getTanh(), isNear(*this, b));
}
Value GeluDerivativeOp::emitElement(ElementBuilder &b, unsigned result, llvm::ArrayRef<Coord> coords) {
  return emitGeluDerivative(b, b.operand(0, coords), getTanh(), isNear(*this, b));
}

void GeluOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                           llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(1);
  if (!resultGradients[0])
    return;
  Expr g(builder, getLoc(), resultGradients[0]);
  operandGradients[0] =
      g * g.with(GeluDerivativeOp::create(builder, getLoc(), getInput().getType(), getInput(), getTanh()));
}

void GeluDerivativeOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                     llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(1);
  if (!resultGradients[0])
    return;
  Expr g(builder, getLoc(), resultGradients[0]), x = g.with(getInput());
  if (getTanh()) {
    // With s = σ(v), v = 2k(x + cx³): (s + x·s′)′ = 2s′ + x·s″, s′ = s(1 − s)v′, s″ = s(1 − s)((1 − 2s)v′² + v″).
    Expr s = (2 * kSqrtTwoOverPi * (x + kGeluCubic * (x * x * x))).apply<SigmoidOp>();
    Expr first = 2 * kSqrtTwoOverPi * (1.0 + 3 * kGeluCubic * (x * x)), second = 12 * kSqrtTwoOverPi * kGeluCubic * x;
    operandGradients[0] = g * (s * (1.0 - s) * (2.0 * first + x * ((1.0 - 2.0 * s) * first * first + second)));
  } else {
    // φ(x)·(2 − x²).
    operandGradients[0] = g * (kInvSqrtTwoPi * (-0.5 * (x * x)).exp() * (2.0 - x * x));
  }
}

} // namespace tcc::train

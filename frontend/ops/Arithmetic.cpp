//===- Arithmetic.cpp - elementwise arithmetic, comparison, logic, cast ---===//
#include "frontend/NodeImport.h"

#include <cmath>

using namespace mlir;

namespace tcc::frontend {
namespace arithmetic { // a name, since files share a translation unit
namespace {

using plan::Status;
using train::Expr;

template <typename OpTy> Status unary(NodeImport &n) {
  return n.result(OpTy::create(n.builder, n.loc, n.in(0).getType(), n.in(0)));
}

template <typename OpTy> Expr apply(NodeImport &n, const Expr &x, const Expr &y) {
  return n.expr(OpTy::create(n.builder, n.loc, x.value.getType(), x.value, y.value).getResult());
}

template <typename OpTy> Status binary(NodeImport &n) {
  TCC_TRY(operands, n.common(n.in(0), n.in(1)));
  return n.result(apply<OpTy>(n, operands.first, operands.second));
}

/// Sum, Max, Min of any number of inputs, left to right.
template <typename OpTy> Status variadic(NodeImport &n) {
  Value result = n.in(0);
  for (unsigned i = 1; i < n.inputs.size(); ++i) {
    TCC_TRY(operands, n.common(result, n.in(i)));
    result = apply<OpTy>(n, operands.first, operands.second);
  }
  return n.result(result);
}

Status mean(NodeImport &n) {
  if (Status status = variadic<train::AddOp>(n); !status.ok())
    return status;
  return n.result(n.expr(n.outputs[0].tensor) / double(n.inputs.size()));
}

template <train::CompareKind kind> Status comparison(NodeImport &n) {
  TCC_TRY(operands, n.common(n.in(0), n.in(1)));
  return n.result(train::compare(n.builder, n.loc, kind, operands.first, operands.second));
}

Status reciprocal(NodeImport &n) { return n.result(1.0 / n.expr(0)); }

/// Python's modulus (sign of the divisor), or C's fmod.
Status mod(NodeImport &n) {
  TCC_TRY(operands, n.common(n.in(0), n.in(1)));
  auto [x, y] = operands;
  Expr remainder = apply<train::RemOp>(n, x, y);
  Type element = train::elementTypeOf(x);
  if (n.intAttr("fmod", 0) || element.isUnsignedInteger())
    return n.result(remainder);
  Expr wrong = apply<train::XorOp>(n, remainder.compare(train::CompareKind::lt, 0), y.compare(train::CompareKind::lt, 0));
  Expr uneven = remainder.compare(train::CompareKind::ne, 0);
  return n.result(apply<train::AndOp>(n, wrong, uneven).select(remainder + y, remainder));
}

/// Small constant exponents become products and roots, as in PyTorch: faster, and exact where pow is not.
std::optional<Expr> simplePower(NodeImport &n, const Expr &x, double exponent) {
  auto root = [&] { return n.expr(train::SqrtOp::create(n.builder, n.loc, x.value.getType(), x.value).getResult()); };
  auto rsqrt = [&] { return n.expr(train::RsqrtOp::create(n.builder, n.loc, x.value.getType(), x.value).getResult()); };
  if (exponent == 1)
    return x;
  if (exponent == 2)
    return x * x;
  if (exponent == 3)
    return x * x * x;
  if (!train::isFloatTensor(x))
    return std::nullopt;
  if (exponent == 0.5)
    return root();
  if (exponent == -0.5)
    return rsqrt();
  if (exponent == -1)
    return 1.0 / x;
  if (exponent == -2)
    return 1.0 / (x * x);
  return std::nullopt;
}

Status power(NodeImport &n) {
  std::optional<Shape> shape = train::broadcastShapes(n.shape(0), n.shape(1));
  if (!shape)
    return plan::error("{} and {} do not broadcast together", typeText(n.in(0)), typeText(n.in(1)));
  Type element = train::elementTypeOf(n.in(0));
  if (DenseElementsAttr exponent = n.constantOf(n.in(1)); exponent && countOf(n.shape(1)) == 1) {
    train::HostTensor tensor = train::HostTensor::fromAttribute(exponent);
    double value = tensor.isFloat() ? tensor.getDouble(0) : double(tensor.getInt(0));
    if (std::optional<Expr> result = simplePower(n, n.expr(0).broadcast(*shape), value))
      return n.result(*result);
  }
  // pow is floating point; integer bases go through f64, exact up to 2^53.
  Type computed = isa<FloatType>(element) ? element : Type(n.builder.getF64Type());
  Expr x = n.expr(0).cast(computed).broadcast(*shape), y = n.expr(1).cast(computed).broadcast(*shape);
  return n.result(apply<train::PowOp>(n, x, y).cast(element));
}

Status where(NodeImport &n) {
  TCC_TRY(values, n.common(n.in(1), n.in(2)));
  TCC_TRY(first, n.common(n.in(0), values.first));
  return n.result(first.first.select(first.second, values.second.broadcast(train::shapeOf(first.second))));
}

Status castTo(NodeImport &n, Type element) {
  return n.result(n.expr(0).cast(element));
}

Status cast(NodeImport &n) {
  int64_t to = n.intAttr("to", 0);
  Type element = n.elementType(int32_t(to));
  if (!element)
    return plan::error("casts to {} are not supported", onnx::TensorProto_DataType_IsValid(int(to))
                                                             ? onnx::TensorProto_DataType_Name(onnx::TensorProto_DataType(to))
                                                             : std::to_string(to));
  return castTo(n, element);
}

Status castLike(NodeImport &n) { return castTo(n, train::elementTypeOf(n.in(1))); }

Status isNan(NodeImport &n) {
  return n.result(train::IsNanOp::create(n.builder, n.loc, n.type(n.shape(0), n.i1()), n.in(0)));
}

Status isInf(NodeImport &n) {
  const double infinity = std::numeric_limits<double>::infinity();
  bool positive = n.intAttr("detect_positive", 1), negative = n.intAttr("detect_negative", 1);
  Expr x = n.expr(0);
  if (positive && negative) {
    Expr magnitude = n.expr(train::AbsOp::create(n.builder, n.loc, x.value.getType(), x.value).getResult());
    return n.result(magnitude.compare(train::CompareKind::eq, infinity));
  }
  if (positive || negative)
    return n.result(x.compare(train::CompareKind::eq, positive ? infinity : -infinity));
  return n.result(n.splat(n.shape(0), n.i1(), 0));
}

/// tan, sinh, cosh and the inverses that logarithms give.
Status tangent(NodeImport &n) {
  Expr x = n.expr(0);
  return n.result(x.apply<train::SinOp>() / x.apply<train::CosOp>());
}
Status hyperbolicSine(NodeImport &n) { return n.result((n.expr(0).exp() - (-n.expr(0)).exp()) * 0.5); }
Status hyperbolicCosine(NodeImport &n) { return n.result((n.expr(0).exp() + (-n.expr(0)).exp()) * 0.5); }
Status inverseHyperbolicSine(NodeImport &n) {
  Expr x = n.expr(0), sign = x.apply<train::SignOp>(), a = x * sign;
  // asinh |x| = log1p(|x| + x²/(1 + √(x² + 1))) keeps its precision around 0.
  Expr root = (a * a + 1.0).apply<train::SqrtOp>();
  return n.result(sign * (a + a * a / (root + 1.0)).apply<train::Log1pOp>());
}
Status inverseHyperbolicCosine(NodeImport &n) {
  Expr x = n.expr(0);
  return n.result((x + (x * x - 1.0).apply<train::SqrtOp>()).log());
}
Status inverseHyperbolicTangent(NodeImport &n) {
  Expr x = n.expr(0);
  return n.result(((2.0 * x) / (1.0 - x)).apply<train::Log1pOp>() * 0.5);
}

Status identity(NodeImport &n) {
  n.outputs = {n.inputs[0]};
  return Status::success();
}

using train::CompareKind;
constexpr OpEntry kTable[] = {
    {"Add", 2, binary<train::AddOp>},
    {"Sub", 2, binary<train::SubOp>},
    {"Mul", 2, binary<train::MulOp>},
    {"Div", 2, binary<train::DivOp>},
    {"Pow", 2, power},
    {"Mod", 2, mod},
    {"And", 2, binary<train::AndOp>},
    {"Or", 2, binary<train::OrOp>},
    {"Xor", 2, binary<train::XorOp>},
    {"BitwiseAnd", 2, binary<train::AndOp>},
    {"BitwiseOr", 2, binary<train::OrOp>},
    {"BitwiseXor", 2, binary<train::XorOp>},
    {"BitwiseNot", 1, unary<train::NotOp>},
    {"Not", 1, unary<train::NotOp>},
    {"Sum", 1, variadic<train::AddOp>},
    {"Max", 1, variadic<train::MaxOp>},
    {"Min", 1, variadic<train::MinOp>},
    {"Mean", 1, mean},
    {"Equal", 2, comparison<CompareKind::eq>},
    {"Less", 2, comparison<CompareKind::lt>},
    {"LessOrEqual", 2, comparison<CompareKind::le>},
    {"Greater", 2, comparison<CompareKind::gt>},
    {"GreaterOrEqual", 2, comparison<CompareKind::ge>},
    {"Where", 3, where},
    {"Neg", 1, unary<train::NegOp>},
    {"Abs", 1, unary<train::AbsOp>},
    {"Exp", 1, unary<train::ExpOp>},
    {"Log", 1, unary<train::LogOp>},
    {"Sqrt", 1, unary<train::SqrtOp>},
    {"Reciprocal", 1, reciprocal},
    {"Floor", 1, unary<train::FloorOp>},
    {"Ceil", 1, unary<train::CeilOp>},
    {"Round", 1, unary<train::RoundOp>},
    {"Sign", 1, unary<train::SignOp>},
    {"Sin", 1, unary<train::SinOp>},
    {"Cos", 1, unary<train::CosOp>},
    {"Atan", 1, unary<train::AtanOp>},
    {"Tan", 1, tangent},
    {"Sinh", 1, hyperbolicSine},
    {"Cosh", 1, hyperbolicCosine},
    {"Asinh", 1, inverseHyperbolicSine},
    {"Acosh", 1, inverseHyperbolicCosine},
    {"Atanh", 1, inverseHyperbolicTangent},
    {"IsNaN", 1, isNan},
    {"IsInf", 1, isInf},
    {"Cast", 1, cast},
    {"CastLike", 2, castLike},
    {"Identity", 1, identity, 1, 28, "", true},
};

} // namespace
} // namespace arithmetic

std::span<const OpEntry> arithmeticOps() { return arithmetic::kTable; }

} // namespace tcc::frontend

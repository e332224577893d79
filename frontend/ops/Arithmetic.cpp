//===- Arithmetic.cpp - elementwise arithmetic, comparison, logic, cast ---===//
#include "frontend/ops/Modes.h"

#include <cmath>

using namespace mlir;

namespace tcc::frontend {
namespace arithmetic { // named, since files share a translation unit
namespace {

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

Status division(NodeImport &n) {
  if (Value factor = drawnDropout(n))
    return n.result(factor);
  return binary<train::DivOp>(n);
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

/// Max and Min of more than two: a reduction over the stacked inputs, so that a tie of many shares its gradient
/// equally.
template <typename OpTy, train::ReduceKind kind> Status extreme(NodeImport &n) {
  if (n.inputs.size() <= 2)
    return variadic<OpTy>(n);
  Shape shape(n.shape(0));
  for (unsigned i = 1; i < n.inputs.size(); ++i) {
    std::optional<Shape> together = train::broadcastShapes(shape, n.shape(i));
    if (!together)
      return error("{} does not broadcast with the inputs before it, {}", typeText(n.in(i)), shapeText(shape));
    shape = *together;
  }
  Shape single(shape), stacked(shape);
  single.insert(single.begin(), 1);
  stacked.insert(stacked.begin(), int64_t(n.inputs.size()));
  llvm::SmallVector<Value> layers;
  for (unsigned i = 0; i < n.inputs.size(); ++i)
    layers.push_back(n.reshape(n.broadcast(n.in(i), shape), single));
  Value stack = train::ConcatOp::create(n.builder, n.loc, n.type(stacked, train::elementTypeOf(n.in(0))), layers, 0);
  return n.result(n.reshape(train::reduce(n.builder, n.loc, kind, stack, {0}), shape));
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
  Expr wrong =
      apply<train::XorOp>(n, remainder.compare(train::CompareKind::lt, 0), y.compare(train::CompareKind::lt, 0));
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
    return error("{} and {} do not broadcast together", typeText(n.in(0)), typeText(n.in(1)));
  Type element = train::elementTypeOf(n.in(0));
  if (DenseElementsAttr exponent = n.constantOf(n.in(1)); exponent && countOf(n.shape(1)) == 1) {
    train::HostTensor tensor = train::HostTensor::fromAttribute(exponent);
    double value = tensor.isFloat() ? tensor.getDouble(0) : double(tensor.getInt(0));
    if (std::optional<Expr> result = simplePower(n, n.expr(0).broadcast(*shape), value))
      return n.result(*result);
  }
  // An integer power of an integer is computed in 64-bit integers. Others are computed in the wider float type, at
  // least f32, and in f64 if the base is an integer.
  Type exponent = train::elementTypeOf(n.in(1)), computed = n.builder.getF64Type();
  if (!isa<FloatType>(element) && !isa<FloatType>(exponent))
    computed = element.isUnsignedInteger(64) ? element : n.i64();
  else if (isa<FloatType>(element) && !element.isF64() && !exponent.isF64())
    computed = n.builder.getF32Type();
  Expr x = n.expr(0).cast(computed).broadcast(*shape), y = n.expr(1).cast(computed).broadcast(*shape);
  return n.result(apply<train::PowOp>(n, x, y).cast(element));
}

Status bitShift(NodeImport &n) {
  std::string direction = n.stringAttr("direction", "");
  if (direction == "LEFT")
    return binary<train::ShiftLeftOp>(n);
  if (direction == "RIGHT")
    return binary<train::ShiftRightOp>(n);
  return error("direction is \"{}\"; it must be LEFT or RIGHT", direction);
}

Status where(NodeImport &n) {
  TCC_TRY(values, n.common(n.in(1), n.in(2)));
  TCC_TRY(first, n.common(n.in(0), values.first));
  return n.result(first.first.select(first.second, values.second.broadcast(train::shapeOf(first.second))));
}

/// The element type that attribute `to` names.
Expected<Type> targetType(NodeImport &n) {
  auto to = int(n.intAttr("to", 0));
  if (Type element = n.elementType(to))
    return element;
  bool known = onnx::TensorProto_DataType_IsValid(to);
  return error("{} is no type that tensors are computed in: they are f64, f32, bf16, f16, integers of 8 to 64 bits and "
                     "bool; strings, complex numbers, and floats and integers below those widths are not supported",
                     known ? onnx::TensorProto_DataType_Name(onnx::TensorProto_DataType(to)) : std::to_string(to));
}

Status cast(NodeImport &n) {
  TCC_TRY(element, targetType(n));
  return n.result(n.expr(0).cast(element));
}

Status castLike(NodeImport &n) { return n.result(n.expr(0).cast(train::elementTypeOf(n.in(1)))); }

Status bitCast(NodeImport &n) {
  TCC_TRY(element, targetType(n));
  if (train::elementBytes(element) != train::elementBytes(train::elementTypeOf(n.in(0))))
    return error("the bits of {} do not fit the target type: its elements have {} bytes", typeText(n.in(0)),
                       train::elementBytes(element));
  return n.result(train::BitCastOp::create(n.builder, n.loc, n.type(n.shape(0), element), n.in(0)));
}

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

Status identity(NodeImport &n) {
  if (n.inputs[0].sequence)
    n.spend(n.inputs[0].sequence->size() * sizeof(Value));
  n.outputs = {n.inputs[0]};
  if (n.inputs[0].tensor)
    n.outputs[0].tensor = stoppedIterate(n);
  return Status::success();
}

using train::CompareKind;
constexpr OpEntry kTable[] = {
    {"Add", 2, binary<train::AddOp>},
    {"Sub", 2, binary<train::SubOp>},
    {"Mul", 2, binary<train::MulOp>},
    {"Div", 2, division},
    {"Pow", 2, power},
    {"Mod", 2, mod},
    {"And", 2, binary<train::AndOp>},
    {"Or", 2, binary<train::OrOp>},
    {"Xor", 2, binary<train::XorOp>},
    {"BitwiseAnd", 2, binary<train::AndOp>},
    {"BitwiseOr", 2, binary<train::OrOp>},
    {"BitwiseXor", 2, binary<train::XorOp>},
    {"BitShift", 2, bitShift},
    {"BitwiseNot", 1, unary<train::NotOp>},
    {"Not", 1, unary<train::NotOp>},
    {"Sum", 1, variadic<train::AddOp>},
    {"Max", 1, extreme<train::MaxOp, train::ReduceKind::max>},
    {"Min", 1, extreme<train::MinOp, train::ReduceKind::min>},
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
    {"Tan", 1, unary<train::TanOp>},
    {"Asin", 1, unary<train::AsinOp>},
    {"Acos", 1, unary<train::AcosOp>},
    {"Sinh", 1, unary<train::SinhOp>},
    {"Cosh", 1, unary<train::CoshOp>},
    {"Asinh", 1, unary<train::AsinhOp>},
    {"Acosh", 1, unary<train::AcoshOp>},
    {"Atanh", 1, unary<train::AtanhOp>},
    {"IsNaN", 1, isNan},
    {"IsInf", 1, isInf},
    {"Cast", 1, cast},
    {"CastLike", 2, castLike},
    {"BitCast", 1, bitCast},
    {"Identity", 1, identity, 1, 28, "", true},
};

} // namespace
} // namespace arithmetic

std::span<const OpEntry> arithmeticOps() { return arithmetic::kTable; }

} // namespace tcc::frontend

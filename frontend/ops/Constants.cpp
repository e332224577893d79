//===- Constants.cpp - constants, and tensors computed from positions -----===//
#include "frontend/NodeImport.h"
#include "frontend/OnnxFile.h"

#include <cmath>

using namespace mlir;

namespace tcc::frontend {
namespace constant_ops { // named, since files share a translation unit
namespace {

using train::CompareKind;
using train::Expr;

template <typename Number, typename Field>
Status numbers(NodeImport &n, const Field &field, int32_t type, bool scalar) {
  llvm::SmallVector<Number> values(field.begin(), field.end());
  llvm::StringRef bytes(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(Number));
  Shape shape;
  if (!scalar)
    shape.push_back(int64_t(values.size()));
  return n.result(n.constant(shape, type, bytes));
}

/// A plan has no tensors of text: a constant of text is an error only if an op reads it.
Status text(NodeImport &n) {
  Slot slot;
  slot.unusable = "a constant of strings; only numbers are supported";
  n.outputs = {slot};
  return Status::success();
}

Status constant(NodeImport &n) {
  if (n.attribute("value_string") || n.attribute("value_strings"))
    return text(n);
  if (const onnx::AttributeProto *sparse = n.attribute("sparse_value")) {
    TCC_TRY(dense, denseTensor(sparse->sparse_tensor(), kMostDenseBytes));
    return n.result(n.constant(Shape(dense.dims().begin(), dense.dims().end()), dense.data_type(), dense.raw_data()));
  }
  if (const onnx::AttributeProto *value = n.attribute("value")) {
    if (value->t().data_type() == onnx::TensorProto::STRING)
      return text(n);
    if (!n.elementType(value->t().data_type()))
      return error("constants of type {} are not supported", onnxTypeName(value->t().data_type()));
    TCC_TRY(bytes, tensorBytes(value->t()));
    return n.result(
        n.constant(Shape(value->t().dims().begin(), value->t().dims().end()), value->t().data_type(), bytes));
  }
  if (const onnx::AttributeProto *value = n.attribute("value_int"))
    return numbers<int64_t>(n, Shape{value->i()}, onnx::TensorProto::INT64, true);
  if (const onnx::AttributeProto *value = n.attribute("value_ints"))
    return numbers<int64_t>(n, value->ints(), onnx::TensorProto::INT64, false);
  if (const onnx::AttributeProto *value = n.attribute("value_float"))
    return numbers<float>(n, llvm::SmallVector<float>{value->f()}, onnx::TensorProto::FLOAT, true);
  if (const onnx::AttributeProto *value = n.attribute("value_floats"))
    return numbers<float>(n, value->floats(), onnx::TensorProto::FLOAT, false);
  return error("it has no value");
}

Status constantOfShape(NodeImport &n) {
  TCC_TRY(shape, n.ints(0));
  for (int64_t dim : shape)
    if (dim < 0)
      return error("shape {} has a negative extent", shapeText(shape));
  const onnx::AttributeProto *value = n.attribute("value");
  if (!value)
    return n.result(n.splat(shape, n.elementType(onnx::TensorProto::FLOAT), 0));
  if (!n.elementType(value->t().data_type()))
    return error("constants of type {} are not supported", onnxTypeName(value->t().data_type()));
  TCC_TRY(bytes, tensorBytes(value->t()));
  return n.result(n.broadcast(n.reshape(n.constant({1}, value->t().data_type(), bytes), {}), shape));
}

/// start + i·delta. Inputs are needed at compile time only for the extent.
Status range(NodeImport &n) {
  TCC_TRY(start, n.number(0));
  TCC_TRY(limit, n.number(1));
  TCC_TRY(delta, n.number(2));
  if (delta == 0)
    return error("the step is 0");
  double count = std::max(0.0, std::ceil((limit - start) / delta));
  if (!(count < double(int64_t(1) << 40)))
    return error("{} elements are too many", count);
  Type element = train::elementTypeOf(n.in(0));
  Shape shape = {int64_t(count)};
  Expr steps = n.expr(n.iota(shape, 0)).cast(element);
  if (delta != 1)
    steps = steps * n.expr(n.broadcast(n.reshape(n.in(2), {}), shape));
  if (start != 0)
    steps = steps + n.expr(n.broadcast(n.reshape(n.in(0), {}), shape));
  return n.result(steps);
}

/// Column minus row of each element of the innermost matrices.
Expr diagonals(NodeImport &n, llvm::ArrayRef<int64_t> shape) {
  int64_t rank = int64_t(shape.size());
  return n.expr(n.iota(shape, rank - 1)) - n.expr(n.iota(shape, rank - 2));
}

/// k may depend on data, since no shape depends on it.
Status trilu(NodeImport &n) {
  if (n.rank(0) < 2)
    return error("Trilu needs a matrix, not {}", typeText(n.in(0)));
  Expr k = n.expr(n.splat({}, n.i64(), 0));
  if (n.has(1)) {
    if (countOf(n.shape(1)) != 1)
      return error("the diagonal must be one number, not {}", typeText(n.in(1)));
    k = n.expr(1).cast(n.i64()).reshape({});
  }
  Expr keep = diagonals(n, n.shape(0)).compare(n.intAttr("upper", 1) ? CompareKind::ge : CompareKind::le, k);
  return n.result(keep.select(n.expr(0), n.expr(0).like(0)));
}

Status eyeLike(NodeImport &n) {
  if (n.rank(0) != 2)
    return error("EyeLike needs a matrix, not {}", typeText(n.in(0)));
  Type element = train::elementTypeOf(n.in(0));
  if (n.attribute("dtype"))
    element = n.elementType(int32_t(n.intAttr("dtype", 1)));
  if (!element)
    return error("elements of type {} are not supported", onnxTypeName(int32_t(n.intAttr("dtype", 1))));
  Expr offset = diagonals(n, n.shape(0)), k = offset.with(n.splat({}, n.i64(), double(n.intAttr("k", 0))));
  return n.result(offset.compare(CompareKind::eq, k).cast(element));
}

Status oneHot(NodeImport &n) {
  TCC_TRY(depthNumber, n.number(1));
  if (!(depthNumber >= 0 && depthNumber <= double(kMostTensorBytes)))
    return error("depth is {}; it must be between 0 and {}", depthNumber, kMostTensorBytes);
  int64_t depth = int64_t(depthNumber), rank = n.rank(0);
  TCC_TRY(axis, n.axis(n.intAttr("axis", -1), rank + 1));
  Shape shape(n.shape(0)), withOne(shape);
  withOne.insert(withOne.begin() + axis, 1);
  shape.insert(shape.begin() + axis, depth);
  Expr index = n.expr(n.reshape(n.expr(0).cast(n.i64()), withOne));
  index = index.compare(CompareKind::lt, 0).select(index + double(depth), index).broadcast(shape);
  Expr hot = index.compare(CompareKind::eq, n.expr(n.iota(shape, axis)));
  if (n.rank(2) != 1 || n.shape(2)[0] != 2)
    return error("values must be [off, on], not {}", typeText(n.in(2)));
  auto value = [&](int64_t i) { return n.expr(n.broadcast(n.reshape(n.slice(n.in(2), 0, i, 1), {}), shape)); };
  return n.result(hot.select(value(1), value(0)));
}

constexpr OpEntry kTable[] = {
    {"Constant", 0, constant}, {"ConstantOfShape", 1, constantOfShape}, OpEntry{"Range", 3, range}.reading(0, 1, 2),
    {"Trilu", 1, trilu},       {"EyeLike", 1, eyeLike},                 OpEntry{"OneHot", 3, oneHot}.reading(1),
};

} // namespace
} // namespace constant_ops

std::span<const OpEntry> constantOps() { return constant_ops::kTable; }

} // namespace tcc::frontend

//===- Quantization.cpp - quantised tensors and fake quantisation ---------===//
//
// QuantizeLinear and DequantizeLinear of integers are arithmetic without a derivative. A DequantizeLinear that
// FakeQuantize.h made of a pair has a floating-point input, which it rounds, and passes the gradient.
//
//===----------------------------------------------------------------------===//
#include "frontend/Quantization.h"
#include "frontend/FakeQuantize.h"
#include "frontend/NodeImport.h"
#include "frontend/ops/FourBits.h"

#include <numeric>

using namespace mlir;

namespace tcc::frontend {
namespace quantization { // named, since files share a translation unit
namespace {

using train::Expr;

/// PyTorch's smallest scale of an observer: the f32 epsilon.
constexpr double kSmallestScale = 1.1920928955078125e-07;
/// PyTorch's averaging_constant of MovingAverageMinMaxObserver.
constexpr double kObserverRate = 0.01;

/// The floating-point type to compute in: f32 for narrower types.
Type wideType(NodeImport &n, Type element) {
  return element.isF64() || n.forceF64 ? Type(n.builder.getF64Type()) : n.builder.getF32Type();
}

/// The axis that scales vary along; nullopt for a single scale. Error: they do not fit.
Expected<std::optional<int64_t>> axisOf(NodeImport &n) {
  if (n.intAttr("block_size", 0) != 0)
    return error("quantisation in blocks is read of 4-bit integers alone; quantise per tensor or per axis");
  const int64_t count = countOf(n.shape(1));
  if (n.rank(1) > 1)
    return error("its scale {} is neither one number nor one for each index of an axis", typeText(n.in(1)));
  if (n.has(2) && n.shape(2) != n.shape(1) && countOf(n.shape(2)) != count)
    return error("its zero point {} has another shape than its scale {}", typeText(n.in(2)), typeText(n.in(1)));
  if (count == 1)
    return std::optional<int64_t>();
  TCC_TRY(axis, n.axis(n.intAttr("axis", 1), n.rank(0)));
  if (n.shape(0)[size_t(axis)] != count)
    return error("its {} scales do not fit dimension {} of {}", count, axis, typeText(n.in(0)));
  return std::optional(axis);
}

/// A scale, zero point or range for each index of `axis`, or a single one, in the shape of input 0.
Expr spread(NodeImport &n, const Expr &value, std::optional<int64_t> axis, Type element) {
  Shape shape(axis ? size_t(n.rank(0)) : 0, 1);
  if (axis)
    shape[size_t(*axis)] = countOf(train::shapeOf(value));
  return n.expr(n.broadcast(value.reshape(shape).cast(element), n.shape(0)));
}

/// The error that says why integers of this type are not read.
Status unread(int32_t type) {
  std::string text = unreadQuantizedType(type);
  return text.empty() ? error("{} is no type of quantised values; they are INT8, UINT8, INT16 or UINT16",
                                    onnxTypeName(type))
                      : error("{}", text);
}

int32_t onnxTypeOf(NodeImport &n, Value value) {
  for (int32_t type : {onnx::TensorProto::INT8, onnx::TensorProto::UINT8, onnx::TensorProto::INT16,
                       onnx::TensorProto::UINT16, onnx::TensorProto::INT32})
    if (n.elementType(type) == train::elementTypeOf(value))
      return type;
  return 0;
}

Status quantizeLinear(NodeImport &n) {
  TCC_TRY(axis, axisOf(n));
  int32_t type = int32_t(n.intAttr("output_dtype", 0));
  if (n.has(2))
    type = onnxTypeOf(n, n.in(2));
  else if (!type)
    type = onnx::TensorProto::UINT8;
  const std::optional<IntegerRange> range = integerRange(type);
  if (!range || type == onnx::TensorProto::INT32)
    return unread(type);
  Type wide = wideType(n, train::elementTypeOf(n.in(0)));
  Expr x = n.expr(0).cast(wide);
  Expr q = (x / spread(n, n.expr(1), axis, wide)).apply<train::RoundOp>();
  if (n.has(2))
    q = q + spread(n, n.expr(2), axis, wide);
  auto bound = [&](int64_t value) { return q.like(double(value)); };
  q = q.with(train::MaxOp::create(n.builder, n.loc, q.value, bound(range->low).value));
  q = q.with(train::MinOp::create(n.builder, n.loc, q.value, bound(range->high).value));
  return n.result(q.cast(n.elementType(type)));
}

//===----------------------------------------------------------------------===//
// Fake quantisation
//===----------------------------------------------------------------------===//

struct Steps {
  Expr scale, zeroPoint;
};

Expr smallest(const Expr &x, const Expr &y) {
  return x.with(train::MinOp::create(*x.builder, x.loc, x.value, y.value));
}
Expr largest(const Expr &x, const Expr &y) { return x.with(train::MaxOp::create(*x.builder, x.loc, x.value, y.value)); }

/// The scale and zero point of PyTorch's observers, by which the integers span `low` to `high` and 0.
Steps stepsFor(const Expr &low, const Expr &high, IntegerRange range) {
  Expr least = smallest(low, low.like(0)), most = largest(high, high.like(0));
  Expr scale = largest((most - least) / double(range.high - range.low), least.like(kSmallestScale));
  Expr zeroPoint = least.like(double(range.low)) - (least / scale).apply<train::RoundOp>();
  zeroPoint = smallest(largest(zeroPoint, scale.like(double(range.low))), scale.like(double(range.high)));
  return {scale, zeroPoint};
}

/// Symmetric steps: the zero point is the middle of the integers, with `level` steps to each side.
Steps symmetricSteps(const Expr &low, const Expr &high, IntegerRange range, double level) {
  Expr scale = largest(largest(-low, high) / level, low.like(kSmallestScale));
  return {scale, scale.like(double((range.low + range.high + 1) / 2))};
}

/// Steps from the current values of a weight.
Steps stepsOfValues(NodeImport &n, const Expr &x, std::optional<int64_t> axis, IntegerRange range) {
  Shape dims(size_t(n.rank(0)));
  std::iota(dims.begin(), dims.end(), 0);
  if (axis)
    dims.erase(dims.begin() + *axis);
  Shape shape;
  if (axis)
    shape.push_back(n.shape(0)[size_t(*axis)]);
  auto over = [&](train::ReduceKind kind) {
    return x.with(train::reduce(n.builder, n.loc, kind, x, dims)).reshape(shape);
  };
  Expr low = over(train::ReduceKind::min), high = over(train::ReduceKind::max);
  return n.intAttr(fake_quantize::kSymmetric, 0)
             ? symmetricSteps(low, high, range, double(n.intAttr(fake_quantize::kLevel, range.high)))
             : stepsFor(low, high, range);
}

/// Steps from a moving range, which is updated in training.
Steps stepsOfRange(NodeImport &n, const Expr &x, IntegerRange range) {
  Type scalar = RankedTensorType::get({}, n.forceF64 ? Type(n.builder.getF64Type()) : n.builder.getF32Type());
  const std::string names[] = {n.stringAttr(fake_quantize::kLow, ""), n.stringAttr(fake_quantize::kHigh, "")};
  llvm::SmallVector<Value> ends;
  for (const std::string &name : names)
    ends.push_back(name.empty() ? train::splat(n.builder, n.loc, scalar, 0)
                                : train::ReadOp::create(n.builder, n.loc, scalar, name).getResult());
  auto moved = train::ObservedRangeOp::create(n.builder, n.loc, scalar, scalar, x, ends[0], ends[1],
                                              llvm::APFloat(kObserverRate));
  for (int i : {0, 1})
    if (!names[i].empty()) {
      ends[size_t(i)] = moved->getResult(unsigned(i));
      train::WriteOp::create(n.builder, n.loc, names[i], ends[size_t(i)]);
    }
  Expr low = n.expr(ends[0]), high = n.expr(ends[1]);
  if (!n.intAttr(fake_quantize::kSymmetric, 0))
    return stepsFor(low, high, range);
  return symmetricSteps(smallest(low, low.like(0)), largest(high, high.like(0)), range,
                        double(range.high - range.low) / 2);
}

Status fakeQuantize(NodeImport &n) {
  TCC_TRY(axis, axisOf(n));
  IntegerRange range = *integerRange(int32_t(n.intAttr(fake_quantize::kType, 0)));
  range = {n.intAttr(fake_quantize::kLeast, range.low), n.intAttr(fake_quantize::kMost, range.high)};
  const std::string observe = n.stringAttr(fake_quantize::kObserve, "");
  Type result = train::elementTypeOf(n.in(1));
  // QuantizeLinear takes integers, too, before opset 19.
  Expr x = train::isFloatTensor(n.in(0)) ? n.expr(0) : n.expr(0).cast(result);
  Type element = train::elementTypeOf(x), wide = wideType(n, element);
  // PyTorch's observers compute without gradients.
  auto observed = [&] {
    return x.with(
        train::StopGradientOp::create(n.builder, n.loc, x.value.getType(), x.value, "model.quantize: observe"));
  };
  Steps steps = observe == "values"  ? stepsOfValues(n, observed().cast(wide), axis, range)
                : observe == "range" ? stepsOfRange(n, observed(), range)
                                     : Steps{n.expr(1), n.has(2) ? n.expr(2) : n.expr(1).cast(wide) * 0.0};
  if (n.wants(1))
    (void)n.set(1, steps.scale);
  Expr rounded = x.with(
      train::FakeQuantizeOp::create(n.builder, n.loc, x.value.getType(), x, spread(n, steps.scale, axis, element),
                                    spread(n, steps.zeroPoint, axis, element), range.low, range.high));
  return n.result(rounded.cast(result));
}

Status dequantizeLinear(NodeImport &n) {
  if (n.attribute(fake_quantize::kType))
    return fakeQuantize(n);
  if (llvm::any_of(n.inputs, [](const Slot &slot) { return slot.fourBits.has_value(); }))
    return dequantizeFourBits(n);
  TCC_TRY(axis, axisOf(n));
  if (!onnxTypeOf(n, n.in(0)))
    return unread(0);
  Type result = train::elementTypeOf(n.in(1)), wide = wideType(n, result);
  Expr q = n.expr(0).cast(wide);
  if (n.has(2))
    q = q - spread(n, n.expr(2), axis, wide);
  if (int32_t type = int32_t(n.intAttr("output_dtype", 0)))
    result = n.elementType(type);
  return n.result((q * spread(n, n.expr(1), axis, wide)).cast(result));
}

constexpr OpEntry kTable[] = {
    OpEntry{"QuantizeLinear", 2, quantizeLinear, 10}.reading(1),
    OpEntry{"DequantizeLinear", 2, dequantizeLinear, 10}.reading(1).packed(),
};

} // namespace
} // namespace quantization

std::span<const OpEntry> quantizationOps() { return quantization::kTable; }

} // namespace tcc::frontend

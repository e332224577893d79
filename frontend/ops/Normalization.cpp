//===- Normalization.cpp - layer, rms, instance, group norm and kin --------===//
#include "frontend/NodeImport.h"
#include "frontend/TorchNotes.h"

using namespace mlir;

namespace tcc::frontend {
namespace normalization { // named, since files share a translation unit
namespace {

using train::Expr;

/// The type in which to compute: f32 for 16-bit types.
Type innerType(NodeImport &n, Type element) { return element.isF64() ? element : Type(n.builder.getF32Type()); }

/// Layer norm over the dimensions from `axis` on. `scale` and `bias` have their shape; null: 1 and 0.
train::LayerNormOp layerNormOf(NodeImport &n, Value x, int64_t axis, double epsilon, Value scale = {},
                               Value bias = {}) {
  llvm::ArrayRef<int64_t> shape = train::shapeOf(x);
  Shape statistics(shape);
  for (size_t i = size_t(axis); i < statistics.size(); ++i)
    statistics[i] = 1;
  Type element = train::elementTypeOf(x);
  auto type = n.type(statistics, innerType(n, element));
  if (!scale)
    scale = n.splat(shape.drop_front(size_t(axis)), element, 1);
  return train::LayerNormOp::create(n.builder, n.loc, x.getType(), type, type, x, scale, bias, uint64_t(axis),
                                    llvm::APFloat(epsilon));
}
Value normalised(NodeImport &n, Value x, int64_t axis, double epsilon) {
  return layerNormOf(n, x, axis, epsilon).getResult();
}

/// √x, whose derivative is 0 at 0.
Expr root(const Expr &x) {
  Expr zero = x.compare(train::CompareKind::eq, 0);
  return zero.select(x.like(0), zero.select(x.like(1), x).apply<train::SqrtOp>());
}

/// x·scale + bias, each with one element for each channel (axis 1).
Status perChannel(NodeImport &n, Value x, Value scale, Value bias) {
  Shape shape(train::shapeOf(x).size(), 1);
  int64_t channels = train::shapeOf(x)[1];
  for (Value value : {scale, bias})
    if (countOf(train::shapeOf(value)) != channels)
      return error("{} should have {} elements, one for each channel", typeText(value), channels);
  shape[1] = channels;
  Type element = train::elementTypeOf(x);
  auto spread = [&](Value value) { return n.expr(n.reshape(n.expr(value).cast(element), shape)); };
  return n.result(n.expr(x) * spread(scale) + spread(bias));
}

Status layerNorm(NodeImport &n) {
  TCC_TRY(axis, n.axis(n.intAttr("axis", -1), n.rank(0)));
  Shape normal(n.shape(0).drop_front(size_t(axis)));
  Type element = train::elementTypeOf(n.in(0));
  for (unsigned i : {1u, 2u})
    if (n.has(i) && train::broadcastShapes(n.shape(i), n.shape(0)) != Shape(n.shape(0)))
      return error("{} does not broadcast to {}", typeText(n.in(i)), typeText(n.in(0)));
  // Scale and bias may have fewer dimensions, or leading ones.
  bool simple = true;
  auto fitted = [&](unsigned i) -> Value {
    llvm::ArrayRef<int64_t> shape = n.shape(i);
    while (shape.size() > normal.size() && shape.front() == 1)
      shape = shape.drop_front();
    std::optional<Shape> common = train::broadcastShapes(shape, normal);
    simple &= common && *common == normal;
    return simple ? n.broadcast(n.reshape(n.expr(i).cast(element), shape), normal) : Value();
  };
  Value scale = fitted(1), bias = n.has(2) ? fitted(2) : Value();
  auto op =
      layerNormOf(n, n.in(0), axis, n.floatAttr("epsilon", 1e-5), simple ? scale : Value(), simple ? bias : Value());
  Type stash = n.forceF64 ? element : n.elementType(int32_t(n.intAttr("stash_type", onnx::TensorProto::FLOAT)));
  if (!stash || !isa<FloatType>(stash))
    return error("stash_type {} is no floating-point type", n.intAttr("stash_type", 1));
  if (n.wants(1))
    (void)n.set(1, n.expr(op.getMean()).cast(stash));
  if (n.wants(2))
    (void)n.set(2, n.expr(op.getRstd()).cast(stash));
  Expr result = n.expr(op.getResult());
  if (!simple) {
    result = result * n.expr(1).cast(element);
    if (n.has(2))
      result = result + n.expr(2).cast(element);
  }
  return n.result(result);
}

/// x / √(mean of squares + epsilon) · scale, Zhang and Sennrich, arXiv:1910.07467.
Status rmsNorm(NodeImport &n) {
  TCC_TRY(axis, n.axis(n.intAttr("axis", -1), n.rank(0)));
  Type element = train::elementTypeOf(n.in(0));
  if (train::broadcastShapes(n.shape(1), n.shape(0)) != Shape(n.shape(0)))
    return error("{} does not broadcast to {}", typeText(n.in(1)), typeText(n.in(0)));
  Shape dims;
  for (int64_t i = axis; i < n.rank(0); ++i)
    dims.push_back(i);
  Expr x = n.expr(0).cast(innerType(n, element));
  Expr rstd = ((x * x).mean(dims) + n.floatAttr("epsilon", 1e-5)).apply<train::RsqrtOp>();
  if (n.wants(1))
    (void)n.set(1, rstd);
  return n.result((x * rstd).cast(element) * n.expr(1).cast(element));
}

Status instanceNorm(NodeImport &n) {
  if (n.rank(0) < 3)
    return error("InstanceNormalization needs at least 3 dimensions, not {}", typeText(n.in(0)));
  if (const TracedCall call = tracedCall(n.node); call.target.starts_with("aten.instance_norm.") &&
                                                  call.arguments.size() > 5 && call.arguments[3] != "None" &&
                                                  call.arguments[5] == "True")
    n.warn("the module keeps running statistics (track_running_stats), which the exporter leaves out: evaluation and "
           "prediction normalise each sample by its own statistics, as training does");
  return perChannel(n, normalised(n, n.in(0), 2, n.floatAttr("epsilon", 1e-5)), n.in(1), n.in(2));
}

/// Opset 18 has a scale for each group, 21 for each channel.
Status groupNorm(NodeImport &n) {
  int64_t groups = n.intAttr("num_groups", 0);
  if (n.rank(0) < 2 || groups < 1 || n.shape(0)[1] % groups)
    return error("{} groups do not divide the channels of {}", groups, typeText(n.in(0)));
  llvm::ArrayRef<int64_t> shape = n.shape(0);
  Value grouped = n.reshape(n.in(0), {shape[0], groups, countOf(shape.drop_front(1)) / groups});
  Value normal = n.reshape(normalised(n, grouped, 2, n.floatAttr("epsilon", 1e-5)), shape);
  auto scale = [&](unsigned i) {
    int64_t channels = shape[1], perGroup = channels / groups;
    if (n.opset >= 21 || countOf(n.shape(i)) != groups)
      return n.in(i);
    return n.reshape(n.broadcast(n.reshape(n.in(i), {groups, 1}), {groups, perGroup}), {channels});
  };
  return perChannel(n, normal, scale(1), scale(2));
}

/// Along one axis, by its p-norm.
Status lpNormalization(NodeImport &n) {
  TCC_TRY(axis, n.axis(n.intAttr("axis", -1), n.rank(0)));
  int64_t p = n.intAttr("p", 2);
  if (p != 1 && p != 2)
    return error("p, the order of the norm, is {}; it must be 1 or 2", p);
  Expr x = n.expr(0);
  Expr norm = p == 1 ? x.apply<train::AbsOp>().sum({axis}) : root((x * x).sum({axis}));
  // A vector of zeros stays zero.
  Expr zero = norm.compare(train::CompareKind::eq, 0);
  return n.result(x / zero.select(norm.like(1), norm));
}

/// (x − mean) / (√variance + 1e-9) over the axes, by default all but the channels'.
Status meanVariance(NodeImport &n) {
  TCC_TRY(axes, n.axes(n.intsAttr("axes").value_or(Shape{0, 2, 3}), n.rank(0)));
  Type element = train::elementTypeOf(n.in(0));
  Expr x = n.expr(0).cast(innerType(n, element)), centred = x - x.mean(axes).broadcast(n.shape(0));
  return n.result((centred / (root((centred * centred).mean(axes)) + 1e-9)).cast(element));
}

/// x / (bias + alpha/size · Σ x² over neighbouring channels)^beta, Krizhevsky et al., 2012.
Status localResponse(NodeImport &n) {
  if (n.rank(0) < 2)
    return error("LRN needs a channel dimension, not {}", typeText(n.in(0)));
  llvm::ArrayRef<int64_t> shape = n.shape(0);
  int64_t size = n.intAttr("size", 1);
  if (size < 1)
    return error("size is {}; it must be at least 1", size);
  Expr x = n.expr(0);
  // A window over the channels alone.
  Expr squares = (x * x).reshape({shape[0], shape[1], countOf(shape.drop_front(2))});
  Shape kernel = {size, 1}, ones = {1, 1}, pads = {(size - 1) / 2, 0};
  Expr sum =
      n.expr(train::SumPoolOp::create(n.builder, n.loc, squares.value.getType(), squares, kernel, ones, ones, pads)
                 .getResult())
          .reshape(shape);
  Expr scale = sum * (n.floatAttr("alpha", 1e-4) / double(size)) + n.floatAttr("bias", 1);
  Expr power = scale.like(n.floatAttr("beta", 0.75));
  return n.result(x / n.expr(train::PowOp::create(n.builder, n.loc, scale.value.getType(), scale.value, power.value)
                                 .getResult()));
}

constexpr OpEntry kTable[] = {
    {"LayerNormalization", 2, scalarsToo<layerNorm>},
    {"RMSNormalization", 2, scalarsToo<rmsNorm>},
    {"SimplifiedLayerNormalization", 2, scalarsToo<rmsNorm>},
    {"InstanceNormalization", 3, instanceNorm},
    {"GroupNormalization", 3, groupNorm},
    {"LpNormalization", 1, scalarsToo<lpNormalization>},
    {"MeanVarianceNormalization", 1, scalarsToo<meanVariance>},
    {"LRN", 1, localResponse},
};

} // namespace
} // namespace normalization

std::span<const OpEntry> normalizationOps() { return normalization::kTable; }

} // namespace tcc::frontend

//===- Normalization.cpp - layer, rms, instance, group, batch norm and kin ===//
#include "frontend/NodeImport.h"

using namespace mlir;

namespace tcc::frontend {
namespace normalization { // a name, since files share a translation unit
namespace {

using plan::Status;
using train::Expr;

/// Layer norm over the dimensions from `axis` on, without scale and bias.
Value normalised(NodeImport &n, Value x, int64_t axis, double epsilon) {
  llvm::ArrayRef<int64_t> shape = train::shapeOf(x);
  Shape statistics(shape);
  for (size_t i = size_t(axis); i < statistics.size(); ++i)
    statistics[i] = 1;
  Type element = train::elementTypeOf(x);
  auto op = train::LayerNormOp::create(n.builder, n.loc, x.getType(), n.type(statistics, element),
                                       n.type(statistics, element), x,
                                       n.splat(shape.drop_front(size_t(axis)), element, 1), Value(), uint64_t(axis),
                                       llvm::APFloat(epsilon));
  return op.getResult();
}

/// x·scale + bias, each with one element for each channel (axis 1).
Status perChannel(NodeImport &n, Value x, Value scale, Value bias) {
  Shape shape(train::shapeOf(x).size(), 1);
  int64_t channels = train::shapeOf(x)[1];
  for (Value value : {scale, bias})
    if (countOf(train::shapeOf(value)) != channels)
      return plan::error("{} has not one element for each of the {} channels", typeText(value), channels);
  shape[1] = channels;
  Type element = train::elementTypeOf(x);
  auto spread = [&](Value value) { return n.expr(n.reshape(n.expr(value).cast(element), shape)); };
  return n.result(n.expr(x) * spread(scale) + spread(bias));
}

Status layerNorm(NodeImport &n) {
  TCC_TRY(axis, n.axis(n.intAttr("axis", -1), n.rank(0)));
  Shape normal(n.shape(0).drop_front(size_t(axis))), statistics(n.shape(0));
  for (size_t i = size_t(axis); i < statistics.size(); ++i)
    statistics[i] = 1;
  Type element = train::elementTypeOf(n.in(0));
  // Scale and bias may have fewer dimensions, or leading ones.
  bool simple = true;
  auto fitted = [&](unsigned i) -> Value {
    llvm::ArrayRef<int64_t> shape = n.shape(i);
    while (shape.size() > normal.size() && shape.front() == 1)
      shape = shape.drop_front();
    std::optional<Shape> common = train::broadcastShapes(shape, normal);
    simple &= common && *common == normal;
    return simple ? n.broadcast(n.reshape(n.expr(n.in(i)).cast(element), shape), normal) : Value();
  };
  Value scale = fitted(1), bias = n.has(2) ? fitted(2) : Value();
  double epsilon = n.floatAttr("epsilon", 1e-5);
  if (!simple) {
    for (unsigned i : {1u, 2u})
      if (n.has(i) && train::broadcastShapes(n.shape(i), n.shape(0)) != Shape(n.shape(0)))
        return plan::error("{} does not broadcast to {}", typeText(n.in(i)), typeText(n.in(0)));
    if (n.wants(1) || n.wants(2))
      return plan::error("statistics of a layer norm whose scale has the shape {} are not supported", shapeText(n.shape(1)));
    Expr result = n.expr(normalised(n, n.in(0), axis, epsilon)) * n.expr(1).cast(element);
    return n.result(n.has(2) ? result + n.expr(2).cast(element) : result);
  }
  auto op = train::LayerNormOp::create(n.builder, n.loc, n.in(0).getType(), n.type(statistics, element),
                                       n.type(statistics, element), n.in(0), scale, bias, uint64_t(axis),
                                       llvm::APFloat(epsilon));
  // The statistics of 16-bit inputs are f32 by ONNX's stash_type.
  Type stash = n.forceF64 || n.intAttr("stash_type", 1) != 1 || element.isF64() ? element : Type(n.builder.getF32Type());
  if (n.wants(1))
    (void)n.set(1, n.expr(op.getMean()).cast(stash));
  if (n.wants(2))
    (void)n.set(2, n.expr(op.getRstd()).cast(stash));
  return n.result(op.getResult());
}

/// x / √(mean of squares + epsilon) · scale, Zhang and Sennrich, arXiv:1910.07467.
Status rmsNorm(NodeImport &n) {
  TCC_TRY(axis, n.axis(n.intAttr("axis", -1), n.rank(0)));
  Type element = train::elementTypeOf(n.in(0));
  bool narrow = element.isF16() || element.isBF16();
  Shape dims;
  for (int64_t i = axis; i < n.rank(0); ++i)
    dims.push_back(i);
  Expr x = n.expr(0);
  if (narrow)
    x = x.cast(n.builder.getF32Type());
  Expr rstd = ((x * x).mean(dims) + n.floatAttr("epsilon", 1e-5)).apply<train::RsqrtOp>();
  Expr result = (x * rstd).cast(element) * n.expr(1).cast(element);
  return n.result(result);
}

Status instanceNorm(NodeImport &n) {
  if (n.rank(0) < 3)
    return plan::error("InstanceNormalization needs at least 3 dimensions, not {}", typeText(n.in(0)));
  return perChannel(n, normalised(n, n.in(0), 2, n.floatAttr("epsilon", 1e-5)), n.in(1), n.in(2));
}

/// Opset 18 has a scale for each group, 21 for each channel.
Status groupNorm(NodeImport &n) {
  int64_t groups = n.intAttr("num_groups", 0);
  if (n.rank(0) < 2 || groups < 1 || n.shape(0)[1] % groups)
    return plan::error("{} groups do not divide the channels of {}", groups, typeText(n.in(0)));
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

/// Inference mode: (x − mean) / √(variance + epsilon) · scale + bias with the running statistics.
Status batchNorm(NodeImport &n) {
  bool training = n.opset < 14 ? n.wants(1) : n.intAttr("training_mode", 0) != 0;
  if (training)
    return plan::error("BatchNormalization in training mode is not supported by this version yet; export the model in "
                       "eval() mode");
  if (n.rank(0) < 2)
    return plan::error("BatchNormalization needs at least 2 dimensions, not {}", typeText(n.in(0)));
  int64_t channels = n.shape(0)[1];
  Shape shape(size_t(n.rank(0)), 1);
  shape[1] = channels;
  for (unsigned i = 1; i < 5; ++i)
    if (countOf(n.shape(i)) != channels)
      return plan::error("{} has not one element for each of the {} channels", typeText(n.in(i)), channels);
  Type element = train::elementTypeOf(n.in(0));
  auto spread = [&](unsigned i) { return n.expr(n.reshape(n.expr(i).cast(element), shape)); };
  Expr rstd = (spread(4) + n.floatAttr("epsilon", 1e-5)).apply<train::RsqrtOp>();
  return n.result((n.expr(0) - spread(3)) * (rstd * spread(1)) + spread(2));
}

/// Along one axis, by its p-norm.
Status lpNormalization(NodeImport &n) {
  TCC_TRY(axis, n.axis(n.intAttr("axis", -1), n.rank(0)));
  int64_t p = n.intAttr("p", 2);
  Expr x = n.expr(0);
  Expr norm = p == 1 ? x.apply<train::AbsOp>().sum({axis}) : (x * x).sum({axis}).apply<train::SqrtOp>();
  // A vector of zeros stays one.
  Expr zero = norm.compare(train::CompareKind::eq, 0);
  return n.result(x / zero.select(norm.like(1), norm));
}

/// (x − mean) / (√variance + 1e-9) over the axes, by default all but the channels'.
Status meanVariance(NodeImport &n) {
  TCC_TRY(axes, n.axes(n.intsAttr("axes").value_or(Shape{0, 2, 3}), n.rank(0)));
  Expr x = n.expr(0), centred = x - x.mean(axes).broadcast(n.shape(0));
  return n.result(centred / ((centred * centred).mean(axes).apply<train::SqrtOp>() + 1e-9));
}

/// x / (bias + alpha/size · Σ x² over neighbouring channels)^beta.
Status localResponse(NodeImport &n) {
  if (n.rank(0) < 2)
    return plan::error("LRN needs a channel dimension, not {}", typeText(n.in(0)));
  int64_t size = n.intAttr("size", 1), before = (size - 1) / 2, channels = n.shape(0)[1];
  if (size < 1)
    return plan::error("a size of {}", size);
  Expr x = n.expr(0), square = x * x, sum = x.like(0);
  Shape padded(n.shape(0)), low(size_t(n.rank(0)), 0);
  padded[1] = channels + size - 1;
  low[1] = before;
  Value around = train::PadOp::create(n.builder, n.loc, n.type(padded, train::elementTypeOf(x)), square.value, low,
                                      Shape(size_t(n.rank(0)), 1), llvm::APFloat(0.0));
  for (int64_t k = 0; k < size; ++k)
    sum = sum + n.expr(n.slice(around, 1, k, channels));
  Expr scale = sum * (n.floatAttr("alpha", 1e-4) / double(size)) + n.floatAttr("bias", 1);
  Expr power = scale.like(n.floatAttr("beta", 0.75));
  return n.result(x / n.expr(train::PowOp::create(n.builder, n.loc, scale.value.getType(), scale.value, power.value)
                                 .getResult()));
}

constexpr OpEntry kTable[] = {
    {"LayerNormalization", 2, layerNorm},
    {"RMSNormalization", 2, rmsNorm},
    {"SimplifiedLayerNormalization", 2, rmsNorm},
    {"InstanceNormalization", 3, instanceNorm},
    {"GroupNormalization", 3, groupNorm},
    {"BatchNormalization", 5, batchNorm},
    {"LpNormalization", 1, lpNormalization},
    {"MeanVarianceNormalization", 1, meanVariance},
    {"LRN", 1, localResponse},
};

} // namespace
} // namespace normalization

std::span<const OpEntry> normalizationOps() { return normalization::kTable; }

} // namespace tcc::frontend

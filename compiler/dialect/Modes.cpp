//===- Modes.cpp - dropout and batch norm -----------------------*- C++ -*-===//
//
// Composites whose op is the training form; ModeDependent gives their inference form.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/Philox.h"
#include "compiler/dialect/Verify.h"

#include <cmath>

using namespace mlir;

namespace tcc::train {

namespace {

/// Statistics and sums are computed in f32 for the 16-bit types.
Type statisticsType(Type element) { return element.isF64() ? element : Float32Type::get(element.getContext()); }
Expr widened(OpBuilder &builder, Location loc, Value x, Type type) { return Expr(builder, loc, x).cast(type); }

} // namespace

//===----------------------------------------------------------------------===//
// dropout
//===----------------------------------------------------------------------===//

namespace {
/// An element is kept if its 32 random bits are at least this: p·2^32.
uint64_t dropThreshold(DropoutOp op) { return uint64_t(std::llround(std::ldexp(op.getP().convertToDouble(), 32))); }
/// 1/(1 − p); 0 if nothing is kept.
double keptScale(DropoutOp op) {
  double p = op.getP().convertToDouble();
  return p < 1 ? 1 / (1 - p) : 0;
}
} // namespace

LogicalResult DropoutOp::verify() {
  double p = getP().convertToDouble();
  if (!(p >= 0 && p <= 1))
    return emitOpError("needs a probability, not ") << p;
  if (getInput().getType() != getResult().getType() || shapeOf(getMask()) != shapeOf(getInput()))
    return emitOpError("needs a result of its input's type and a mask of its shape");
  return success();
}
double DropoutOp::getFlops() { return 62.0 * tensorTypeOf(getInput()).getNumElements(); }

void DropoutOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  auto word = [&](int64_t i) { return uint32_t(operands[1].getInt(i)); };
  uint64_t id = uint64_t(getId());
  for (int64_t i = 0; i < results[0].size(); ++i) {
    uint32_t bits = philox({uint32_t(i), uint32_t(uint64_t(i) >> 32), word(2), word(3)},
                           {word(0) ^ uint32_t(id), word(1) ^ uint32_t(id >> 32)})[0];
    bool kept = bits >= dropThreshold(*this);
    results[0].setDouble(i, kept ? operands[0].getDouble(i) * keptScale(*this) : 0);
    results[1].setInt(i, kept);
  }
}

/// g/(1 − p) where the element was kept
void DropoutOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                              llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(2);
  if (!resultGradients[0])
    return;
  Expr g(builder, getLoc(), resultGradients[0]);
  operandGradients[0] = g.with(getMask()).select(g * keptScale(*this), g.like(0));
}

llvm::SmallVector<Value> DropoutOp::decompose(OpBuilder &builder) {
  Expr x(builder, getLoc(), getInput());
  llvm::ArrayRef<int64_t> shape = shapeOf(x);
  auto words = RankedTensorType::get(shape, builder.getIntegerType(32, false));
  Value bits = RandomOp::create(builder, getLoc(), words, RandomKind::bits, getKey(), getId());
  // bits >= threshold as bits > threshold − 1, since a threshold of 2^32 does not fit into 32 bits.
  uint64_t threshold = dropThreshold(*this);
  Value bound = splatInt(builder, getLoc(), words, int64_t(threshold ? threshold - 1 : 0));
  CompareKind kind = threshold ? CompareKind::gt : CompareKind::ge;
  Expr kept = x.with(train::compare(builder, getLoc(), kind, bits, bound));
  return {kept.select(x * keptScale(*this), x.like(0)), kept};
}

llvm::SmallVector<Value> DropoutOp::buildInference(OpBuilder &builder) {
  return {getInput(), splatInt(builder, getLoc(), getMask().getType(), 1)};
}

//===----------------------------------------------------------------------===//
// batch_norm
//===----------------------------------------------------------------------===//

namespace {
/// All dimensions except the channels.
llvm::SmallVector<int64_t> batchDims(BatchNormOp op) {
  llvm::SmallVector<int64_t> dims;
  for (int64_t i = 0, rank = int64_t(shapeOf(op.getInput()).size()); i < rank; ++i)
    if (i != 1)
      dims.push_back(i);
  return dims;
}

/// One element for each channel, shaped to broadcast over the input.
Expr overChannels(BatchNormOp op, const Expr &value) {
  llvm::SmallVector<int64_t> shape(shapeOf(op.getInput()).size(), 1);
  shape[1] = shapeOf(op.getInput())[1];
  return value.reshape(shape);
}

/// Number of elements in one channel's statistics, on one rank.
double perChannel(BatchNormOp op) {
  return double(tensorTypeOf(op.getInput()).getNumElements()) / double(shapeOf(op.getInput())[1]);
}

/// Means over the elements of each channel; with sync over all ranks, by one message, divided by a number that is known
/// only at run time.
llvm::SmallVector<Expr> meansOf(BatchNormOp op, llvm::ArrayRef<Expr> own) {
  llvm::SmallVector<Expr> means;
  if (!op.getSync()) {
    for (const Expr &sum : own)
      means.push_back(sum * (1 / perChannel(op)));
    return means;
  }
  const Expr &first = own.front();
  llvm::SmallVector<Value> values(own.begin(), own.end());
  Type scalar = RankedTensorType::get({}, elementTypeOf(first));
  values.push_back(splat(*first.builder, first.loc, scalar, perChannel(op)));
  auto sums =
      AllReduceOp::create(*first.builder, first.loc, TypeRange(ValueRange(values)), values, uint64_t(0), uint64_t(0));
  for (Value sum : sums->getResults().drop_back())
    means.push_back(first.with(sum) / first.with(sums->getResults().back()));
  return means;
}
} // namespace

LogicalResult BatchNormOp::verify() {
  llvm::ArrayRef<int64_t> shape = shapeOf(getInput());
  if (shape.size() < 2)
    return emitOpError("needs a batch and a channel dimension");
  if (getInput().getType() != getResult().getType())
    return emitOpError("changes the type of its input");
  for (Value value : {getScale(), getBias(), getRunningMean(), getRunningVariance()})
    if (shapeOf(value) != shape.slice(1, 1))
      return emitOpError("needs one element for each of its ") << shape[1] << " channels";
  for (Value statistic : {Value(getMean()), Value(getVariance())})
    if (shapeOf(statistic) != shape.slice(1, 1) ||
        elementTypeOf(statistic) != statisticsType(elementTypeOf(getInput())))
      return emitOpError("needs statistics in ") << statisticsType(elementTypeOf(getInput()));
  return success();
}
double BatchNormOp::getFlops() { return 8.0 * tensorTypeOf(getInput()).getNumElements(); }

void BatchNormOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  const HostTensor &x = operands[0];
  int64_t channels = x.shape()[1], inner = 1;
  for (int64_t extent : x.shape().drop_front(2))
    inner *= extent;
  auto channelOf = [&](int64_t i) { return i / inner % channels; };
  double count = perChannel(*this);
  std::vector<double> mean(channels, 0), variance(channels, 0);
  for (int64_t i = 0; i < x.size(); ++i)
    mean[channelOf(i)] += x.getDouble(i) / count;
  for (int64_t i = 0; i < x.size(); ++i)
    variance[channelOf(i)] += std::pow(x.getDouble(i) - mean[channelOf(i)], 2) / count;
  for (int64_t c = 0; c < channels; ++c) {
    results[1].setDouble(c, mean[c]);
    results[2].setDouble(c, variance[c]);
  }
  for (int64_t i = 0; i < x.size(); ++i) {
    int64_t c = channelOf(i);
    double normalised = (x.getDouble(i) - mean[c]) / std::sqrt(variance[c] + getEpsilon().convertToDouble());
    results[0].setDouble(i, normalised * operands[1].getDouble(c) + operands[2].getDouble(c));
  }
}

/// With x̂ = (x − mean)·rstd: dx = scale·rstd·(g − mean(g) − x̂·mean(g·x̂)), dscale = Σ g·x̂, dbias = Σ g. The
/// gradients of the statistics add gmean/n and 2·gvariance·(x − mean)/n. With sync, mean(…) and n are over all ranks;
/// dscale and dbias are this rank's.
void BatchNormOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(getNumOperands());
  Location loc = getLoc();
  Type type = elementTypeOf(getMean());
  llvm::SmallVector<int64_t> dims = batchDims(*this), channels = {shapeOf(getInput())[1]};
  Expr x = widened(builder, loc, getInput(), type), centred = x - overChannels(*this, x.with(getMean()));
  std::optional<Expr> dx;
  auto accumulate = [&](const Expr &term) { dx = dx ? *dx + term : term; };
  if (resultGradients[0]) {
    Expr g = widened(builder, loc, resultGradients[0], type), scale = widened(builder, loc, getScale(), type);
    Expr rstd = overChannels(*this, x.with(getVariance()) + getEpsilon().convertToDouble()).apply<RsqrtOp>();
    Expr normalised = centred * rstd, sum = g.sum(dims), weighted = (g * normalised).sum(dims);
    llvm::SmallVector<Expr> means = meansOf(*this, {sum, weighted});
    accumulate(overChannels(*this, scale) * rstd * (g - means[0] - normalised * means[1]));
    operandGradients[1] = weighted.reshape(channels).cast(elementTypeOf(getScale()));
    operandGradients[2] = sum.reshape(channels).cast(elementTypeOf(getBias()));
  }
  // With sync, the losses of all ranks depend on the shared statistics.
  if (resultGradients[1])
    accumulate(meansOf(*this, {overChannels(*this, x.with(resultGradients[1]))})[0].broadcast(shapeOf(x)));
  if (resultGradients[2])
    accumulate(meansOf(*this, {overChannels(*this, x.with(resultGradients[2]))})[0] * 2 * centred);
  if (dx)
    operandGradients[0] = dx->cast(elementTypeOf(getInput()));
}

/// Two passes: the mean, then the mean of squared differences, which never cancels.
llvm::SmallVector<Value> BatchNormOp::decompose(OpBuilder &builder) {
  Type type = elementTypeOf(getMean());
  llvm::SmallVector<int64_t> dims = batchDims(*this), channels = {shapeOf(getInput())[1]};
  Expr x = widened(builder, getLoc(), getInput(), type);
  auto meanOf = [&](const Expr &value) { return getSync() ? meansOf(*this, {value.sum(dims)})[0] : value.mean(dims); };
  Expr mean = meanOf(x), centred = x - mean, variance = meanOf(centred * centred);
  Expr rstd = (variance + getEpsilon().convertToDouble()).apply<RsqrtOp>();
  auto spread = [&](Value value) { return overChannels(*this, widened(builder, getLoc(), value, type)); };
  Expr y = centred * (rstd * spread(getScale())) + spread(getBias());
  return {y.cast(elementTypeOf(getInput())), mean.reshape(channels), variance.reshape(channels)};
}

llvm::SmallVector<Value> BatchNormOp::buildInference(OpBuilder &builder) {
  Type type = elementTypeOf(getMean());
  Expr x = widened(builder, getLoc(), getInput(), type);
  Expr mean = widened(builder, getLoc(), getRunningMean(), type);
  Expr variance = widened(builder, getLoc(), getRunningVariance(), type);
  auto spread = [&](Value value) { return overChannels(*this, widened(builder, getLoc(), value, type)); };
  Expr rstd = (spread(variance) + getEpsilon().convertToDouble()).apply<RsqrtOp>();
  Expr y = (x - spread(mean)) * (rstd * spread(getScale())) + spread(getBias());
  return {y.cast(elementTypeOf(getInput())), mean, variance};
}

} // namespace tcc::train

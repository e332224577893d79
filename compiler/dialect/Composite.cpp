//===- Composite.cpp - softmax and layer norm -------------------*- C++ -*-===//
//
// Composites build their own gradient, which needs less memory than the gradients of their parts, and are then
// decomposed into core ops. Both parts and gradients are computed in f32 for 16-bit types, and rounded once at the end.
//
//===----------------------------------------------------------------------===//
#include "compiler/dialect/Builders.h"
#include "compiler/dialect/Element.h"
#include "compiler/dialect/Verify.h"
#include "compiler/dialect/Views.h"

#include <cmath>
#include <functional>

using namespace mlir;

namespace tcc::train {

/// The type that a composite computes in.
static Type innerType(Type element) {
  return element.isF64() ? element : Float32Type::get(element.getContext());
}
static Expr inner(OpBuilder &builder, Location loc, Value x) {
  return Expr(builder, loc, x).cast(innerType(elementTypeOf(x)));
}

/// e^x for the weights of a softmax over `scores`. Scores of 16 bits have a relative error of up to 2^-9 anyway, so the
/// machine's approximation of e^x will do (kOfNarrow).
static Expr weightsOf(const Expr &x, Value scores) {
  Expr weights = x.exp();
  Value value = rootOf(scores);
  if (auto widened = value.getDefiningOp<CastOp>())
    value = widened.getInput();
  if (Type type = elementTypeOf(value); type.isBF16() || type.isF16())
    Value(weights).getDefiningOp()->setAttr(names::kOfNarrow, x.builder->getUnitAttr());
  return weights;
}

/// Calls `row` with the linear indices of each line along `dim`.
static void forEachRow(const HostTensor &in, int64_t dim,
                       llvm::function_ref<void(llvm::ArrayRef<int64_t> indices)> row) {
  int64_t extent = in.shape()[dim], stride = 1;
  for (int64_t size : in.shape().drop_front(dim + 1))
    stride *= size;
  for (int64_t i = 0; i < in.size(); ++i) {
    if (i / stride % extent != 0)
      continue;
    llvm::SmallVector<int64_t> indices;
    for (int64_t k = 0; k < extent; ++k)
      indices.push_back(i + k * stride);
    row(indices);
  }
}

/// ln Σ e^x, computed relative to the maximum if that is finite.
static double logSumExp(const HostTensor &in, llvm::ArrayRef<int64_t> indices) {
  double largest = -HUGE_VAL, sum = 0;
  for (int64_t i : indices)
    largest = std::max(largest, in.getDouble(i));
  if (!std::isfinite(largest))
    largest = 0;
  for (int64_t i : indices)
    sum += std::exp(in.getDouble(i) - largest);
  return largest + std::log(sum);
}

/// ln Σ e^x for softmax: as in PyTorch, x − max makes a row with +∞ all NaN.
static double shiftOfSoftmax(const HostTensor &in, llvm::ArrayRef<int64_t> indices) {
  double total = logSumExp(in, indices);
  return total == HUGE_VAL ? NAN : total;
}

static double elements(Value value) { return double(tensorTypeOf(value).getNumElements()); }

//===----------------------------------------------------------------------===//
// softmax
//===----------------------------------------------------------------------===//
LogicalResult SoftmaxOp::verify() { return verifyDim(*this, getDim(), shapeOf(getInput()).size()); }
double SoftmaxOp::getFlops() { return 16 * elements(getInput()); }

void SoftmaxOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  forEachRow(operands[0], getDim(), [&](llvm::ArrayRef<int64_t> indices) {
    double total = shiftOfSoftmax(operands[0], indices);
    for (int64_t i : indices)
      results[0].setDouble(i, std::exp(operands[0].getDouble(i) - total));
  });
}

/// y·(g − Σ g·y)
void SoftmaxOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                              llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(1);
  if (!resultGradients[0])
    return;
  Expr g = inner(builder, getLoc(), resultGradients[0]), y = inner(builder, getLoc(), getResult());
  operandGradients[0] = (y * (g - (g * y).sum({int64_t(getDim())}))).cast(elementTypeOf(getInput()));
}

llvm::SmallVector<Value> SoftmaxOp::decompose(OpBuilder &builder) {
  llvm::SmallVector<int64_t> dims = {int64_t(getDim())};
  Expr x = inner(builder, getLoc(), getInput());
  Expr e = weightsOf(x - x.max(dims), getInput());
  return {(e / e.sum(dims)).cast(elementTypeOf(getInput()))};
}

//===----------------------------------------------------------------------===//
// log_softmax
//===----------------------------------------------------------------------===//
LogicalResult LogSoftmaxOp::verify() { return verifyDim(*this, getDim(), shapeOf(getInput()).size()); }
double LogSoftmaxOp::getFlops() { return 16 * elements(getInput()); }

void LogSoftmaxOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  forEachRow(operands[0], getDim(), [&](llvm::ArrayRef<int64_t> indices) {
    double total = shiftOfSoftmax(operands[0], indices);
    for (int64_t i : indices)
      results[0].setDouble(i, operands[0].getDouble(i) - total);
  });
}

/// g − e^y·Σ g
void LogSoftmaxOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                 llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(1);
  if (!resultGradients[0])
    return;
  Expr g = inner(builder, getLoc(), resultGradients[0]), y = inner(builder, getLoc(), getResult());
  operandGradients[0] = (g - weightsOf(y, getInput()) * g.sum({int64_t(getDim())})).cast(elementTypeOf(getInput()));
}

llvm::SmallVector<Value> LogSoftmaxOp::decompose(OpBuilder &builder) {
  llvm::SmallVector<int64_t> dims = {int64_t(getDim())};
  Expr x = inner(builder, getLoc(), getInput());
  Expr shifted = x - x.max(dims);
  return {(shifted - weightsOf(shifted, getInput()).sum(dims).log()).cast(elementTypeOf(getInput()))};
}

//===----------------------------------------------------------------------===//
// logsumexp
//===----------------------------------------------------------------------===//
LogicalResult LogSumExpOp::verify() {
  if (failed(verifyDim(*this, getDim(), shapeOf(getInput()).size())))
    return failure();
  if (elementTypeOf(getInput()) != elementTypeOf(getResult()))
    return emitOpError("changes the element type");
  return verifyKeepsDims(*this, shapeOf(getInput()), shapeOf(getResult()), {int64_t(getDim())});
}
double LogSumExpOp::getFlops() { return 15 * elements(getInput()); }

void LogSumExpOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  forEachRow(operands[0], getDim(), [&](llvm::ArrayRef<int64_t> indices) {
    llvm::SmallVector<int64_t> at = unravel(indices[0], operands[0].shape());
    results[0].setDouble(ravel(at, results[0].shape()), logSumExp(operands[0], indices));
  });
}

/// `x` if it is finite, else 0: subtracting the result never gives ∞ − ∞.
static Expr finiteOrZero(const Expr &x) {
  auto i1 = RankedTensorType::get(shapeOf(x), x.builder->getI1Type());
  Expr finite = x.with(IsFiniteOp::create(*x.builder, x.loc, i1, x));
  return finite.select(x, x.like(0));
}

/// g·e^(x − lse), which is 0 in a row of −∞ alone
void LogSumExpOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(1);
  if (!resultGradients[0])
    return;
  Expr g = inner(builder, getLoc(), resultGradients[0]), x = inner(builder, getLoc(), getInput());
  Expr total = finiteOrZero(inner(builder, getLoc(), getResult()));
  Expr scaled = g * weightsOf(x - total, getInput());
  // A row that no loss counts has no gradient, whatever is in it: kernels skip it (compiler/codegen/RowGuard.h).
  operandGradients[0] = g.compare(CompareKind::ne, 0).select(scaled, scaled.like(0)).cast(elementTypeOf(getInput()));
}

llvm::SmallVector<Value> LogSumExpOp::decompose(OpBuilder &builder) {
  llvm::SmallVector<int64_t> dims = {int64_t(getDim())};
  Expr x = inner(builder, getLoc(), getInput());
  Expr largest = finiteOrZero(x.max(dims));
  return {(largest + weightsOf(x - largest, getInput()).sum(dims).log()).cast(elementTypeOf(getInput()))};
}

//===----------------------------------------------------------------------===//
// layer_norm
//===----------------------------------------------------------------------===//
static llvm::SmallVector<int64_t> normalisedDims(LayerNormOp op) {
  return llvm::to_vector(llvm::seq<int64_t>(op.getAxis(), shapeOf(op.getInput()).size()));
}

LogicalResult LayerNormOp::verify() {
  llvm::ArrayRef<int64_t> shape = shapeOf(getInput());
  if (failed(verifyDim(*this, getAxis(), shape.size())))
    return failure();
  if (getInput().getType() != getResult().getType())
    return emitOpError("changes the type of its input");
  llvm::ArrayRef<int64_t> normalised = shape.drop_front(getAxis());
  if (shapeOf(getScale()) != normalised || (getBias() && shapeOf(getBias()) != normalised))
    return emitOpError("needs scale and bias of the shape of the dimensions from ") << getAxis() << " on";
  for (Value statistic : {Value(getMean()), Value(getRstd())}) {
    if (failed(verifyKeepsDims(*this, shape, shapeOf(statistic), normalisedDims(*this))))
      return failure();
    if (elementTypeOf(statistic) != innerType(elementTypeOf(getInput())))
      return emitOpError("needs statistics in ") << innerType(elementTypeOf(getInput()));
  }
  return success();
}
double LayerNormOp::getFlops() { return 8 * elements(getInput()); }

void LayerNormOp::evaluate(llvm::ArrayRef<HostTensor> operands, llvm::MutableArrayRef<HostTensor> results) {
  const HostTensor &x = operands[0];
  int64_t rows = results[1].size(), extent = rows ? x.size() / rows : 0;
  for (int64_t row = 0; row < rows; ++row) {
    double mean = 0, variance = 0;
    for (int64_t i = row * extent; i < (row + 1) * extent; ++i)
      mean += x.getDouble(i) / double(extent);
    for (int64_t i = row * extent; i < (row + 1) * extent; ++i)
      variance += (x.getDouble(i) - mean) * (x.getDouble(i) - mean) / double(extent);
    double rstd = 1 / std::sqrt(variance + getEpsilon().convertToDouble());
    results[1].setDouble(row, mean);
    results[2].setDouble(row, rstd);
    for (int64_t k = 0; k < extent; ++k) {
      double y = (x.getDouble(row * extent + k) - mean) * rstd * operands[1].getDouble(k);
      results[0].setDouble(row * extent + k, operands.size() > 2 ? y + operands[2].getDouble(k) : y);
    }
  }
}

/// With gw = g·scale and x̂ = (x − mean)·rstd: dx = rstd·(gw − mean(gw) − x̂·mean(gw·x̂)), dscale = Σ g·x̂,
/// dbias = Σ g.
/// The gradients of the saved statistics add gmean/n and −grstd·rstd²·x̂/n.
void LayerNormOp::buildGradient(OpBuilder &builder, ValueRange resultGradients,
                                llvm::SmallVectorImpl<Value> &operandGradients) {
  operandGradients.resize(getNumOperands());
  llvm::SmallVector<int64_t> dims = normalisedDims(*this);
  Location loc = getLoc();
  Expr x = inner(builder, loc, getInput()), mean = x.with(getMean()), rstd = x.with(getRstd());
  Expr normalised = (x - mean) * rstd;
  double count = elements(getInput()) / elements(getMean());
  std::optional<Expr> dx;
  auto accumulate = [&](const Expr &term) { dx = dx ? *dx + term : term; };
  if (resultGradients[0]) {
    Expr g = inner(builder, loc, resultGradients[0]), weighted = g * inner(builder, loc, getScale());
    accumulate(rstd * (weighted - weighted.mean(dims) - normalised * (weighted * normalised).mean(dims)));
    auto toParameter = [&](const Expr &term, Value parameter) {
      return x.with(unbroadcast(builder, loc, term, shapeOf(parameter))).cast(elementTypeOf(parameter));
    };
    operandGradients[1] = toParameter(g * normalised, getScale());
    if (getBias())
      operandGradients[2] = toParameter(g, getBias());
  }
  if (resultGradients[1])
    accumulate((x.with(resultGradients[1]) * (1 / count)).broadcast(shapeOf(x)));
  if (resultGradients[2])
    accumulate(x.with(resultGradients[2]) * (rstd * rstd) * (-1 / count) * normalised);
  if (dx)
    operandGradients[0] = dx->cast(elementTypeOf(getInput()));
}

/// Two passes: the mean, then the mean of squared differences, which never cancels.
llvm::SmallVector<Value> LayerNormOp::decompose(OpBuilder &builder) {
  llvm::SmallVector<int64_t> dims = normalisedDims(*this);
  Expr x = inner(builder, getLoc(), getInput()), mean = x.mean(dims), centred = x - mean;
  Expr rstd = ((centred * centred).mean(dims) + getEpsilon().convertToDouble()).apply<RsqrtOp>();
  Expr y = centred * rstd * inner(builder, getLoc(), getScale());
  if (getBias())
    y = y + inner(builder, getLoc(), getBias());
  return {y.cast(elementTypeOf(getInput())), mean, rstd};
}

} // namespace tcc::train

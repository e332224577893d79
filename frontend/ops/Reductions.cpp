//===- Reductions.cpp - reductions, arg-reductions, scans, softmax --------===//
#include "frontend/ops/Modes.h"

#include <limits>
#include <numeric>

using namespace mlir;

namespace tcc::frontend {
namespace reductions { // named, since files share a translation unit
namespace {

using train::CompareKind;
using train::Expr;
using train::ReduceKind;

/// The computation of a Reduce op over `dims`; the result keeps extents of 1.
using Body = Expected<Expr> (*)(NodeImport &n, const Expr &x, llvm::ArrayRef<int64_t> dims);

template <ReduceKind kind> Expected<Expr> plain(NodeImport &n, const Expr &x, llvm::ArrayRef<int64_t> dims) {
  return x.with(train::reduce(n.builder, n.loc, kind, x, dims));
}
Expr magnitude(const Expr &x) { return x.apply<train::AbsOp>(); }
/// Integers as f64, for intermediate results that are no integers.
Expr real(const Expr &x) { return train::isFloatTensor(x) ? x : x.cast(x.builder->getF64Type()); }
Value logSumExp(NodeImport &n, Value x, int64_t dim) {
  Shape shape(train::shapeOf(x));
  shape[size_t(dim)] = 1;
  return train::LogSumExpOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(x)), x, dim);
}
Expected<Expr> meanOf(NodeImport &, const Expr &x, llvm::ArrayRef<int64_t> dims) {
  int64_t count = 1;
  for (int64_t dim : dims)
    count *= train::shapeOf(x)[size_t(dim)];
  if (count == 0 && !train::isFloatTensor(x))
    return error("the mean of an integer tensor without elements is undefined");
  return dims.empty() ? x : x.sum(dims) / double(count);
}
Expected<Expr> sumOfMagnitudes(NodeImport &, const Expr &x, llvm::ArrayRef<int64_t> dims) {
  return magnitude(x).sum(dims);
}
Expected<Expr> sumOfSquares(NodeImport &, const Expr &x, llvm::ArrayRef<int64_t> dims) {
  return (x * x).sum(dims);
}
/// √Σx², whose gradient at 0 is 0, as in PyTorch.
Expected<Expr> euclidean(NodeImport &, const Expr &given, llvm::ArrayRef<int64_t> dims) {
  Expr x = real(given);
  if (dims.empty())
    return magnitude(x).cast(train::elementTypeOf(given));
  Expr sum = (x * x).sum(dims), isZero = sum.compare(CompareKind::eq, 0.0);
  Expr root = isZero.select(sum.like(1), sum).apply<train::SqrtOp>();
  return isZero.select(root.like(0), root).cast(train::elementTypeOf(given));
}
Expected<Expr> logOfSum(NodeImport &, const Expr &x, llvm::ArrayRef<int64_t> dims) {
  return real(x).sum(dims).log().cast(train::elementTypeOf(x));
}
/// Several dimensions are merged into one, since the maximum that is subtracted has to be that over all of them.
Expected<Expr> logOfSumOfPowers(NodeImport &n, const Expr &given, llvm::ArrayRef<int64_t> dims) {
  Type element = train::elementTypeOf(given);
  llvm::ArrayRef<int64_t> shape = train::shapeOf(given);
  Shape reduced(shape), order, last;
  for (int64_t dim : dims)
    reduced[size_t(dim)] = 1;
  if (dims.empty())
    return given;
  if (countOf(shape) == 0)
    return given.with(n.splat(reduced, element, -std::numeric_limits<double>::infinity()));
  Expr x = real(given);
  if (dims.size() == 1)
    return x.with(logSumExp(n, x, dims[0])).cast(element);
  for (int64_t dim = 0; dim < int64_t(shape.size()); ++dim)
    (llvm::is_contained(dims, dim) ? last : order).push_back(dim);
  Shape flat = {1, 1};
  for (int64_t dim : order)
    flat[0] *= shape[size_t(dim)];
  for (int64_t dim : last)
    flat[1] *= shape[size_t(dim)];
  order.append(last);
  Value rows = n.reshape(train::transpose(n.builder, n.loc, x, order), flat);
  return x.with(n.reshape(logSumExp(n, rows, 1), reduced)).cast(element);
}

/// Axes are an attribute up to opset 17 (12 for ReduceSum), an input later. No axes means all, or with
/// noop_with_empty_axes none.
template <Body body> Status reduction(NodeImport &n) {
  TCC_TRY(given, n.intsFrom("axes", 1));
  Shape dims;
  if (given && !given->empty()) {
    TCC_TRY(checked, n.axes(*given, n.rank(0)));
    dims = checked;
    llvm::sort(dims);
  } else if (!n.intAttr("noop_with_empty_axes", 0)) {
    dims.resize(size_t(n.rank(0)));
    std::iota(dims.begin(), dims.end(), 0);
  }
  TCC_TRY(reduced, body(n, n.expr(0), dims));
  return n.result(n.intAttr("keepdims", 1) ? reduced.value : n.dropDims(reduced, dims));
}

template <bool smallest> Status argument(NodeImport &n) {
  TCC_TRY(dim, n.axis(n.intAttr("axis", 0), n.rank(0)));
  Shape shape(n.shape(0));
  if (shape[size_t(dim)] == 0)
    return error("{} has no elements along axis {}", typeText(n.in(0)), dim);
  shape[size_t(dim)] = 1;
  Value index = train::ArgMaxOp::create(n.builder, n.loc, n.type(shape, n.i64()), n.in(0), dim, smallest,
                                        n.intAttr("select_last_index", 0) != 0);
  return n.result(n.intAttr("keepdims", 1) ? index : n.dropDims(index, {dim}));
}

template <typename OpTy> Status running(NodeImport &n) {
  TCC_TRY(given, n.number(1));
  TCC_TRY(dim, n.axis(int64_t(given), n.rank(0)));
  return n.result(OpTy::create(n.builder, n.loc, n.in(0).getType(), n.in(0), dim, n.intAttr("exclusive", 0) != 0,
                               n.intAttr("reverse", 0) != 0));
}

/// Up to opset 12 the default axis is 1, and all dimensions from the axis on are one; later only the axis itself is
/// reduced, by default the last.
template <typename Build> Status alongAxis(NodeImport &n, Build build) {
  bool old = n.opset < 13;
  TCC_TRY(axis, n.axis(n.intAttr("axis", old ? 1 : -1), n.rank(0)));
  if (!old || axis == n.rank(0) - 1)
    return n.result(build(n.in(0), axis));
  llvm::ArrayRef<int64_t> shape = n.shape(0);
  Value flat = n.reshape(n.in(0), {countOf(shape.take_front(size_t(axis))), countOf(shape.drop_front(size_t(axis)))});
  return n.result(n.reshape(build(flat, 1), shape));
}

template <typename OpTy> Status softmax(NodeImport &n) {
  return alongAxis(n,
                   [&](Value x, int64_t dim) -> Value { return OpTy::create(n.builder, n.loc, x.getType(), x, dim); });
}

/// Softmax; if it was exported from scaled_dot_product_attention, with the dropout of the weights.
Status softmaxOfWeights(NodeImport &n) {
  if (Status status = softmax<train::SoftmaxOp>(n); !status.ok())
    return status;
  return n.result(droppedWeights(n, n.outputs[0].tensor));
}

Status hardmax(NodeImport &n) {
  return alongAxis(n, [&](Value x, int64_t dim) -> Value {
    Shape shape(train::shapeOf(x)), kept = shape;
    kept[size_t(dim)] = 1;
    Expr best =
        n.expr(train::ArgMaxOp::create(n.builder, n.loc, n.type(kept, n.i64()), x, dim, false, false).getResult());
    return best.broadcast(shape).compare(CompareKind::eq, n.expr(n.iota(shape, dim))).cast(train::elementTypeOf(x));
  });
}

constexpr OpEntry kTable[] = {
    {"ReduceSum", 1, scalarsToo<reduction<plain<ReduceKind::sum>>>},
    {"ReduceMax", 1, scalarsToo<reduction<plain<ReduceKind::max>>>},
    {"ReduceMin", 1, scalarsToo<reduction<plain<ReduceKind::min>>>},
    {"ReduceProd", 1, scalarsToo<reduction<plain<ReduceKind::prod>>>},
    {"ReduceMean", 1, scalarsToo<reduction<meanOf>>},
    {"ReduceL1", 1, scalarsToo<reduction<sumOfMagnitudes>>},
    {"ReduceL2", 1, scalarsToo<reduction<euclidean>>},
    {"ReduceSumSquare", 1, scalarsToo<reduction<sumOfSquares>>},
    {"ReduceLogSum", 1, scalarsToo<reduction<logOfSum>>},
    {"ReduceLogSumExp", 1, scalarsToo<reduction<logOfSumOfPowers>>},
    {"ArgMax", 1, scalarsToo<argument<false>>},
    {"ArgMin", 1, scalarsToo<argument<true>>},
    {"CumSum", 2, scalarsToo<running<train::CumSumOp>>},
    {"CumProd", 2, scalarsToo<running<train::CumProdOp>>},
    {"Softmax", 1, scalarsToo<softmaxOfWeights>},
    {"LogSoftmax", 1, scalarsToo<softmax<train::LogSoftmaxOp>>},
    {"Hardmax", 1, scalarsToo<hardmax>},
};

} // namespace
} // namespace reductions

std::span<const OpEntry> reductionOps() { return reductions::kTable; }

} // namespace tcc::frontend

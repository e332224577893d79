//===- Reductions.cpp - reductions, arg-reductions, scans, softmax --------===//
#include "frontend/NodeImport.h"

#include <limits>
#include <numeric>

using namespace mlir;

namespace tcc::frontend {
namespace reductions { // a name, since files share a translation unit
namespace {

using plan::Status;
using train::CompareKind;
using train::Expr;
using train::ReduceKind;

/// What a Reduce op does around the reduction over `dims`, which keeps extents of 1.
using Body = plan::Expected<Expr> (*)(NodeImport &n, const Expr &x, llvm::ArrayRef<int64_t> dims);

template <ReduceKind kind> plan::Expected<Expr> plain(NodeImport &n, const Expr &x, llvm::ArrayRef<int64_t> dims) {
  return x.with(train::reduce(n.builder, n.loc, kind, x, dims));
}
plan::Expected<Expr> meanOf(NodeImport &n, const Expr &x, llvm::ArrayRef<int64_t> dims) {
  int64_t count = 1;
  for (int64_t dim : dims)
    count *= train::shapeOf(x)[size_t(dim)];
  if (count == 0)
    return plan::error("the mean of no elements");
  return x.sum(dims) / double(count);
}
Expr magnitude(NodeImport &n, const Expr &x) {
  return x.with(train::AbsOp::create(n.builder, n.loc, x.value.getType(), x.value).getResult());
}
plan::Expected<Expr> sumOfMagnitudes(NodeImport &n, const Expr &x, llvm::ArrayRef<int64_t> dims) {
  return magnitude(n, x).sum(dims);
}
plan::Expected<Expr> sumOfSquares(NodeImport &n, const Expr &x, llvm::ArrayRef<int64_t> dims) { return (x * x).sum(dims); }
plan::Expected<Expr> euclidean(NodeImport &n, const Expr &x, llvm::ArrayRef<int64_t> dims) {
  Expr sum = (x * x).sum(dims);
  return sum.with(train::SqrtOp::create(n.builder, n.loc, sum.value.getType(), sum.value).getResult());
}
plan::Expected<Expr> logOfSum(NodeImport &n, const Expr &x, llvm::ArrayRef<int64_t> dims) { return x.sum(dims).log(); }
plan::Expected<Expr> logOfSumOfPowers(NodeImport &n, const Expr &x, llvm::ArrayRef<int64_t> dims) {
  Shape shape(train::shapeOf(x));
  for (int64_t dim : dims)
    shape[size_t(dim)] = 1;
  if (countOf(train::shapeOf(x)) == 0)
    return x.with(n.splat(shape, train::elementTypeOf(x), -std::numeric_limits<double>::infinity()));
  if (dims.size() == 1) {
    return x.with(train::LogSumExpOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(x)), x.value, dims[0]));
  }
  Expr largest = x.max(dims);
  return (x - largest).exp().sum(dims).log() + largest;
}

/// Axes are an attribute up to opset 17 (12 for ReduceSum), an input later; none means all, or with
/// noop_with_empty_axes that nothing is reduced.
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
  shape[size_t(dim)] = 1;
  Value index = train::ArgMaxOp::create(n.builder, n.loc, n.type(shape, n.i64()), n.in(0), dim, smallest,
                                        n.intAttr("select_last_index", 0) != 0);
  return n.result(n.intAttr("keepdims", 1) ? index : n.dropDims(index, {dim}));
}

Status cumulativeSum(NodeImport &n) {
  TCC_TRY(given, n.number(1));
  TCC_TRY(dim, n.axis(int64_t(given), n.rank(0)));
  return n.result(train::CumSumOp::create(n.builder, n.loc, n.in(0).getType(), n.in(0), dim,
                                          n.intAttr("exclusive", 0) != 0, n.intAttr("reverse", 0) != 0));
}

/// Up to opset 12 the default axis is 1 and everything from there on is one dimension; later it is one axis, by default
/// the last.
template <typename Build> Status alongAxis(NodeImport &n, Build build) {
  bool old = n.opset < 13;
  if (n.rank(0) == 0)
    return plan::error("it needs at least one dimension");
  TCC_TRY(axis, n.axis(n.intAttr("axis", old ? 1 : -1), n.rank(0)));
  if (!old || axis == n.rank(0) - 1)
    return n.result(build(n.in(0), axis));
  llvm::ArrayRef<int64_t> shape = n.shape(0);
  Value flat = n.reshape(n.in(0), {countOf(shape.take_front(size_t(axis))), countOf(shape.drop_front(size_t(axis)))});
  return n.result(n.reshape(build(flat, 1), shape));
}

template <typename OpTy> Status softmax(NodeImport &n) {
  return alongAxis(n, [&](Value x, int64_t dim) -> Value {
    return OpTy::create(n.builder, n.loc, x.getType(), x, dim);
  });
}

Status hardmax(NodeImport &n) {
  return alongAxis(n, [&](Value x, int64_t dim) -> Value {
    Shape shape(train::shapeOf(x)), kept = shape;
    kept[size_t(dim)] = 1;
    Expr best = n.expr(train::ArgMaxOp::create(n.builder, n.loc, n.type(kept, n.i64()), x, dim, false, false).getResult());
    return best.broadcast(shape).compare(CompareKind::eq, n.expr(n.iota(shape, dim))).cast(train::elementTypeOf(x));
  });
}

constexpr OpEntry kTable[] = {
    {"ReduceSum", 1, reduction<plain<ReduceKind::sum>>},
    {"ReduceMax", 1, reduction<plain<ReduceKind::max>>},
    {"ReduceMin", 1, reduction<plain<ReduceKind::min>>},
    {"ReduceProd", 1, reduction<plain<ReduceKind::prod>>},
    {"ReduceMean", 1, reduction<meanOf>},
    {"ReduceL1", 1, reduction<sumOfMagnitudes>},
    {"ReduceL2", 1, reduction<euclidean>},
    {"ReduceSumSquare", 1, reduction<sumOfSquares>},
    {"ReduceLogSum", 1, reduction<logOfSum>},
    {"ReduceLogSumExp", 1, reduction<logOfSumOfPowers>},
    {"ArgMax", 1, argument<false>},
    {"ArgMin", 1, argument<true>},
    {"CumSum", 2, cumulativeSum},
    {"Softmax", 1, softmax<train::SoftmaxOp>},
    {"LogSoftmax", 1, softmax<train::LogSoftmaxOp>},
    {"Hardmax", 1, hardmax},
};

} // namespace
} // namespace reductions

std::span<const OpEntry> reductionOps() { return reductions::kTable; }

} // namespace tcc::frontend

//===- Indexing.cpp - gathers ---------------------------------------------===//
#include "frontend/NodeImport.h"

using namespace mlir;

namespace tcc::frontend {
namespace indexing { // a name, since files share a translation unit
namespace {

using plan::Status;
using train::CompareKind;
using train::Expr;

Value gatherAlong(NodeImport &n, Value data, Value indices, int64_t axis) {
  Shape shape(train::shapeOf(data));
  Shape result(shape.begin(), shape.begin() + axis);
  result.append(train::shapeOf(indices).begin(), train::shapeOf(indices).end());
  result.append(shape.begin() + axis + 1, shape.end());
  return train::GatherOp::create(n.builder, n.loc, n.type(result, train::elementTypeOf(data)), data, indices, axis);
}

Status gather(NodeImport &n) {
  if (n.rank(0) == 0)
    return plan::error("a scalar has nothing to gather from");
  TCC_TRY(axis, n.axis(n.intAttr("axis", 0), n.rank(0)));
  return n.result(gatherAlong(n, n.in(0), n.in(1), axis));
}

/// Indices in [0, extent): negative ones count from the end.
Expr wrapped(const Expr &index, int64_t extent) {
  return index.compare(CompareKind::lt, 0).select(index + double(extent), index);
}

/// One gather at flattened indices, after Σ index_k · stride_k.
Status gatherND(NodeImport &n) {
  int64_t batch = n.intAttr("batch_dims", 0), rank = n.rank(0), indexRank = n.rank(1);
  if (indexRank < 1 || batch < 0 || batch >= indexRank)
    return plan::error("indices {} do not fit batch_dims = {}", typeText(n.in(1)), batch);
  Shape shape(n.shape(0)), prefix(n.shape(1).drop_back());
  int64_t tuple = n.shape(1).back();
  if (tuple < 1 || batch + tuple > rank)
    return plan::error("indices of {} coordinates do not fit {}", tuple, typeText(n.in(0)));
  Expr indices = n.expr(1).cast(n.i64());
  Expr flat = n.expr(n.splat(prefix, n.i64(), 0));
  for (int64_t d = 0; d < batch; ++d) {
    if (prefix[size_t(d)] != shape[size_t(d)])
      return plan::error("indices {} and {} differ in batch dimension {}", typeText(n.in(1)), typeText(n.in(0)), d);
    flat = flat * double(shape[size_t(d)]) + n.expr(n.iota(prefix, d));
  }
  for (int64_t k = 0; k < tuple; ++k) {
    int64_t extent = shape[size_t(batch + k)];
    Expr coordinate = n.expr(n.reshape(n.slice(indices, indexRank - 1, k, 1), prefix));
    flat = flat * double(extent) + wrapped(coordinate, extent);
  }
  llvm::ArrayRef<int64_t> all(shape);
  Shape merged = {countOf(all.take_front(size_t(batch + tuple)))};
  merged.append(all.begin() + batch + tuple, all.end());
  return n.result(gatherAlong(n, n.reshape(n.in(0), merged), flat, 0));
}

/// result[i][j] = data[index[i][j]][j] (axis 0): one gather at flattened indices.
Status gatherElements(NodeImport &n) {
  TCC_TRY(axis, n.axis(n.intAttr("axis", 0), n.rank(0)));
  Shape shape(n.shape(0)), target(n.shape(1));
  if (target.size() != shape.size())
    return plan::error("indices {} have not the rank of {}", typeText(n.in(1)), typeText(n.in(0)));
  Expr flat = n.expr(n.splat(target, n.i64(), 0));
  for (size_t d = 0; d < shape.size(); ++d) {
    if (int64_t(d) != axis && target[d] > shape[d])
      return plan::error("indices {} exceed {} in dimension {}", typeText(n.in(1)), typeText(n.in(0)), d);
    Expr coordinate =
        int64_t(d) == axis ? wrapped(n.expr(1).cast(n.i64()), shape[d]) : n.expr(n.iota(target, int64_t(d)));
    flat = flat * double(shape[d]) + coordinate;
  }
  return n.result(gatherAlong(n, n.reshape(n.in(0), {countOf(shape)}), flat, 0));
}

constexpr OpEntry kTable[] = {
    {"Gather", 2, gather},
    {"GatherND", 2, gatherND},
    {"GatherElements", 2, gatherElements},
};

} // namespace
} // namespace indexing

std::span<const OpEntry> indexingOps() { return indexing::kTable; }

} // namespace tcc::frontend

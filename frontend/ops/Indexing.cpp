//===- Indexing.cpp - gathers and scatters --------------------------------===//
#include "compiler/dialect/IndexRange.h"
#include "frontend/NodeImport.h"
#include "frontend/TorchNotes.h"

using namespace mlir;

namespace tcc::frontend {
namespace indexing { // named, since files share a translation unit
namespace {

using train::CompareKind;
using train::Expr;
using train::ScatterKind;

Value gatherAlong(NodeImport &n, Value data, Value indices, int64_t axis) {
  Shape shape(train::shapeOf(data));
  Shape result(shape.begin(), shape.begin() + axis);
  result.append(train::shapeOf(indices).begin(), train::shapeOf(indices).end());
  result.append(shape.begin() + axis + 1, shape.end());
  return train::GatherOp::create(n.builder, n.loc, n.type(result, train::elementTypeOf(data)), data, indices, axis);
}

/// Rows of an embedding, without a gradient if the index is `padding_idx`: torch's backward pass skips that row, and
/// the exporter notes `padding_idx` only at the call.
Value withoutPadding(NodeImport &n, Value rows, int64_t padding) {
  Shape shape(train::shapeOf(n.in(1)));
  Expr counts = n.expr(1).compare(CompareKind::ne, double(padding));
  shape.resize(train::shapeOf(rows).size(), 1);
  Value stopped = train::StopGradientOp::create(n.builder, n.loc, rows, fmt::format("padding_idx {}", padding));
  return counts.reshape(shape).broadcast(train::shapeOf(rows)).select(n.expr(rows), n.expr(stopped));
}

Status gather(NodeImport &n) {
  if (n.rank(0) == 0)
    return error("it gathers from a scalar, which has no axis");
  TCC_TRY(axis, n.axis(n.intAttr("axis", 0), n.rank(0)));
  if (n.shape(0)[size_t(axis)] == 0 && countOf(n.shape(1)) > 0)
    return error("{} has no elements along axis {}", typeText(n.in(0)), axis);
  Value gathered = gatherAlong(n, n.in(0), n.in(1), axis);
  const std::optional<int64_t> padding = axis == 0 ? paddingIndex(n.node) : std::nullopt;
  if (padding && isa<FloatType>(train::elementTypeOf(gathered)) && n.in(0).getDefiningOp<train::ReadOp>())
    gathered = withoutPadding(n, gathered, *padding);
  if (const TracedCall call = tracedCall(n.node);
      call.target.starts_with("aten.embedding.") && call.arguments.size() > 3 && call.arguments[3] == "True")
    n.warn("the embedding's scale_grad_by_freq is not applied: each row gets the sum of its gradients, not their mean");
  return n.result(gathered);
}

/// Indices in [0, extent): negative ones count from the end.
Expr wrapped(const Expr &index, int64_t extent) {
  Expr result = index.compare(CompareKind::lt, 0).select(index + double(extent), index);
  if (auto select = result.value.getDefiningOp<train::SelectOp>())
    select->setAttr(train::kWrapsIndex, index.builder->getI64IntegerAttr(extent));
  return result;
}

/// Indices of tuples as positions in the dimensions [batch, batch + tuple) taken as one: Σ index_k · stride_k.
Expr flattened(NodeImport &n, Value given, llvm::ArrayRef<int64_t> shape, int64_t batch) {
  llvm::ArrayRef<int64_t> at = train::shapeOf(given);
  Shape prefix(at.drop_back());
  Expr indices = n.expr(given).cast(n.i64()), flat = n.expr(n.splat(prefix, n.i64(), 0));
  for (int64_t k = 0; k < at.back(); ++k) {
    int64_t extent = shape[size_t(batch + k)];
    flat = flat * double(extent) +
           wrapped(n.expr(n.reshape(n.slice(indices, int64_t(at.size()) - 1, k, 1), prefix)), extent);
  }
  return flat;
}

Value gatherElementsOf(NodeImport &n, Value data, Value indices, llvm::ArrayRef<int64_t> shape, int64_t axis) {
  return train::GatherElementsOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(data)), data, indices,
                                         axis);
}

/// One gather of slices at flattened positions, for each place of the batch dimensions.
Status gatherND(NodeImport &n) {
  int64_t batch = n.intAttr("batch_dims", 0), rank = n.rank(0), indexRank = n.rank(1);
  if (indexRank < 1 || batch < 0 || batch >= indexRank)
    return error("the rank of indices {} must be above batch_dims = {}, which must be at least 0", typeText(n.in(1)),
                 batch);
  llvm::ArrayRef<int64_t> shape = n.shape(0), prefix = n.shape(1).drop_back();
  int64_t tuple = n.shape(1).back();
  if (tuple < 1 || batch + tuple > rank)
    return error("indices of {} coordinates do not fit {}", tuple, typeText(n.in(0)));
  if (shape.take_front(size_t(batch)) != prefix.take_front(size_t(batch)))
    return error("indices {} and {} differ in the first {} dimensions", typeText(n.in(1)), typeText(n.in(0)),
                       batch);
  Expr flat = flattened(n, n.in(1), shape, batch);
  llvm::ArrayRef<int64_t> slice = shape.drop_front(size_t(batch + tuple));
  Shape result(prefix);
  result.append(slice.begin(), slice.end());
  int64_t batches = countOf(shape.take_front(size_t(batch))), rows = countOf(shape.slice(size_t(batch), size_t(tuple)));
  if (batches == 1) {
    Shape merged = {rows};
    merged.append(slice.begin(), slice.end());
    return n.result(n.reshape(gatherAlong(n, n.reshape(n.in(0), merged), flat, 0), result));
  }
  int64_t count = countOf(prefix.drop_front(size_t(batch))), inner = countOf(slice);
  Value gathered = gatherElementsOf(n, n.reshape(n.in(0), {batches, rows, inner}), flat.reshape({batches, count, 1}),
                                    {batches, count, inner}, 1);
  return n.result(n.reshape(gathered, result));
}

/// Checks that indices are not longer than the data along dimensions other than `axis`.
Status checkElements(NodeImport &n, int64_t axis) {
  llvm::ArrayRef<int64_t> shape = n.shape(0), at = n.shape(1);
  if (at.size() != shape.size())
    return error("indices {} must have the rank of {}", typeText(n.in(1)), typeText(n.in(0)));
  for (size_t d = 0; d < shape.size(); ++d)
    if (int64_t(d) != axis && at[d] > shape[d])
      return error("indices {} exceed {} in dimension {}", typeText(n.in(1)), typeText(n.in(0)), d);
  if (shape[size_t(axis)] == 0 && countOf(at) > 0)
    return error("{} has no elements along axis {}", typeText(n.in(0)), axis);
  return {};
}

Status gatherElements(NodeImport &n) {
  TCC_TRY(axis, n.axis(n.intAttr("axis", 0), n.rank(0)));
  if (Status status = checkElements(n, axis); !status.ok())
    return status;
  return n.result(gatherElementsOf(n, n.in(0), n.in(1), n.shape(1), axis));
}

Value scatterInto(NodeImport &n, ScatterKind kind, Value data, Value indices, Value updates, int64_t axis) {
  return train::ScatterOp::create(n.builder, n.loc, data.getType(), kind, data, indices, updates, axis);
}

Expected<ScatterKind> reductionOf(NodeImport &n) {
  std::string name = n.stringAttr("reduction", "none");
  if (name == "none")
    return ScatterKind::set;
  if (std::optional<ScatterKind> kind = train::symbolizeScatterKind(name); kind && *kind != ScatterKind::set)
    return *kind;
  return error("reduction is \"{}\"; it must be none, add, mul, max or min", name);
}

/// ScatterElements, and Scatter as it was called before opset 11.
Status scatterElements(NodeImport &n) {
  TCC_TRY(axis, n.axis(n.intAttr("axis", 0), n.rank(0)));
  TCC_TRY(kind, reductionOf(n));
  if (Status status = checkElements(n, axis); !status.ok())
    return status;
  if (n.shape(1) != n.shape(2))
    return error("updates {} must have the shape of indices {}", typeText(n.in(2)), typeText(n.in(1)));
  if (countOf(n.shape(1)) == 0)
    return n.result(n.in(0));
  return n.result(scatterInto(n, kind, n.in(0), n.in(1), n.in(2), axis));
}

/// Slices at flattened positions: rows of a matrix.
Status scatterND(NodeImport &n) {
  TCC_TRY(kind, reductionOf(n));
  int64_t rank = n.rank(0), indexRank = n.rank(1);
  if (indexRank < 1 || n.shape(1).back() > rank)
    return error("indices {} do not fit {}", typeText(n.in(1)), typeText(n.in(0)));
  llvm::ArrayRef<int64_t> shape = n.shape(0), prefix = n.shape(1).drop_back();
  size_t tuple = size_t(n.shape(1).back());
  Shape expected(prefix);
  expected.append(shape.begin() + tuple, shape.end());
  if (n.shape(2) != llvm::ArrayRef(expected))
    return error("updates must have shape {}, not {}", shapeText(expected), typeText(n.in(2)));
  int64_t rows = countOf(shape.take_front(tuple)), inner = countOf(shape.drop_front(tuple)), count = countOf(prefix);
  if (rows == 0 || inner == 0 || count == 0)
    return n.result(n.in(0));
  Value indices = flattened(n, n.in(1), shape, 0).reshape({count, 1});
  Value result =
      scatterInto(n, kind, n.reshape(n.in(0), {rows, inner}), indices, n.reshape(n.in(2), {count, inner}), 0);
  return n.result(n.reshape(result, shape));
}

/// Writes into a cache from write_indices[batch] on; circular ones wrap around.
Status tensorScatter(NodeImport &n) {
  llvm::ArrayRef<int64_t> shape = n.shape(0), update = n.shape(1);
  TCC_TRY(axis, n.axis(n.intAttr("axis", -2), n.rank(0)));
  std::string mode = n.stringAttr("mode", "linear");
  if (mode != "linear" && mode != "circular")
    return error("mode \"{}\" is neither linear nor circular", mode);
  Shape expected(shape), places(shape.size(), 1), firsts(shape.size(), 1);
  if (update.size() == shape.size())
    expected[size_t(axis)] = update[size_t(axis)];
  if (axis == 0 || update != llvm::ArrayRef(expected) || update[size_t(axis)] > shape[size_t(axis)])
    return error("an update {} does not fit a cache {} along axis {}", typeText(n.in(1)), typeText(n.in(0)),
                       axis);
  if (countOf(update) == 0)
    return n.result(n.in(0));
  places[0] = firsts[0] = shape[0];
  places[size_t(axis)] = update[size_t(axis)];
  Expr index = n.expr(n.iota(places, axis));
  if (n.has(2)) {
    if (n.shape(2) != shape.take_front(1))
      return error("write_indices {} should have {} elements, one for each sample", typeText(n.in(2)), shape[0]);
    index = index + n.expr(2).cast(n.i64()).reshape(firsts);
  }
  if (mode == "circular")
    index = index - index / double(shape[size_t(axis)]) * double(shape[size_t(axis)]);
  return n.result(scatterInto(n, ScatterKind::set, n.in(0), index, n.in(1), axis));
}

/// The first length[sample] elements along time, mirrored.
Status reverseSequence(NodeImport &n) {
  TCC_TRY(time, n.axis(n.intAttr("time_axis", 0), n.rank(0)));
  TCC_TRY(batch, n.axis(n.intAttr("batch_axis", 1), n.rank(0)));
  llvm::ArrayRef<int64_t> shape = n.shape(0);
  if (time == batch)
    return error("time_axis and batch_axis are both {}", time);
  if (n.shape(1) != shape.slice(size_t(batch), 1))
    return error("sequence_lens {} should have {} elements, one for each sample", typeText(n.in(1)),
                 shape[size_t(batch)]);
  Shape places(shape.size(), 1), samples(places);
  places[size_t(batch)] = samples[size_t(batch)] = shape[size_t(batch)];
  places[size_t(time)] = shape[size_t(time)];
  Expr place = n.expr(n.iota(places, time)), length = n.expr(1).cast(n.i64()).reshape(samples);
  Expr index = place.compare(CompareKind::lt, length).select(length - 1.0 - place, place);
  return n.result(gatherElementsOf(n, n.in(0), index, shape, time));
}

/// k is an attribute up to opset 9, an input later. Unsorted results are sorted, too, which is legal.
Status topK(NodeImport &n) {
  TCC_TRY(axis, n.axis(n.intAttr("axis", -1), n.rank(0)));
  int64_t k = n.intAttr("k", -1);
  if (n.opset >= 10) {
    TCC_TRY(given, n.ints(1));
    if (given.size() != 1)
      return error("k must be one number, not {}", typeText(n.in(1)));
    k = given[0];
  }
  Shape shape(n.shape(0));
  if (k < 0 || k > shape[size_t(axis)])
    return error("k is {}; it must be from 0 to {}, the extent of the axis", k, shape[size_t(axis)]);
  shape[size_t(axis)] = k;
  auto sorted = train::SortOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(n.in(0))),
                                      n.type(shape, n.i64()), n.in(0), axis, n.intAttr("largest", 1) != 0);
  if (Status status = n.set(0, sorted.getValues()); !status.ok())
    return status;
  return n.wants(1) ? n.set(1, sorted.getIndices()) : Status();
}

constexpr OpEntry kTable[] = {
    {"Gather", 2, gather},
    {"GatherND", 2, gatherND},
    {"GatherElements", 2, gatherElements},
    {"Scatter", 3, scatterElements},
    {"ScatterElements", 3, scatterElements},
    {"ScatterND", 3, scatterND},
    {"TensorScatter", 2, tensorScatter},
    {"ReverseSequence", 2, reverseSequence},
    {"TopK", 1, topK},
};

} // namespace
} // namespace indexing

std::span<const OpEntry> indexingOps() { return indexing::kTable; }

} // namespace tcc::frontend

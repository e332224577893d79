//===- Patches.cpp - Col2Im, MaxUnpool, CenterCropPad, Det ----------------===//
#include "frontend/ops/Sampling.h"

#include <numeric>

using namespace mlir;

namespace tcc::frontend {
namespace patches { // named, since files share a translation unit
namespace {

using train::CompareKind;
using train::Expr;

/// Sums overlapping blocks of columns into an image. Each pixel has a list of the elements that it sums.
Status col2Im(NodeImport &n) {
  TCC_TRY(image, n.ints(1));
  TCC_TRY(block, n.ints(2));
  size_t rank = image.size();
  Shape strides = n.intsAttr("strides").value_or(Shape(rank, 1)),
        dilations = n.intsAttr("dilations").value_or(Shape(rank, 1));
  Shape pads = n.intsAttr("pads").value_or(Shape(2 * rank, 0)), blocks;
  if (rank < 1 || block.size() != rank || strides.size() != rank || dilations.size() != rank || pads.size() != 2 * rank)
    return error(
        "image {}, block {}, strides {} and dilations {} must have one entry for each spatial dimension, and pads "
        "{} two",
        shapeText(image), shapeText(block), shapeText(strides), shapeText(dilations), shapeText(pads));
  for (size_t d = 0; d < rank; ++d) {
    if (image[d] < 1 || block[d] < 1 || strides[d] < 1 || dilations[d] < 1)
      return error("image {}, block {}, strides {} and dilations {} must be at least 1", shapeText(image),
                         shapeText(block), shapeText(strides), shapeText(dilations));
    for (int64_t number : {image[d], block[d], strides[d], dilations[d], pads[d], pads[d + rank]})
      if (number < -kMostWindow || number > kMostWindow)
        return error("{0} is out of range for a window; −{1} to {1} are supported", number, kMostWindow);
    int64_t room = image[d] + pads[d] + pads[d + rank] - (block[d] - 1) * dilations[d] - 1;
    if (room < 0)
      return error("block {} is larger than image {} with its padding", shapeText(block), shapeText(image));
    blocks.push_back(room / strides[d] + 1);
  }
  int64_t taps = countOf(block), count = countOf(blocks), pixels = countOf(image);
  llvm::ArrayRef<int64_t> x = n.shape(0);
  if (x.size() != 3 || x[1] % taps || x[2] != count)
    return error("{} is not [N, C·{}, {}]", typeText(n.in(0)), taps, count);
  (void)n.table({pixels, int64_t(rank)});
  TapTable table(static_cast<size_t>(pixels));
  (void)n.table({taps, count, int64_t(rank)});
  for (int64_t k = 0; k < taps; ++k)
    for (int64_t l = 0; l < count; ++l) {
      llvm::SmallVector<int64_t> offset = train::unravel(k, block), at = train::unravel(l, blocks);
      bool inside = true;
      for (size_t d = 0; d < rank; ++d) {
        at[d] = at[d] * strides[d] - pads[d] + offset[d] * dilations[d];
        inside &= at[d] >= 0 && at[d] < image[d];
      }
      if (inside)
        table[size_t(train::ravel(at, image))].push_back({k * count + l, 1});
    }
  Shape shape = {x[0], x[1] / taps};
  Value columns = n.reshape(n.in(0), {x[0], shape[1], taps * count});
  shape.append(image);
  return n.result(n.reshape(resample(n, columns, 2, table), shape));
}

/// Moves elements back to the positions that MaxPool took them from; all others are 0. Windows that share their largest
/// element have equal values, so the mean of all values for one position is that value.
Status maxUnpool(NodeImport &n) {
  llvm::ArrayRef<int64_t> x = n.shape(0);
  Shape kernel = n.intsAttr("kernel_shape").value_or(Shape());
  size_t rank = kernel.size();
  Shape strides = n.intsAttr("strides").value_or(Shape(rank, 1)),
        pads = n.intsAttr("pads").value_or(Shape(2 * rank, 0));
  if (rank < 1 || x.size() != rank + 2 || n.shape(1) != x || strides.size() != rank || pads.size() != 2 * rank)
    return error("{}, indices {} and kernel {} do not fit together", typeText(n.in(0)), typeText(n.in(1)),
                       shapeText(kernel));
  Shape natural = {x[0], x[1]};
  for (size_t d = 0; d < rank; ++d)
    for (int64_t number : {x[d + 2], kernel[d], strides[d], pads[d], pads[d + rank]})
      if (number < -kMostWindow || number > kMostWindow)
        return error("{0} is out of range for a window; −{1} to {1} are supported", number, kMostWindow);
  for (size_t d = 0; d < rank; ++d)
    natural.push_back((x[d + 2] - 1) * strides[d] - pads[d] - pads[d + rank] + kernel[d]);
  Shape shape = natural;
  if (n.has(2)) {
    TCC_TRY(given, n.ints(2));
    shape = given;
  }
  bool fits = shape.size() == x.size() && shape[0] == x[0] && shape[1] == x[1];
  for (size_t d = 0; fits && d < shape.size(); ++d)
    fits = natural[d] >= 1 && shape[d] >= natural[d];
  if (!fits)
    return error("the output {} must have the batch and channels of {}, and extents of at least {}", shapeText(shape),
                 typeText(n.in(0)), shapeText(natural));
  int64_t planes = x[0] * x[1], points = countOf(x.drop_front(2)),
          area = countOf(llvm::ArrayRef(natural).drop_front(2));
  Type element = train::elementTypeOf(n.in(0)), wide = weightType(n, element);
  // Indices are relative to the whole tensor.
  Expr index = n.expr(1).reshape({planes, 1, points}) - n.expr(n.iota({planes, 1, 1}, 0)) * double(area);
  auto spread = [&](const Expr &values) {
    return n.expr(train::SpreadOp::create(n.builder, n.loc, n.type({planes, 1, area, 1}, wide), values, index,
                                          n.splat({planes, 1, points}, wide, 1)));
  };
  Expr values = n.expr(0).cast(wide).reshape({planes, 1, points, 1}), arrived = spread(values.like(1));
  Expr result =
      (spread(values) / arrived.compare(CompareKind::gt, 1).select(arrived, arrived.like(1))).reshape(natural);
  if (shape != natural)
    result = n.expr(train::PadOp::create(n.builder, n.loc, n.type(shape, wide), result, Shape(shape.size(), 0),
                                         Shape(shape.size(), 1), llvm::APFloat(0.0)));
  return n.result(result.cast(element));
}

/// Cuts each axis, or pads it with zeros, around its centre.
Status centerCropPad(NodeImport &n) {
  TCC_TRY(wanted, n.ints(1));
  Shape all(static_cast<size_t>(n.rank(0)));
  std::iota(all.begin(), all.end(), 0);
  TCC_TRY(axes, n.axes(n.intsAttr("axes").value_or(all), n.rank(0)));
  if (wanted.size() != axes.size())
    return error("the shape has {} extents, but there are {} axes", wanted.size(), axes.size());
  Value x = n.in(0);
  Shape low(all.size(), 0), shape(n.shape(0));
  for (auto [i, axis] : llvm::enumerate(axes)) {
    int64_t extent = n.shape(0)[size_t(axis)], size = wanted[i];
    if (size < 0)
      return error("the shape {} holds a number below 0", shapeText(wanted));
    if (size < extent)
      x = n.slice(x, axis, (extent - size) / 2, size);
    else
      low[size_t(axis)] = (size - extent) / 2;
    shape[size_t(axis)] = size;
  }
  if (Shape(train::shapeOf(x)) == shape)
    return n.result(x);
  return n.result(train::PadOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(x)), x, low,
                                       Shape(shape.size(), 1), llvm::APFloat(0.0)));
}

/// Elimination is unrolled up to this many rows.
constexpr int64_t kLargestDeterminant = 48;

/// Gaussian elimination on [B, m, m] with full pivoting. So a matrix of rank m − 1 has its zero in the last pivot,
/// which is no divisor: its gradient is the matrix of cofactors, too.
Expr determinant(NodeImport &n, Expr matrix) {
  int64_t batch = train::shapeOf(matrix)[0], size = train::shapeOf(matrix)[1];
  Expr result = n.expr(n.splat({batch, 1, 1}, train::elementTypeOf(matrix), 1));
  for (; size > 1; --size) {
    Expr flat = matrix.reshape({batch, size * size});
    Expr best =
        n.expr(train::ArgMaxOp::create(n.builder, n.loc, n.type({batch, 1}, n.i64()), flat.apply<train::AbsOp>(), 1));
    Expr row = (best / double(size)).reshape({batch, 1, 1}), column = best.reshape({batch, 1, 1}) - row * double(size);
    auto pick = [&](const Expr &from, const Expr &index, Shape shape, int64_t dim) {
      return n.expr(train::PickOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(from)), from,
                                          index.broadcast(shape), dim));
    };
    Expr pivot = pick(flat, best, {batch, 1}, 1).reshape({batch, 1, 1});
    Expr across = pick(matrix, row, {batch, 1, size}, 1), down = pick(matrix, column, {batch, size, 1}, 2);
    Expr safe = pivot.compare(CompareKind::eq, 0).select(pivot.like(1), pivot);
    Expr rest = matrix - down * (across / safe);
    // Remove the pivot's row and column.
    auto without = [&](const Expr &from, const Expr &index, int64_t dim) {
      Value first = n.slice(from, dim, 0, size - 1), second = n.slice(from, dim, 1, size - 1);
      Shape along = {1, 1, 1}, full(train::shapeOf(first));
      along[size_t(dim)] = size - 1;
      Expr before = n.expr(n.iota(along, dim)).compare(CompareKind::lt, index);
      return before.broadcast(full).select(n.expr(first), n.expr(second));
    };
    matrix = without(without(rest, row, 1), column, 2);
    Expr sum = row + column, odd = sum - (sum / 2.0) * 2.0;
    result = result * odd.compare(CompareKind::eq, 0).select(pivot, -pivot);
  }
  return size == 1 ? result * matrix : result;
}

Status det(NodeImport &n) {
  llvm::ArrayRef<int64_t> x = n.shape(0);
  if (x.size() < 2 || x[x.size() - 1] != x[x.size() - 2])
    return error("{} holds no square matrices", typeText(n.in(0)));
  int64_t size = x.back(), batch = countOf(x.drop_back(2));
  if (size > kLargestDeterminant)
    return error("determinants of {0}x{0} matrices are not supported; at most {1}x{1} is",
                       size, kLargestDeterminant);
  Type element = train::elementTypeOf(n.in(0));
  Expr matrix = n.expr(0).cast(weightType(n, element)).reshape({batch, size, size});
  auto at = [&](int64_t i, int64_t j) { return n.expr(n.slice(n.slice(matrix, 1, i, 1), 2, j, 1)); };
  auto minor = [&](int64_t i, int64_t j) { return at(1, i) * at(2, j) - at(1, j) * at(2, i); };
  // Small determinants by their definition, without division.
  Expr result = size == 2   ? at(0, 0) * at(1, 1) - at(0, 1) * at(1, 0)
                : size == 3 ? at(0, 0) * minor(1, 2) - at(0, 1) * minor(0, 2) + at(0, 2) * minor(0, 1)
                            : determinant(n, matrix);
  return n.result(result.reshape(x.drop_back(2)).cast(element));
}

constexpr OpEntry kTable[] = {
    {"Col2Im", 3, col2Im},
    {"MaxUnpool", 2, maxUnpool},
    {"CenterCropPad", 2, centerCropPad},
    {"Det", 1, det},
};

} // namespace
} // namespace patches

std::span<const OpEntry> patchOps() { return patches::kTable; }

} // namespace tcc::frontend

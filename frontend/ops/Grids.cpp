//===- Grids.cpp - GridSample, AffineGrid and DeformConv ------------------===//
//
// Sampling positions depend on data. Along each spatial axis a coordinate becomes taps, whose weights carry the
// gradient to the grid; the taps of all axes are multiplied into one weighted gather. Padding and gradients at the
// borders are PyTorch's (GridSampler.h).
//
//===----------------------------------------------------------------------===//
#include "frontend/ops/Sampling.h"

using namespace mlir;

namespace tcc::frontend {
namespace grids { // named, since files share a translation unit
namespace {

using train::CompareKind;
using train::Expr;

/// Maps a coordinate into an axis of `extent` elements, by the padding mode.
struct Border {
  std::string padding;
  int64_t extent;
  bool corners;

  Expr reflected(const Expr &x) const {
    double low = corners ? 0 : -0.5, span = corners ? double(extent - 1) : double(extent);
    if (span == 0)
      return x.like(0);
    Expr distance = (x - low).apply<train::AbsOp>();
    Expr flips = (distance / span).apply<train::FloorOp>(), rest = distance - flips * span;
    Expr odd = flips - (flips * 0.5).apply<train::FloorOp>() * 2.0;
    return odd.compare(CompareKind::eq, 0).select(rest + low, (span + low) - rest);
  }
  /// The coordinate inside the border; outside, its gradient is 0.
  Expr inside(const Expr &x) const {
    if (padding == "zeros")
      return x;
    return clampFlat(padding == "reflection" ? reflected(x) : x, 0, double(extent - 1));
  }
};

/// The index of the element at each whole coordinate; −1 outside.
Expr elementAt(NodeImport &n, const Expr &whole, int64_t extent) {
  Expr index = clampFlat(whole, -1, double(extent)).cast(n.builder.getI32Type());
  return index.compare(CompareKind::lt, double(extent)).select(index, index.like(-1));
}

/// Weights of Keys' cubic kernel with a = −0.75 for the four elements around a position with fraction `part`.
llvm::SmallVector<Expr> cubicWeights(const Expr &part) {
  double a = -0.75;
  auto near = [&](const Expr &x) { return (x * (a + 2) - (a + 3)) * x * x + 1.0; };
  auto far = [&](const Expr &x) { return ((x * a - 5 * a) * x + 8 * a) * x - 4 * a; };
  return {far(part + 1.0), near(part), near(1.0 - part), far(2.0 - part)};
}

/// The taps of positions [b, p], as [b, t, p].
AxisTaps tapsOf(NodeImport &n, const std::string &mode, const Border &border, const Expr &position) {
  int64_t extent = border.extent;
  Shape one(train::shapeOf(position));
  one.insert(one.begin() + 1, 1);
  if (mode == "nearest") {
    Expr whole = border.inside(position).apply<train::RoundOp>().reshape(one);
    return {elementAt(n, whole, extent), whole.like(1)};
  }
  if (mode == "linear")
    return linearTaps(border.inside(position), extent, 1);
  // Far outside, all taps read the same element, so positions may be clamped.
  double far = border.padding == "reflection" ? 0x1p20 : 4;
  Expr x = clampFlat(position, -far, double(extent) + far), low = x.apply<train::FloorOp>();
  llvm::SmallVector<Expr> indices, weights;
  for (auto [k, weight] : llvm::enumerate(cubicWeights(x - low))) {
    indices.push_back(elementAt(n, border.inside(low + (double(k) - 1)).apply<train::RoundOp>(), extent).reshape(one));
    weights.push_back(weight.reshape(one));
  }
  return {concatenated(indices, 1), concatenated(weights, 1)};
}

/// All axes' taps [b, t_d, p], multiplied out to [b, Π t_d, p].
AxisTaps multiplied(llvm::ArrayRef<AxisTaps> axes, llvm::ArrayRef<int64_t> extents) {
  llvm::ArrayRef<int64_t> first = train::shapeOf(axes[0].index);
  Shape flat = {first[0], 1, first[2]};
  llvm::SmallVector<AxisTaps> spread;
  for (auto [d, axis] : llvm::enumerate(axes)) {
    Shape shape(axes.size() + 2, 1);
    shape.front() = first[0];
    shape.back() = first[2];
    shape[d + 1] = train::shapeOf(axis.index)[1];
    flat[1] *= shape[d + 1];
    spread.push_back({axis.index.reshape(shape), axis.weight.reshape(shape)});
  }
  AxisTaps all = combined(spread, extents);
  return {all.index.reshape(flat), all.weight.reshape(flat)};
}

Status gridSample(NodeImport &n) {
  std::string mode = n.stringAttr("mode", n.opset >= 20 ? "linear" : "bilinear");
  mode = mode == "bilinear" ? "linear" : mode == "bicubic" ? "cubic" : mode;
  std::string padding = n.stringAttr("padding_mode", "zeros");
  if (mode != "linear" && mode != "nearest" && mode != "cubic")
    return error("mode \"{}\" is not one of linear, nearest and cubic", mode);
  if (padding != "zeros" && padding != "border" && padding != "reflection")
    return error("padding_mode \"{}\" is not one of zeros, border and reflection", padding);
  llvm::ArrayRef<int64_t> x = n.shape(0), grid = n.shape(1);
  size_t rank = x.size() < 3 ? 0 : x.size() - 2;
  if (rank < 1 || grid.size() != x.size() || grid[0] != x[0] || grid.back() != int64_t(rank))
    return error("{} and grid {} are not [N, C, spatial…] and [N, spatial…, {}]", typeText(n.in(0)),
                       typeText(n.in(1)), rank);
  bool corners = n.intAttr("align_corners", 0) != 0;
  Type element = train::elementTypeOf(n.in(0));
  bool whole = !isa<FloatType>(element);
  Value input = whole ? n.expr(0).cast(n.builder.getF32Type()).value : n.in(0);
  Type wide = weightType(n, train::elementTypeOf(input));
  int64_t points = countOf(grid.drop_front(1).drop_back(1));
  Shape result = {x[0], x[1]};
  result.append(grid.begin() + 1, grid.end() - 1);
  if (countOf(result) == 0 || countOf(x) == 0)
    return countOf(x) == 0 && countOf(result) > 0 ? error("{} has no elements to sample", typeText(n.in(0)))
                                                  : n.result(n.splat(result, element, 0));
  Expr places = n.expr(n.in(1)).cast(wide).reshape({x[0], points, int64_t(rank)});
  llvm::SmallVector<AxisTaps> axes;
  for (size_t d = 0; d < rank; ++d) {
    // The first coordinate of a grid is x, the last axis.
    Expr g = places.with(n.slice(places, 2, int64_t(rank - 1 - d), 1)).reshape({x[0], points});
    double extent = double(x[d + 2]);
    Expr position = corners ? (g + 1.0) * ((extent - 1) / 2) : ((g + 1.0) * extent - 1.0) * 0.5;
    axes.push_back(tapsOf(n, mode, {padding, x[d + 2], corners}, position));
  }
  llvm::ArrayRef<int64_t> extents = x.drop_front(2);
  Value sums = sample(n, n.reshape(input, {x[0], x[1], countOf(extents)}), multiplied(axes, extents));
  return n.result(n.expr(n.reshape(sums, result)).cast(element));
}

/// theta · [x, y, (z,) 1] at the centres (or, aligned, the corners) of a grid over [−1, 1].
Status affineGrid(NodeImport &n) {
  TCC_TRY(size, n.ints(1));
  size_t rank = size.size() < 2 ? 0 : size.size() - 2;
  if (rank < 2 || rank > 3 || n.rank(0) != 3 || n.shape(0)[0] != size[0] || n.shape(0)[1] != int64_t(rank) ||
      n.shape(0)[2] != int64_t(rank) + 1)
    return error(
        "theta {} does not fit the size {}: [N, 2, 3] goes with [N, C, H, W], [N, 3, 4] with [N, C, D, H, W]",
        typeText(n.in(0)), shapeText(size));
  bool corners = n.intAttr("align_corners", 0) != 0;
  llvm::ArrayRef<int64_t> extents = llvm::ArrayRef(size).drop_front(2);
  for (int64_t extent : extents)
    if (extent < 1)
      return error("the size {} holds a number below 1", shapeText(size));
  int64_t points = countOf(extents), columns = int64_t(rank) + 1;
  (void)n.table({points, columns});
  llvm::SmallVector<double> base;
  for (int64_t p = 0; p < points; ++p) {
    llvm::SmallVector<int64_t> at = train::unravel(p, extents);
    for (size_t d = rank; d-- > 0;) {
      double extent = double(extents[d]), i = double(at[d]);
      base.push_back(corners ? (extent > 1 ? 2 * i / (extent - 1) - 1 : 0) : (2 * i + 1) / extent - 1);
    }
    base.push_back(1);
  }
  Type element = train::elementTypeOf(n.in(0)), wide = weightType(n, element);
  Shape shape = {size[0]};
  shape.append(extents.begin(), extents.end());
  shape.push_back(int64_t(rank));
  Value all = n.broadcast(floats(n, {1, points, columns}, wide, base), {size[0], points, columns});
  Value product = train::MatMulOp::create(n.builder, n.loc, n.type({size[0], points, int64_t(rank)}, wide), all,
                                          n.expr(0).cast(wide), false, true);
  return n.result(n.expr(n.reshape(product, shape)).cast(element));
}

/// A convolution whose taps are moved by `offset` and scaled by `mask`, Dai et al., arXiv:1703.06211 and 1811.11168:
/// its columns are sampled, then multiplied by the weight.
Status deformConv(NodeImport &n) {
  llvm::ArrayRef<int64_t> x = n.shape(0), w = n.shape(1), offset = n.shape(2);
  size_t rank = x.size() < 3 ? 0 : x.size() - 2;
  if (rank < 1 || w.size() != x.size() || offset.size() != x.size())
    return error("{}, weight {} and offset {} should have the same rank, at least 3", typeText(n.in(0)),
                       typeText(n.in(1)), typeText(n.in(2)));
  int64_t groups = n.intAttr("group", 1), shared = n.intAttr("offset_group", 1), taps = countOf(w.drop_front(2));
  if (groups < 1 || shared < 1 || w[1] * groups != x[1] || w[0] % groups || x[1] % shared)
    return error("weight {} does not fit {} in {} groups and {} groups of offsets", typeText(n.in(1)),
                       typeText(n.in(0)), groups, shared);
  Shape strides = n.intsAttr("strides").value_or(Shape(rank, 1)),
        dilations = n.intsAttr("dilations").value_or(Shape(rank, 1));
  Shape pads = n.intsAttr("pads").value_or(Shape(2 * rank, 0)), outputs;
  if (strides.size() != rank || dilations.size() != rank || pads.size() != 2 * rank)
    return error("for {} spatial dimensions, strides and dilations should have one entry each, and pads two", rank);
  for (size_t d = 0; d < rank; ++d) {
    if (strides[d] < 1 || dilations[d] < 1)
      return error("strides {} and dilations {} must be at least 1", shapeText(strides), shapeText(dilations));
    for (int64_t number : {strides[d], dilations[d], pads[d], pads[d + rank], w[d + 2]})
      if (number < -kMostWindow || number > kMostWindow)
        return error("{0} is out of range for a window; −{1} to {1} are supported", number, kMostWindow);
    int64_t room = x[d + 2] + pads[d] + pads[d + rank] - (w[d + 2] - 1) * dilations[d] - 1;
    if (room < 0)
      return error("the window is larger than spatial dimension {} with its padding", d);
    outputs.push_back(room / strides[d] + 1);
  }
  int64_t points = countOf(outputs), batch = x[0] * shared;
  if (offset.drop_front(2) != llvm::ArrayRef(outputs) || offset[0] != x[0] ||
      offset[1] != shared * taps * int64_t(rank))
    return error("offset {} is not [{}, {}, {}]", typeText(n.in(2)), x[0], shared * taps * int64_t(rank),
                       fmt::join(outputs, ", "));
  if (n.has(4) && countOf(n.shape(4)) != x[0] * shared * taps * points)
    return error(
        "mask {} should have {} × {} × {} elements for each sample: offset groups, kernel elements and outputs",
        typeText(n.in(4)), shared, taps, points);
  Type element = train::elementTypeOf(n.in(0)), wide = weightType(n, element);
  Expr moved = n.expr(2).cast(wide).reshape({batch, taps, int64_t(rank), points});
  (void)n.table({taps, points});
  llvm::SmallVector<AxisTaps> axes;
  for (size_t d = 0; d < rank; ++d) {
    llvm::SmallVector<double> places;
    for (int64_t k = 0; k < taps; ++k)
      for (int64_t p = 0; p < points; ++p)
        places.push_back(double(train::unravel(p, outputs)[d] * strides[d] - pads[d] +
                                train::unravel(k, w.drop_front(2))[d] * dilations[d]));
    Expr base = n.expr(floats(n, {1, taps * points}, wide, places));
    Expr shift = moved.with(n.slice(moved, 2, int64_t(d), 1)).reshape({batch, taps * points});
    axes.push_back(linearTaps(base + shift, x[d + 2], 1));
  }
  llvm::ArrayRef<int64_t> extents = x.drop_front(2);
  Expr columns =
      n.expr(sample(n, n.reshape(n.in(0), {batch, x[1] / shared, countOf(extents)}), multiplied(axes, extents)));
  if (n.has(4))
    columns = columns * n.expr(n.reshape(n.in(4), {batch, 1, taps * points}));
  int64_t depth = w[1] * taps, perGroup = w[0] / groups;
  Value weight = n.broadcast(n.reshape(n.in(1), {1, groups, perGroup, depth}), {x[0], groups, perGroup, depth});
  Value product = train::MatMulOp::create(n.builder, n.loc, n.type({x[0] * groups, perGroup, points}, element),
                                          n.reshape(weight, {x[0] * groups, perGroup, depth}),
                                          columns.reshape({x[0] * groups, depth, points}), false, false);
  Shape shape = {x[0], w[0]}, bias(x.size(), 1);
  shape.append(outputs);
  Expr result = n.expr(n.reshape(product, shape));
  bias[1] = w[0];
  if (n.has(3) && countOf(n.shape(3)) != w[0])
    return error("bias {} should have {} elements, one for each channel", typeText(n.in(3)), w[0]);
  return n.result(n.has(3) ? result + n.expr(n.reshape(n.in(3), bias)) : result);
}

constexpr OpEntry kTable[] = {
    {"GridSample", 2, gridSample},
    {"AffineGrid", 2, affineGrid},
    {"DeformConv", 3, deformConv},
};

} // namespace
} // namespace grids

std::span<const OpEntry> gridOps() { return grids::kTable; }

} // namespace tcc::frontend

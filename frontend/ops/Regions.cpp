//===- Regions.cpp - RoiAlign and MaxRoiPool ------------------------------===//
#include "frontend/ops/Sampling.h"

#include <cmath>

using namespace mlir;

namespace tcc::frontend {
namespace regions { // named, since files share a translation unit
namespace {

using train::CompareKind;
using train::Expr;

/// Most bins, and most samples in a bin, along one axis.
constexpr int64_t kMostBins = int64_t(1) << 16;

/// Column `i` of [R, columns], as [R].
Expr column(NodeImport &n, const Expr &rois, int64_t i) {
  return n.expr(n.slice(rois, 1, i, 1)).reshape({train::shapeOf(rois)[0]});
}

/// One axis of RoiAlign: `grid` samples in each of `bins`, two taps each.
struct Samples {
  AxisTaps taps; ///< [grid, 2, R, bins]
  Expr count;    ///< [R]: samples in a bin
  int64_t grid;
};

/// Samples of regions from `begin` to `end` ([R]). If the number of samples (`ratio`) is not given, a bin has one for
/// each element that it covers: `grid` samples are built, of which each region uses as many as it needs.
Samples samplesOf(NodeImport &n, const Expr &begin, const Expr &end, int64_t bins, int64_t extent, int64_t ratio,
                  int64_t grid, bool align) {
  int64_t regions = train::shapeOf(begin)[0];
  Expr size = end - begin;
  if (!align)
    size = size.with(train::MaxOp::create(n.builder, n.loc, size, size.like(1)));
  Expr bin = size / double(bins), count = bin.like(double(grid));
  if (ratio <= 0) {
    count = bin.apply<train::CeilOp>();
    count = clampFlat(count, 0, double(grid));
  }
  Type element = train::elementTypeOf(begin), i32 = n.builder.getI32Type();
  Shape full = {grid, 1, regions, bins};
  Expr sample = n.expr(n.iota({grid, 1, 1, 1}, 0)).cast(element),
       place = n.expr(n.iota({1, 1, 1, bins}, 3)).cast(element);
  auto perRegion = [&](const Expr &x) { return x.reshape({1, 1, regions, 1}); };
  Expr safe = count.compare(CompareKind::gt, 0).select(count, count.like(1));
  Expr at = perRegion(begin) + place * perRegion(bin) + (sample + 0.5) * perRegion(bin) / perRegion(safe);
  // Samples more than one element outside are 0, those nearer are clamped to the border; the last element has no
  // neighbour.
  double last = double(extent - 1);
  Expr none = at.like(-1);
  Expr low = clampFlat(at, 0, last), whole = low.apply<train::FloorOp>(), part = low - whole;
  Expr next = clampFlat(whole + 1.0, 0, last);
  auto kept = [&](const Expr &index) {
    Expr inside =
        at.compare(CompareKind::ge, -1).select(at.compare(CompareKind::le, double(extent)).select(index, none), none);
    Expr counted = sample.broadcast(full).compare(CompareKind::lt, perRegion(count)).select(inside, none);
    return counted.cast(i32);
  };
  return {{concatenated({kept(whole), kept(next)}, 1), concatenated({1.0 - part, part}, 1)}, count, grid};
}

/// The value without a gradient (by bit casts): torchvision has no gradient of regions, since samples jump when their
/// number changes.
Expr held(NodeImport &n, const Expr &x) {
  Type element = train::elementTypeOf(x), bits = n.builder.getIntegerType(element.getIntOrFloatBitWidth());
  Shape shape(train::shapeOf(x));
  return n.expr(train::BitCastOp::create(n.builder, n.loc, n.type(shape, element),
                                         train::BitCastOp::create(n.builder, n.loc, n.type(shape, bits), x)));
}

/// Samples per bin along one axis, if each region has as many as its bins have elements.
struct Grid {
  int64_t samples;
  int64_t needed; ///< samples that the largest region needs, if regions are constants; else −1
};

/// Constant regions determine the number of samples; otherwise it suffices for regions up to the tensor's own size, and
/// slightly larger ones.
Grid gridOf(NodeImport &n, unsigned first, int64_t bins, int64_t extent, bool align) {
  constexpr int64_t kMost = 256; // most samples along one axis of a bin, unless the tensor's size needs more
  int64_t whole = (extent + bins) / bins + 1;
  DenseElementsAttr given = n.constantOf(n.in(1));
  if (!given)
    return {whole, -1};
  (void)n.table({given.getNumElements()});
  train::HostTensor rois = train::HostTensor::fromAttribute(given);
  auto largest = [&](auto scale, auto count) {
    using Float = decltype(scale); // the precision of the program
    Float most = 0;
    for (int64_t r = 0; r < rois.size() / 4; ++r) {
      auto at = [&](unsigned i) -> Float { return Float(rois.getDouble(r * 4 + i)) * scale - Float(align ? 0.5 : 0); };
      Float size = at(first + 2) - at(first);
      most = std::max(most, std::ceil((align ? size : std::max(size, Float(1))) / count));
    }
    return double(most);
  };
  double scale = n.floatAttr("spatial_scale", 1);
  double needed =
      train::elementTypeOf(n.in(1)).isF64() ? largest(scale, double(bins)) : largest(float(scale), float(bins));
  int64_t count = int64_t(std::clamp(needed, 1.0, 0x1p40));
  return {std::min(count, std::max(whole, kMost)), count};
}

/// Warns which regions get fewer samples than ONNX requires.
void warnOfCoarseness(NodeImport &n, const Grid &rows, const Grid &columns, int64_t height, int64_t width) {
  if (rows.needed >= 0 && rows.needed <= rows.samples && columns.needed <= columns.samples)
    return;
  double scale = n.floatAttr("spatial_scale", 1);
  auto size = [&](const Grid &grid, int64_t bins) { return double(grid.samples * bins) / scale; };
  n.warn(fmt::format(
      "sampling_ratio is 0: each region takes as many samples as its size needs, at most as many as a region "
      "{:.6g} high and {:.6g} wide; clip regions to the image, where none is larger, or export with a sampling_ratio",
      size(rows, height), size(columns, width)));
}

Status roiAlign(NodeImport &n) {
  llvm::ArrayRef<int64_t> x = n.shape(0), rois = n.shape(1);
  if (x.size() != 4 || rois.size() != 2 || rois[1] != 4 || countOf(n.shape(2)) != rois[0])
    return error("{}, rois {} and batch indices {} are not [N, C, H, W], [R, 4] and [R]", typeText(n.in(0)),
                       typeText(n.in(1)), typeText(n.in(2)));
  std::string mode = n.stringAttr("mode", "avg");
  std::string transform =
      n.stringAttr("coordinate_transformation_mode", n.opset >= 16 ? "half_pixel" : "output_half_pixel");
  if (mode != "avg" && mode != "max")
    return error("mode \"{}\" is not one of avg and max", mode);
  if (transform != "half_pixel" && transform != "output_half_pixel")
    return error("coordinate_transformation_mode \"{}\" is not valid", transform);
  int64_t height = n.intAttr("output_height", 1), width = n.intAttr("output_width", 1),
          ratio = n.intAttr("sampling_ratio", 0);
  if (height < 1 || width < 1 || ratio < 0 || std::max({height, width, ratio}) > kMostBins)
    return error(
        "output_height {} and output_width {} must be at least 1, sampling_ratio {} at least 0, and each at most {}",
        height, width, ratio, kMostBins);
  int64_t count = rois[0], channels = x[1], area = x[2] * x[3], points = countOf({count, height, width});
  Type element = train::elementTypeOf(n.in(0)), wide = weightType(n, element), i32 = n.builder.getI32Type();
  if (count == 0 || countOf(x) == 0)
    return n.result(n.splat({count, channels, height, width}, element, 0));
  bool align = transform == "half_pixel";
  Expr scaled = held(n, n.expr(1).cast(wide)) * n.floatAttr("spatial_scale", 1) - (align ? 0.5 : 0.0);
  Grid rows = {ratio, ratio}, columns = {ratio, ratio};
  if (ratio == 0) {
    rows = gridOf(n, 1, height, x[2], align);
    columns = gridOf(n, 0, width, x[3], align);
    warnOfCoarseness(n, rows, columns, height, width);
  }
  Samples ys = samplesOf(n, column(n, scaled, 1), column(n, scaled, 3), height, x[2], ratio, rows.samples, align);
  Samples xs = samplesOf(n, column(n, scaled, 0), column(n, scaled, 2), width, x[3], ratio, columns.samples, align);
  auto alongRows = [&](const Expr &v) { return v.reshape({ys.grid, 2, 1, 1, count, height, 1}); };
  auto alongColumns = [&](const Expr &v) { return v.reshape({1, 1, xs.grid, 2, count, 1, width}); };
  AxisTaps taps = combined({{alongRows(ys.taps.index), alongRows(ys.taps.weight)},
                            {alongColumns(xs.taps.index), alongColumns(xs.taps.weight)}},
                           {x[2], x[3]});
  // The images of the batch are one after another.
  Expr first = n.expr(2).cast(i32).reshape({1, 1, 1, 1, count, 1, 1}) * double(area);
  Expr place = taps.index.compare(CompareKind::ge, 0).select(taps.index + first, taps.index);
  Value all = n.reshape(train::transpose(n.builder, n.loc, n.in(0), {1, 0, 2, 3}), {1, channels, x[0] * area});
  int64_t perBin = ys.grid * xs.grid * 4;
  auto finish = [&](const Expr &value) { // [1, C, R·h·w]
    Value shaped = n.reshape(value, {channels, count, height, width});
    return n.result(n.expr(train::transpose(n.builder, n.loc, shaped, {1, 0, 2, 3})).cast(element));
  };
  if (mode == "max") {
    // The largest of the weighted taps, as ONNX defines it; samples that a region does not use are no candidates.
    Value single =
        sample(n, all, {place.reshape({1, 1, perBin * points}), taps.weight.like(1).reshape({1, 1, perBin * points})});
    Expr values =
        n.expr(single).cast(wide).reshape({channels, perBin, points}) * taps.weight.reshape({1, perBin, points});
    if (ratio == 0) {
      auto used = [&](const Samples &s, int64_t dim) {
        Shape shape(7, 1), regions(7, 1);
        shape[size_t(dim)] = s.grid;
        regions[4] = count;
        return n.expr(n.iota(shape, dim)).cast(wide).compare(CompareKind::lt, s.count.reshape(regions));
      };
      Expr y = used(ys, 0), z = used(xs, 2);
      Shape full = {ys.grid, 2, xs.grid, 2, count, height, width};
      Expr both = y.broadcast(full).select(z.broadcast(full), y.like(0).broadcast(full));
      values = both.reshape({1, perBin, points}).select(values, values.like(-HUGE_VAL));
      Expr largest = values.max({1});
      return finish(largest.compare(CompareKind::gt, -HUGE_VAL).select(largest, largest.like(0)));
    }
    return finish(values.max({1}));
  }
  Expr samples = ys.count.reshape({1, 1, count, 1}) * xs.count.reshape({1, 1, count, 1});
  samples = samples.compare(CompareKind::ge, 1).select(samples, samples.like(1));
  Expr sums = n.expr(sample(n, all, {place.reshape({1, perBin, points}), taps.weight.reshape({1, perBin, points})}));
  return finish(sums.cast(wide).reshape({1, channels, count, height * width}) / samples);
}

/// The largest element of each part of a region, Girshick, arXiv:1504.08083; parts without elements are 0. Reduces
/// rows, then columns, each masked to its bins.
Status maxRoiPool(NodeImport &n) {
  llvm::ArrayRef<int64_t> x = n.shape(0), rois = n.shape(1);
  Shape pooled = n.intsAttr("pooled_shape").value_or(Shape());
  if (x.size() != 4 || rois.size() != 2 || rois[1] != 5 || pooled.size() != 2 || pooled[0] < 1 || pooled[1] < 1 ||
      std::max(pooled[0], pooled[1]) > kMostBins)
    return error("{}, rois {} and pooled_shape {} are not [N, C, H, W], [R, 5] and [h, w]", typeText(n.in(0)),
                       typeText(n.in(1)), shapeText(pooled));
  int64_t count = rois[0], channels = x[1];
  Type element = train::elementTypeOf(n.in(0)), wide = weightType(n, element);
  if (count == 0 || countOf(x) == 0)
    return n.result(n.splat({count, channels, pooled[0], pooled[1]}, element, 0));
  Expr given = n.expr(1).cast(wide);
  double scale = n.floatAttr("spatial_scale", 1);
  auto rounded = [&](int64_t i) { return (column(n, given, i) * scale + 0.5).apply<train::FloorOp>(); };
  // [R, bins, extent]: which elements belong to a bin.
  auto mask = [&](int64_t first, int64_t bins, int64_t extent) {
    Expr begin = rounded(first), size = rounded(first + 2) - begin + 1.0;
    Expr bin = size.with(train::MaxOp::create(n.builder, n.loc, size, size.like(1))) / double(bins);
    Expr index = n.expr(n.iota({1, bins, 1}, 1)).cast(wide), at = n.expr(n.iota({1, 1, extent}, 2)).cast(wide);
    auto perRegion = [&](const Expr &v) { return v.reshape({count, 1, 1}); };
    Expr from = (index * perRegion(bin)).apply<train::FloorOp>() + perRegion(begin);
    Expr to = ((index + 1.0) * perRegion(bin)).apply<train::CeilOp>() + perRegion(begin);
    Expr after = at.compare(CompareKind::ge, from), before = at.compare(CompareKind::lt, to);
    return after.with(train::AndOp::create(n.builder, n.loc, after, before));
  };
  Expr rows = mask(2, pooled[0], x[2]), columns = mask(1, pooled[1], x[3]);
  Expr batch = column(n, given, 0).cast(n.builder.getI64Type());
  Expr own = n.expr(
      train::GatherOp::create(n.builder, n.loc, n.type({count, channels, x[2], x[3]}, element), n.in(0), batch, 0));
  Shape full = {count, channels, x[2], pooled[1], x[3]};
  Expr lowest = own.like(-HUGE_VAL).reshape({count, channels, x[2], 1, x[3]});
  Expr across = columns.reshape({count, 1, 1, pooled[1], x[3]})
                    .select(own.reshape({count, channels, x[2], 1, x[3]}).broadcast(full), lowest.broadcast(full))
                    .max({4})
                    .reshape({count, channels, 1, x[2], pooled[1]});
  Shape down = {count, channels, pooled[0], x[2], pooled[1]};
  Expr largest = rows.reshape({count, 1, pooled[0], x[2], 1})
                     .select(across.broadcast(down), across.like(-HUGE_VAL).broadcast(down))
                     .max({3})
                     .reshape({count, channels, pooled[0], pooled[1]});
  return n.result(largest.compare(CompareKind::gt, -HUGE_VAL).select(largest, largest.like(0)));
}

constexpr OpEntry kTable[] = {
    {"RoiAlign", 3, roiAlign},
    {"MaxRoiPool", 2, maxRoiPool},
};

} // namespace
} // namespace regions

std::span<const OpEntry> regionOps() { return regions::kTable; }

} // namespace tcc::frontend

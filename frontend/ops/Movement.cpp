//===- Movement.cpp - parts of tensors, and tensors from parts ------------===//
#include "frontend/NodeImport.h"

#include <cmath>
#include <limits>
#include <numeric>

using namespace mlir;

namespace tcc::frontend {
namespace movement { // a name, since files share a translation unit
namespace {

using plan::Status;

Status concat(NodeImport &n) {
  TCC_TRY(axis, n.axis(n.intAttr("axis", 0), n.rank(0)));
  llvm::SmallVector<Value> parts;
  Shape shape(n.shape(0));
  shape[size_t(axis)] = 0;
  for (unsigned i = 0; i < n.inputs.size(); ++i) {
    if (n.rank(i) != n.rank(0))
      return plan::error("{} and {} have not the same rank", typeText(n.in(0)), typeText(n.in(i)));
    for (int64_t d = 0; d < n.rank(0); ++d)
      if (d != axis && n.shape(i)[size_t(d)] != shape[size_t(d)])
        return plan::error("{} and {} differ outside of axis {}", typeText(n.in(0)), typeText(n.in(i)), axis);
    shape[size_t(axis)] += n.shape(i)[size_t(axis)];
    if (n.shape(i)[size_t(axis)] != 0)
      parts.push_back(n.in(i));
  }
  if (parts.size() <= 1)
    return n.result(parts.empty() ? n.in(0) : parts[0]);
  return n.result(train::ConcatOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(n.in(0))), parts, axis));
}

Status split(NodeImport &n) {
  TCC_TRY(axis, n.axis(n.intAttr("axis", 0), n.rank(0)));
  TCC_TRY(given, n.intsFrom("split", 1));
  int64_t extent = n.shape(0)[size_t(axis)], parts = n.node.output_size();
  Shape sizes;
  if (given) {
    sizes = *given;
  } else {
    int64_t size = (extent + parts - 1) / parts;
    for (int64_t begin = 0, i = 0; i < parts; ++i, begin += size)
      sizes.push_back(std::clamp<int64_t>(extent - begin, 0, size));
  }
  if (int64_t(sizes.size()) != parts || std::accumulate(sizes.begin(), sizes.end(), int64_t(0)) != extent)
    return plan::error("{} parts of sizes {} do not make up axis {} of {}", parts, shapeText(sizes), axis,
                       typeText(n.in(0)));
  int64_t begin = 0;
  for (auto [i, size] : llvm::enumerate(sizes)) {
    if (size < 0)
      return plan::error("a part has the negative size {}", size);
    if (Status status = n.set(unsigned(i), n.slice(n.in(0), axis, begin, size)); !status.ok())
      return status;
    begin += size;
  }
  return Status::success();
}

/// Bounds as attributes up to opset 9, as inputs with steps from 10 on. They are clamped as in numpy.
Status slice(NodeImport &n) {
  TCC_TRY(starts, n.intsFrom("starts", 1));
  TCC_TRY(ends, n.intsFrom("ends", 2));
  TCC_TRY(givenAxes, n.intsFrom("axes", 3));
  TCC_TRY(givenSteps, n.intsFrom("steps", 4));
  if (!starts || !ends)
    return plan::error("it has no starts or no ends");
  Shape order(starts->size());
  std::iota(order.begin(), order.end(), 0);
  TCC_TRY(axes, n.axes(givenAxes.value_or(order), n.rank(0)));
  Shape steps = givenSteps.value_or(Shape(starts->size(), 1));
  if (ends->size() != starts->size() || axes.size() != starts->size() || steps.size() != starts->size())
    return plan::error("starts, ends, axes and steps have different lengths");
  Shape shape(n.shape(0)), begins(shape.size(), 0), strides(shape.size(), 1);
  bool whole = true;
  for (auto [i, axis] : llvm::enumerate(axes)) {
    int64_t extent = n.shape(0)[size_t(axis)], step = steps[i];
    if (step == 0 || step == std::numeric_limits<int64_t>::min())
      return plan::error("step {} is not valid", step);
    if (extent == 0)
      continue;
    auto wrapped = [&](int64_t bound) { return bound < 0 && bound >= -extent ? bound + extent : bound; };
    int64_t begin = wrapped((*starts)[i]), end = wrapped((*ends)[i]);
    // Negative bounds below the start stay negative: for falling steps they mean "past the first element".
    begin = step > 0 ? std::clamp<int64_t>(begin, 0, extent) : std::clamp<int64_t>(begin, begin < 0 ? -1 : 0, extent - 1);
    end = step > 0 ? std::clamp<int64_t>(end, 0, extent) : std::clamp<int64_t>(end, -1, extent - 1);
    int64_t distance = step > 0 ? end - begin : begin - end;
    int64_t magnitude = step > 0 ? step : -step;
    int64_t count = distance <= 0 ? 0 : (distance - 1) / magnitude + 1;
    shape[size_t(axis)] = count;
    begins[size_t(axis)] = count ? begin : 0;
    // A single element needs no step, however far the next would be.
    strides[size_t(axis)] = count > 1 ? step : 1;
    whole &= count == extent && strides[size_t(axis)] == 1;
  }
  if (whole)
    return n.result(n.in(0));
  return n.result(train::SliceOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(n.in(0))), n.in(0), begins,
                                         strides));
}

/// The elements of `x` at `indices` along `dim`.
Value take(NodeImport &n, Value x, int64_t dim, llvm::ArrayRef<int64_t> indices) {
  Shape shape(train::shapeOf(x));
  shape[size_t(dim)] = int64_t(indices.size());
  Value index = train::vectorOf(n.builder, n.loc, indices);
  return train::GatherOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(x)), x, index, dim);
}

/// Position that a padded position shows, for extent `size`.
int64_t mirrored(int64_t position, int64_t size, const std::string &mode) {
  if (mode == "edge")
    return std::clamp<int64_t>(position, 0, size - 1);
  if (mode == "wrap")
    return ((position % size) + size) % size;
  int64_t period = std::max<int64_t>(1, 2 * (size - 1));
  position = ((position % period) + period) % period;
  return position < size ? position : period - position;
}

Status pad(NodeImport &n) {
  int64_t rank = n.rank(0);
  TCC_TRY(pads, n.intsFrom("pads", 1));
  TCC_TRY(givenAxes, n.intsFrom("axes", 3));
  if (!pads)
    return plan::error("it has no pads");
  Shape order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  TCC_TRY(axes, n.axes(givenAxes.value_or(order), rank));
  if (pads->size() != 2 * axes.size())
    return plan::error("{} pads for {} axes", pads->size(), axes.size());
  std::string mode = n.stringAttr("mode", "constant");
  double value = n.floatAttr("value", 0);
  if (n.has(2)) {
    TCC_TRY(given, n.number(2));
    value = given;
  }
  Value x = n.in(0);
  Shape low(size_t(rank), 0), shape(n.shape(0));
  for (auto [i, axis] : llvm::enumerate(axes)) {
    int64_t before = (*pads)[i], after = (*pads)[i + axes.size()], extent = n.shape(0)[size_t(axis)];
    if (extent + before + after < 1 || -before > extent || -after > extent)
      return plan::error("pads {} leave nothing of axis {} of {}", shapeText(*pads), axis, typeText(n.in(0)));
    if (mode != "constant") {
      if (mode == "reflect" && (before >= extent || after >= extent) && extent > 1)
        return plan::error("reflection by {} needs more than the {} elements of axis {}", std::max(before, after), extent, axis);
      Shape indices;
      for (int64_t k = -before; k < extent + after; ++k)
        indices.push_back(mirrored(k, extent, mode));
      if (before || after)
        x = take(n, x, axis, indices);
      continue;
    }
    // Negative pads cut.
    int64_t cutBefore = std::max<int64_t>(0, -before), cutAfter = std::max<int64_t>(0, -after);
    x = n.slice(x, axis, cutBefore, extent - cutBefore - cutAfter);
    low[size_t(axis)] = std::max<int64_t>(0, before);
    shape[size_t(axis)] = extent + before + after;
  }
  if (mode != "constant" || Shape(train::shapeOf(x)) == shape)
    return n.result(x);
  return n.result(train::PadOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(x)), x, low,
                                       Shape(size_t(rank), 1), llvm::APFloat(value)));
}

/// Nearest-neighbour Resize and Upsample, axis by axis, as gathers at indices that are known here.
Status resizeNearest(NodeImport &n, llvm::ArrayRef<double> scales, llvm::ArrayRef<int64_t> sizes,
                     const std::string &transform, const std::string &rounding) {
  Value x = n.in(0);
  for (int64_t dim = 0; dim < n.rank(0); ++dim) {
    int64_t in = n.shape(0)[size_t(dim)], out = sizes[size_t(dim)];
    double scale = scales[size_t(dim)];
    if (in == out && scale == 1)
      continue;
    Shape indices;
    for (int64_t i = 0; i < out; ++i) {
      double position = double(i) / scale;
      if (transform == "half_pixel" || (transform == "pytorch_half_pixel" && out > 1))
        position = (double(i) + 0.5) / scale - 0.5;
      else if (transform == "pytorch_half_pixel")
        position = 0;
      else if (transform == "align_corners")
        position = out > 1 ? double(i) * double(in - 1) / double(out - 1) : 0;
      else if (transform != "asymmetric")
        return plan::error("coordinate transformation {} is not supported", transform);
      double whole = rounding == "floor"               ? std::floor(position)
                     : rounding == "ceil"              ? std::ceil(position)
                     : rounding == "round_prefer_ceil" ? std::floor(position + 0.5)
                                                       : std::ceil(position - 0.5);
      indices.push_back(std::clamp<int64_t>(int64_t(whole), 0, in - 1));
    }
    x = take(n, x, dim, indices);
  }
  return n.result(x);
}

Status resize(NodeImport &n) {
  bool upsample = n.node.op_type() == "Upsample", old = upsample || n.opset < 11;
  std::string mode = n.stringAttr("mode", "nearest");
  if (mode != "nearest")
    return plan::error("mode {} is not supported by this version yet; nearest is", mode);
  if (n.attribute("axes") || n.intAttr("antialias", 0))
    return plan::error("axes and antialias are not supported by this version yet");
  llvm::SmallVector<double> scales;
  Shape sizes;
  unsigned scaleInput = old ? 1 : 2;
  if (n.has(3) && !old) {
    if (n.stringAttr("keep_aspect_ratio_policy", "stretch") != "stretch")
      return plan::error("this aspect-ratio policy is not supported by this version yet");
    TCC_TRY(given, n.ints(3));
    sizes = given;
  } else if (n.has(scaleInput)) {
    DenseElementsAttr value = n.constantOf(n.in(scaleInput));
    if (!value)
      return plan::error("its scales must be known at compile time");
    train::HostTensor tensor = train::HostTensor::fromAttribute(value);
    for (int64_t i = 0; i < tensor.size(); ++i)
      scales.push_back(tensor.getDouble(i));
  } else if (const onnx::AttributeProto *given = n.attribute("scales")) {
    scales.append(given->floats().begin(), given->floats().end());
  }
  size_t rank = size_t(n.rank(0));
  if (sizes.empty() ? scales.size() != rank : sizes.size() != rank)
    return plan::error("it has not one scale or size for each axis of {}", typeText(n.in(0)));
  for (size_t i = 0; i < rank; ++i) {
    if (scales.size() < rank && !sizes.empty())
      scales.push_back(double(sizes[i]) / double(n.shape(0)[i]));
    if (sizes.size() <= i)
      sizes.push_back(int64_t(std::floor(double(n.shape(0)[i]) * scales[i])));
    if (sizes[i] < 1)
      return plan::error("axis {} would get the size {}", i, sizes[i]);
  }
  return resizeNearest(n, scales, sizes, n.stringAttr("coordinate_transformation_mode", old ? "asymmetric" : "half_pixel"),
                       n.stringAttr("nearest_mode", old ? "floor" : "round_prefer_floor"));
}

constexpr OpEntry kTable[] = {
    {"Concat", 1, concat}, {"Split", 1, split},   {"Slice", 1, slice},
    {"Pad", 1, pad},       {"Resize", 1, resize}, {"Upsample", 1, resize, 7, 9},
};

} // namespace
} // namespace movement

std::span<const OpEntry> movementOps() { return movement::kTable; }

} // namespace tcc::frontend

//===- Movement.cpp - Slice, Split, Concat, Pad ---------------------------===//
#include "frontend/ops/Sampling.h"

#include <limits>
#include <numeric>

using namespace mlir;

namespace tcc::frontend {
namespace movement { // named, since files share a translation unit
namespace {


Status concat(NodeImport &n) {
  TCC_TRY(axis, n.axis(n.intAttr("axis", 0), n.rank(0)));
  llvm::SmallVector<Value> parts;
  Shape shape(n.shape(0));
  shape[size_t(axis)] = 0;
  for (unsigned i = 0; i < n.inputs.size(); ++i) {
    if (n.rank(i) != n.rank(0))
      return error("{} and {} have different ranks", typeText(n.in(0)), typeText(n.in(i)));
    for (int64_t d = 0; d < n.rank(0); ++d)
      if (d != axis && n.shape(i)[size_t(d)] != shape[size_t(d)])
        return error("{} and {} differ outside of axis {}", typeText(n.in(0)), typeText(n.in(i)), axis);
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
  if (n.attribute("num_outputs") && n.intAttr("num_outputs", 0) != parts)
    return error("its attribute num_outputs is {}, and it has {} outputs; export the model again",
                 n.intAttr("num_outputs", 0), parts);
  if (n.attribute("num_outputs") && given)
    return error("it has both the input split and the attribute num_outputs; ONNX allows one of them");
  Shape sizes;
  if (given) {
    sizes = *given;
  } else {
    int64_t size = (extent + parts - 1) / parts;
    for (int64_t begin = 0, i = 0; i < parts; ++i, begin += size)
      sizes.push_back(std::clamp<int64_t>(extent - begin, 0, size));
  }
  if (int64_t(sizes.size()) != parts || std::accumulate(sizes.begin(), sizes.end(), int64_t(0)) != extent)
    return error("{} parts of sizes {} do not make up axis {} of {}", parts, shapeText(sizes), axis,
                       typeText(n.in(0)));
  int64_t begin = 0;
  for (auto [i, size] : llvm::enumerate(sizes)) {
    if (size < 0)
      return error("a part has the negative size {}", size);
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
    return error("it has no starts or no ends");
  Shape order(starts->size());
  std::iota(order.begin(), order.end(), 0);
  TCC_TRY(axes, n.axes(givenAxes.value_or(order), n.rank(0)));
  Shape steps = givenSteps.value_or(Shape(starts->size(), 1));
  if (ends->size() != starts->size() || axes.size() != starts->size() || steps.size() != starts->size())
    return error("starts, ends, axes and steps have different lengths");
  Shape shape(n.shape(0)), begins(shape.size(), 0), strides(shape.size(), 1);
  bool whole = true;
  for (auto [i, axis] : llvm::enumerate(axes)) {
    int64_t extent = n.shape(0)[size_t(axis)], step = steps[i];
    if (step == 0 || step == std::numeric_limits<int64_t>::min())
      return error("step {} is not valid", step);
    if (extent == 0)
      continue;
    auto wrapped = [&](int64_t bound) { return bound < 0 && bound >= -extent ? bound + extent : bound; };
    int64_t begin = wrapped((*starts)[i]), end = wrapped((*ends)[i]);
    // Negative bounds below the start stay negative: for falling steps they mean "past the first element".
    begin =
        step > 0 ? std::clamp<int64_t>(begin, 0, extent) : std::clamp<int64_t>(begin, begin < 0 ? -1 : 0, extent - 1);
    end = step > 0 ? std::clamp<int64_t>(end, 0, extent) : std::clamp<int64_t>(end, -1, extent - 1);
    int64_t distance = step > 0 ? end - begin : begin - end;
    int64_t magnitude = step > 0 ? step : -step;
    int64_t count = distance <= 0 ? 0 : (distance - 1) / magnitude + 1;
    shape[size_t(axis)] = count;
    begins[size_t(axis)] = count ? begin : 0;
    // A single element needs no step, which may be huge.
    strides[size_t(axis)] = count > 1 ? step : 1;
    whole &= count == extent && strides[size_t(axis)] == 1;
  }
  if (whole)
    return n.result(n.in(0));
  return n.result(
      train::SliceOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(n.in(0))), n.in(0), begins, strides));
}

/// The source position of a padded position, for extent `size`.
int64_t mirrored(int64_t position, int64_t size, const std::string &mode) {
  if (mode == "edge")
    return std::clamp<int64_t>(position, 0, size - 1);
  if (mode == "wrap")
    return ((position % size) + size) % size;
  int64_t period = std::max<int64_t>(1, 2 * (size - 1));
  position = ((position % period) + period) % period;
  return position < size ? position : period - position;
}

/// Adds a border. Pads are attributes up to opset 10, then inputs; negative ones cut the tensor before the border is
/// filled.
Status pad(NodeImport &n) {
  int64_t rank = n.rank(0);
  TCC_TRY(pads, n.intsFrom("pads", 1));
  TCC_TRY(givenAxes, n.intsFrom("axes", 3));
  if (!pads)
    return error("it has no pads");
  Shape order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  TCC_TRY(axes, n.axes(givenAxes.value_or(order), rank));
  if (pads->size() != 2 * axes.size())
    return error("it has {} pads for {} axes; give two for each axis", pads->size(), axes.size());
  std::string mode = n.stringAttr("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap")
    return error("mode \"{}\" is not one of constant, reflect, edge and wrap", mode);
  Value x = n.in(0);
  Shape low(size_t(rank), 0), shape(n.shape(0));
  for (auto [i, axis] : llvm::enumerate(axes)) {
    int64_t before = (*pads)[i], after = (*pads)[i + axes.size()], extent = n.shape(0)[size_t(axis)];
    for (int64_t pad : {before, after})
      if (pad < -int64_t(kMostTensorBytes) || pad > int64_t(kMostTensorBytes))
        return error("a pad of {} elements is more than a tensor may have", pad);
    int64_t cutBefore = std::max<int64_t>(0, -before), kept = extent - cutBefore - std::max<int64_t>(0, -after);
    before = std::max<int64_t>(0, before);
    after = std::max<int64_t>(0, after);
    if (kept < 0)
      return error("pads {} take more from axis {} of {} than it has", shapeText(*pads), axis, typeText(n.in(0)));
    x = n.slice(x, axis, cutBefore, kept);
    shape[size_t(axis)] = kept + before + after;
    low[size_t(axis)] = before;
    if (mode == "constant" || (!before && !after))
      continue;
    if (kept == 0)
      return error("axis {} of {} has no elements to pad with; use mode constant", axis, typeText(n.in(0)));
    (void)n.table({kept + before + after});
    TapTable table;
    for (int64_t k = -before; k < kept + after; ++k)
      table.push_back({{mirrored(k, kept, mode), 1}});
    x = resample(n, x, axis, table);
  }
  if (mode != "constant" || Shape(train::shapeOf(x)) == shape)
    return n.result(x);
  auto padded = [&](Value inner, double value) {
    return n.expr(train::PadOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(inner)), inner, low,
                                       Shape(size_t(rank), 1), llvm::APFloat(value)));
  };
  if (!n.has(2))
    return n.result(padded(x, n.floatAttr("value", 0)));
  if (countOf(n.shape(2)) != 1)
    return error("the padding value must be one number, not {}", typeText(n.in(2)));
  if (n.constantOf(n.in(2))) {
    TCC_TRY(value, n.number(2));
    return n.result(padded(x, value));
  }
  // The padding value is known only at run time.
  Value inside = padded(n.splat(train::shapeOf(x), n.i1(), 1), 0);
  Shape one(static_cast<size_t>(rank), 1);
  train::Expr value = n.expr(2).cast(train::elementTypeOf(x)).reshape(one).broadcast(shape);
  return n.result(n.expr(inside).select(padded(x, 0), value));
}

constexpr OpEntry kTable[] = {
    {"Concat", 1, concat},
    {"Split", 1, split},
    {"Slice", 1, slice},
    {"Pad", 1, pad},
};

} // namespace
} // namespace movement

std::span<const OpEntry> movementOps() { return movement::kTable; }

} // namespace tcc::frontend

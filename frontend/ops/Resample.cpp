//===- Resample.cpp - Resize and Upsample ---------------------------------===//
//
// Interpolation is separable: for each axis, a table of the elements that each output reads, and their weights, is
// computed at compile time. So a resize is one weighted gather per axis, and its gradient one with the transposed
// table.
//
//===----------------------------------------------------------------------===//
#include "frontend/ops/Sampling.h"

#include <cmath>
#include <numeric>

using namespace mlir;

namespace tcc::frontend {
namespace resampling { // named, since files share a translation unit
namespace {

using train::Expr;

/// The resize of one axis.
struct Axis {
  int64_t in, out;
  double scale;              ///< as given, or out / in
  double begin = 0, end = 1; ///< region of interest, of tf_crop_and_resize
};

struct Method {
  std::string mode, coordinates, nearest;
  double cubic, outside;
  bool antialias, excludeOutside, ceilDown;
};

/// The position of output `i` among the inputs. If scale · in is a fraction, corners and regions are aligned with the
/// last output, as in onnxruntime and torch; ONNX's reference evaluator aligns them with the fraction. `Number` is the
/// precision of the arithmetic.
template <typename Number> Expected<double> positionIn(const Method &m, const Axis &a, int64_t i) {
  const Number x = Number(i), in = Number(a.in), out = Number(a.out), scale = Number(a.scale), half = Number(0.5);
  const Number begin = Number(a.begin), end = Number(a.end);
  if (m.coordinates == "half_pixel")
    return double((x + half) / scale - half);
  if (m.coordinates == "pytorch_half_pixel")
    return a.out > 1 ? double((x + half) / scale - half) : 0.0;
  if (m.coordinates == "half_pixel_symmetric")
    return double(in / 2 * (1 - out / (scale * in)) + (x + half) / scale - half);
  if (m.coordinates == "align_corners")
    return a.out == 1 ? 0.0 : double(x * (in - 1) / (out - 1));
  if (m.coordinates == "asymmetric")
    return double(x / scale);
  if (m.coordinates == "tf_half_pixel_for_nn")
    return double((x + half) / scale);
  if (m.coordinates == "tf_crop_and_resize") {
    if (a.out == 1)
      return double(half * (begin + end) * (in - 1));
    return double(begin * (in - 1) + x * (end - begin) * (in - 1) / (out - 1));
  }
  return error("coordinate_transformation_mode \"{}\" is not one of ONNX's", m.coordinates);
}

/// Positions for `nearest` are computed in f32, as in onnxruntime and torch, since rounding amplifies errors: the f32
/// nearest to 0.6 is larger than 0.6, so 3 / 0.6 is 5 in f32, but less than 5 in f64.
Expected<double> position(const Method &m, const Axis &a, int64_t i) {
  return m.mode == "nearest" ? positionIn<float>(m, a, i) : positionIn<double>(m, a, i);
}

/// Keys' cubic convolution kernel, IEEE Trans. ASSP 29 (1981), p. 1153.
double cubicKernel(double x, double a) {
  x = std::fabs(x);
  if (x <= 1)
    return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/// The taps around position `x`, edges repeated.
std::vector<Tap> tapsAt(const Method &m, const Axis &a, double x) {
  if (m.mode == "nearest") {
    double whole = m.nearest == "ceil" || (m.ceilDown && a.scale < 1) ? std::ceil(x)
                   : m.nearest == "floor"                             ? std::floor(x)
                   : m.nearest == "round_prefer_ceil"                 ? std::floor(x + 0.5)
                                                                      : std::ceil(x - 0.5);
    return {{int64_t(std::clamp(whole, 0.0, double(a.in - 1))), 1}};
  }
  // For downscaling, an antialiased kernel is stretched over all inputs of an output.
  double stretch = m.antialias ? std::min(a.scale, 1.0) : 1, reach = m.mode == "cubic" ? 2 : 1;
  std::vector<Tap> taps;
  double total = 0;
  // The kernel is 0 at its ends, so rounding does not matter there.
  for (double at = std::ceil(x - reach / stretch); at <= x + reach / stretch; ++at) {
    double d = (at - x) * stretch, weight = reach == 2 ? cubicKernel(d, m.cubic) : std::max(0.0, 1 - std::fabs(d));
    if (weight == 0 || (m.excludeOutside && (at < 0 || at > double(a.in - 1))))
      continue;
    total += weight;
    int64_t index = int64_t(std::clamp(at, 0.0, double(a.in - 1)));
    if (!taps.empty() && taps.back().index == index)
      taps.back().weight += weight;
    else
      taps.push_back({index, weight});
  }
  if ((m.antialias || m.excludeOutside) && total != 0)
    for (Tap &tap : taps)
      tap.weight /= total;
  return taps;
}

/// Resizes one axis after another, those that shrink most first, so that the others have less work.
Status resizeAxes(NodeImport &n, const Method &m, llvm::ArrayRef<Axis> axes) {
  Value x = n.in(0);
  Type element = train::elementTypeOf(x), floating = isa<FloatType>(element) ? element : Type(n.builder.getF32Type());
  bool crops = m.coordinates == "tf_crop_and_resize" && m.outside != 0;
  std::vector<size_t> order(axes.size());
  std::iota(order.begin(), order.end(), 0);
  llvm::stable_sort(order, [&](size_t i, size_t j) {
    return double(axes[i].out) / double(axes[i].in) < double(axes[j].out) / double(axes[j].in);
  });
  // 1 if the output is inside along every axis, else 0.
  std::optional<Expr> inside;
  for (size_t dim : order) {
    const Axis &axis = axes[dim];
    if (axis.in == axis.out && std::fabs(axis.scale - 1) < 1e-9 && axis.begin == 0 && axis.end == 1)
      continue;
    // An antialiased kernel reaches over all inputs of an output.
    const double reach =
        m.mode == "nearest" ? 1 : 2 * (m.mode == "cubic" ? 2 : 1) / (m.antialias ? std::min(axis.scale, 1.0) : 1);
    (void)n.table({axis.out, int64_t(std::min(reach, 0x1p40)) + 1});
    TapTable table;
    std::vector<double> within;
    for (int64_t i = 0; i < axis.out; ++i) {
      TCC_TRY(at, position(m, axis, i));
      bool outside = m.coordinates == "tf_crop_and_resize" && (at < 0 || at > double(axis.in - 1));
      table.push_back(outside ? std::vector<Tap>{} : tapsAt(m, axis, at));
      within.push_back(outside ? 0 : 1);
    }
    if (!isa<FloatType>(train::elementTypeOf(x)) && (m.mode != "nearest" || llvm::is_contained(within, 0.0)))
      x = n.expr(x).cast(floating);
    x = resample(n, x, int64_t(dim), table);
    if (crops && llvm::is_contained(within, 0.0)) {
      Shape along(axes.size(), 1);
      along[dim] = axis.out;
      Expr here = n.expr(floats(n, along, floating, within));
      inside = inside ? *inside * here : here;
    }
  }
  Expr result = n.expr(x);
  if (inside)
    result = result.cast(floating) + (1.0 - *inside) * m.outside;
  return n.result(result.cast(element));
}

Expected<llvm::SmallVector<double>> numbers(NodeImport &n, unsigned i, const char *what) {
  DenseElementsAttr value = n.constantOf(n.in(i));
  if (!value)
    return error("its {} (input {}) must be known at compile time; export the model with static shapes", what, i);
  (void)n.table({value.getNumElements()});
  train::HostTensor tensor = train::HostTensor::fromAttribute(value);
  llvm::SmallVector<double> result;
  for (int64_t k = 0; k < tensor.size(); ++k)
    result.push_back(tensor.isFloat() ? tensor.getDouble(k) : double(tensor.getInt(k)));
  return result;
}

/// Inputs: data and scales up to opset 10; then data, roi, scales, sizes, of which empty ones count as absent.
Status resize(NodeImport &n) {
  bool upsample = n.node.op_type() == "Upsample", old = upsample || n.opset < 11;
  Method m{n.stringAttr("mode", "nearest"),
           n.stringAttr("coordinate_transformation_mode", old ? "asymmetric" : "half_pixel"),
           n.stringAttr("nearest_mode", old ? "floor" : "round_prefer_floor"), n.floatAttr("cubic_coeff_a", -0.75),
           n.floatAttr("extrapolation_value", 0), n.intAttr("antialias", 0) != 0, n.intAttr("exclude_outside", 0) != 0,
           // Before nearest_mode existed, shrinking rounded up.
           old && !upsample};
  if (m.mode == "bilinear" || m.mode == "trilinear")
    m.mode = "linear";
  if (m.mode != "nearest" && m.mode != "linear" && m.mode != "cubic")
    return error("mode \"{}\" is not one of nearest, linear and cubic", m.mode);
  int64_t rank = n.rank(0);
  auto given = [&](unsigned i) { return n.has(i) && countOf(n.shape(i)) > 0; };
  Shape all(static_cast<size_t>(rank));
  std::iota(all.begin(), all.end(), 0);
  TCC_TRY(dims, n.axes(n.intsAttr("axes").value_or(all), rank));
  llvm::SmallVector<double> scales, sizes, region;
  unsigned scaleInput = old ? 1 : 2;
  if (!old && given(3)) {
    TCC_TRY(values, numbers(n, 3, "sizes"));
    sizes = values;
  } else if (given(scaleInput)) {
    TCC_TRY(values, numbers(n, scaleInput, "scales"));
    scales = values;
  } else if (const onnx::AttributeProto *attribute = n.attribute("scales")) {
    scales.append(attribute->floats().begin(), attribute->floats().end());
  }
  if (m.coordinates == "tf_crop_and_resize") {
    if (!given(1))
      return error("tf_crop_and_resize needs the input roi");
    TCC_TRY(values, numbers(n, 1, "region of interest"));
    region = values;
    if (region.size() != 2 * dims.size())
      return error("roi has {} numbers for {} axes; give two for each axis", region.size(), dims.size());
  }
  if ((sizes.empty() ? scales.size() : sizes.size()) != dims.size())
    return error("it needs one scale or size for each of {} axes of {}", dims.size(), typeText(n.in(0)));
  llvm::SmallVector<Axis> axes;
  for (int64_t extent : n.shape(0))
    axes.push_back({extent, extent, 1});
  std::string policy = n.stringAttr("keep_aspect_ratio_policy", "stretch");
  if (policy != "stretch" && policy != "not_larger" && policy != "not_smaller")
    return error("keep_aspect_ratio_policy \"{}\" is not valid", policy);
  std::optional<double> common;
  for (auto [i, dim] : llvm::enumerate(dims))
    if (!sizes.empty() && policy != "stretch") {
      double scale = sizes[i] / double(axes[size_t(dim)].in);
      common = !common ? scale : policy == "not_larger" ? std::min(*common, scale) : std::max(*common, scale);
    }
  for (auto [i, dim] : llvm::enumerate(dims)) {
    Axis &axis = axes[size_t(dim)];
    if (axis.in < 1)
      return error("axis {} of {} has no elements to interpolate", dim, typeText(n.in(0)));
    double in = double(axis.in);
    if (!region.empty()) {
      axis.begin = region[i];
      axis.end = region[i + dims.size()];
    }
    axis.scale = !sizes.empty() ? common.value_or(sizes[i] / in) : scales[i];
    // In f32, as in ONNX's shape inference: 10 · 0.7 is 7.
    double out = sizes.empty() ? double(std::floor(float(in) * float(scales[i])))
                 : common      ? std::floor(*common * in + 0.5)
                               : sizes[i];
    if (!(axis.scale > 0) || !(out >= 1) || out > 0x1p31)
      return error("axis {} would get the size {}, which is not valid", dim, out);
    axis.out = int64_t(out);
  }
  // With equal extents onnxruntime copies, and so does torch in its linear modes, whatever the scales (such as 1.1 of
  // 3).
  if (m.coordinates != "tf_crop_and_resize" && llvm::all_of(axes, [](const Axis &axis) { return axis.in == axis.out; }))
    return n.result(n.in(0));
  return resizeAxes(n, m, axes);
}

constexpr OpEntry kTable[] = {
    OpEntry{"Resize", 1, resize}.reading(1, 2),
    OpEntry{"Upsample", 1, resize, 7, 9}.reading(1),
};

} // namespace
} // namespace resampling

std::span<const OpEntry> resampleOps() { return resampling::kTable; }

} // namespace tcc::frontend

//===- Signal.cpp - windows, Fourier transforms, mel filters --------------===//
//
// A transform is a product with a matrix of cosines and sines, whose angles are reduced in integer arithmetic before
// they are rounded. So it is differentiable, and the target's matrix products compute it.
//
//===----------------------------------------------------------------------===//
#include "frontend/ops/Sampling.h"

#include <cmath>
#include <numbers>

using namespace mlir;

namespace tcc::frontend {
namespace signal { // named, since files share a translation unit
namespace {

using train::Expr;

constexpr double kPi = std::numbers::pi;

/// A transform's matrix has at most this many elements.
constexpr int64_t kLargestMatrix = int64_t(1) << 25;

Expected<int64_t> count(NodeImport &n, unsigned i, const char *what) {
  TCC_TRY(values, n.ints(i));
  if (values.size() != 1)
    return error("its {} must be one number, not {}", what, shapeText(values));
  return values[0];
}

/// A constant window of three cosines: a0 − a1·cos(2πi/N) + a2·cos(4πi/N).
Status cosineWindow(NodeImport &n, double a0, double a1, double a2) {
  TCC_TRY(size, count(n, 0, "size"));
  if (size < 0)
    return error("its size is {}; it must be at least 0", size);
  (void)n.table({size});
  Type element = n.elementType(int32_t(n.intAttr("output_datatype", onnx::TensorProto::FLOAT)));
  if (!element)
    return error("output_datatype {} is not supported; use a float or an integer type",
                       n.intAttr("output_datatype", onnx::TensorProto::FLOAT));
  double period = double(n.intAttr("periodic", 1) ? size : size - 1);
  llvm::SmallVector<double> values;
  for (int64_t i = 0; i < size; ++i) {
    double angle = 2 * kPi * double(i) / period;
    values.push_back(period > 0 ? a0 - a1 * std::cos(angle) + a2 * std::cos(2 * angle) : 1);
  }
  return n.result(floats(n, {size}, element, values));
}
Status hannWindow(NodeImport &n) { return cosineWindow(n, 0.5, 0.5, 0); }
Status hammingWindow(NodeImport &n) { return cosineWindow(n, 25.0 / 46, 21.0 / 46, 0); }
Status blackmanWindow(NodeImport &n) { return cosineWindow(n, 0.42, 0.5, 0.08); }

/// The parameters of a transform of `length` points.
struct Transform {
  int64_t length;
  bool inverse, onesided;
};

/// x [.., n, .., 1 or 2] along `dim`; real and imaginary parts are the last axis.
Expected<Value> transformed(NodeImport &n, Value x, int64_t dim, Transform t) {
  Type element = train::elementTypeOf(x), wide = weightType(n, element);
  Shape from(train::shapeOf(x));
  int64_t parts = from.back(), length = t.length;
  bool toReal = t.inverse && t.onesided;
  if (length < 1)
    return error("dft_length is {}; it must be at least 1", length);
  // Missing elements count as zeros, and surplus ones are not read.
  int64_t read = std::min(from[size_t(dim)], toReal ? length / 2 + 1 : length);
  int64_t made = t.onesided && !t.inverse ? length / 2 + 1 : length;
  if (countOf({made, read}) > kLargestMatrix)
    return error("a transform of {} points is too large; at most {} of its {} outputs can be computed", length,
                       kLargestMatrix / std::max<int64_t>(read, 1), made);
  int64_t outer = countOf(llvm::ArrayRef(from).take_front(size_t(dim)));
  int64_t inner = countOf(llvm::ArrayRef(from).drop_front(size_t(dim) + 1).drop_back(1));
  (void)n.table({made, read});
  llvm::SmallVector<double> matrix(size_t(2 * made * read));
  double sign = t.inverse ? 1 : -1, scale = t.inverse ? 1 / double(length) : 1;
  for (int64_t k = 0; k < made; ++k)
    for (int64_t i = 0; i < read; ++i) {
      // In a half spectrum each element except the first and the middle one counts twice.
      double twice = toReal && i > 0 && 2 * i != length ? 2 : 1;
      double angle = 2 * kPi * double(k * i % length) / double(length);
      matrix[size_t(k * read + i)] = std::cos(angle) * scale * twice;
      matrix[size_t((made + k) * read + i)] = sign * std::sin(angle) * scale * twice;
    }
  Value rows = n.reshape(n.slice(n.expr(x).cast(wide), dim, 0, read), {outer, read, inner, parts});
  rows = n.reshape(train::transpose(n.builder, n.loc, rows, {3, 0, 2, 1}), {1, parts * outer * inner, read});
  Value products = train::MatMulOp::create(n.builder, n.loc, n.type({1, parts * outer * inner, 2 * made}, wide), rows,
                                           floats(n, {1, 2 * made, read}, wide, matrix), false, true);
  Value split = n.reshape(products, {parts, outer, inner, 2, made});
  auto part = [&](int64_t of, int64_t by) {
    return n.expr(n.reshape(n.slice(n.slice(split, 0, of, 1), 3, by, 1), {outer, inner, made, 1}));
  };
  llvm::SmallVector<Expr> results;
  if (parts == 1) {
    results.push_back(part(0, 0));
    if (!toReal)
      results.push_back(part(0, 1));
  } else {
    results.push_back(part(0, 0) - part(1, 1));
    if (!toReal)
      results.push_back(part(0, 1) + part(1, 0));
  }
  Shape to = from;
  to[size_t(dim)] = made;
  to.back() = int64_t(results.size());
  Value last = train::transpose(n.builder, n.loc, concatenated(results, 3), {0, 2, 1, 3});
  return n.expr(n.reshape(last, to)).cast(element).value;
}

/// The axis is an attribute in opset 17, an input from 20 on.
Status dft(NodeImport &n) {
  if (n.rank(0) < 2 || (n.shape(0).back() != 1 && n.shape(0).back() != 2))
    return error("the last axis of {} must have 1 (real) or 2 (complex) elements", typeText(n.in(0)));
  int64_t given = n.opset >= 20 ? -2 : n.intAttr("axis", 1);
  if (n.opset >= 20 && n.has(2)) {
    TCC_TRY(axis, count(n, 2, "axis"));
    given = axis;
  }
  TCC_TRY(dim, n.axis(given, n.rank(0)));
  if (dim == n.rank(0) - 1)
    return error("axis {} holds the real and imaginary parts; transform another axis", dim);
  Transform t{n.shape(0)[size_t(dim)], n.intAttr("inverse", 0) != 0, n.intAttr("onesided", 0) != 0};
  if (t.inverse && t.onesided)
    t.length = 2 * (t.length - 1);
  if (n.has(1)) {
    TCC_TRY(length, count(n, 1, "dft_length"));
    t.length = length;
  }
  TCC_TRY(result, transformed(n, n.in(0), dim, t));
  return n.result(result);
}

/// Transforms of frames that start `frame_step` apart, weighted by a window.
Status stft(NodeImport &n) {
  Shape shape(n.shape(0));
  if (shape.size() == 2)
    shape.push_back(1);
  if (shape.size() != 3 || (shape[2] != 1 && shape[2] != 2))
    return error("{} is not [batch, length], with 1 or 2 numbers for each element", typeText(n.in(0)));
  TCC_TRY(step, count(n, 1, "frame_step"));
  int64_t length = n.has(2) ? countOf(n.shape(2)) : shape[1];
  int64_t window = length;
  if (n.has(3)) {
    TCC_TRY(given, count(n, 3, "frame_length"));
    length = given;
    window = n.has(2) ? window : length;
  }
  if (step < 1 || length < 1 || window > length || length > shape[1])
    return error(
        "frame_length is {}, frame_step {} and the window's length {}; the first two must be at least 1, the window no "
        "longer than a frame, and a frame no longer than the signal, {}",
        length, step, window, shape[1]);
  int64_t frames = (shape[1] - length) / step + 1;
  (void)n.table({frames, window});
  TapTable table;
  for (int64_t f = 0; f < frames; ++f)
    for (int64_t i = 0; i < window; ++i)
      table.push_back({{f * step + i, 1}});
  Expr x = n.expr(resample(n, n.reshape(n.in(0), shape), 1, table)).reshape({shape[0], frames, window, shape[2]});
  if (n.has(2))
    x = x * n.expr(2).cast(train::elementTypeOf(n.in(0))).reshape({1, 1, window, 1});
  TCC_TRY(result, transformed(n, x, 2, {length, false, n.intAttr("onesided", 1) != 0}));
  return n.result(result);
}

/// Triangular filters between frequencies that are evenly spaced on the mel scale.
Status melWeightMatrix(NodeImport &n) {
  TCC_TRY(bins, count(n, 0, "num_mel_bins"));
  TCC_TRY(length, count(n, 1, "dft_length"));
  TCC_TRY(rate, count(n, 2, "sample_rate"));
  TCC_TRY(lower, n.number(3));
  TCC_TRY(upper, n.number(4));
  Type element = n.elementType(int32_t(n.intAttr("output_datatype", onnx::TensorProto::FLOAT)));
  int64_t rows = length / 2 + 1;
  if (!element || bins < 1 || length < 1 || rate < 1 || bins > kLargestMatrix / rows)
    return error("num_mel_bins {}, dft_length {}, sample_rate {} or output_datatype {} is out of range", bins, length,
                 rate, n.intAttr("output_datatype", onnx::TensorProto::FLOAT));
  auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  double low = mel(lower), width = (mel(upper) - low) / double(bins + 2);
  llvm::SmallVector<int64_t> edges;
  for (int64_t i = 0; i < bins + 2; ++i) {
    double hertz = 700 * (std::pow(10, (low + double(i) * width) / 2595) - 1);
    edges.push_back(int64_t(std::floor(double(length + 1) * hertz / double(rate))));
  }
  if (edges.front() < 0 || edges.back() > rows)
    return error("the frequencies from {} to {} must be between 0 and half of the sample rate {}", lower, upper, rate);
  (void)n.table({rows, bins});
  llvm::SmallVector<double> values(size_t(rows * bins));
  for (int64_t i = 0; i < bins; ++i) {
    int64_t left = edges[size_t(i)], centre = edges[size_t(i) + 1], right = edges[size_t(i) + 2];
    auto set = [&](int64_t row, double value) {
      if (row < rows)
        values[size_t(row * bins + i)] = value;
    };
    if (left == centre)
      set(centre, 1);
    for (int64_t j = left; j <= centre && left < centre; ++j)
      set(j, double(j - left) / double(centre - left));
    for (int64_t j = centre; j < right; ++j)
      set(j, double(right - j) / double(right - centre));
  }
  return n.result(floats(n, {rows, bins}, element, values));
}

constexpr OpEntry kTable[] = {
    {"HannWindow", 1, hannWindow},
    {"HammingWindow", 1, hammingWindow},
    {"BlackmanWindow", 1, blackmanWindow},
    {"DFT", 1, dft},
    {"STFT", 2, stft},
    OpEntry{"MelWeightMatrix", 5, melWeightMatrix}.reading(3, 4),
};

} // namespace
} // namespace signal

std::span<const OpEntry> signalOps() { return signal::kTable; }

} // namespace tcc::frontend

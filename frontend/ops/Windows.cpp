//===- Windows.cpp - convolution and pooling ------------------------------===//
#include "frontend/NodeImport.h"

using namespace mlir;

namespace tcc::frontend {
namespace windows { // named, since files share a translation unit
namespace {

using train::Expr;

/// A window over the spatial dimensions, in ONNX's terms.
struct Window {
  Shape kernel, strides, dilations, padsBegin, padsEnd, output;
  size_t rank() const { return kernel.size(); }
  int64_t reach(size_t i) const { return (kernel[i] - 1) * dilations[i] + 1; }
};

Expected<Shape> perAxis(NodeImport &n, const char *name, size_t rank, int64_t otherwise, int64_t least) {
  Shape values = n.intsAttr(name).value_or(Shape(rank, otherwise));
  if (values.size() != rank)
    return error("{} {} should have {} entries", name, shapeText(values), rank);
  for (int64_t value : values) {
    if (value < least)
      return error("{} {} holds a number below {}", name, shapeText(values), least);
    if (value > kMostWindow)
      return error("{} {} holds a number above {}, the largest that is supported", name, shapeText(values),
                   kMostWindow);
  }
  return values;
}

/// Strides, dilations, padding (auto_pad included) and the output's extents, for an input of these spatial extents.
Expected<Window> readWindow(NodeImport &n, llvm::ArrayRef<int64_t> spatial, llvm::ArrayRef<int64_t> kernel) {
  size_t rank = spatial.size();
  if (rank < 1 || rank > 3)
    return error("it has {} spatial dimensions; 1 to 3 are supported", rank);
  if (kernel.size() != rank)
    return error("kernel {} does not fit {} spatial dimensions", shapeText(kernel), rank);
  Window w;
  w.kernel.assign(kernel.begin(), kernel.end());
  TCC_TRY(strides, perAxis(n, "strides", rank, 1, 1));
  TCC_TRY(dilations, perAxis(n, "dilations", rank, 1, 1));
  TCC_TRY(pads, perAxis(n, "pads", 2 * rank, 0, 0));
  w.strides = strides;
  w.dilations = dilations;
  w.padsBegin.assign(pads.begin(), pads.begin() + ptrdiff_t(rank));
  w.padsEnd.assign(pads.begin() + ptrdiff_t(rank), pads.end());
  std::string automatic = n.stringAttr("auto_pad", "NOTSET");
  bool ceiling = n.intAttr("ceil_mode", 0);
  for (size_t i = 0; i < rank; ++i) {
    if (w.kernel[i] < 1 || w.kernel[i] > kMostWindow)
      return error("kernel {} holds a number that is not between 1 and {}", shapeText(kernel), kMostWindow);
    if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
      int64_t wanted = (spatial[i] + w.strides[i] - 1) / w.strides[i];
      int64_t total = std::max<int64_t>(0, (wanted - 1) * w.strides[i] + w.reach(i) - spatial[i]);
      w.padsBegin[i] = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      w.padsEnd[i] = total - w.padsBegin[i];
    } else if (automatic == "VALID") {
      w.padsBegin[i] = w.padsEnd[i] = 0;
    } else if (automatic != "NOTSET") {
      return error("auto_pad \"{}\" is not valid", automatic);
    }
    int64_t room = spatial[i] + w.padsBegin[i] + w.padsEnd[i] - w.reach(i);
    if (room < 0)
      return error("the window ({} elements) is larger than spatial dimension {} with its padding ({})",
                         w.reach(i), i, room + w.reach(i));
    int64_t count = (ceiling ? (room + w.strides[i] - 1) / w.strides[i] : room / w.strides[i]) + 1;
    // The last window starts inside the input or the padding before it.
    if (ceiling && (count - 1) * w.strides[i] >= spatial[i] + w.padsBegin[i])
      --count;
    w.output.push_back(count);
  }
  return w;
}

Expr addBias(NodeImport &n, const Expr &x, Value bias) {
  Shape shape(train::shapeOf(x).size(), 1);
  shape[1] = train::shapeOf(x)[1];
  return x + n.expr(n.reshape(bias, shape));
}

Status conv(NodeImport &n) {
  if (n.rank(0) < 3 || n.rank(1) != n.rank(0))
    return error("{} and weight {} are not [N, C, spatial…] and [M, C/groups, kernel…]", typeText(n.in(0)),
                       typeText(n.in(1)));
  llvm::ArrayRef<int64_t> x = n.shape(0), weight = n.shape(1);
  TCC_TRY(window, readWindow(n, x.drop_front(2), weight.drop_front(2)));
  int64_t groups = n.intAttr("group", 1);
  if (groups < 1 || weight[1] * groups != x[1] || weight[0] % groups)
    return error("weight {} does not fit {} in {} groups", typeText(n.in(1)), typeText(n.in(0)), groups);
  Shape shape = {x[0], weight[0]};
  shape.append(window.output);
  Expr result =
      n.expr(train::ConvOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(n.in(0))), n.in(0), n.in(1),
                                   window.strides, window.dilations, window.padsBegin, window.padsEnd, uint64_t(groups))
                 .getResult());
  if (n.has(2) && countOf(n.shape(2)) != weight[0])
    return error("bias {} should have {} elements, one for each channel", typeText(n.in(2)), weight[0]);
  return n.result(n.has(2) ? addBias(n, result, n.in(2)) : result);
}

/// ConvTranspose: the derivative of a convolution with respect to its input. A requested output shape may extend beyond
/// all windows, where the result is only the bias.
Status convTranspose(NodeImport &n) {
  if (n.rank(0) < 3 || n.rank(1) != n.rank(0))
    return error("{} and weight {} are not [N, C, spatial…] and [C, M/groups, kernel…]", typeText(n.in(0)),
                       typeText(n.in(1)));
  llvm::ArrayRef<int64_t> x = n.shape(0), weight = n.shape(1);
  size_t rank = x.size() - 2;
  if (rank > 3)
    return error("it has {} spatial dimensions; 1 to 3 are supported", rank);
  int64_t groups = n.intAttr("group", 1);
  if (groups < 1 || weight[0] != x[1] || x[1] % groups)
    return error("weight {} does not fit {} in {} groups", typeText(n.in(1)), typeText(n.in(0)), groups);
  TCC_TRY(strides, perAxis(n, "strides", rank, 1, 1));
  TCC_TRY(dilations, perAxis(n, "dilations", rank, 1, 1));
  TCC_TRY(extra, perAxis(n, "output_padding", rank, 0, 0));
  TCC_TRY(pads, perAxis(n, "pads", 2 * rank, 0, 0));
  std::optional<Shape> wanted = n.intsAttr("output_shape");
  std::string automatic = n.stringAttr("auto_pad", "NOTSET");
  Shape begin(pads.begin(), pads.begin() + ptrdiff_t(rank)), end(pads.begin() + ptrdiff_t(rank), pads.end());
  for (int64_t extent : wanted.value_or(Shape()))
    if (extent < 0 || extent > int64_t(kMostTensorBytes))
      return error("output_shape {} holds an extent that no tensor has", shapeText(*wanted));
  if (wanted && wanted->size() != rank && wanted->size() != rank + 2)
    return error("output_shape {} should have {} extents, one for each spatial dimension", shapeText(*wanted), rank);
  if (automatic != "NOTSET" && automatic != "SAME_UPPER" && automatic != "SAME_LOWER" && automatic != "VALID")
    return error("auto_pad \"{}\" is not valid", automatic);
  Shape shape = {x[0], weight[1] * groups}, reached = shape;
  bool simple = true;
  for (size_t i = 0; i < rank; ++i) {
    if (automatic == "VALID")
      begin[i] = end[i] = 0;
    if (countOf({strides[i], x[i + 2]}) > int64_t(kMostTensorBytes) ||
        countOf({dilations[i], weight[i + 2]}) > int64_t(kMostTensorBytes))
      return error("spatial dimension {} of {} with stride {} and dilation {} is longer than a tensor may be", i,
                         typeText(n.in(0)), strides[i], dilations[i]);
    int64_t full = strides[i] * (x[i + 2] - 1) + extra[i] + (weight[i + 2] - 1) * dilations[i] + 1;
    int64_t extent = full - begin[i] - end[i];
    bool same = automatic == "SAME_UPPER" || automatic == "SAME_LOWER";
    if (wanted || same) {
      extent = wanted ? (*wanted)[i + wanted->size() - rank] : x[i + 2] * strides[i];
      // Elements beyond all windows are at the end, as in onnxruntime and with torch's output_padding; ONNX's reference
      // evaluator puts some of them in front.
      const int64_t total = std::max<int64_t>(0, full - extent), half = total / 2;
      begin[i] = automatic == "SAME_UPPER" ? half : total - half;
      end[i] = full - extent - begin[i];
    }
    if (extent < 1)
      return error("spatial dimension {} would have {} elements", i, extent);
    if (extra[i] >= std::max(strides[i], dilations[i]))
      return error("output_padding {} should be below the stride {} or the dilation {}", extra[i], strides[i],
                         dilations[i]);
    simple &= begin[i] >= 0 && end[i] >= 0 && extra[i] < strides[i];
    shape.push_back(extent);
    reached.push_back(full - extra[i]);
  }
  // If padding adds instead of cutting: compute all elements that windows reach, slice the requested ones, and pad
  // zeros.
  Shape none(rank, 0);
  llvm::ArrayRef<int64_t> made = simple ? shape : reached;
  Value result =
      train::ConvInputGradOp::create(n.builder, n.loc, n.type(made, train::elementTypeOf(n.in(0))), n.in(0), n.in(1),
                                     strides, dilations, simple ? begin : none, simple ? end : none, uint64_t(groups));
  if (!simple) {
    Shape low(rank + 2, 0);
    for (size_t i = 0; i < rank; ++i) {
      int64_t first = std::max<int64_t>(0, begin[i]), last = std::min(reached[i + 2], begin[i] + shape[i + 2]);
      if (first >= last)
        return error("padding {} and {} leaves nothing of spatial dimension {}", begin[i], end[i], i);
      result = n.slice(result, int64_t(i) + 2, first, last - first);
      low[i + 2] = first - begin[i];
    }
    result = train::PadOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(result)), result, low,
                                  Shape(rank + 2, 1), llvm::APFloat(0.0));
  }
  return n.result(n.has(2) ? addBias(n, n.expr(result), n.in(2)) : n.expr(result));
}

Status maxPool(NodeImport &n) {
  if (n.rank(0) < 3)
    return error("{} is not [N, C, spatial…]", typeText(n.in(0)));
  llvm::ArrayRef<int64_t> x = n.shape(0);
  TCC_TRY(window, readWindow(n, x.drop_front(2), n.intsAttr("kernel_shape").value_or(Shape())));
  Shape shape = {x[0], x[1]};
  shape.append(window.output);
  auto op =
      train::MaxPoolOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(n.in(0))),
                               n.type(shape, train::MaxPoolOp::getWinnerType(n.builder.getContext(), window.kernel)),
                               n.in(0), window.kernel, window.strides, window.dilations, window.padsBegin);
  if (n.wants(1)) {
    // ONNX's indices are relative to the whole tensor, ours to one channel.
    llvm::ArrayRef<int64_t> extents = x.drop_front(2);
    int64_t area = countOf(extents);
    Expr index = n.expr(op.buildIndices(n.builder));
    if (n.intAttr("storage_order", 0)) {
      // The first spatial dimension runs fastest.
      Expr rest = index, turned = index.like(0);
      for (size_t d = extents.size(); d-- > 0;) {
        Expr above = rest / double(extents[d]);
        turned = turned + (rest - above * double(extents[d])) * double(countOf(extents.take_front(d)));
        rest = above;
      }
      index = turned;
    }
    Expr channel = n.expr(n.iota(shape, 0)) * double(x[1]) + n.expr(n.iota(shape, 1));
    (void)n.set(1, index + channel * double(area));
  }
  return n.result(op.getResult());
}

/// The number of elements that each window counts: those of the input, with `padding` also those in the padding.
Value windowCounts(NodeImport &n, const Window &w, llvm::ArrayRef<int64_t> spatial, bool padding, Type element) {
  Shape shape = {1, 1};
  shape.append(w.output);
  Expr counts = n.expr(n.splat(shape, element, 1));
  for (size_t i = 0; i < w.rank(); ++i) {
    Shape along(shape.size(), 1);
    along[i + 2] = w.output[i];
    (void)n.table({w.output[i], w.kernel[i]});
    llvm::SmallVector<int64_t> values;
    for (int64_t o = 0; o < w.output[i]; ++o) {
      int64_t count = 0;
      for (int64_t k = 0; k < w.kernel[i]; ++k) {
        int64_t position = o * w.strides[i] - w.padsBegin[i] + k * w.dilations[i];
        bool inside = padding ? position < spatial[i] + w.padsEnd[i] : position >= 0 && position < spatial[i];
        count += inside;
      }
      values.push_back(std::max<int64_t>(count, 1));
    }
    if (llvm::all_equal(values))
      counts = counts * double(values[0]);
    else
      counts = counts * n.expr(n.reshape(train::vectorOf(n.builder, n.loc, values), along)).cast(element);
  }
  return counts;
}

Status averagePool(NodeImport &n) {
  if (n.rank(0) < 3)
    return error("{} is not [N, C, spatial…]", typeText(n.in(0)));
  llvm::ArrayRef<int64_t> x = n.shape(0);
  TCC_TRY(window, readWindow(n, x.drop_front(2), n.intsAttr("kernel_shape").value_or(Shape())));
  Shape shape = {x[0], x[1]};
  shape.append(window.output);
  Type element = train::elementTypeOf(n.in(0));
  Expr sum = n.expr(train::SumPoolOp::create(n.builder, n.loc, n.type(shape, element), n.in(0), window.kernel,
                                             window.strides, window.dilations, window.padsBegin)
                        .getResult());
  return n.result(sum /
                  n.expr(windowCounts(n, window, x.drop_front(2), n.intAttr("count_include_pad", 0) != 0, element)));
}

/// The p-norm of windows: `sum` sums the elements of each window. If all are 0, the gradient is 0, too.
Expr windowNorm(NodeImport &n, int64_t p, llvm::function_ref<Expr(const Expr &)> sum) {
  auto power = [&](const Expr &base, double exponent) {
    return n.expr(train::PowOp::create(n.builder, n.loc, base.value.getType(), base.value, base.like(exponent).value)
                      .getResult());
  };
  Expr x = n.expr(0);
  if (p == 1)
    return sum(x.apply<train::AbsOp>());
  Expr total = sum(p == 2 ? x * x : power(x.apply<train::AbsOp>(), double(p)));
  Expr empty = total.compare(train::CompareKind::eq, 0), safe = empty.select(total.like(1), total);
  Expr root = p == 2 ? safe.apply<train::SqrtOp>() : power(safe, 1 / double(p));
  return empty.select(root.like(0), root);
}

/// (Σ |x|^p)^(1/p) over each window.
Status lpPool(NodeImport &n) {
  if (n.rank(0) < 3)
    return error("{} is not [N, C, spatial…]", typeText(n.in(0)));
  llvm::ArrayRef<int64_t> x = n.shape(0);
  TCC_TRY(window, readWindow(n, x.drop_front(2), n.intsAttr("kernel_shape").value_or(Shape())));
  Shape shape = {x[0], x[1]};
  shape.append(window.output);
  int64_t p = n.intAttr("p", 2);
  if (p < 1)
    return error("p, the order of the norm, is {}; it must be at least 1", p);
  return n.result(windowNorm(n, p, [&](const Expr &powers) {
    return n.expr(train::SumPoolOp::create(n.builder, n.loc, n.type(shape, train::elementTypeOf(powers)), powers.value,
                                           window.kernel, window.strides, window.dilations, window.padsBegin)
                      .getResult());
  }));
}

Shape spatialDims(NodeImport &n) {
  Shape dims;
  for (int64_t i = 2; i < n.rank(0); ++i)
    dims.push_back(i);
  return dims;
}

Status globalLpPool(NodeImport &n) {
  if (n.rank(0) < 3)
    return error("{} is not [N, C, spatial…]", typeText(n.in(0)));
  int64_t p = n.intAttr("p", 2);
  if (p < 1)
    return error("p, the order of the norm, is {}; it must be at least 1", p);
  return n.result(windowNorm(n, p, [&](const Expr &powers) { return powers.sum(spatialDims(n)); }));
}

template <bool largest> Status globalPool(NodeImport &n) {
  if (n.rank(0) < 3)
    return error("{} is not [N, C, spatial…]", typeText(n.in(0)));
  Shape dims = spatialDims(n);
  return n.result(largest ? n.expr(0).max(dims) : n.expr(0).mean(dims));
}

constexpr OpEntry kTable[] = {
    {"Conv", 2, conv},
    {"ConvTranspose", 2, convTranspose},
    {"MaxPool", 1, maxPool},
    {"AveragePool", 1, averagePool},
    {"LpPool", 1, lpPool},
    {"GlobalLpPool", 1, globalLpPool},
    {"GlobalAveragePool", 1, globalPool<false>},
    {"GlobalMaxPool", 1, globalPool<true>},
};

} // namespace
} // namespace windows

std::span<const OpEntry> windowOps() { return windows::kTable; }

} // namespace tcc::frontend

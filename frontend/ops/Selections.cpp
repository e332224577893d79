//===- Selections.cpp - ops whose result length depends on data -----------===//
//
// Shapes are static, so these ops need constant inputs, such as a mask or fixed boxes, and are evaluated at compile
// time. Compress needs only a constant condition; its data may be computed.
//
//===----------------------------------------------------------------------===//
#include "frontend/NodeImport.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace mlir;

namespace tcc::frontend {
namespace selections { // named, since files share a translation unit
namespace {

using train::HostTensor;

Expected<HostTensor> constantInput(NodeImport &n, unsigned i, const char *instead) {
  if (DenseElementsAttr value = n.constantOf(n.in(i))) {
    (void)n.table({value.getNumElements(), 16}); // work for coordinates and sorting
    return HostTensor::fromAttribute(value);
  }
  return error(
      "how many elements come out depends on the values of input \"{}\", which comes from {}: shapes must be "
      "known at compile time; {}",
      n.node.input(int(i)), n.origin(n.in(i)), instead);
}

Value made(NodeImport &n, const HostTensor &tensor) {
  return train::ConstantOp::create(n.builder, n.loc, tensor.toAttribute());
}
Value integers(NodeImport &n, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> values) {
  HostTensor tensor(n.type(shape, n.i64()));
  for (auto [i, value] : llvm::enumerate(values))
    tensor.setInt(int64_t(i), value);
  return made(n, tensor);
}

Status nonZero(NodeImport &n) {
  TCC_TRY(x, constantInput(n, 0, "multiply by the mask, or select with Where"));
  llvm::SmallVector<llvm::SmallVector<int64_t>> found;
  for (int64_t i = 0; i < x.size(); ++i)
    if (x.isFloat() ? x.getDouble(i) != 0 : x.getInt(i) != 0)
      found.push_back(train::unravel(i, x.shape()));
  Shape values;
  for (size_t d = 0; d < x.shape().size(); ++d)
    for (const auto &at : found)
      values.push_back(at[d]);
  return n.result(integers(n, {int64_t(x.shape().size()), int64_t(found.size())}, values));
}

/// A gather at the positions where the condition is true; without an axis, from the flattened tensor.
Status compress(NodeImport &n) {
  TCC_TRY(condition, constantInput(n, 1, "multiply by the condition, or select with Where"));
  Value data = n.in(0);
  int64_t axis = 0;
  if (n.attribute("axis")) {
    TCC_TRY(given, n.axis(n.intAttr("axis", 0), n.rank(0)));
    axis = given;
  } else {
    data = n.reshape(data, {countOf(n.shape(0))});
  }
  Shape places, shape(train::shapeOf(data));
  for (int64_t i = 0; i < condition.size(); ++i)
    if (condition.getInt(i))
      places.push_back(i);
  if (!places.empty() && places.back() >= shape[size_t(axis)])
    return error("the condition selects index {} of an axis of {} elements", places.back(), shape[size_t(axis)]);
  shape[size_t(axis)] = int64_t(places.size());
  Type type = n.type(shape, train::elementTypeOf(data));
  if (countOf(shape) == 0)
    return n.result(n.splat(shape, train::elementTypeOf(data), 0));
  return n.result(
      train::GatherOp::create(n.builder, n.loc, type, data, integers(n, {int64_t(places.size())}, places), axis));
}

/// The distinct slices along an axis (or elements), sorted or in the order of their first appearance.
Status unique(NodeImport &n) {
  TCC_TRY(x, constantInput(n, 0, "compute it before the export"));
  Shape shape(x.shape());
  int64_t axis = 0;
  if (n.attribute("axis")) {
    TCC_TRY(given, n.axis(n.intAttr("axis", 0), n.rank(0)));
    axis = given;
  } else {
    shape = {x.size()};
  }
  int64_t count = shape[size_t(axis)], inner = countOf(llvm::ArrayRef<int64_t>(shape).drop_front(size_t(axis) + 1));
  int64_t outer = countOf(llvm::ArrayRef<int64_t>(shape).take_front(size_t(axis)));
  bool isUnsigned = x.elementType().isUnsignedInteger();
  auto at = [&](int64_t slice, int64_t i) { return (i / inner * count + slice) * inner + i % inner; };
  // −1, 0 or 1; NaN is larger than every number and equal to itself.
  auto order = [&](int64_t a, int64_t b) {
    for (int64_t i = 0; i < outer * inner; ++i) {
      bool less, greater;
      if (x.isFloat()) {
        double u = x.getDouble(at(a, i)), v = x.getDouble(at(b, i));
        less = u < v || (std::isnan(v) && !std::isnan(u)), greater = v < u || (std::isnan(u) && !std::isnan(v));
      } else {
        int64_t u = x.getInt(at(a, i)), v = x.getInt(at(b, i));
        less = isUnsigned ? uint64_t(u) < uint64_t(v) : u < v, greater = u != v && !less;
      }
      if (less || greater)
        return less ? -1 : 1;
    }
    return 0;
  };
  Shape sorted(size_t(count), 0), first, inverse(size_t(count), 0), counts;
  std::iota(sorted.begin(), sorted.end(), 0);
  llvm::stable_sort(sorted, [&](int64_t a, int64_t b) { return order(a, b) < 0; });
  llvm::SmallVector<Shape> groups; // slices that are equal, in order of appearance
  for (int64_t slice : sorted)
    if (!groups.empty() && order(groups.back()[0], slice) == 0)
      groups.back().push_back(slice);
    else
      groups.push_back({slice});
  if (!n.intAttr("sorted", 1))
    llvm::stable_sort(groups, [](const Shape &a, const Shape &b) { return a[0] < b[0]; });
  for (auto [number, group] : llvm::enumerate(groups)) {
    first.push_back(group[0]);
    counts.push_back(int64_t(group.size()));
    for (int64_t slice : group)
      inverse[size_t(slice)] = int64_t(number);
  }
  int64_t kept = int64_t(groups.size()), bytes = train::elementBytes(x.elementType());
  shape[size_t(axis)] = kept;
  HostTensor y(n.type(shape, x.elementType()));
  for (int64_t slice = 0; slice < kept; ++slice)
    for (int64_t i = 0; i < outer * inner; ++i)
      std::copy_n(x.data() + at(first[size_t(slice)], i) * bytes, bytes,
                  y.data() + ((i / inner * kept + slice) * inner + i % inner) * bytes);
  Value results[] = {made(n, y), integers(n, {kept}, first), integers(n, {count}, inverse),
                     integers(n, {kept}, counts)};
  for (unsigned i = 0; i < 4; ++i)
    if (n.wants(i))
      if (Status status = n.set(i, results[i]); !status.ok())
        return status;
  return {};
}

struct Box {
  double top, left, bottom, right;
  double area() const { return (bottom - top) * (right - left); }
};
double overlap(const Box &a, const Box &b) {
  double height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  double width = std::min(a.right, b.right) - std::max(a.left, b.left);
  if (height <= 0 || width <= 0)
    return 0;
  return height * width / (a.area() + b.area() - height * width);
}

/// The best boxes of each class, without those that overlap a better one.
Status nonMaxSuppression(NodeImport &n) {
  const char *instead = "leave it out of the graph that is trained";
  TCC_TRY(boxes, constantInput(n, 0, instead));
  TCC_TRY(scores, constantInput(n, 1, instead));
  double limits[] = {0, 0, -HUGE_VAL}; // boxes of a class, overlap, score
  for (unsigned i = 0; i < 3; ++i)
    if (n.has(2 + i)) {
      TCC_TRY(given, n.number(2 + i));
      limits[i] = given;
    }
  if (boxes.shape().size() != 3 || boxes.shape()[2] != 4 || scores.shape().size() != 3 ||
      scores.shape()[2] != boxes.shape()[1] || scores.shape()[0] != boxes.shape()[0])
    return error("boxes {} and scores {} are not [batch, boxes, 4] and [batch, classes, boxes]", typeText(n.in(0)),
                 typeText(n.in(1)));
  int64_t count = boxes.shape()[1], classes = scores.shape()[1];
  // Account for the work: each box is compared with the kept ones.
  (void)n.table(
      {boxes.shape()[0], classes, count, int64_t(std::clamp(limits[0], 1.0, double(std::max<int64_t>(count, 1))))});
  bool centred = n.intAttr("center_point_box", 0) != 0;
  auto boxAt = [&](int64_t number) {
    double v[4];
    for (int64_t i = 0; i < 4; ++i)
      v[i] = boxes.getDouble(number * 4 + i);
    if (centred)
      return Box{v[1] - v[3] / 2, v[0] - v[2] / 2, v[1] + v[3] / 2, v[0] + v[2] / 2};
    return Box{std::min(v[0], v[2]), std::min(v[1], v[3]), std::max(v[0], v[2]), std::max(v[1], v[3])};
  };
  Shape selected;
  for (int64_t row = 0; row < boxes.shape()[0] * classes; ++row) {
    int64_t batch = row / classes;
    auto score = [&](int64_t i) { return scores.getDouble(row * count + i); };
    Shape order(size_t(count), 0), kept;
    std::iota(order.begin(), order.end(), 0);
    llvm::stable_sort(order, [&](int64_t a, int64_t b) { return score(a) > score(b); });
    for (int64_t i : order) {
      if (double(kept.size()) >= limits[0] || !(score(i) > limits[2]))
        break;
      Box box = boxAt(batch * count + i);
      if (llvm::none_of(kept, [&](int64_t other) { return overlap(box, boxAt(batch * count + other)) > limits[1]; })) {
        kept.push_back(i);
        selected.append({batch, row % classes, i});
      }
    }
  }
  return n.result(integers(n, {int64_t(selected.size() / 3), 3}, selected));
}

constexpr OpEntry kTable[] = {
    {"Compress", 2, compress, 1, 28, "", false, true},
    OpEntry{"NonZero", 1, nonZero, 1, 28, "", false, true}.reading(0),
    OpEntry{"Unique", 1, unique, 1, 28, "", false, true}.reading(0),
    OpEntry{"NonMaxSuppression", 2, nonMaxSuppression, 1, 28, "", false, true}.reading(0, 1, 3, 4),
};

} // namespace
} // namespace selections

std::span<const OpEntry> selectionOps() { return selections::kTable; }

} // namespace tcc::frontend

//===- Sampling.cpp - importers that read elements at computed places -----===//
#include "frontend/ops/Sampling.h"

using namespace mlir;

namespace tcc::frontend {

using train::CompareKind;
using train::Expr;

Value floats(NodeImport &n, llvm::ArrayRef<int64_t> shape, Type element, llvm::ArrayRef<double> values) {
  train::HostTensor tensor(n.type(shape, element));
  for (auto [i, value] : llvm::enumerate(values))
    tensor.setDouble(int64_t(i), value);
  return train::ConstantOp::create(n.builder, n.loc, tensor.toAttribute());
}

Value resample(NodeImport &n, Value x, int64_t dim, const TapTable &table) {
  llvm::ArrayRef<int64_t> from = train::shapeOf(x);
  Type element = train::elementTypeOf(x);
  int64_t outputs = int64_t(table.size()), most = 1;
  bool moves = true;
  for (const std::vector<Tap> &taps : table) {
    most = std::max(most, int64_t(taps.size()));
    moves &= taps.size() == 1 && taps[0].weight == 1;
  }
  Shape shape(from);
  shape[size_t(dim)] = outputs;
  if (!isa<FloatType>(element)) {
    if (!moves)
      return n.expr(resample(n, n.expr(x).cast(n.builder.getF32Type()), dim, table)).cast(element);
    Shape indices;
    for (const std::vector<Tap> &taps : table)
      indices.push_back(taps[0].index);
    return train::GatherOp::create(n.builder, n.loc, n.type(shape, element), x,
                                   train::vectorOf(n.builder, n.loc, indices), dim);
  }
  (void)n.table({most, outputs});
  // Dimensions: those before the axis, the axis, those behind it.
  Shape grouped = {1, countOf(from.take_front(size_t(dim))), from[size_t(dim)],
                   countOf(from.drop_front(size_t(dim) + 1))};
  train::HostTensor indices(n.type({1, most, outputs}, n.builder.getI32Type()));
  train::HostTensor weights(n.type({1, most, outputs}, weightType(n, element)));
  for (int64_t p = 0; p < outputs; ++p)
    for (int64_t t = 0; t < most; ++t) {
      bool there = t < int64_t(table[size_t(p)].size());
      indices.setInt(t * outputs + p, there ? table[size_t(p)][size_t(t)].index : -1);
      weights.setDouble(t * outputs + p, there ? table[size_t(p)][size_t(t)].weight : 0);
    }
  Value from4 = n.reshape(x, grouped);
  grouped[2] = outputs;
  Value sums = train::SampleOp::create(n.builder, n.loc, n.type(grouped, element), from4,
                                       train::ConstantOp::create(n.builder, n.loc, indices.toAttribute()),
                                       train::ConstantOp::create(n.builder, n.loc, weights.toAttribute()));
  return n.reshape(sums, shape);
}

Expr clampFlat(const Expr &x, double low, double high) {
  Expr inside = x.compare(CompareKind::lt, high).select(x, x.like(high));
  return x.compare(CompareKind::gt, low).select(inside, x.like(low));
}

Expr concatenated(llvm::ArrayRef<Expr> parts, int64_t dim) {
  Shape shape(train::shapeOf(parts[0]));
  llvm::SmallVector<Value> values;
  shape[size_t(dim)] = 0;
  for (const Expr &part : parts) {
    shape[size_t(dim)] += train::shapeOf(part)[size_t(dim)];
    values.push_back(part);
  }
  auto type = RankedTensorType::get(shape, train::elementTypeOf(parts[0]));
  return parts.size() == 1 ? parts[0]
                           : parts[0].with(train::ConcatOp::create(*parts[0].builder, parts[0].loc, type, values, dim));
}

AxisTaps combined(llvm::ArrayRef<AxisTaps> axes, llvm::ArrayRef<int64_t> extents) {
  AxisTaps all = axes[0];
  for (size_t d = 1; d < axes.size(); ++d) {
    const AxisTaps &axis = axes[d];
    Expr flat = all.index * double(extents[d]) + axis.index;
    Expr inside = all.index.compare(CompareKind::ge, 0);
    Expr also = axis.index.compare(CompareKind::ge, 0);
    Expr none = flat.like(-1);
    all = {inside.select(also.select(flat, none), none), all.weight * axis.weight};
  }
  return all;
}

AxisTaps linearTaps(const Expr &position, int64_t extent, int64_t dim) {
  // Positions beyond the first element outside read nothing; clamp them, so that they fit into integers.
  Expr x = clampFlat(position, -2, double(extent) + 1), low = x.apply<train::FloorOp>(), part = x - low;
  Shape one(train::shapeOf(x));
  one.insert(one.begin() + ptrdiff_t(dim), 1);
  Type i32 = IntegerType::get(position.builder->getContext(), 32);
  auto kept = [&](const Expr &index) {
    Expr inside = index.compare(CompareKind::lt, double(extent)).select(index, index.like(-1));
    return index.compare(CompareKind::ge, 0).select(inside, index.like(-1)).reshape(one);
  };
  Expr first = low.cast(i32);
  return {concatenated({kept(first), kept(first + 1.0)}, dim),
          concatenated({(1.0 - part).reshape(one), part.reshape(one)}, dim)};
}

Value sample(NodeImport &n, Value x, const AxisTaps &taps) {
  llvm::ArrayRef<int64_t> from = train::shapeOf(x), table = train::shapeOf(taps.index);
  Type element = train::elementTypeOf(x);
  Value sums = train::SampleOp::create(n.builder, n.loc, n.type({from[0], from[1], table[2], 1}, element),
                                       n.reshape(x, {from[0], from[1], from[2], 1}), taps.index,
                                       taps.weight.cast(weightType(n, element)));
  return n.reshape(sums, {from[0], from[1], table[2]});
}

} // namespace tcc::frontend

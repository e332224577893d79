//===- AxisLayout.cpp - the axes behind a tensor's dimensions -------------===//
#include "passes/attention/AxisLayout.h"

using namespace mlir;

namespace tcc::train {

Axis AxisSpace::create(int64_t extent) {
  extents.push_back(extent);
  parts.push_back(std::nullopt);
  return Axis(extents.size() - 1);
}

int64_t AxisSpace::extent(llvm::ArrayRef<Axis> axes) const {
  int64_t product = 1;
  for (Axis axis : axes)
    product *= extents[axis];
  return product;
}

AxisLayout AxisSpace::layoutOf(llvm::ArrayRef<int64_t> shape) {
  AxisLayout layout(shape.size());
  for (auto [dim, extent] : llvm::enumerate(shape))
    if (extent != 1)
      layout[dim].push_back(create(extent));
  return layout;
}

void AxisSpace::split(Axis axis, int64_t outer) {
  int64_t inner = extents[axis] / outer;
  Axis first = create(outer), second = create(inner);
  parts[axis] = std::make_pair(first, second);
}

AxisList AxisSpace::expand(llvm::ArrayRef<Axis> axes) const {
  AxisList result;
  for (Axis axis : axes) {
    if (!parts[axis]) {
      result.push_back(axis);
      continue;
    }
    for (Axis part : {parts[axis]->first, parts[axis]->second})
      llvm::append_range(result, expand(llvm::ArrayRef(part)));
  }
  return result;
}

AxisLayout AxisSpace::expand(const AxisLayout &layout) const {
  AxisLayout result;
  for (const AxisList &axes : layout)
    result.push_back(expand(axes));
  return result;
}

AxisList AxisSpace::flatten(const AxisLayout &layout) const {
  AxisList result;
  for (const AxisList &axes : layout)
    llvm::append_range(result, expand(axes));
  return result;
}

std::optional<AxisLayout> AxisSpace::reshape(const AxisLayout &layout, llvm::ArrayRef<int64_t> shape) {
  AxisList rest = flatten(layout);
  std::reverse(rest.begin(), rest.end()); // the next one last
  AxisLayout result(shape.size());
  for (auto [dim, extent] : llvm::enumerate(shape)) {
    int64_t missing = extent;
    while (missing > 1) {
      if (rest.empty())
        return std::nullopt;
      Axis axis = rest.pop_back_val();
      if (missing % extents[axis] == 0) {
        missing /= extents[axis];
        result[dim].push_back(axis);
      } else if (extents[axis] % missing == 0) {
        split(axis, missing);
        result[dim].push_back(parts[axis]->first);
        rest.push_back(parts[axis]->second);
        missing = 1;
      } else {
        return std::nullopt;
      }
    }
  }
  return rest.empty() ? std::optional(result) : std::nullopt;
}

/// True if `indices` repeat each of the `source` slices in a run (0 0 1 1) or all of them in turn (0 1 0 1). `outer` is
/// the extent of the outer one of the two axes that the dimension consists of.
bool AxisSpace::repeats(llvm::ArrayRef<int64_t> indices, int64_t source, int64_t &outer, bool &inOrder) const {
  int64_t count = int64_t(indices.size());
  if (source < 1 || count % source || count == source)
    return false;
  int64_t times = count / source;
  bool runs = true, turns = true;
  for (int64_t i = 0; i < count; ++i) {
    int64_t index = indices[size_t(i)] < 0 ? indices[size_t(i)] + source : indices[size_t(i)];
    runs &= index == i / times;
    turns &= index == i % source;
  }
  inOrder = runs;
  outer = runs ? source : times;
  return runs || turns;
}

bool AxisSpace::stepUp(Access &access) {
  Operation *op = access.value.getDefiningOp();
  if (auto view = dyn_cast_or_null<ReshapeOp>(op)) {
    std::optional<AxisLayout> layout = reshape(access.layout, shapeOf(view.getInput()));
    if (!layout)
      return false;
    access = {view.getInput(), *layout};
    return true;
  }
  if (auto moved = dyn_cast_or_null<TransposeOp>(op)) {
    AxisLayout layout(access.layout.size());
    for (auto [dim, source] : llvm::enumerate(moved.getPermutation()))
      layout[size_t(source)] = access.layout[dim];
    access = {moved.getInput(), layout};
    return true;
  }
  if (auto wide = dyn_cast_or_null<BroadcastOp>(op)) {
    llvm::ArrayRef<int64_t> from = shapeOf(wide.getInput());
    size_t ahead = access.layout.size() - from.size();
    AxisLayout layout(from.size());
    for (size_t dim = 0; dim < from.size(); ++dim)
      if (from[dim] != 1)
        layout[dim] = access.layout[ahead + dim];
    access = {wide.getInput(), layout};
    return true;
  }
  // Heads repeated by a gather or a concatenation: the dimension is split, and the repeating part drops out.
  Value source;
  int64_t dim = 0, outer = 0;
  bool inOrder = false;
  if (auto gather = dyn_cast_or_null<GatherOp>(op)) {
    auto constant = gather.getIndices().getDefiningOp<ConstantOp>();
    source = gather.getInput(), dim = gather.getAxis();
    if (!constant || shapeOf(gather.getIndices()).size() != 1 || shapeOf(gather.getIndices())[0] > 65536)
      return false;
    HostTensor indices = HostTensor::fromAttribute(constant.getValue());
    llvm::SmallVector<int64_t> list;
    for (int64_t i = 0; i < indices.size(); ++i)
      list.push_back(indices.getInt(i));
    if (!repeats(list, shapeOf(source)[size_t(dim)], outer, inOrder))
      return false;
  } else if (auto concat = dyn_cast_or_null<ConcatOp>(op)) {
    source = concat.getInputs().front(), dim = concat.getDim();
    if (concat.getInputs().size() < 2 || !llvm::all_equal(concat.getInputs()))
      return false;
    outer = int64_t(concat.getInputs().size());
  } else {
    return false;
  }
  llvm::SmallVector<int64_t> cut(shapeOf(access.value));
  int64_t inner = cut[size_t(dim)] / outer;
  cut[size_t(dim)] = outer;
  cut.insert(cut.begin() + dim + 1, inner);
  std::optional<AxisLayout> layout = reshape(access.layout, cut);
  if (!layout)
    return false;
  layout->erase(layout->begin() + (inOrder ? dim + 1 : dim));
  access = {source, *layout};
  return true;
}

Access AxisSpace::root(Access access) {
  while (stepUp(access))
    ;
  return access;
}

Value AxisSpace::build(OpBuilder &builder, Location loc, const Access &access, llvm::ArrayRef<AxisList> target,
                       llvm::ArrayRef<bool> mayBeOne) {
  AxisList present = flatten(access.layout);
  llvm::SmallVector<int64_t> split, permutation, narrow, wide, merged;
  for (Axis axis : present)
    split.push_back(extents[axis]);
  for (auto [dim, axes] : llvm::enumerate(target)) {
    AxisList list = expand(axes);
    bool one = mayBeOne[dim] && llvm::none_of(list, [&](Axis axis) { return llvm::is_contained(present, axis); });
    for (Axis axis : list) {
      auto found = llvm::find(present, axis);
      if (found != present.end())
        permutation.push_back(found - present.begin());
      narrow.push_back(found != present.end() ? extents[axis] : 1);
      wide.push_back(one ? 1 : extents[axis]);
    }
    merged.push_back(one ? 1 : extent(list));
  }
  assert(permutation.size() == present.size() && "the target has every axis of the access");
  Value value = train::reshape(builder, loc, access.value, split);
  value = transpose(builder, loc, value, permutation);
  value = train::reshape(builder, loc, value, narrow);
  value = broadcastTo(builder, loc, value, wide);
  return train::reshape(builder, loc, value, merged);
}

} // namespace tcc::train

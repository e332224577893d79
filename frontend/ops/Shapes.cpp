//===- Shapes.cpp - ops that change the shape and not the elements --------===//
#include "frontend/NodeImport.h"

#include <numeric>

using namespace mlir;

namespace tcc::frontend {
namespace shapes { // named, since files share a translation unit
namespace {


/// Shape and Size: constants, since shapes are static.
Status shapeOp(NodeImport &n) {
  int64_t rank = n.rank(0);
  auto clamped = [&](std::string_view name, int64_t otherwise) {
    int64_t value = n.intAttr(name, otherwise);
    return std::clamp<int64_t>(value < 0 ? value + rank : value, 0, rank);
  };
  int64_t start = clamped("start", 0), end = std::max(start, clamped("end", rank));
  return n.result(train::vectorOf(n.builder, n.loc, n.shape(0).slice(size_t(start), size_t(end - start))));
}

Status size(NodeImport &n) { return n.result(n.splat({}, n.i64(), double(countOf(n.shape(0))))); }

Status reshape(NodeImport &n) {
  TCC_TRY(target, n.ints(1));
  bool zeroIsZero = n.intAttr("allowzero", 0);
  int64_t inferred = -1, known = 1;
  for (auto [i, dim] : llvm::enumerate(target)) {
    if (dim == 0 && !zeroIsZero) {
      if (int64_t(i) >= n.rank(0))
        return error("shape {} copies axis {}, which {} does not have", shapeText(target), i, typeText(n.in(0)));
      dim = n.shape(0)[i];
    }
    if (dim == -1) {
      if (inferred >= 0)
        return error("shape {} leaves two extents open", shapeText(target));
      inferred = int64_t(i);
    } else if (dim < 0) {
      return error("shape {} has a negative extent", shapeText(target));
    } else {
      known = countOf({known, dim});
    }
  }
  int64_t count = countOf(n.shape(0));
  if (inferred >= 0 && known > 0 && count % known == 0)
    target[size_t(inferred)] = count / known;
  if (countOf(target) != count || (inferred >= 0 && target[size_t(inferred)] < 0))
    return error("{} does not fit into shape {} (input \"{}\"); if the batch was changed by --shape, this shape was "
                       "fixed when the model was exported: export it with a dynamic batch",
                       typeText(n.in(0)), shapeText(target), n.node.input(1));
  return n.result(n.reshape(n.in(0), target));
}

Status flatten(NodeImport &n) {
  int64_t rank = n.rank(0), axis = n.intAttr("axis", 1);
  if (axis < -rank || axis > rank)
    return error("axis {} is outside of {}", axis, typeText(n.in(0)));
  size_t split = size_t(axis < 0 ? axis + rank : axis);
  llvm::ArrayRef<int64_t> shape = n.shape(0);
  return n.result(n.reshape(n.in(0), {countOf(shape.take_front(split)), countOf(shape.drop_front(split))}));
}

Status squeeze(NodeImport &n) {
  TCC_TRY(given, n.intsFrom("axes", 1));
  Shape dims;
  if (given) {
    TCC_TRY(axes, n.axes(*given, n.rank(0)));
    dims = axes;
    for (int64_t dim : dims)
      if (n.shape(0)[size_t(dim)] != 1)
        return error("axis {} of {} cannot be squeezed, since its extent is not 1", dim, typeText(n.in(0)));
  } else {
    for (auto [i, dim] : llvm::enumerate(n.shape(0)))
      if (dim == 1)
        dims.push_back(int64_t(i));
  }
  return n.result(n.dropDims(n.in(0), dims));
}

Status unsqueeze(NodeImport &n) {
  TCC_TRY(given, n.intsFrom("axes", 1));
  if (!given)
    return error("it has no axes");
  TCC_TRY(dims, n.axes(*given, n.rank(0) + int64_t(given->size())));
  llvm::sort(dims);
  Shape shape(n.shape(0));
  for (int64_t dim : dims)
    shape.insert(shape.begin() + dim, 1);
  return n.result(n.reshape(n.in(0), shape));
}

Status transpose(NodeImport &n) {
  int64_t rank = n.rank(0);
  Shape order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::reverse(order.begin(), order.end());
  if (std::optional<Shape> given = n.intsAttr("perm")) {
    TCC_TRY(checked, n.axes(*given, rank));
    if (int64_t(checked.size()) != rank)
      return error("perm {} must have one entry for each axis of {}", shapeText(checked), typeText(n.in(0)));
    order = checked;
  }
  return n.result(train::transpose(n.builder, n.loc, n.in(0), order));
}

Status expand(NodeImport &n) {
  TCC_TRY(target, n.ints(1));
  std::optional<Shape> shape = train::broadcastShapes(n.shape(0), target);
  if (!shape)
    return error("{} does not broadcast to {} (input \"{}\")", typeText(n.in(0)), shapeText(target), n.node.input(1));
  return n.result(n.broadcast(n.in(0), *shape));
}

/// Repeats [d0, d1] by [r0, r1]: [1, d0, 1, d1] is broadcast to [r0, d0, r1, d1] and merged.
Status tile(NodeImport &n) {
  TCC_TRY(repeats, n.ints(1));
  if (int64_t(repeats.size()) != n.rank(0))
    return error("it has {} repeats for {}; give one for each axis", repeats.size(), typeText(n.in(0)));
  Shape split, repeated, merged;
  for (auto [dim, count] : llvm::zip_equal(n.shape(0), repeats)) {
    if (count < 0)
      return error("repeat {} is negative", count);
    split.append({1, dim});
    repeated.append({count, dim});
    merged.push_back(countOf({dim, count}));
  }
  return n.result(n.reshape(n.broadcast(n.reshape(n.in(0), split), repeated), merged));
}

/// Rearranges blocks of channels into spatial blocks.
Status depthToSpace(NodeImport &n) {
  int64_t block = n.intAttr("blocksize", 1);
  if (n.rank(0) != 4 || block < 1 || block > kMostWindow || n.shape(0)[1] % (block * block))
    return error("{} is not [N, C, H, W] with C a multiple of {}", typeText(n.in(0)), countOf({block, block}));
  llvm::ArrayRef<int64_t> s = n.shape(0);
  int64_t channels = s[1] / (block * block);
  bool columnFirst = n.stringAttr("mode", "DCR") == "CRD";
  Shape split =
      columnFirst ? Shape{s[0], channels, block, block, s[2], s[3]} : Shape{s[0], block, block, channels, s[2], s[3]};
  Shape order = columnFirst ? Shape{0, 1, 4, 2, 5, 3} : Shape{0, 3, 4, 1, 5, 2};
  Value moved = train::transpose(n.builder, n.loc, n.reshape(n.in(0), split), order);
  return n.result(n.reshape(moved, {s[0], channels, s[2] * block, s[3] * block}));
}

Status spaceToDepth(NodeImport &n) {
  int64_t block = n.intAttr("blocksize", 1);
  if (n.rank(0) != 4 || block < 1 || block > kMostWindow || n.shape(0)[2] % block || n.shape(0)[3] % block)
    return error("{} is not [N, C, H, W] with H and W multiples of {}", typeText(n.in(0)), block);
  llvm::ArrayRef<int64_t> s = n.shape(0);
  Value split = n.reshape(n.in(0), {s[0], s[1], s[2] / block, block, s[3] / block, block});
  bool columnFirst = n.stringAttr("mode", "DCR") == "CRD";
  Shape order = columnFirst ? Shape{0, 1, 3, 5, 2, 4} : Shape{0, 3, 5, 1, 2, 4};
  Value moved = train::transpose(n.builder, n.loc, split, order);
  return n.result(n.reshape(moved, {s[0], s[1] * block * block, s[2] / block, s[3] / block}));
}

constexpr OpEntry kTable[] = {
    {"Shape", 1, shapeOp},         {"Size", 1, size},          {"Reshape", 2, reshape},
    {"Flatten", 1, flatten},       {"Squeeze", 1, squeeze},    {"Unsqueeze", 1, unsqueeze},
    {"Transpose", 1, transpose},   {"Expand", 2, expand},      {"Tile", 2, tile},
    {"DepthToSpace", 1, depthToSpace}, {"SpaceToDepth", 1, spaceToDepth},
};

} // namespace
} // namespace shapes

std::span<const OpEntry> shapeOps() { return shapes::kTable; }

} // namespace tcc::frontend

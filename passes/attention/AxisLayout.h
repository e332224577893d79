//===- AxisLayout.h - the axes behind a tensor's dimensions -----*- C++ -*-===//
//
// A computation on one iteration space (the scores of an attention: samples, heads, queries, keys) is written by
// exporters under many shapes: heads merged with samples, groups of heads split off, keys as an image's rows and
// columns. An axis is a factor of that space; a layout lists, for each dimension of a value, the axes that it runs
// through in row-major order. Views are walked from a result to its operand: a reshape regroups axes, and splits one
// where its dimension is cut; a transpose permutes; a broadcast drops the repeated axes. Splits are recorded, so that
// earlier layouts stay valid.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_ATTENTION_AXISLAYOUT_H
#define TCC_PASSES_ATTENTION_AXISLAYOUT_H

#include "compiler/dialect/Builders.h"

namespace tcc::train {

using Axis = unsigned;
using AxisList = llvm::SmallVector<Axis, 4>;
/// One list for each dimension; empty if its extent is 1.
using AxisLayout = llvm::SmallVector<AxisList, 4>;

/// A value and the axes of its dimensions.
struct Access {
  mlir::Value value;
  AxisLayout layout;
};

class AxisSpace {
public:
  Axis create(int64_t extent);
  int64_t extent(Axis axis) const { return extents[axis]; }
  int64_t extent(llvm::ArrayRef<Axis> axes) const;
  /// A new axis for each dimension of more than one element.
  AxisLayout layoutOf(llvm::ArrayRef<int64_t> shape);

  /// The axes after all splits.
  AxisList expand(llvm::ArrayRef<Axis> axes) const;
  AxisLayout expand(const AxisLayout &layout) const;
  AxisList flatten(const AxisLayout &layout) const;
  bool contains(const AxisLayout &layout, Axis axis) const { return llvm::is_contained(flatten(layout), axis); }

  /// The layout of the same elements under another shape; nullopt if dimensions would cut axes unevenly.
  std::optional<AxisLayout> reshape(const AxisLayout &layout, llvm::ArrayRef<int64_t> shape);

  /// Replaces `access` by the operand of its view: a reshape, transpose, broadcast, or a gather or concatenation that
  /// only repeats elements. False if `access` is no such view.
  bool stepUp(Access &access);
  /// Follows all such views.
  Access root(Access access);

  /// Builds a value with the elements of `access` and one dimension for each list of `target`. Axes that the access
  /// lacks are repeated; but a dimension that lacks all of its axes has extent 1 if its `mayBeOne` is set.
  mlir::Value build(mlir::OpBuilder &builder, mlir::Location loc, const Access &access, llvm::ArrayRef<AxisList> target,
                    llvm::ArrayRef<bool> mayBeOne);

private:
  void split(Axis axis, int64_t outer);
  bool repeats(llvm::ArrayRef<int64_t> indices, int64_t source, int64_t &outer, bool &inOrder) const;

  llvm::SmallVector<int64_t> extents;
  llvm::SmallVector<std::optional<std::pair<Axis, Axis>>> parts; ///< outer and inner part of an axis that was split
};

} // namespace tcc::train

#endif // TCC_PASSES_ATTENTION_AXISLAYOUT_H

//===- IterationSpace.h - the loop nest of a fused region -------*- C++ -*-===//
//
// All full-size values of a fused region have one shape, the iteration space. Its dimensions are parallel, or reduced
// by the region's staged reductions, which run level by level for one row (one point of the parallel dimensions) after
// another. Lanes run along the innermost dimension longer than 1. Three cases:
//
//   no reduction            for row: for lanes: outputs
//   lanes are reduced       for row: for level: for reduced, lanes: accumulate; combine lanes; outputs
//   lanes are parallel      for row, lane block: for level: for reduced: for lanes: accumulate; outputs
//
// In the last case sums of one vector are in registers, those of a longer block in memory, so that operands are read
// in memory order. A warp always keeps its sums in registers, and its units and tiles are smaller: a GPU has thousands
// of warps, and its caches compensate for the access order. If units are too few, a block of several warps reduces a
// row together, or the columns of one warp, with a part of their rows each.
//
// A fourth case is a region that sums columns besides its rows (ColumnSums.h), for warps only:
//
//   walk                    for part: for row: levels as above, the last one adds to the columns' sums; then these
//
// The tree of a reduction follows from its own shape and the machine level, not from the ops it is fused with;
// the only exception are rows of a walk, which are reduced by as many threads as can keep the columns' sums.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_CODEGEN_ITERATIONSPACE_H
#define TCC_CODEGEN_ITERATIONSPACE_H

#include "compiler/dialect/TrainDialect.h"
#include "compiler/target/CodeModel.h"

#include <optional>

namespace tcc::codegen {

struct IterationSpace {
  llvm::SmallVector<int64_t> dims; ///< at least one
  llvm::SmallVector<bool> reduced; ///< per dimension
  /// Staged reductions by level: level i needs only levels below i.
  llvm::SmallVector<llvm::SmallVector<mlir::Operation *>> levels;
  llvm::SmallVector<mlir::Operation *> columnSums;   ///< of columns, added up while walking over the rows of a part
  llvm::SmallPtrSet<mlir::Operation *, 4> ofColumns; ///< these, and ops that need them
  llvm::SmallVector<bool> walked;                    ///< per dimension: column sums reduce it; the others count parts
  unsigned laneDim = 0;
  int64_t lanes = 1;     ///< elements per vector, per warp, or per block of warps
  int64_t groupLanes = 1; ///< of the target's vectors or warps
  int64_t laneBlock = 1; ///< lanes' extent that one unit covers
  int64_t units = 1;     ///< independent pieces of work: rows × lane blocks
  int64_t unitsPerTile = 1;
  int64_t neighbours = 1; ///< contiguous elements that a warp's thread takes at a time: an access of up to 16 bytes
  int64_t columns = 1;    ///< neighbouring columns that a warp's thread sums up, if lanes are parallel
  int64_t rowWarps = 1;   ///< warps of a block, each of which sums up a part of the rows of the same columns
  int64_t sliceTiles = 0; ///< for warps after a product: tiles of one slice of rows; 0: the kernel has no slices
  int64_t groupElements = 0; ///< likewise: elements of the smallest group of tiles that ends with a row

  bool sumsInMemory() const { return !levels.empty() && !reduced[laneDim] && laneBlock > lanes * columns; }
  bool walks() const { return !columnSums.empty(); }
  /// Does the dimension count units, other than blocks of lanes?
  bool isParallel(unsigned dim) const { return !reduced[dim] && dim != laneDim && !(walks() && walked[dim]); }
  bool lanesReduced() const { return !levels.empty() && reduced[laneDim]; }
  /// Threads that share a tile.
  int64_t threads() const { return lanes * rowWarps; }
  int64_t tiles() const { return (units + unitsPerTile - 1) / unitsPerTile; }
  int64_t laneBlocks() const { return reduced[laneDim] ? 1 : (dims[laneDim] + laneBlock - 1) / laneBlock; }
  /// The first level in whose loops a value can be computed: the number of levels that it needs.
  unsigned levelOf(mlir::Value value) const;
  /// True if the value is a sum of columns, or computed from one.
  bool isOfColumns(mlir::Value value) const { return ofColumns.contains(value.getDefiningOp()); }
  /// True if a value of this shape is one element per row.
  bool isRowShape(llvm::ArrayRef<int64_t> shape) const;
};

/// The space of a fused region. Lanes are the same for all kernels of a machine level.
IterationSpace analyzeIterationSpace(train::FusedOp fused, const target::CodeModel &model);

} // namespace tcc::codegen

#endif // TCC_CODEGEN_ITERATIONSPACE_H

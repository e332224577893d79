//===- LoopRows.h - the parts of a loop that do not mix ---------*- C++ -*-===//
//
// Most recurrences run for each sample, head or channel by itself. Their loop is cut along these dimensions into tiles,
// which run side by side, and each of which keeps its state in the nearest cache.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_KERNELS_LOOPROWS_H
#define TCC_KERNELS_LOOPROWS_H

#include "compiler/dialect/Loop.h"

namespace tcc::train {

/// A loop cut into tiles. The dimensions that it is cut along lead in all of its operands and results.
class LoopRows {
public:
  explicit LoopRows(LoopOp loop);
  ~LoopRows();
  LoopRows(const LoopRows &) = delete;
  LoopRows &operator=(const LoopRows &) = delete;

  int64_t tiles() const;
  /// The loop whose body computes one tile: its values have the extents of one. Its operands and results are not cut.
  LoopOp body() const { return tile; }
  /// How many elements a tile's part of an argument of the body, or of an operand of its train.next, lies behind the
  /// tensor's first one; `number` (i64): of the tile.
  mlir::Value offsetOf(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value, mlir::Value number) const;

private:
  struct Cut {
    int64_t extent, tile;
  };
  llvm::SmallVector<Cut> cuts;
  LoopOp tile;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<int64_t>> strides; ///< of each cut; 0: the value does not depend on it
};

} // namespace tcc::train

#endif // TCC_KERNELS_LOOPROWS_H

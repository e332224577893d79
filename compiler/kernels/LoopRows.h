//===- LoopRows.h - the independent parts of a loop -------------*- C++ -*-===//
//
// Most recurrences are independent for each sample, head or channel. Their loop is cut along these dimensions into
// tiles, which run in parallel, each with its state in the first-level cache.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_KERNELS_LOOPROWS_H
#define TCC_KERNELS_LOOPROWS_H

#include "compiler/dialect/Loop.h"

namespace tcc::train {

/// A loop cut into tiles. The cut dimensions are the leading ones of all its operands and results.
class LoopRows {
public:
  explicit LoopRows(LoopOp loop);
  ~LoopRows();
  LoopRows(const LoopRows &) = delete;
  LoopRows &operator=(const LoopRows &) = delete;

  int64_t tiles() const;
  /// The loop whose body computes one tile: the body's values have a tile's extents; operands and results are whole.
  LoopOp body() const { return tile; }
  /// Offset, in elements of the whole tensor, of a tile's part of `value`: an argument of the body or an operand of its
  /// train.next. `number` (i64): number of the tile.
  mlir::Value offsetOf(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value, mlir::Value number) const;

private:
  struct Cut {
    int64_t extent, tile;
  };
  llvm::SmallVector<Cut> cuts;
  LoopOp tile;
  llvm::DenseMap<mlir::Value, llvm::SmallVector<int64_t>> strides; ///< of each cut dimension; 0: not in the value
};

} // namespace tcc::train

#endif // TCC_KERNELS_LOOPROWS_H

//===- ScatterRows.h - rows scattered by a lane group ----------*- C++ -*-===//
#ifndef TCC_DIALECT_SCATTERROWS_H
#define TCC_DIALECT_SCATTERROWS_H

#include "compiler/dialect/Indexing.h"

namespace tcc::train {

/// A scatter along one axis where all elements of a row share their index. A *line* is everything along the axis at one
/// place of the dimensions before it. Strides count elements.
struct ScatterRows {
  int64_t lines = 1;
  int64_t extent = 1;  ///< rows of the result in a line
  int64_t count = 1;   ///< updates, and indices, in a line
  int64_t columns = 1; ///< elements of a row
  int64_t resultRow = 1, resultColumn = 1;
  int64_t updateRow = 1, updateColumn = 1;
  int64_t indexRow = 1;

  /// Tiles of a lane group: a line's rows in blocks, a row's columns in blocks.
  int64_t groupTiles() const { return lines * rowBlocks() * columnBlocks(); }
  int64_t rowsPerTile() const;
  int64_t rowBlocks() const { return llvm::divideCeil(extent, rowsPerTile()); }
  int64_t columnBlocks() const;
};

/// Offsets of a line's first elements.
struct ScatterLine {
  Index result, updates, indices;
};

/// Emits one tile of a lane group, which owns its elements of the result: its threads read all indices of a line, one
/// each at a time, and apply the updates of the tile's rows in order, so that every sum has the bits of one thread's
/// loop. A thread has one column of the tile. Operand 1 holds indices of type `indexElement`, operand 2 updates; result
/// 0 is changed in place. `combine` computes the new element from the old one and an update; if `overwrites`, the old
/// one is not read.
void emitScatterRows(LoopBuilder &loops, const ScatterRows &rows, mlir::Value tile, mlir::Type element,
                     mlir::Type indexElement, bool overwrites, llvm::function_ref<ScatterLine(mlir::Value line)> lineAt,
                     llvm::function_ref<mlir::Value(mlir::Value old, mlir::Value update)> combine);

} // namespace tcc::train

#endif // TCC_DIALECT_SCATTERROWS_H

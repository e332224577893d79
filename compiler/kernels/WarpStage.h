//===- WarpStage.h - rows that a block's warps read together ----*- C++ -*-===//
//
// The warps of a block run through the same rows of two operands. These come into the block's memory a stage of them at
// a time, the next one while a stage is used, by copies that need no registers (PTX ISA, cp.async). From there each
// warp takes them as the right side of its products of tiles.
//
// Pieces of 16 bytes lie in an order that differs from row to row, so that the threads that read at the same time use
// different banks, in products over features and in products over rows alike.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_KERNELS_WARPSTAGE_H
#define TCC_KERNELS_WARPSTAGE_H

#include "compiler/dialect/Indexing.h"

#include <array>

namespace tcc::train {

/// A head's rows in an operand or result.
struct WarpRows {
  unsigned number;
  mlir::Value base; ///< element index of row 0
  int64_t stride, features;
  int64_t alignment; ///< bytes that every row's address is a multiple of
};

/// Features in parts that a thread reads at once: 8, 4 or 2 of each of its rows or columns.
struct FeaturePart {
  int64_t first, perThread;
};
/// `threads`: that share a row, 8 features each at a time.
llvm::SmallVector<FeaturePart> featurePartsOf(int64_t features, int64_t threads);

constexpr int64_t kFeatureThreads = 4; ///< that share a row of a product over features
constexpr int64_t kColumnThreads = 8;  ///< that share a row of a product over rows

class WarpStage {
public:
  static constexpr int64_t kWarps = 4; ///< of a block
  using Values = llvm::SmallVector<mlir::Value>;

  /// Of operands with so many features, of 16 bits.
  WarpStage(LoopBuilder &loops, int64_t firstFeatures, int64_t secondFeatures);

  /// Rows of a stage.
  int64_t rows() const { return stageRows; }

  /// Runs through rows [begin, end) of both sides, a stage at a time; `begin` is a multiple of rows(). `body` takes the
  /// stage's first row and its buffer. Rows from `count` on are zeros. All threads of the block must come here, with
  /// the same bounds.
  Values walk(mlir::Value begin, mlir::Value end, int64_t count, const std::array<WarpRows, 2> &sides,
              mlir::ValueRange inits,
              llvm::function_ref<Values(mlir::Value first, mlir::Value buffer, mlir::ValueRange carried)> body);

  /// This thread's words of a side's 16 rows from `row` of the stage on, as the right side of products: over features,
  /// those of its column of tile `j`, two for each 16 features; over rows, two for each 8 features.
  Values featuresOf(size_t side, mlir::Value buffer, mlir::Value row, int64_t j);
  Values acrossRows(size_t side, mlir::Value buffer, mlir::Value row);

  /// This thread's number in its warp is 4·eighth + fourth.
  Index warp, eighth, fourth;
  Index columnRow; ///< of a group's rows this thread's column in tile 0: 4·(eighth/2) + eighth%2

private:
  struct Side {
    int64_t features, offset; ///< the latter in a buffer
    int64_t rowBytes() const { return features * kElementBytes; }
    int64_t pieces() const { return features / kPieceElements; }
    /// Of this thread's columns, and of its rows, the even and the odd ones, by part.
    Values columns = {};
    llvm::SmallVector<std::array<mlir::Value, 2>> across = {};
  };
  static constexpr int64_t kElementBytes = 2, kPieceBytes = 16, kPieceElements = kPieceBytes / kElementBytes;

  /// The byte in its row where feature `first` + `perThread`·thread lies, if the piece's number is changed by `change`.
  Index placeOf(const Side &side, FeaturePart part, Index thread, Index change);
  Index changeOf(Index row);
  void copyStage(const std::array<WarpRows, 2> &rows, int64_t count, mlir::Value first, Index buffer);
  Index exclusiveOr(Index x, Index y);

  LoopBuilder &loops;
  std::array<Side, 2> sides;
  int64_t stageRows, bufferBytes;
};

} // namespace tcc::train

#endif // TCC_KERNELS_WARPSTAGE_H

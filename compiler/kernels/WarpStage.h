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

/// How words of 32 bits hold the numbers of tiles.
struct TileForm {
  TileNumbers numbers;

  bool isNarrow() const { return numbers == TileNumbers::BF16 || numbers == TileNumbers::F16; }
  int64_t elementBytes() const { return isNarrow() ? 2 : 4; }
  int64_t wordElements() const { return isNarrow() ? 2 : 1; }
  /// Words that stand for one in a product: f32 is the sum of two numbers of TF32.
  int64_t planes() const { return numbers == TileNumbers::F32 ? 2 : 1; }
  /// What a product of tiles sums over: features, or rows.
  int64_t step() const { return 8 * wordElements(); }
  /// Features of whole steps; zeros are behind those of the head.
  int64_t padded(int64_t features) const { return (features + step() - 1) / step() * step(); }
};

/// A head's rows in an operand or result.
struct WarpRows {
  unsigned number;
  mlir::Value base; ///< element index of row 0
  int64_t stride, features;
  int64_t alignment; ///< bytes that every row's address is a multiple of
};

/// Features in parts that a thread reads at once: 4, 2 or 1 words of each of its rows or columns.
struct FeaturePart {
  int64_t first, perThread;
};
/// Of padded features. `threads`: that share a row, up to 16 bytes each at a time.
llvm::SmallVector<FeaturePart> featurePartsOf(const TileForm &form, int64_t features, int64_t threads);

/// Some of a row's features: whole parts of products over rows.
struct FeatureRange {
  int64_t first, end;
  bool contains(const FeaturePart &part) const { return first <= part.first && part.first < end; }
};

constexpr int64_t kFeatureThreads = 4; ///< that share a row of a product over features
constexpr int64_t kColumnThreads = 8;  ///< that share a row of a product over rows

class WarpStage {
public:
  static constexpr int64_t kWarps = 4; ///< of a block
  using Values = llvm::SmallVector<mlir::Value>;

  /// Of operands with so many features.
  WarpStage(LoopBuilder &loops, const TileForm &form, int64_t firstFeatures, int64_t secondFeatures);

  /// Rows of a stage.
  int64_t rows() const { return stageRows; }

  /// Runs through rows [begin, end) of both sides, a stage at a time; `begin` is a multiple of rows(). `body` takes the
  /// stage's first row and its buffer. Rows from `count` on are zeros. All threads of the block must come here, with
  /// the same bounds.
  Values walk(mlir::Value begin, mlir::Value end, int64_t count, const std::array<WarpRows, 2> &sides,
              mlir::ValueRange inits,
              llvm::function_ref<Values(mlir::Value first, mlir::Value buffer, mlir::ValueRange carried)> body);

  /// This thread's words of a side's 16 rows from `row` of the stage on, as the right side of products: over features,
  /// those of its column of tile `j`, two for each step; over rows, for each 8 features of the range two for each step.
  Values featuresOf(size_t side, mlir::Value buffer, mlir::Value row, int64_t j);
  Values acrossRows(size_t side, mlir::Value buffer, mlir::Value row, const FeatureRange &range);

  /// This thread's number in its warp is 4·eighth + fourth.
  Index warp, eighth, fourth;
  Index columnRow; ///< of a group's rows this thread's column in tile 0: 4·(eighth/2) + eighth%2

private:
  struct Side {
    int64_t features; ///< padded
    int64_t offset;   ///< in a buffer
    int64_t rowBytes; ///< of all features
    int64_t pieces() const { return rowBytes / kPieceBytes; }
    /// Of this thread's columns, and of its rows, the even and the odd ones, by part.
    Values columns = {};
    llvm::SmallVector<std::array<mlir::Value, 2>> across = {};
  };
  static constexpr int64_t kPieceBytes = 16;
  int64_t pieceElements() const { return kPieceBytes / form.elementBytes(); }

  /// The byte in its row where feature `first` + `perThread`·thread lies, if the piece's number is changed by `change`.
  Index placeOf(const Side &side, FeaturePart part, Index thread, Index change);
  Index changeOf(Index row);
  void copyStage(const std::array<WarpRows, 2> &rows, int64_t count, mlir::Value first, Index buffer);
  Index exclusiveOr(Index x, Index y);

  LoopBuilder &loops;
  const TileForm form;
  std::array<Side, 2> sides;
  int64_t stageRows, bufferBytes;
};

} // namespace tcc::train

#endif // TCC_KERNELS_WARPSTAGE_H

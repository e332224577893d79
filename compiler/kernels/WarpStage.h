//===- WarpStage.h - rows that a block's warps read together ----*- C++ -*-===//
//
// The warps of a block loop over the same rows of two operands. A stage of rows at a time is copied into the block's
// shared memory, the next one while the current one is used, by asynchronous copies that need no registers (PTX ISA,
// cp.async). Each warp reads the right side of its products of tiles from there.
//
// The order of 16-byte pieces is swizzled by row, so that threads that read at the same time use different banks, both
// in products over features and in products over rows.
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
  /// Words per word in a product: a number of f32 is the sum of two of TF32.
  int64_t planes() const { return numbers == TileNumbers::F32 ? 2 : 1; }
  /// Features, or rows, that one product of tiles sums over.
  int64_t step() const { return 8 * wordElements(); }
  /// Features rounded up to whole steps; those beyond the head's are zeros.
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
/// The parts of padded features, if `threads` threads share a row, with up to 16 bytes each at a time.
llvm::SmallVector<FeaturePart> featurePartsOf(const TileForm &form, int64_t features, int64_t threads);

/// Some of a row's features: whole parts of products over rows.
struct FeatureRange {
  int64_t first, end;
  bool contains(const FeaturePart &part) const { return first <= part.first && part.first < end; }
};

constexpr int64_t kFeatureThreads = 4; ///< threads that share a row of a product over features
constexpr int64_t kColumnThreads = 8;  ///< threads that share a row of a product over rows

class WarpStage {
public:
  static constexpr int64_t kWarps = 4; ///< of a block
  using Values = llvm::SmallVector<mlir::Value>;

  /// A stage for two operands with these numbers of features.
  WarpStage(LoopBuilder &loops, const TileForm &form, int64_t firstFeatures, int64_t secondFeatures);

  /// Rows of a stage.
  int64_t rows() const { return stageRows; }

  /// Loops over rows [begin, end) of both sides, a stage at a time; `begin` is a multiple of rows(). `body` gets the
  /// stage's first row and its buffer. Rows from `count` on are zeros. All threads of the block must execute it, with
  /// the same bounds.
  Values walk(mlir::Value begin, mlir::Value end, int64_t count, const std::array<WarpRows, 2> &sides,
              mlir::ValueRange inits,
              llvm::function_ref<Values(mlir::Value first, mlir::Value buffer, mlir::ValueRange carried)> body);

  /// This thread's words of a side's 16 rows from `row` of the stage on, as the right side of products. Over features:
  /// two words for each step, of its column of tile `j`. Over rows: two words for each step and 8 features of the
  /// range.
  Values featuresOf(size_t side, mlir::Value buffer, mlir::Value row, int64_t j);
  Values acrossRows(size_t side, mlir::Value buffer, mlir::Value row, const FeatureRange &range);

  /// This thread's number in its warp is 4·eighth + fourth.
  Index warp, eighth, fourth;
  Index columnRow; ///< the row of a group that is this thread's column of tile 0: 4·(eighth/2) + eighth%2

private:
  struct Side {
    int64_t features; ///< padded
    int64_t offset;   ///< in a buffer
    int64_t rowBytes; ///< of all features
    int64_t pieces() const { return rowBytes / kPieceBytes; }
    /// Byte offsets by part: of this thread's columns, and of its even and odd rows.
    Values columns = {};
    llvm::SmallVector<std::array<mlir::Value, 2>> across = {};
  };
  static constexpr int64_t kPieceBytes = 16;
  int64_t pieceElements() const { return kPieceBytes / form.elementBytes(); }

  /// Byte offset in a row of feature `part.first` + `part.perThread`·thread, with the piece's number xor `change`.
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

//===- RowRegion.h - the row-wise users of a large product ------*- C++ -*-===//
//
// The ops around a large matrix product that can be computed for some of its rows, then for the next: from the product
// to where nothing large leaves. Every op in between works on each row by itself (pointwise, broadcasts, reductions
// along the other dimensions, a target's element picked), so that what leaves is small (a number a row), or a product
// that contracts the large dimension, or a sum over the rows.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_FUSION_ROWREGION_H
#define TCC_PASSES_FUSION_ROWREGION_H

#include "compiler/dialect/TrainDialect.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <optional>
#include <string>

namespace tcc::train {

/// The dimensions of a tensor that count rows, in row-major order of the rows. Those of extent 1 are left out.
using RowDims = llvm::SmallVector<int64_t>;

/// The rows of an operand that one row of a result needs.
struct RowAccess {
  enum Kind { kSameRow, kNoRow, kOtherRows } kind; ///< the same row; elements shared by all rows; anything else
  RowDims dims = {};                               ///< the operand's rows, for kSameRow
};

struct RowRegion {
  int64_t rows = 0;
  /// In program order: the product, its row-wise users, and cheap ops that only compute a large operand for it.
  llvm::SetVector<mlir::Operation *> ops;
  /// Ops that contract the rows: their results are sums over chunks.
  llvm::SetVector<mlir::Operation *> sums;
  /// Rows of the results of `ops` and of the operands that they read row by row.
  llvm::DenseMap<mlir::Value, RowDims> rowsOf;
  /// Results of ops, no sums, that are read outside; in program order.
  llvm::SetVector<mlir::Value> exits;

  /// Bytes of sums that wait for other results, as a tied weight's gradient waits for the embedding's: they live beside
  /// the chunks' buffers; without chunks they could be computed later.
  int64_t waitingBytes = 0;

  /// How an op of the region reads an operand.
  RowAccess access(mlir::OpOperand &operand) const;
};

struct RowRegionOrWhy {
  std::optional<RowRegion> region;
  /// Without a region: the obstacle, for people; empty if the product is no candidate (nothing reduces its rows).
  ///
  std::string why;
};

/// The region of a product whose rows are dimension `rowDim` of its result.
RowRegionOrWhy findRowRegion(MatMulOp product, int64_t rowDim);

/// The dimension to cut rows along: that of the rows, or several adjacent ones; nothing if other dimensions are between
/// them.
bool areAdjacent(mlir::Value value, const RowDims &dims);

} // namespace tcc::train

#endif // TCC_PASSES_FUSION_ROWREGION_H

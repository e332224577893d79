//===- RowRegion.h - the row-wise users of a large product ------*- C++ -*-===//
//
// The ops around a large matrix product that can be computed for one chunk of its rows after another, without any large
// value leaving them. Every op works on each row separately (pointwise ops, broadcasts, reductions along the other
// dimensions, picking a target's element), so that the results are small (a number a row), or a product that contracts
// the large dimension, or a sum over the rows.
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
  /// In program order: the product, its row-wise users, and cheap ops that compute a large operand of these.
  llvm::SetVector<mlir::Operation *> ops;
  /// Ops that contract the rows: their results are sums over chunks.
  llvm::SetVector<mlir::Operation *> sums;
  /// Rows of the results of `ops` and of the operands that they read row by row.
  llvm::DenseMap<mlir::Value, RowDims> rowsOf;
  /// Results read outside, other than sums; in program order.
  llvm::SetVector<mlir::Value> exits;

  /// Bytes of sums that are added to later results, such as a tied weight's gradient and the embedding's. They are live
  /// together with the chunks' buffers; without chunks they could be computed later.
  int64_t waitingBytes = 0;

  /// How an op of the region reads an operand.
  RowAccess access(mlir::OpOperand &operand) const;
};

struct RowRegionOrWhy {
  std::optional<RowRegion> region;
  /// If there is no region, the reason as text; empty if the product is no candidate because no op reduces its rows.
  ///
  std::string why;
};

/// The region of a product whose rows are dimension `rowDim` of its result.
RowRegionOrWhy findRowRegion(MatMulOp product, int64_t rowDim);

/// True if the row dimensions are adjacent, so that rows can be cut along them.
bool areAdjacent(mlir::Value value, const RowDims &dims);

} // namespace tcc::train

#endif // TCC_PASSES_FUSION_ROWREGION_H

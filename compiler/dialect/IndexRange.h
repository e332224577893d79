//===- IndexRange.h - legal values of integer indices -----------*- C++ -*-===//
//
// Indices that a graph input holds (token ids, positions) must be inside the table that they address. Ops that address
// a table implement IndexedAccess; ops that only move or shift integers propagate the demand to their operands by
// IntegerFlow. derive-index-ranges follows both from each table to the graph's inputs.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_INDEXRANGE_H
#define TCC_DIALECT_INDEXRANGE_H

#include "compiler/dialect/TrainDialect.h"

#include <limits>
#include <optional>

namespace tcc::train {

/// Demands values within [low, high] of a tensor's elements with begin ≤ coordinate < end; of all elements if `begin`
/// and `end` are empty (also for a scalar).
struct IndexDemand {
  int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  llvm::SmallVector<int64_t> begin, end;
  bool ofAll() const { return begin.empty(); }
};

/// One table that an op addresses.
struct IndexUse {
  unsigned operand = 0;      ///< the indices
  int64_t low = 0, high = 0; ///< legal values
  int64_t extent = 0;        ///< of the table along the indexed axis
  int64_t axis = 0;
  mlir::Value table;                     ///< null if the table is no value
  llvm::SmallVector<int64_t> exceptions; ///< legal as well: ignore_index
};

/// On an op that indexes by labels: the labels that are ignored (a DenseI64ArrayAttr, may be empty).
inline constexpr llvm::StringLiteral kUncountedLabels = "train.uncounted_labels";
/// On a select that turns ONNX's negative indices into positive ones: the extent that they address (i64).
inline constexpr llvm::StringLiteral kWrapsIndex = "train.wraps_index";

} // namespace tcc::train

#include "compiler/dialect/IndexRange.h.inc"

namespace tcc::train {

/// Attaches IndexedAccess and IntegerFlow to the ops that have them.
void attachIndexRanges(mlir::MLIRContext &context);

} // namespace tcc::train

#endif // TCC_DIALECT_INDEXRANGE_H

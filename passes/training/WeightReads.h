//===- WeightReads.h - how the forward pass reads a weight ------*- C++ -*-===//
//
// Which ops an adapter could be added to, and along which dimensions a weight has output channels.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_PASSES_TRAINING_WEIGHTREADS_H
#define TCC_PASSES_TRAINING_WEIGHTREADS_H

#include "compiler/dialect/TrainDialect.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>
#include <string>

namespace tcc::train {

/// A product with a matrix.
struct AdaptedProduct {
  MatMulOp op;
  bool onRight; ///< the matrix is the right operand
};

/// A lookup along the first dimension of a table: a gather, or a train.unpack at indices.
struct AdaptedLookup {
  mlir::Operation *op;
  mlir::Value indices;
};

/// All readers of a weight that adapters can be added to: only products, only convolutions or only lookups.
struct WeightReads {
  ReadOp read;
  mlir::RankedTensorType
      type;              ///< of the weight, also if the variable's bytes hold it in 4 bits; null if they hold none
  bool fourBits = false; ///< they do: the file stores it so
  llvm::SmallVector<AdaptedProduct> products;
  llvm::SmallVector<ConvOp> convolutions;
  llvm::SmallVector<AdaptedLookup> lookups;
  bool inputFirst = false; ///< the matrix is [features of the input, features of the result]; true for tables
  std::string obstacle;    ///< why the weight cannot be adapted, as a predicate: "is no matrix"; empty: it can
  std::string notPeft;     ///< how peft computes differently; empty: it does not
};

/// Analyses all reads of one variable.
WeightReads readsOfWeight(llvm::ArrayRef<ReadOp> reads);

/// The shape of the scales of a weight: its own, with 1 along the dimensions that a reader sums over, or that one
/// lookup reads together. Nullopt for a weight that no product, convolution, lookup or recurrent layer reads.
std::optional<llvm::SmallVector<int64_t>> scaleShapeOf(llvm::ArrayRef<ReadOp> reads);

} // namespace tcc::train

#endif // TCC_PASSES_TRAINING_WEIGHTREADS_H

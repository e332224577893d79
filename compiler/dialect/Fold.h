//===- Fold.h - fold constants by the naive evaluators ----------*- C++ -*-===//
#ifndef TCC_DIALECT_FOLD_H
#define TCC_DIALECT_FOLD_H

#include "compiler/dialect/TrainDialect.h"

namespace tcc::train {

/// The results of `op` as constants, built at the builder's insertion point with the op's location, if the op has a
/// `Reference` and all operands are `train.constant` or without elements, or all results are without elements; else
/// empty. `op` itself is unchanged. Splats stay splats and count as one element. Builds nothing if a result would take
/// more than `maxResultBytes` bytes, or if folding would take more than some 16 million operations.
llvm::SmallVector<mlir::Value> foldIfConstant(mlir::OpBuilder &builder, mlir::Operation *op, int64_t maxResultBytes);

/// The same for a value: the constant (its op, if now unused, is erased), or the value itself.
mlir::Value foldOrSelf(mlir::OpBuilder &builder, mlir::Value value, int64_t maxResultBytes);

} // namespace tcc::train

#endif // TCC_DIALECT_FOLD_H

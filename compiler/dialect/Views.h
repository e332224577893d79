//===- Views.h - look through ops with the trait View -----------*- C++ -*-===//
//
// A view aliases its operand under another shape, without computing or reading anything. These functions look through
// views to the root of a value, and to its readers.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_DIALECT_VIEWS_H
#define TCC_COMPILER_DIALECT_VIEWS_H

#include "compiler/dialect/TrainDialect.h"

namespace tcc::train {

inline bool isView(mlir::Operation *op) { return op && op->hasTrait<View>(); }

/// The value that `value` is a view of, through any number of views; `value` itself if it is no view. `views` gets
/// these views, the last one first.
mlir::Value rootOf(mlir::Value value, llvm::SmallVectorImpl<mlir::Operation *> *views = nullptr);

/// The same, if `value` and each value on the way to the root, the root included, have one use; else null.
mlir::Value soleRootOf(mlir::Value value, llvm::SmallVectorImpl<mlir::Operation *> *views = nullptr);

/// Uses of `value` and of its views by ops that are not views.
llvm::SmallVector<mlir::OpOperand *> usesAcrossViews(mlir::Value value);

} // namespace tcc::train

#endif // TCC_COMPILER_DIALECT_VIEWS_H

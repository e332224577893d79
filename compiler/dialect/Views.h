//===- Views.h - walks across ops with the trait View -----------*- C++ -*-===//
//
// A view names the bytes of its operand by another shape: it computes and reads nothing. Whoever asks where a value
// comes from, or what reads it, walks across views with these functions.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_DIALECT_VIEWS_H
#define TCC_COMPILER_DIALECT_VIEWS_H

#include "compiler/dialect/TrainDialect.h"

namespace tcc::train {

inline bool isView(mlir::Operation *op) { return op && op->hasTrait<View>(); }

/// The value that `value` is a view of, across any number of views; `value` itself where it is none. `views` gets the
/// views that were crossed, the last one first.
mlir::Value rootOf(mlir::Value value, llvm::SmallVectorImpl<mlir::Operation *> *views = nullptr);

/// The same, if `value` and each value on the way to the root, the root included, have one use; else null.
mlir::Value soleRootOf(mlir::Value value, llvm::SmallVectorImpl<mlir::Operation *> *views = nullptr);

/// Uses of `value` and of its views by ops that are no views.
llvm::SmallVector<mlir::OpOperand *> usesAcrossViews(mlir::Value value);

} // namespace tcc::train

#endif // TCC_COMPILER_DIALECT_VIEWS_H

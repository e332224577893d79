//===- FrontierRows.h - the points of an entry's frontier -------*- C++ -*-===//
#ifndef TCC_PASSES_FRONTIERROWS_H
#define TCC_PASSES_FRONTIERROWS_H

#include "mlir/IR/BuiltinAttributes.h"

namespace tcc::train {

/// Of the rows of names::kFrontier, those that no other one beats: none has at most its bytes on the device, at most
/// its bytes on the host and at most its cost. Of equal rows the first remains; the chosen one always does. First come
/// the rows without memory of the host, by cost, then the others in the order given.
mlir::ArrayAttr withoutBeatenRows(mlir::MLIRContext *context, llvm::ArrayRef<mlir::Attribute> rows);

} // namespace tcc::train

#endif // TCC_PASSES_FRONTIERROWS_H

//===- OwnElement.h - reads of an element at its own place ------*- C++ -*-===//
#ifndef TCC_COMPILER_DIALECT_OWNELEMENT_H
#define TCC_COMPILER_DIALECT_OWNELEMENT_H

#include "compiler/dialect/TrainDialect.h"

namespace tcc::train {

/// True if each element of the user's result reads only the operand's element of the same coordinates: operands of
/// pointwise ops, the addend of a product, the indices of a lookup of single numbers in a table.
bool readsItsOwnElement(mlir::OpOperand &use);

} // namespace tcc::train

#endif // TCC_COMPILER_DIALECT_OWNELEMENT_H

//===- Loop.h - a body that is run once for each step -----------*- C++ -*-===//
//
// Separate from the other ops' header, since few files use loops.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_LOOP_H
#define TCC_DIALECT_LOOP_H

#include "compiler/dialect/TrainDialect.h"

namespace tcc::train {
class NextOp;
} // namespace tcc::train

#define GET_OP_CLASSES
#include "compiler/dialect/LoopOps.h.inc"

namespace tcc::train {
/// The type of the stacked parts of all steps: [steps, …].
mlir::RankedTensorType stackedType(int64_t steps, mlir::Type part);
} // namespace tcc::train

#endif // TCC_DIALECT_LOOP_H

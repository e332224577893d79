//===- RowGuard.h - rows whose results are 0 without a look -----*- C++ -*-===//
#ifndef TCC_CODEGEN_ROWGUARD_H
#define TCC_CODEGEN_ROWGUARD_H

#include "compiler/codegen/IterationSpace.h"

namespace tcc::codegen {

/// A condition of a row (i1, one element for each row, computed without the region's reductions) without which all
/// results of the row are +0, whatever numbers its other operands hold: in a cross-entropy, that the target is not
/// ignore_index. A kernel tests it first, and reads nothing of a row that is only padding. Null if there is none, or if
/// the region does not reduce its lanes.
mlir::Value rowGuardOf(train::FusedOp fused, const IterationSpace &space);

} // namespace tcc::codegen

#endif // TCC_CODEGEN_ROWGUARD_H

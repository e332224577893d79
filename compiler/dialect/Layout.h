//===- Layout.h - channels-last tensors -------------------------*- C++ -*-===//
//
// Ops are imported and differentiated on tensors N, C, spatial. assign-layouts turns those that gain by it into ops on
// N, spatial, C; the interface LayoutAware, attached here, builds their new form.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_LAYOUT_H
#define TCC_DIALECT_LAYOUT_H

#include "compiler/dialect/TrainDialect.h"

namespace tcc::train {
/// The bytes that an op moves in one of the layouts.
struct LayoutCost {
  int64_t walked = 0, turned = 0;
};
} // namespace tcc::train

#include "compiler/dialect/Layout.h.inc"

namespace tcc::train {

/// Attaches LayoutAware to the ops that have it.
void attachLayouts(mlir::MLIRContext &context);

/// The permutation that makes N, spatial, C of N, C, spatial (as train.transpose has it), and the one back.
llvm::SmallVector<int64_t> channelsLastPermutation(size_t rank);
llvm::SmallVector<int64_t> channelsFirstPermutation(size_t rank);

/// The type of a channels-last tensor whose dimensions are N, C, spatial in `type`.
mlir::RankedTensorType channelsLastType(mlir::Type type);

/// True where both layouts are the same bytes: one channel, or one element in space.
bool isLaidOutAlike(mlir::Type type);

/// `value` (N, C, spatial) with its elements channels-last: a new constant, a reshape or a transpose. And back.
mlir::Value toChannelsLast(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value);
mlir::Value toChannelsFirst(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value);

} // namespace tcc::train

#endif // TCC_DIALECT_LAYOUT_H

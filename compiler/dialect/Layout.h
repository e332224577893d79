//===- Layout.h - channels-last tensors -------------------------*- C++ -*-===//
//
// Ops are imported and differentiated on tensors N, C, spatial. assign-layouts converts those that benefit to N,
// spatial, C; the interface LayoutAware, attached here, builds the converted ops.
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

/// The permutations of train.transpose from N, C, spatial to N, spatial, C, and back.
llvm::SmallVector<int64_t> channelsLastPermutation(size_t rank);
llvm::SmallVector<int64_t> channelsFirstPermutation(size_t rank);

/// The type of a channels-last tensor whose dimensions are N, C, spatial in `type`.
mlir::RankedTensorType channelsLastType(mlir::Type type);

/// True if both layouts are the same bytes: one channel, or one element in space.
bool isLaidOutAlike(mlir::Type type);

/// Converts `value` (N, C, spatial) to channels-last by a new constant, a reshape or a transpose; and back.
mlir::Value toChannelsLast(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value);
mlir::Value toChannelsFirst(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value);

} // namespace tcc::train

#endif // TCC_DIALECT_LAYOUT_H

//===- Pointwise.h - the shared parts of pointwise ops ----------*- C++ -*-===//
#ifndef TCC_DIALECT_POINTWISE_H
#define TCC_DIALECT_POINTWISE_H

#include "compiler/dialect/TrainDialect.h"

namespace tcc::train {

/// The map of an op whose operands have the result's shape.
inline mlir::AffineMap identityMap(mlir::Operation *op) {
  auto type = mlir::cast<mlir::RankedTensorType>(op->getResult(0).getType());
  return mlir::AffineMap::getMultiDimIdentityMap(type.getRank(), op->getContext());
}
inline double elementsOfResult(mlir::Operation *op) {
  return double(mlir::cast<mlir::RankedTensorType>(op->getResult(0).getType()).getNumElements());
}

} // namespace tcc::train

/// Index maps and cost of a pointwise op; FLOPS is the cost of one element.
#define TCC_POINTWISE(OP, FLOPS)                                                                                       \
  mlir::AffineMap OP::getOperandMap(unsigned) { return identityMap(getOperation()); }                                  \
  double OP::getFlops() { return (FLOPS) * elementsOfResult(getOperation()); }                                         \
  bool OP::isCheapToRecompute() { return true; }

#endif // TCC_DIALECT_POINTWISE_H

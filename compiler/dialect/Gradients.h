//===- Gradients.h - sums of gradients, and one op's share of them -*- C++ -*-===//
//
// What differentiates a function and what differentiates a loop's body have in common.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_GRADIENTS_H
#define TCC_DIALECT_GRADIENTS_H

#include "compiler/dialect/TrainDialect.h"

#include "llvm/ADT/DenseMap.h"

namespace tcc::train {

/// Gradients so far, by value. Contributions are added in the order in which they come.
class Gradients {
public:
  Gradients(mlir::OpBuilder &builder) : builder(builder) {}

  mlir::Value get(mlir::Value value) const { return sums.lookup(value); }
  void contribute(mlir::Value value, mlir::Value gradient) {
    mlir::Value &sum = sums[value];
    sum = sum ? AddOp::create(builder, value.getLoc(), sum, gradient).getResult() : gradient;
  }

  /// Contributes what flows through `op` from its results to its active operands; `rules` builds the op's own part,
  /// which may have another listener than what builds sums. Failure: something flows, and the op has no derivative; or,
  /// with an error, its rule gives a gradient of another type.
  mlir::LogicalResult sweep(mlir::OpBuilder &rules, mlir::Operation *op,
                            llvm::function_ref<bool(mlir::Value)> isActive);

private:
  mlir::OpBuilder &builder;
  llvm::DenseMap<mlir::Value, mlir::Value> sums;
};

} // namespace tcc::train

#endif // TCC_DIALECT_GRADIENTS_H

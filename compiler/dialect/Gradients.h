//===- Gradients.h - sums of gradients, and gradient rules ------*- C++ -*-===//
//
// The common part of differentiating a function and differentiating a loop's body.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_GRADIENTS_H
#define TCC_DIALECT_GRADIENTS_H

#include "compiler/dialect/TrainDialect.h"

#include "llvm/ADT/DenseMap.h"

namespace tcc::train {

/// The gradients so far, by value. Contributions are added in the order of calls.
class Gradients {
public:
  Gradients(mlir::OpBuilder &builder) : builder(builder) {}

  mlir::Value get(mlir::Value value) const { return sums.lookup(value); }
  void contribute(mlir::Value value, mlir::Value gradient) {
    mlir::Value &sum = sums[value];
    sum = sum ? AddOp::create(builder, value.getLoc(), sum, gradient).getResult() : gradient;
  }

  /// Propagates gradients through `op` from its results to its active operands. `rules` builds the op's own gradient,
  /// since it may need another listener than the builder of sums. Failure: a gradient reaches an op without a
  /// derivative; or, with an error, its rule gives a gradient of another type.
  mlir::LogicalResult sweep(mlir::OpBuilder &rules, mlir::Operation *op,
                            llvm::function_ref<bool(mlir::Value)> isActive);

private:
  mlir::OpBuilder &builder;
  llvm::DenseMap<mlir::Value, mlir::Value> sums;
};

} // namespace tcc::train

#endif // TCC_DIALECT_GRADIENTS_H

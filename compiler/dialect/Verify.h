//===- Verify.h - checks and index arithmetic that families share -*- C++ -*-===//
#ifndef TCC_DIALECT_VERIFY_H
#define TCC_DIALECT_VERIFY_H

#include "compiler/dialect/TrainDialect.h"

namespace tcc::train {

inline mlir::LogicalResult verifyDim(mlir::Operation *op, int64_t dim, int64_t rank) {
  if (dim >= 0 && dim < rank)
    return mlir::success();
  return op->emitOpError("names dimension ") << dim << " of a tensor with " << rank << " dimensions";
}
/// Checks that dimensions are in range and ascending.
inline mlir::LogicalResult verifyDims(mlir::Operation *op, llvm::ArrayRef<int64_t> dims, int64_t rank) {
  for (auto [i, dim] : llvm::enumerate(dims)) {
    if (failed(verifyDim(op, dim, rank)))
      return mlir::failure();
    if (i > 0 && dims[i - 1] >= dim)
      return op->emitOpError("needs its dimensions in ascending order, each once");
  }
  return mlir::success();
}
/// Checks that the result has the operand's shape, except for extent 1 in `dims`.
inline mlir::LogicalResult verifyKeepsDims(mlir::Operation *op, llvm::ArrayRef<int64_t> from,
                                           llvm::ArrayRef<int64_t> to, llvm::ArrayRef<int64_t> dims) {
  llvm::SmallVector<int64_t> expected(from);
  for (int64_t dim : dims)
    expected[dim] = 1;
  if (to == llvm::ArrayRef(expected))
    return mlir::success();
  return op->emitOpError("result must have the operand's shape, with extent 1 in the reduced dimensions");
}

/// ⌊coord / divisor⌋ mod modulus for a coordinate that is not negative; modulus 0: none.
Coord digitOf(ElementBuilder &builder, const Coord &coord, int64_t divisor, int64_t modulus);

} // namespace tcc::train

#endif // TCC_DIALECT_VERIFY_H

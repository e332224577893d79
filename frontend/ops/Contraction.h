//===- Contraction.h - matrix products for importers ------------*- C++ -*-===//
#ifndef TCC_FRONTEND_OPS_CONTRACTION_H
#define TCC_FRONTEND_OPS_CONTRACTION_H

#include "frontend/NodeImport.h"

namespace tcc::frontend {

/// The product of [B, M, K] and [B, K, N]; a flag means that the operand's last two dimensions are swapped.
mlir::Value batchProduct(NodeImport &n, mlir::Value x, mlir::Value y, bool transX, bool transY);
/// numpy's matmul, operands of rank 1 included.
Expected<mlir::Value> matrixProduct(NodeImport &n, mlir::Value x, mlir::Value y);
/// x·factor; integers are scaled in f64 if the factor is not whole.
train::Expr scaled(const train::Expr &x, double factor);
/// alpha·A'·B' + beta·C, with the attributes of Gemm.
Expected<mlir::Value> gemmValue(NodeImport &n);

} // namespace tcc::frontend

#endif // TCC_FRONTEND_OPS_CONTRACTION_H

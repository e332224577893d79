//===- KernelModels.h - attaching each family's loops to its ops -*- C++ -*-===//
#ifndef TCC_KERNELS_KERNELMODELS_H
#define TCC_KERNELS_KERNELMODELS_H

namespace mlir {
class MLIRContext;
}

namespace tcc::train {

void attachAttention(mlir::MLIRContext &context);
void attachAttentionGrad(mlir::MLIRContext &context);
void attachCtc(mlir::MLIRContext &context);
void attachLoop(mlir::MLIRContext &context);
void attachRecurrent(mlir::MLIRContext &context);
void attachWinograd(mlir::MLIRContext &context);

} // namespace tcc::train

#endif // TCC_KERNELS_KERNELMODELS_H

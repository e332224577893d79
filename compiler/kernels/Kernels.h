//===- Kernels.h - the loops of ops with own kernels ------------*- C++ -*-===//
//
// Attention, recurrent layers, loops, CTC and Winograd's convolutions emit their own loops, including products of
// blocks. The dialect defines these ops and declares the interface LoopKernel; this folder implements it. The dialect
// alone suffices to build, differentiate and evaluate them.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_KERNELS_KERNELS_H
#define TCC_KERNELS_KERNELS_H

namespace mlir {
class DialectRegistry;
class MLIRContext;
} // namespace mlir

namespace tcc::train {

/// Attaches the loops to the ops in every context that loads the dialect from this registry.
void registerKernels(mlir::DialectRegistry &registry);

// The loops of each family, called by registerKernels.
void attachAttention(mlir::MLIRContext &context);
void attachAttentionGrad(mlir::MLIRContext &context);
void attachCtc(mlir::MLIRContext &context);
void attachLoop(mlir::MLIRContext &context);
void attachRecurrent(mlir::MLIRContext &context);
void attachWinograd(mlir::MLIRContext &context);

} // namespace tcc::train

#endif // TCC_KERNELS_KERNELS_H

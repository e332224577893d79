//===- Kernels.h - the loops of ops that are kernels by themselves -*- C++ -*-===//
//
// Attention, recurrent layers, loops, CTC and Winograd's convolutions write their own loops, products of blocks among them.
// The dialect says what these ops mean and promises the interface LoopKernel; this folder fulfils it. A context that
// knows the dialect alone can build, differentiate and evaluate them.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_KERNELS_KERNELS_H
#define TCC_KERNELS_KERNELS_H

namespace mlir {
class DialectRegistry;
}

namespace tcc::train {

/// Gives the ops their loops in every context that loads the dialect from this registry.
void registerKernels(mlir::DialectRegistry &registry);

} // namespace tcc::train

#endif // TCC_KERNELS_KERNELS_H

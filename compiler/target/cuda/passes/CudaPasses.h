//===- CudaPasses.h - passes of the CUDA target -----------------*- C++ -*-===//
//
// Calls of the libraries where they are faster than kernels, products in the shapes that tensor cores want, and fewer
// launches. CudaPasses.td shows IR before and after each.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_TARGET_CUDA_PASSES_CUDAPASSES_H
#define TCC_COMPILER_TARGET_CUDA_PASSES_CUDAPASSES_H

#include "compiler/dialect/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace tcc::train {

#define GEN_PASS_DECL
#include "compiler/target/cuda/passes/CudaPasses.h.inc"

#define GEN_PASS_REGISTRATION
#include "compiler/target/cuda/passes/CudaPasses.h.inc"

/// `slice` removes the padding at the end of rows (its last dimension): zeros, or NaN in a row that holds a NaN or an
/// infinity. Elementwise ops on the sliced rows compute on whole rows instead, as far as possible: reductions along
/// rows ignore the padding, pads that restore the whole length write zeros into it, and other readers get a slice. Each
/// element keeps its value; a sum along a row may have another tree.
void widenRows(SliceOp slice);

} // namespace tcc::train

#endif // TCC_COMPILER_TARGET_CUDA_PASSES_CUDAPASSES_H

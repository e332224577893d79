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

} // namespace tcc::train

#endif // TCC_COMPILER_TARGET_CUDA_PASSES_CUDAPASSES_H

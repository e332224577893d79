//===- CudaTarget.h - NVIDIA's cards as a target ----------------*- C++ -*-===//
#ifndef TCC_COMPILER_TARGET_CUDA_CUDATARGET_H
#define TCC_COMPILER_TARGET_CUDA_CUDATARGET_H

#include "compiler/target/Target.h"
#include "compiler/target/cuda/CudaModel.h"

namespace tcc::target::cuda {

/// The kind "cuda" with its levels sm_80 to sm_120. It has no default level: the compiling machine need not have a
/// card.
TargetKind cudaKind();

} // namespace tcc::target::cuda

#endif // TCC_COMPILER_TARGET_CUDA_CUDATARGET_H

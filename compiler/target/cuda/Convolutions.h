//===- Convolutions.h - convolutions on cuDNN -------------------*- C++ -*-===//
#ifndef TCC_COMPILER_TARGET_CUDA_CONVOLUTIONS_H
#define TCC_COMPILER_TARGET_CUDA_CONVOLUTIONS_H

#include "compiler/target/Target.h"
#include "compiler/target/cuda/CudaModel.h"

namespace tcc::target::cuda {

/// Completes a request for a convolution as a call of cuDNN. False: the library has no known engine for its types and
/// sizes, or only slow ones; a kernel is generated.
bool callCudnn(Call &request, bool tf32, const CudaModel &model);

} // namespace tcc::target::cuda

#endif // TCC_COMPILER_TARGET_CUDA_CONVOLUTIONS_H

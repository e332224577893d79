//===- AttentionCalls.h - attention on cuDNN --------------------*- C++ -*-===//
#ifndef TCC_COMPILER_TARGET_CUDA_ATTENTIONCALLS_H
#define TCC_COMPILER_TARGET_CUDA_ATTENTIONCALLS_H

#include "compiler/target/Target.h"
#include "compiler/target/cuda/CudaModel.h"

namespace tcc::target::cuda {

/// Makes a request for attention or its gradient the complete call of cuDNN. False: the library has no engine for its
/// types or sizes on the architecture that gives the same bits in each run, or takes too much workspace; a kernel is
/// generated.
bool callCudnnAttention(Call &request, const Architecture &architecture, const CudaModel &model);

/// Blackwell's deterministic gradient is an engine of its own, which heuristics do not list.
inline bool hasAttentionGradient(const Architecture &architecture) {
  return architecture.name != std::string_view("sm_100");
}

} // namespace tcc::target::cuda

#endif // TCC_COMPILER_TARGET_CUDA_ATTENTIONCALLS_H

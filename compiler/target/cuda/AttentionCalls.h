//===- AttentionCalls.h - attention on cuDNN --------------------*- C++ -*-===//
#ifndef TCC_COMPILER_TARGET_CUDA_ATTENTIONCALLS_H
#define TCC_COMPILER_TARGET_CUDA_ATTENTIONCALLS_H

#include "compiler/target/Target.h"
#include "compiler/target/cuda/CudaModel.h"

namespace tcc::target::cuda {

/// The heads that cuDNN takes.
inline const train::AttentionCalls kAttentionCalls{.library = "cuDNN", .featureStep = 8, .mostFeatures = 128};

/// Completes a request for attention or its gradient as a call of cuDNN. False: for its types and sizes the library has
/// no deterministic engine on the architecture, or needs too much workspace; a kernel is generated.
bool callCudnnAttention(Call &request, const Architecture &architecture, const CudaModel &model);

/// False on sm_100: its deterministic gradient is a separate engine that heuristics do not list.
inline bool hasAttentionGradient(const Architecture &architecture) {
  return architecture.name != std::string_view("sm_100");
}

} // namespace tcc::target::cuda

#endif // TCC_COMPILER_TARGET_CUDA_ATTENTIONCALLS_H

//===- DnnAttention.h - attention by cuDNN -------------------------------===//
//
// The library fuses a graph of operations for attention or its gradient, if it recognises the graph. Of the gradient's
// forms we use the one without atomic additions: it stores the gradients of the scores in the workspace, where a second
// product and the sum for the bias's gradient read them. (No engine note reveals that the other form adds in arbitrary
// order.)
//
// NVRTC compiles engines when they are made ready, so the run records its version in addition to cuDNN's.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CUDA_DNNATTENTION_H
#define TCC_RUNTIME_CUDA_DNNATTENTION_H

#include "runtime/cuda/DnnCall.h"
#include "runtime/plan/plan.pb.h"

namespace tcc::cuda {

/// The oldest version of cuDNN that we use for attention and have tested.
constexpr int kLeastDnnForAttention = 91900;

/// `pointers` are the instruction's operands, `scratch` is aligned and has the call's number of bytes. Error: the
/// library is too old, or one of its calls failed.
Expected<DnnCall> describeAttention(std::shared_ptr<const DnnLibrary> library, api::cudnnHandle_t handle,
                                    const plan::AttentionCall &call, std::span<const api::CUdeviceptr> pointers,
                                    api::CUdeviceptr scratch);

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_DNNATTENTION_H

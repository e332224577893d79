//===- DnnConvolution.h - a convolution by cuDNN -------------------------===//
#ifndef TCC_RUNTIME_CUDA_DNNCONVOLUTION_H
#define TCC_RUNTIME_CUDA_DNNCONVOLUTION_H

#include "runtime/cuda/DnnCall.h"
#include "runtime/plan/plan.pb.h"

namespace tcc::cuda {

/// A plan specifies the convolution, its types, the layout of channels, and the workspace. `pointers` are the
/// instruction's operands, `workspace` is aligned and has the call's number of bytes. Error: types that the library
/// does not convolve, or one of its calls failed.
Expected<DnnCall> describeConvolution(std::shared_ptr<const DnnLibrary> library, api::cudnnHandle_t handle,
                                      const plan::ConvolutionCall &call, std::span<const api::CUdeviceptr> pointers,
                                      api::CUdeviceptr workspace);

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_DNNCONVOLUTION_H

//===- Convolutions.cpp - convolutions on cuDNN ---------------------------===//
//
// The plan fixes the convolution and a bound of the workspace; trun takes the first engine of the library's list that
// needs no more. The bound follows from the measured workspaces of engines (docs/measurements/cudnn-engines.md):
//
// - Engines with tensor cores need channels-last tensors whose channels are a multiple of an access, and copy others.
//   Engines of f32 without tensor cores read channels first.
// - Weights are always copied into the engine's own order.
// - Weight gradients are summed in parts of the batch and the pixels, in f32.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cuda/Convolutions.h"

#include "runtime/plan/DType.h"
#include "runtime/plan/KernelAbi.h"

#include <algorithm>
#include <limits>

namespace tcc::target::cuda {

namespace {
using Dims = google::protobuf::RepeatedField<int64_t>;

/// Bytes of an access of tensor cores: the channels of a pixel are padded to a multiple of it.
constexpr int64_t kAccessBytes = 16;

uint64_t roundUp(uint64_t bytes, uint64_t step) { return (bytes + step - 1) / step * step; }

int64_t elementsOf(const Dims &dims) {
  int64_t count = 1;
  for (int64_t dim : dims)
    count *= dim;
  return count;
}

struct Problem {
  const plan::ConvolutionCall &call;
  bool tensorCores;
  int64_t elementBytes = static_cast<int64_t>(plan::dtypeBytes(call.dtype()));

  /// Whether the channels of each group of x or y need no padding.
  bool isAligned(const Dims &dims) const { return dims[1] / call.groups() * elementBytes % kAccessBytes == 0; }
  bool isDepthwise() const { return call.w_dims(1) == 1 && call.groups() > 1; }

  /// Whether engines copy x, or y.
  bool copies(const Dims &dims) const {
    if (isDepthwise())
      return false;
    return tensorCores ? !call.channels_last() || !isAligned(dims) : call.channels_last();
  }
  /// Bytes of a copy in which the channels of each group are padded.
  uint64_t copyBytes(const Dims &dims, int64_t groups) const {
    const int64_t channels = dims[1] / groups;
    const auto padded = static_cast<int64_t>(roundUp(uint64_t(channels), uint64_t(kAccessBytes / elementBytes)));
    return roundUp(uint64_t(elementsOf(dims) / channels * padded * elementBytes), plan::kLibraryWorkspaceAlignment);
  }
  /// Bytes of x and y that engines copy at each call because of their layout.
  uint64_t reorderedBytes() const {
    int64_t elements = 0;
    for (const Dims *dims : {&call.x_dims(), &call.y_dims()})
      elements += copies(*dims) ? elementsOf(*dims) : 0;
    return uint64_t(elements * elementBytes);
  }

  uint64_t workspace(const CudaModel &model) const {
    const int64_t weights = elementsOf(call.w_dims());
    const auto all = uint64_t((elementsOf(call.x_dims()) + weights + elementsOf(call.y_dims())) * elementBytes);
    uint64_t bytes =
        copyBytes(call.w_dims(), 1) + std::clamp(all / model.slackShare, model.leastSlackBytes, model.mostSlackBytes);
    if (copies(call.x_dims()) || copies(call.y_dims())) // some engines copy both if one needs it
      bytes += copyBytes(call.x_dims(), call.groups()) + copyBytes(call.y_dims(), call.groups());
    if (call.kind() == plan::ConvolutionCall::WEIGHT_GRADIENT) {
      const int64_t pixels = elementsOf(call.y_dims()) / call.y_dims(1);
      const int64_t partPixels = isDepthwise() ? model.depthwisePartPixels : model.partPixels;
      const int64_t parts = std::clamp<int64_t>(pixels / partPixels, 1, model.mostPixelParts);
      bytes += std::min(uint64_t(weights) * sizeof(float) * uint64_t(parts), model.mostWorkspaceBytes);
    }
    return roundUp(bytes, plan::kLibraryWorkspaceAlignment);
  }
};
} // namespace

bool callCudnn(Call &request, bool tf32, const CudaModel &model) {
  plan::ConvolutionCall &call = *request.instruction.mutable_convolution();
  const plan::DType type = call.dtype();
  const bool known = type == plan::F32 || type == plan::BF16 || type == plan::F16;
  if (!known || call.result_dtype() != type) // no engine has f32 results of 16-bit operands
    return false;
  // A depthwise convolution with a bias has no engines of its own, only the slow general ones.
  if (call.finish() != plan::ConvolutionCall::SUMS && call.groups() > 1 && call.w_dims(1) == 1)
    return false;
  // Engines index with 32 bits.
  for (const Dims *dims : {&call.x_dims(), &call.w_dims(), &call.y_dims()})
    if (elementsOf(*dims) > std::numeric_limits<int32_t>::max())
      return false;
  call.set_implementation(plan::ConvolutionCall::CUDNN);
  call.set_tf32(tf32 && type == plan::F32);
  call.set_tile_batch(call.x_dims(0));
  const Problem problem{call, type != plan::F32 || call.tf32()};
  call.set_library_scratch_bytes(problem.workspace(model));
  request.scratchSlotBytes = call.library_scratch_bytes() + plan::kLibraryWorkspaceAlignment;
  request.reorderedBytes = problem.reorderedBytes();
  return true;
}

} // namespace tcc::target::cuda

//===- DnnConvolution.cpp - a convolution by cuDNN -----------------------===//
//
// The library's tensors have the dimensions N, C, spatial, and strides give their layout, so both of our layouts are
// described in the same way. It supports two or three spatial dimensions; a single one becomes the second of two.
//
// With a bias the graph is convolution -> add. The sums between them are virtual and in f32: the result is rounded
// once, when it is stored. NVIDIA lists the graph among its specialised engines that are compiled beforehand.
//
//===----------------------------------------------------------------------===//
#include "runtime/cuda/DnnCall.h"
#include "support/Advice.h"

#include "runtime/plan/CallKernels.h"
#include "runtime/plan/DType.h"

#include <array>
#include <fmt/ranges.h>

namespace tcc::cuda {

namespace {

using Call = plan::ConvolutionCall;
using Sizes = google::protobuf::RepeatedField<int64_t>;

Expected<api::cudnnDataType_t> dnnTypeOf(plan::DType type) {
  switch (type) {
  case plan::F32:
    return api::CUDNN_DATA_FLOAT;
  case plan::BF16:
    return api::CUDNN_DATA_BFLOAT16;
  case plan::F16:
    return api::CUDNN_DATA_HALF;
  default:
    return error("cuDNN convolves no {} here", plan::DType_Name(type));
  }
}

/// The sizes with at least two spatial dimensions, which begin at `first`.
std::vector<int64_t> widened(const Sizes &sizes, int first, int64_t filler) {
  std::vector<int64_t> result(sizes.begin(), sizes.end());
  if (sizes.size() - first == 1)
    result.insert(result.begin() + first, filler);
  return result;
}

std::vector<int64_t> stridesOf(const std::vector<int64_t> &dims, bool channelsLast) {
  std::vector<int64_t> strides(dims.size());
  int64_t step = 1;
  if (channelsLast) {
    strides[1] = 1;
    step = dims[1];
  }
  for (size_t i = dims.size(); i-- > 0;)
    if (!channelsLast || i != 1) {
      strides[i] = step;
      step *= dims[i];
    }
  return strides;
}

/// Advice if the library has no engine for the call.
std::string wayOut(const Call &call) {
  return plan::isFinished(call) ? fmt::format("compile with {}, which leaves biases to kernels",
                                              advice::compileSet("compiler.epilogues", "none"))
                                : fmt::format("compile with {}, which is far slower",
                                              advice::compileSet("compiler.convolutions", "kernels"));
}

/// Addresses of a convolution's operands: input, weights and output, or their gradients; and the bias, if it has one.
struct Addresses {
  api::CUdeviceptr x = 0, w = 0, y = 0, bias = 0;

  /// Of an instruction's operands, in order (plan.proto).
  static Addresses of(const Call &call, std::span<const api::CUdeviceptr> pointers) {
    switch (call.kind()) {
    case Call::INPUT_GRADIENT:
      return {pointers[2], pointers[1], pointers[0]};
    case Call::WEIGHT_GRADIENT:
      return {pointers[0], pointers[2], pointers[1]};
    default:
      if (plan::isFinished(call))
        return {pointers[0], pointers[1], pointers[call.exact_bias() ? 4 : 3], pointers[2]};
      return {pointers[0], pointers[1], pointers[2]};
    }
  }
};

std::string textOf(const Call &call, const Addresses &at) {
  static constexpr std::array<const char *, 3> kKinds = {"forward", "gradient of x", "gradient of w"};
  return fmt::format(
      "convolution {}{} {}{}, x {}, w {}, y {}, {}, stride {}, dilation {}, pads {} and {}, workspace "
      "{}, aligned {} {} {}{}",
      kKinds[static_cast<size_t>(call.kind())], plan::isFinished(call) ? " + bias" : "", plan::DType_Name(call.dtype()),
      call.tf32() ? " in TF32" : "", fmt::join(call.x_dims(), "x"), fmt::join(call.w_dims(), "x"),
      fmt::join(call.y_dims(), "x"), call.channels_last() ? "channels last" : "channels first",
      fmt::join(call.strides(), "x"), fmt::join(call.dilations(), "x"), fmt::join(call.pads_begin(), "x"),
      fmt::join(call.pads_end(), "x"), call.library_scratch_bytes(), dnnAlignmentOf(at.x), dnnAlignmentOf(at.w),
      dnnAlignmentOf(at.y), plan::isFinished(call) ? fmt::format(" bias {}", dnnAlignmentOf(at.bias)) : "");
}

/// Adds the convolution to the graph.
void convolve(DnnGraph &graph, const Call &call, const DnnDescriptor &x, const DnnDescriptor &w,
              const DnnDescriptor &y) {
  struct Names {
    api::cudnnBackendDescriptorType_t type;
    api::cudnnBackendAttributeName_t window, x, w, y, alpha, beta;
  };
  static constexpr std::array<Names, 3> kNames = {
      {{api::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        api::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, api::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
        api::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, api::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
        api::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, api::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
       {api::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
        api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
        api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
        api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
       {api::CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
        api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
        api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
        api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
        api::CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}}};
  const Names &names = kNames[static_cast<size_t>(call.kind())];
  DnnDescriptor window = graph.create(api::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR), operation = graph.create(names.type);
  if (graph.failed())
    return;
  const std::vector<int64_t> strides = widened(call.strides(), 0, 1), dilations = widened(call.dilations(), 0, 1),
                             begin = widened(call.pads_begin(), 0, 0), end = widened(call.pads_end(), 0, 0);
  window.set(api::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<int64_t>(strides.size()))
      .set(api::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, api::CUDNN_DATA_FLOAT)
      .set(api::CUDNN_ATTR_CONVOLUTION_CONV_MODE, api::CUDNN_CROSS_CORRELATION)
      .set(api::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, std::span(strides))
      .set(api::CUDNN_ATTR_CONVOLUTION_DILATIONS, std::span(dilations))
      .set(api::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, std::span(begin))
      .set(api::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, std::span(end));
  graph.keep(window, "describing a window");
  operation.set(names.window, window)
      .set(names.x, x)
      .set(names.w, w)
      .set(names.y, y)
      .set(names.alpha, 1.0F)
      .set(names.beta, 0.0F);
  graph.add(operation);
}

} // namespace

std::string convolutionText(const Call &call, std::span<const api::CUdeviceptr> pointers) {
  return textOf(call, Addresses::of(call, pointers));
}

Expected<DnnCall> describeConvolution(std::shared_ptr<const DnnLibrary> library, api::cudnnHandle_t handle,
                                      const Call &call, std::span<const api::CUdeviceptr> pointers,
                                      api::CUdeviceptr workspace) {
  Expected<api::cudnnDataType_t> type = dnnTypeOf(call.dtype());
  if (!type)
    return type.status();
  const Addresses at = Addresses::of(call, pointers);
  DnnGraph graph(std::move(library), handle);
  auto operand = [&](const Sizes &sizes, bool channelsLast, api::CUdeviceptr address) {
    const std::vector<int64_t> dims = widened(sizes, 2, 1);
    return graph.operand(dims, stridesOf(dims, channelsLast), *type, address);
  };
  const DnnDescriptor x = operand(call.x_dims(), call.channels_last(), at.x);
  // Weights are never channels-last: an engine transposes them if needed, and they are small.
  const DnnDescriptor w = operand(call.w_dims(), false, at.w);
  const DnnDescriptor y = operand(call.y_dims(), call.channels_last(), at.y);
  if (plan::isFinished(call)) {
    Sizes features = call.y_dims();
    for (int i = 0; i < features.size(); ++i)
      features.Set(i, i == 1 ? features.Get(i) : 1);
    const DnnDescriptor bias = operand(features, call.channels_last(), at.bias);
    const std::vector<int64_t> dims = widened(call.y_dims(), 2, 1);
    const DnnDescriptor sums = graph.between(dims, stridesOf(dims, call.channels_last()), api::CUDNN_DATA_FLOAT);
    convolve(graph, call, x, w, sums);
    graph.pointwise(api::CUDNN_POINTWISE_ADD, sums, bias, DnnDescriptor(), y);
  } else {
    convolve(graph, call, x, w, y);
  }
  const bool tensorCores = call.dtype() != plan::F32 || call.tf32();
  return graph.finish(
      {textOf(call, at), wayOut(call), {call.library_scratch_bytes(), tensorCores, /*compiles=*/false}, workspace});
}

} // namespace tcc::cuda

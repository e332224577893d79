//===- DnnConvolution.cpp - a convolution by cuDNN -----------------------===//
//
// The library's tensors have their dimensions in the order N, C, spatial, and strides say where elements lie: so both
// of our layouts are described alike. It has two or three spatial dimensions; one becomes the second of two.
//
//===----------------------------------------------------------------------===//
#include "runtime/cuda/DnnConvolution.h"

#include "runtime/plan/DType.h"

#include <array>
#include <fmt/ranges.h>

namespace tcc::cuda {

namespace {

using Call = plan::ConvolutionCall;
using Sizes = google::protobuf::RepeatedField<int64_t>;

/// Names of tensors within a graph.
enum Uid : int64_t { kX = 1, kW = 2, kY = 3 };

Expected<api::cudnnDataType_t> typeOf(plan::DType type) {
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

/// Two spatial dimensions at least, from `first` on.
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

constexpr const char *kWayOut = "compile with tcc --set compiler.convolutions=kernels, which is far slower";

} // namespace

DnnOperands DnnOperands::of(const Call &call, std::span<const api::CUdeviceptr> pointers, api::CUdeviceptr workspace) {
  switch (call.kind()) {
  case Call::INPUT_GRADIENT:
    return {pointers[2], pointers[1], pointers[0], workspace};
  case Call::WEIGHT_GRADIENT:
    return {pointers[0], pointers[2], pointers[1], workspace};
  default:
    return {pointers[0], pointers[1], pointers[2], workspace};
  }
}

Expected<DnnConvolution> DnnConvolution::describe(std::shared_ptr<const DnnLibrary> library, api::cudnnHandle_t handle,
                                                  const Call &call, const DnnOperands &operands) {
  DnnConvolution made;
  made.library = std::move(library);
  made.handle = handle;
  made.call = call;
  made.operands = operands;
  Status status = made.describeTensors();
  if (status.ok())
    status = made.describeOperation();
  return status.ok() ? Expected<DnnConvolution>(std::move(made)) : status;
}

Status DnnConvolution::describeTensors() {
  Expected<api::cudnnDataType_t> type = typeOf(call.dtype());
  if (!type)
    return type.status();
  auto describe = [&](DnnDescriptor &tensor, Uid uid, const Sizes &sizes, bool channelsLast,
                      api::CUdeviceptr address) -> Status {
    Expected<DnnDescriptor> made = DnnDescriptor::create(library, api::CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    if (!made)
      return made.status();
    tensor = made.take();
    const std::vector<int64_t> dims = widened(sizes, 2, 1), strides = stridesOf(dims, channelsLast);
    return tensor.set(api::CUDNN_ATTR_TENSOR_DATA_TYPE, *type)
        .set(api::CUDNN_ATTR_TENSOR_DIMENSIONS, std::span(dims))
        .set(api::CUDNN_ATTR_TENSOR_STRIDES, std::span(strides))
        .set(api::CUDNN_ATTR_TENSOR_UNIQUE_ID, static_cast<int64_t>(uid))
        .set(api::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, dnnAlignmentOf(address))
        .finalize("describing a tensor");
  };
  Status status = describe(x, kX, call.x_dims(), call.channels_last(), operands.x);
  if (status.ok()) // whatever lies last in x and y: an engine turns the weights, which are few
    status = describe(w, kW, call.w_dims(), false, operands.w);
  return status.ok() ? describe(y, kY, call.y_dims(), call.channels_last(), operands.y) : status;
}

Status DnnConvolution::describeOperation() {
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
  for (auto [descriptor, type] :
       {std::pair(&window, api::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR), std::pair(&operation, names.type),
        std::pair(&graph, api::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)}) {
    Expected<DnnDescriptor> made = DnnDescriptor::create(library, type);
    if (!made)
      return made.status();
    *descriptor = made.take();
  }
  const std::vector<int64_t> strides = widened(call.strides(), 0, 1), dilations = widened(call.dilations(), 0, 1),
                             begin = widened(call.pads_begin(), 0, 0), end = widened(call.pads_end(), 0, 0);
  Status status = window.set(api::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<int64_t>(strides.size()))
                      .set(api::CUDNN_ATTR_CONVOLUTION_COMP_TYPE, api::CUDNN_DATA_FLOAT)
                      .set(api::CUDNN_ATTR_CONVOLUTION_CONV_MODE, api::CUDNN_CROSS_CORRELATION)
                      .set(api::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, std::span(strides))
                      .set(api::CUDNN_ATTR_CONVOLUTION_DILATIONS, std::span(dilations))
                      .set(api::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, std::span(begin))
                      .set(api::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, std::span(end))
                      .finalize("describing a window");
  if (status.ok())
    status = operation.set(names.window, window)
                 .set(names.x, x)
                 .set(names.w, w)
                 .set(names.y, y)
                 .set(names.alpha, 1.0F)
                 .set(names.beta, 0.0F)
                 .finalize("describing a convolution");
  return status.ok() ? graph.set(api::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle)
                           .set(api::CUDNN_ATTR_OPERATIONGRAPH_OPS, operation)
                           .finalize("making a graph of a convolution")
                     : status;
}

std::string DnnConvolution::text() const {
  static constexpr std::array<const char *, 3> kKinds = {"forward", "gradient of x", "gradient of w"};
  return fmt::format("convolution {} {}{}, x {}, w {}, y {}, {}, stride {}, dilation {}, pads {} and {}, workspace {}, "
                     "aligned {} {} {}",
                     kKinds[static_cast<size_t>(call.kind())], plan::DType_Name(call.dtype()),
                     call.tf32() ? " in TF32" : "", fmt::join(call.x_dims(), "x"), fmt::join(call.w_dims(), "x"),
                     fmt::join(call.y_dims(), "x"), call.channels_last() ? "channels last" : "channels first",
                     fmt::join(call.strides(), "x"), fmt::join(call.dilations(), "x"),
                     fmt::join(call.pads_begin(), "x"), fmt::join(call.pads_end(), "x"), call.library_scratch_bytes(),
                     dnnAlignmentOf(operands.x), dnnAlignmentOf(operands.w), dnnAlignmentOf(operands.y));
}

DnnEngines DnnConvolution::engines() const {
  const bool tensorCores = call.dtype() != plan::F32 || call.tf32();
  return {library, handle, graph, {call.library_scratch_bytes(), tensorCores, /*compiles=*/false}};
}

Expected<std::vector<DnnEngine>> DnnConvolution::candidates(int most) const {
  return engines().candidates(most, text(), kWayOut);
}

Status DnnConvolution::use(const DnnEngine &chosen) {
  engine = chosen;
  Expected<DnnDescriptor> made = DnnDescriptor::create(library, api::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  if (!made)
    return made.status();
  pack = made.take();
  static constexpr std::array<int64_t, 3> kUids = {kX, kW, kY};
  auto at = [](api::CUdeviceptr address) { return reinterpret_cast<void *>(address); };
  const std::array<void *, 3> pointers = {at(operands.x), at(operands.w), at(operands.y)};
  const std::array<void *, 1> workspace = {engine.workspaceBytes ? at(operands.workspace) : nullptr};
  return pack.set(api::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const int64_t>(kUids))
      .setPointers(api::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers)
      .setPointers(api::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
      .finalize("giving a convolution its operands");
}

Status DnnConvolution::submit(api::CUstream stream) const {
  Status status = library->check((*library)->setStream(handle, stream), "taking a stream");
  return status.ok()
             ? library->check((*library)->execute(handle, engine.plan.get(), pack.get()), "submitting a convolution")
             : status;
}

std::vector<DnnConvolution::Range> DnnConvolution::operandRanges() const {
  auto bytes = [&](const Sizes &sizes) {
    uint64_t count = plan::dtypeBytes(call.dtype());
    for (int64_t size : sizes)
      count *= static_cast<uint64_t>(size);
    return count;
  };
  return {{operands.x, bytes(call.x_dims())}, {operands.w, bytes(call.w_dims())}, {operands.y, bytes(call.y_dims())}};
}

} // namespace tcc::cuda

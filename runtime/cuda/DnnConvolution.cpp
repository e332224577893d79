//===- DnnConvolution.cpp - a convolution by cuDNN -----------------------===//
//
// The library's tensors have the dimensions N, C, spatial, and strides give their layout, so both of our layouts are
// described in the same way. It supports two or three spatial dimensions; a single one becomes the second of two.
//
// With a bias the graph is convolution -> add. The sums between them are virtual and in f32: the result is rounded once,
// when it is stored. NVIDIA lists the graph among its specialised engines that are compiled beforehand.
//
//===----------------------------------------------------------------------===//
#include "runtime/cuda/DnnConvolution.h"
#include "support/Advice.h"

#include "runtime/plan/DType.h"

#include <array>
#include <fmt/ranges.h>

namespace tcc::cuda {

namespace {

using Call = plan::ConvolutionCall;
using Sizes = google::protobuf::RepeatedField<int64_t>;

/// Names of tensors within a graph.
enum Uid : int64_t { kX = 1, kW = 2, kY = 3, kBias = 4, kSums = 5 };

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

bool isFinished(const Call &call) { return call.finish() != Call::SUMS; }

/// Advice if the library has no engine for the call.
std::string wayOut(const Call &call) {
  return isFinished(call) ? fmt::format("compile with {}, which leaves biases to kernels",
                                        advice::compileSet("compiler.epilogues", "none"))
                          : fmt::format("compile with {}, which is far slower",
                                        advice::compileSet("compiler.convolutions", "kernels"));
}

} // namespace

DnnOperands DnnOperands::of(const Call &call, std::span<const api::CUdeviceptr> pointers, api::CUdeviceptr workspace) {
  switch (call.kind()) {
  case Call::INPUT_GRADIENT:
    return {pointers[2], pointers[1], pointers[0], workspace};
  case Call::WEIGHT_GRADIENT:
    return {pointers[0], pointers[2], pointers[1], workspace};
  default:
    if (isFinished(call))
      return {pointers[0], pointers[1], pointers[3], workspace, pointers[2]};
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
  if (status.ok() && isFinished(call))
    status = made.describeFinish();
  if (status.ok())
    status = made.describeGraph();
  return status.ok() ? Expected<DnnConvolution>(std::move(made)) : status;
}

Status DnnConvolution::describeTensors() {
  Expected<api::cudnnDataType_t> type = typeOf(call.dtype());
  if (!type)
    return type.status();
  auto describe = [&](DnnDescriptor &tensor, Uid uid, const Sizes &sizes, bool channelsLast, api::CUdeviceptr address,
                      bool isVirtual = false) -> Status {
    Expected<DnnDescriptor> made = DnnDescriptor::create(library, api::CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    if (!made)
      return made.status();
    tensor = made.take();
    const std::vector<int64_t> dims = widened(sizes, 2, 1), strides = stridesOf(dims, channelsLast);
    tensor.set(api::CUDNN_ATTR_TENSOR_DATA_TYPE, isVirtual ? api::CUDNN_DATA_FLOAT : *type)
        .set(api::CUDNN_ATTR_TENSOR_DIMENSIONS, std::span(dims))
        .set(api::CUDNN_ATTR_TENSOR_STRIDES, std::span(strides))
        .set(api::CUDNN_ATTR_TENSOR_UNIQUE_ID, static_cast<int64_t>(uid))
        .set(api::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, isVirtual ? int64_t(16) : dnnAlignmentOf(address));
    if (isVirtual)
      tensor.set(api::CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
    return tensor.finalize("describing a tensor");
  };
  Status status = describe(x, kX, call.x_dims(), call.channels_last(), operands.x);
  if (status.ok()) // weights are never channels-last: an engine transposes them if needed, and they are small
    status = describe(w, kW, call.w_dims(), false, operands.w);
  if (status.ok())
    status = describe(y, kY, call.y_dims(), call.channels_last(), operands.y);
  if (!status.ok() || !isFinished(call))
    return status;
  Sizes features = call.y_dims();
  for (int i = 0; i < features.size(); ++i)
    features.Set(i, i == 1 ? features.Get(i) : 1);
  status = describe(bias, kBias, features, call.channels_last(), operands.bias);
  return status.ok() ? describe(sums, kSums, call.y_dims(), call.channels_last(), 0, /*isVirtual=*/true) : status;
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
       {std::pair(&window, api::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR), std::pair(&operation, names.type)}) {
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
                 .set(names.y, isFinished(call) ? sums : y)
                 .set(names.alpha, 1.0F)
                 .set(names.beta, 0.0F)
                 .finalize("describing a convolution");
  ops = {operation.get()};
  return status;
}

Status DnnConvolution::describeFinish() {
  Expected<DnnDescriptor> how = DnnDescriptor::create(library, api::CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
                          made = DnnDescriptor::create(library, api::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  if (!how || !made)
    return how ? made.status() : how.status();
  static constexpr const char *kWhat = "describing what follows a convolution";
  Status status = how->set(api::CUDNN_ATTR_POINTWISE_MODE, api::CUDNN_POINTWISE_ADD)
                      .set(api::CUDNN_ATTR_POINTWISE_MATH_PREC, api::CUDNN_DATA_FLOAT)
                      .finalize(kWhat);
  if (status.ok())
    status = made->set(api::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, *how)
                 .set(api::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, sums)
                 .set(api::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, bias)
                 .set(api::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y)
                 .finalize(kWhat);
  ops.push_back(made->get());
  pointwise.push_back(how.take());
  pointwise.push_back(made.take());
  return status;
}

Status DnnConvolution::describeGraph() {
  Expected<DnnDescriptor> made = DnnDescriptor::create(library, api::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (!made)
    return made.status();
  graph = made.take();
  return graph.set(api::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle)
      .set(api::CUDNN_ATTR_OPERATIONGRAPH_OPS, std::span<const api::cudnnBackendDescriptor_t>(ops))
      .finalize("making a graph of a convolution");
}

std::string DnnConvolution::text() const {
  static constexpr std::array<const char *, 3> kKinds = {"forward", "gradient of x", "gradient of w"};
  return fmt::format("convolution {}{} {}{}, x {}, w {}, y {}, {}, stride {}, dilation {}, pads {} and {}, workspace "
                     "{}, aligned {} {} {}{}",
                     kKinds[static_cast<size_t>(call.kind())], isFinished(call) ? " + bias" : "",
                     plan::DType_Name(call.dtype()), call.tf32() ? " in TF32" : "", fmt::join(call.x_dims(), "x"),
                     fmt::join(call.w_dims(), "x"), fmt::join(call.y_dims(), "x"),
                     call.channels_last() ? "channels last" : "channels first", fmt::join(call.strides(), "x"),
                     fmt::join(call.dilations(), "x"), fmt::join(call.pads_begin(), "x"),
                     fmt::join(call.pads_end(), "x"), call.library_scratch_bytes(), dnnAlignmentOf(operands.x),
                     dnnAlignmentOf(operands.w), dnnAlignmentOf(operands.y),
                     isFinished(call) ? fmt::format(" bias {}", dnnAlignmentOf(operands.bias)) : "");
}

DnnEngines DnnConvolution::engines() const {
  const bool tensorCores = call.dtype() != plan::F32 || call.tf32();
  return {library, handle, graph, {call.library_scratch_bytes(), tensorCores, /*compiles=*/false}};
}

Expected<std::vector<DnnEngine>> DnnConvolution::candidates(int most) const {
  return engines().candidates(most, text(), wayOut(call));
}

Status DnnConvolution::use(const DnnEngine &chosen) {
  engine = chosen;
  Expected<DnnDescriptor> made = DnnDescriptor::create(library, api::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  if (!made)
    return made.status();
  pack = made.take();
  std::vector<int64_t> uids = {kX, kW, kY};
  auto at = [](api::CUdeviceptr address) { return reinterpret_cast<void *>(address); };
  std::vector<void *> pointers = {at(operands.x), at(operands.w), at(operands.y)};
  if (isFinished(call)) {
    uids.push_back(kBias);
    pointers.push_back(at(operands.bias));
  }
  const std::array<void *, 1> workspace = {engine.workspaceBytes ? at(operands.workspace) : nullptr};
  return pack.set(api::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const int64_t>(uids))
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
  std::vector<Range> ranges = {
      {operands.x, bytes(call.x_dims())}, {operands.w, bytes(call.w_dims())}, {operands.y, bytes(call.y_dims())}};
  if (isFinished(call))
    ranges.push_back({operands.bias, static_cast<uint64_t>(call.y_dims(1)) * plan::dtypeBytes(call.dtype())});
  return ranges;
}

} // namespace tcc::cuda

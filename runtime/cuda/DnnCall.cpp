//===- DnnCall.cpp - a graph of cuDNN's operations with its operands ------===//
#include "runtime/cuda/DnnCall.h"

#include <array>
#include <cassert>

namespace tcc::cuda {

namespace {
constexpr size_t kMostNumbers = 4;
constexpr int64_t kVirtualAlignment = 16; ///< in bytes

uint64_t bytesOf(api::cudnnDataType_t type) {
  assert(type == api::CUDNN_DATA_FLOAT || type == api::CUDNN_DATA_HALF || type == api::CUDNN_DATA_BFLOAT16);
  return type == api::CUDNN_DATA_FLOAT ? 4 : 2;
}
} // namespace

Status DnnCall::use(const DnnEngine &chosen) {
  engine = chosen;
  Expected<DnnDescriptor> descriptor = DnnDescriptor::create(library, api::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  if (!descriptor)
    return descriptor.status();
  pack = descriptor.take();
  const std::array<void *, 1> workspace = {engine.workspaceBytes ? reinterpret_cast<void *>(about.workspace) : nullptr};
  return pack.set(api::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const int64_t>(uids))
      .setPointers(api::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, data)
      .setPointers(api::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
      .finalize("giving a call its operands");
}

Status DnnCall::submit(api::CUstream stream) const {
  Status status = library->check((*library)->setStream(handle, stream), "taking a stream");
  return status.ok() ? library->check((*library)->execute(handle, engine.plan.get(), pack.get()), "submitting a call")
                     : status;
}

DnnGraph::DnnGraph(std::shared_ptr<const DnnLibrary> library, api::cudnnHandle_t handle) {
  made.library = std::move(library);
  made.handle = handle;
  made.numbers = std::make_shared<float[]>(kMostNumbers);
}

DnnDescriptor DnnGraph::create(api::cudnnBackendDescriptorType_t kind) {
  if (failed())
    return {};
  Expected<DnnDescriptor> descriptor = DnnDescriptor::create(made.library, kind);
  if (descriptor)
    return descriptor.take();
  status = descriptor.status();
  return {};
}

void DnnGraph::keep(DnnDescriptor &descriptor, const char *what) {
  if (failed())
    return;
  status = descriptor.finalize(what);
  made.parts.push_back(descriptor);
}

void DnnGraph::add(DnnDescriptor &operation) {
  keep(operation, "describing an operation");
  operations.push_back(operation.get());
}

DnnGraph::Tensor DnnGraph::describe(Sizes dims, Sizes strides, api::cudnnDataType_t type, int64_t alignment,
                                    bool isVirtual, bool isByValue) {
  DnnDescriptor tensor = create(api::CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  if (failed())
    return tensor;
  tensor.set(api::CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set(api::CUDNN_ATTR_TENSOR_DIMENSIONS, dims)
      .set(api::CUDNN_ATTR_TENSOR_STRIDES, strides)
      .set(api::CUDNN_ATTR_TENSOR_UNIQUE_ID, ++uid)
      .set(api::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
  if (isVirtual)
    tensor.set(api::CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  if (isByValue)
    tensor.set(api::CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  keep(tensor, "describing a tensor");
  return tensor;
}

DnnGraph::Tensor DnnGraph::operand(Sizes dims, Sizes strides, api::cudnnDataType_t type, api::CUdeviceptr address) {
  Tensor tensor = describe(dims, strides, type, dnnAlignmentOf(address), false, false);
  made.uids.push_back(uid);
  made.data.push_back(reinterpret_cast<void *>(address));
  int64_t last = 0;
  for (size_t d = 0; d < dims.size(); ++d)
    last += strides[d] * (dims[d] - 1);
  made.ranges.push_back({address, static_cast<uint64_t>(last + 1) * bytesOf(type)});
  return tensor;
}

DnnGraph::Tensor DnnGraph::between(Sizes dims, Sizes strides, api::cudnnDataType_t type) {
  return describe(dims, strides, type, kVirtualAlignment, true, false);
}

DnnGraph::Tensor DnnGraph::number(float value, size_t dims) {
  assert(numbers < kMostNumbers);
  const std::vector<int64_t> ones(dims, 1);
  Tensor tensor = describe(ones, ones, api::CUDNN_DATA_FLOAT, sizeof value, false, true);
  made.numbers[numbers] = value;
  made.uids.push_back(uid);
  made.data.push_back(&made.numbers[numbers++]);
  return tensor;
}

void DnnGraph::pointwise(api::cudnnPointwiseMode_t mode, const Tensor &x, const Tensor &b, const Tensor &t,
                         const Tensor &to, api::cudnnDataType_t in, int64_t axis) {
  DnnDescriptor how = create(api::CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
                operation = create(api::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  if (failed())
    return;
  how.set(api::CUDNN_ATTR_POINTWISE_MODE, mode).set(api::CUDNN_ATTR_POINTWISE_MATH_PREC, in);
  if (axis >= 0)
    how.set(api::CUDNN_ATTR_POINTWISE_AXIS, axis);
  keep(how, "describing arithmetic");
  operation.set(api::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how)
      .set(api::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
      .set(api::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to);
  if (b)
    operation.set(api::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
  if (t)
    operation.set(api::CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
  add(operation);
}

Expected<DnnCall> DnnGraph::finish(DnnCall::About about) {
  made.graph = create(api::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (!failed())
    status = made.graph.set(api::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, made.handle)
                 .set(api::CUDNN_ATTR_OPERATIONGRAPH_OPS, std::span<const api::cudnnBackendDescriptor_t>(operations))
                 .finalize("making a graph");
  if (failed())
    return status;
  made.about = std::move(about);
  return std::move(made);
}

} // namespace tcc::cuda

//===- EntryDnnGraph.cpp - graphs of several operations ------------------===//
//
// Operations refer to tensors by descriptors, so operations with the same descriptor share one tensor. Tensors passed
// by value are read from the host when the plan is executed.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/driver/EntryDnn.h"

#include <cstring>
#include <map>

using namespace tcc::cuda::api;

namespace tcc::emulation {

namespace {
constexpr cudnnPointwiseMode_t kModes[] = {
    CUDNN_POINTWISE_ADD,           CUDNN_POINTWISE_MUL,     CUDNN_POINTWISE_DIV,    CUDNN_POINTWISE_SUB,
    CUDNN_POINTWISE_EXP,           CUDNN_POINTWISE_LOG,     CUDNN_POINTWISE_CMP_GE, CUDNN_POINTWISE_GEN_INDEX,
    CUDNN_POINTWISE_BINARY_SELECT};

/// Number of tensors that a mode reads.
int operandsOf(cudnnPointwiseMode_t mode) {
  switch (mode) {
  case CUDNN_POINTWISE_EXP:
  case CUDNN_POINTWISE_LOG:
  case CUDNN_POINTWISE_GEN_INDEX:
    return 1;
  case CUDNN_POINTWISE_BINARY_SELECT:
    return 3;
  default:
    return 2;
  }
}

/// The attributes of an operation: its description, the tensors that it reads, and its result.
struct PartNames {
  cudnnBackendDescriptorType_t type, how;
  DnnGraph::Operation::Kind kind;
  cudnnBackendAttributeName_t description, reads[3], y;
};
constexpr auto kNone = static_cast<cudnnBackendAttributeName_t>(-1);
constexpr auto kNoType = static_cast<cudnnBackendDescriptorType_t>(-1);
constexpr PartNames kParts[] = {
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
     CUDNN_BACKEND_MATMUL_DESCRIPTOR,
     DnnGraph::Operation::Product,
     CUDNN_ATTR_OPERATION_MATMUL_DESC,
     {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC, kNone},
     CUDNN_ATTR_OPERATION_MATMUL_CDESC},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
     CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
     DnnGraph::Operation::Pointwise,
     CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
     {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
     CUDNN_ATTR_OPERATION_POINTWISE_YDESC},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
     CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
     DnnGraph::Operation::Reduction,
     CUDNN_ATTR_OPERATION_REDUCTION_DESC,
     {CUDNN_ATTR_OPERATION_REDUCTION_XDESC, kNone, kNone},
     CUDNN_ATTR_OPERATION_REDUCTION_YDESC},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
     kNoType,
     DnnGraph::Operation::Reshape,
     kNone,
     {CUDNN_ATTR_OPERATION_RESHAPE_XDESC, kNone, kNone},
     CUDNN_ATTR_OPERATION_RESHAPE_YDESC}};
const PartNames *partOf(cudnnBackendDescriptorType_t type) {
  for (const PartNames &part : kParts)
    if (part.type == type)
      return &part;
  return nullptr;
}

/// Reads one operation after another.
class GraphReader {
public:
  GraphReader(StandIn &d, const char *call) : d(d), call(call) {}

  /// False after a message.
  bool add(const DnnObject &operation) {
    const PartNames &part = *partOf(operation.type);
    DnnGraph::Operation made;
    made.kind = part.kind;
    if (part.kind == DnnGraph::Operation::Product)
      made.operands = 2;
    if (part.description != kNone) {
      DnnObject *how = referred(d, operation, part.description, {part.how}, call);
      if (!how)
        return false;
      made.by = how->one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
      if (part.kind == DnnGraph::Operation::Pointwise) {
        made.mode = how->one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
        made.axis = how->values.contains(CUDNN_ATTR_POINTWISE_AXIS) ? how->one<int64_t>(CUDNN_ATTR_POINTWISE_AXIS) : -1;
        made.operands = operandsOf(made.mode);
      }
    }
    size_t *places[] = {&made.x, &made.b, &made.t};
    for (int i = 0; i < made.operands; ++i)
      if (!take(operation, part.reads[i], *places[i]))
        return false;
    if (!take(operation, part.y, made.y))
      return false;
    graph.operations.push_back(made);
    return true;
  }

  DnnGraph graph;

private:
  bool take(const DnnObject &operation, cudnnBackendAttributeName_t name, size_t &place) {
    DnnObject *found = referred(d, operation, name, {CUDNN_BACKEND_TENSOR_DESCRIPTOR}, call);
    if (!found)
      return false;
    auto [known, fresh] = places.try_emplace(found, graph.tensors.size());
    place = known->second;
    if (!fresh)
      return true;
    DnnGraph::Tensor &tensor = graph.tensors.emplace_back();
    tensor.uid = found->one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    tensor.alignment = found->one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    tensor.type = found->one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    tensor.dims = found->all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
    tensor.strides = found->all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
    tensor.isVirtual = found->one<unsigned char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0;
    tensor.isByValue = found->one<unsigned char>(CUDNN_ATTR_TENSOR_IS_BY_VALUE) != 0;
    return true;
  }

  StandIn &d;
  const char *call;
  std::map<const DnnObject *, size_t> places;
};

} // namespace

bool isDnnGraph(StandIn &d, const DnnObject &graph) {
  const auto operations = graph.all<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  DnnObject *first = findDnn(d, operations.front(), false, "cudnnBackendFinalize");
  return first && partOf(first->type);
}

std::optional<DnnGraph> readDnnGraph(StandIn &d, const DnnObject &graph, const char *call) {
  GraphReader reader(d, call);
  for (cudnnBackendDescriptor_t one : graph.all<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    DnnObject *operation = findDnn(d, one, false, call);
    if (!operation)
      return std::nullopt;
    if (!operation->finalized || !partOf(operation->type)) {
      d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE,
               fmt::format("{}: a descriptor of type {} among several operations{}", call, int(operation->type),
                           operation->finalized ? "" : ", which is not finalized"));
      return std::nullopt;
    }
    if (!reader.add(*operation))
      return std::nullopt;
  }
  if (std::string wrong = reader.graph.connect(); !wrong.empty()) {
    d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE, fmt::format("{}: {}", call, wrong));
    return std::nullopt;
  }
  return std::move(reader.graph);
}

cudnnStatus_t finishDnnPart(StandIn &d, const DnnObject &object, const char *call) {
  auto bad = [&](std::string text) {
    return refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_BAD_PARAM, fmt::format("{}: {}", call, text));
  };
  switch (object.type) {
  case CUDNN_BACKEND_POINTWISE_DESCRIPTOR: {
    const auto mode = object.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    if (std::find(std::begin(kModes), std::end(kModes), mode) == std::end(kModes))
      return bad(fmt::format("arithmetic of mode {}, which the stand-in does not know", int(mode)));
    if ((mode == CUDNN_POINTWISE_GEN_INDEX) != object.values.contains(CUDNN_ATTR_POINTWISE_AXIS))
      return bad("an axis belongs to indices alone");
    return CUDNN_STATUS_SUCCESS;
  }
  case CUDNN_BACKEND_MATMUL_DESCRIPTOR:
  case CUDNN_BACKEND_REDUCTION_DESCRIPTOR: {
    const bool sums = object.type == CUDNN_BACKEND_REDUCTION_DESCRIPTOR;
    if (object.one<cudnnDataType_t>(sums ? CUDNN_ATTR_REDUCTION_COMP_TYPE : CUDNN_ATTR_MATMUL_COMP_TYPE) !=
        CUDNN_DATA_FLOAT)
      return bad("sums in another type than f32");
    const auto by = object.one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
    if (sums && by != CUDNN_REDUCE_TENSOR_ADD && by != CUDNN_REDUCE_TENSOR_MAX)
      return bad(fmt::format("a reduction by {}, which the stand-in does not know", int(by)));
    return CUDNN_STATUS_SUCCESS;
  }
  default: { // an operation: the reader checks the tensors that its mode takes
    GraphReader reader(d, call);
    return reader.add(object) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
  }
  }
}

cudnnStatus_t submitDnnGraph(StandIn &d, const DnnObject &library, DnnGraph graph,
                             const DnnConfiguration &configuration, const DnnObject &pack, const char *call) {
  DnnGraphWork work;
  work.configuration = configuration;
  const auto uids = pack.all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  Memory &memory = d.machine.memory();
  struct Span {
    uint64_t begin, end;
    bool isWritten;
    int64_t uid;
  };
  std::vector<Span> spans;
  for (const DnnGraph::Tensor &tensor : graph.tensors) {
    work.addresses.push_back(nullptr);
    if (tensor.isVirtual)
      continue;
    auto at = std::find(uids.begin(), uids.end(), tensor.uid);
    if (at == uids.end())
      return refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_BAD_PARAM,
                       fmt::format("{}: no address of tensor {}", call, tensor.uid));
    void *pointer = work.addresses.back() = pointers[static_cast<size_t>(at - uids.begin())];
    Allocation *in = memory.find(pointer, tensor.span());
    if (tensor.isByValue) {
      if (!pointer || (in && in->home == Home::Device))
        return refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_BAD_PARAM,
                         fmt::format("{}: tensor {} by value is read from the host", call, tensor.uid));
      float value = 0;
      std::memcpy(&value, pointer, sizeof value);
      work.numbers.push_back(value);
      continue;
    }
    if (!in || in->home != Home::Device)
      return refuseDnn(
          d, FaultKind::OutOfBounds, CUDNN_STATUS_BAD_PARAM,
          fmt::format("{}: tensor {} of {} bytes at {}", call, tensor.uid, tensor.span(), memory.describe(pointer)));
    const auto address = reinterpret_cast<uint64_t>(pointer);
    if (address % static_cast<uint64_t>(tensor.alignment))
      return refuseDnn(d, FaultKind::Misaligned, CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                       fmt::format("{}: tensor {} lies at no multiple of {}, as its descriptor says", call, tensor.uid,
                                   tensor.alignment));
    spans.push_back({address, address + tensor.span(), tensor.isWritten, tensor.uid});
  }
  for (const Span &read : spans)
    for (const Span &written : spans)
      if (!read.isWritten && written.isWritten && read.begin < written.end && written.begin < read.end)
        return refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_BAD_PARAM,
                         fmt::format("{}: result {} overlaps operand {}", call, written.uid, read.uid));
  if (const uint64_t bytes = dnnGraphWorkspace(graph, configuration)) {
    work.workspace = pack.one<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    const auto begin = reinterpret_cast<uint64_t>(work.workspace);
    Allocation *in = memory.find(work.workspace, bytes);
    if (!in || in->home != Home::Device || begin % 16)
      return refuseDnn(d, FaultKind::OutOfBounds, CUDNN_STATUS_BAD_PARAM,
                       fmt::format("{}: a workspace of {} bytes at {}", call, bytes, memory.describe(work.workspace)));
    for (const Span &span : spans)
      if (span.begin < begin + bytes && begin < span.end)
        return refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_BAD_PARAM,
                         fmt::format("{}: the workspace overlaps tensor {}", call, span.uid));
  }
  work.graph = std::move(graph);
  const DnnEngineRule &engine = *findDnnEngine(configuration.engine);
  Task task;
  task.what = call;
  task.ticks = configuration.tile == 2 ? engine.ticks / 2 : engine.ticks;
  task.run = [work](uint32_t number) { return work.run(number); };
  return d.enqueue(library.stream, std::move(task), call) ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}

} // namespace tcc::emulation

/// NVRTC's version: cuDNN compiles engines with NVRTC.
extern "C" __attribute__((visibility("default"))) int nvrtcVersion(int *major, int *minor) {
  const int version = tcc::emulation::standIn().options.nvrtcVersion;
  *major = version / 1000;
  *minor = version % 1000 / 10;
  return 0;
}

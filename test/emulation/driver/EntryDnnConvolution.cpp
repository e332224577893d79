//===- EntryDnnConvolution.cpp - convolutions in graphs of cuDNN ---------===//
//
// Graphs that begin with a convolution: the convolution alone, or followed by a bias.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/driver/EntryDnn.h"

using namespace tcc::cuda::api;

namespace tcc::emulation {

namespace {

struct OperationNames {
  cudnnBackendDescriptorType_t type;
  DnnProblem::Direction direction;
  cudnnBackendAttributeName_t alpha, beta, window, x, w, y;
};
constexpr OperationNames kOperations[] = {
#define TCC_NAMES(type, direction, prefix, x, w, y)                                                                    \
  {CUDNN_BACKEND_OPERATION_CONVOLUTION_##type##_DESCRIPTOR, DnnProblem::direction,                                     \
   CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_ALPHA,       CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_BETA,          \
   CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_CONV_DESC,   CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##x,           \
   CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##w,         CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##y},
    TCC_NAMES(FORWARD, Forward, FORWARD, X, W, Y) TCC_NAMES(BACKWARD_DATA, Data, BWD_DATA, DX, W, DY)
        TCC_NAMES(BACKWARD_FILTER, Filter, BWD_FILTER, X, DW, DY)
#undef TCC_NAMES
};
const OperationNames *namesOf(const DnnObject &operation) {
  for (const OperationNames &names : kOperations)
    if (names.type == operation.type)
      return &names;
  return nullptr;
}

/// Whether the tensor is not dense in any order of its dimensions. Our runtime describes dense tensors only, and
/// accesses are checked on that assumption.
bool hasGaps(const DnnProblem::Tensor &tensor) {
  std::vector<std::pair<int64_t, int64_t>> order;
  for (size_t i = 0; i < tensor.dims.size(); ++i)
    order.emplace_back(tensor.strides[i], tensor.dims[i]);
  std::sort(order.begin(), order.end());
  int64_t step = 1;
  for (auto [stride, dim] : order) {
    if (dim > 1 && stride != step)
      return true;
    step *= dim;
  }
  return false;
}

/// Nothing after a message.
std::optional<DnnProblem::Tensor> tensorOf(StandIn &d, const DnnObject &descriptor, const char *call) {
  DnnProblem::Tensor tensor;
  tensor.uid = descriptor.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  tensor.alignment = descriptor.one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  tensor.type = descriptor.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  tensor.dims = descriptor.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  tensor.strides = descriptor.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  if (!hasGaps(tensor))
    return tensor;
  d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE,
           fmt::format("{}: a tensor of a convolution with gaps between its elements", call));
  return std::nullopt;
}

} // namespace

std::optional<DnnProblem> problemOfOperation(StandIn &d, const DnnObject &operation, const char *call) {
  const OperationNames *names = namesOf(operation);
  if (!names) {
    d.misuse(FaultKind::Misuse, CUDA_ERROR_INVALID_VALUE,
             fmt::format("{}: a descriptor of type {} is no operation", call, int(operation.type)));
    return std::nullopt;
  }
  DnnProblem problem;
  problem.direction = names->direction;
  problem.alpha = operation.one<float>(names->alpha);
  problem.beta = operation.one<float>(names->beta);
  for (auto [name, tensor] : {std::pair(names->x, &problem.x), {names->w, &problem.w}, {names->y, &problem.y}}) {
    DnnObject *found = referred(d, operation, name, {CUDNN_BACKEND_TENSOR_DESCRIPTOR}, call);
    if (!found)
      return std::nullopt;
    std::optional<DnnProblem::Tensor> read = tensorOf(d, *found, call);
    if (!read)
      return std::nullopt;
    *tensor = std::move(*read);
    if (tensor == &problem.y && found->one<unsigned char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL)) {
      problem.between = tensor->type;
      tensor->type = problem.x.type; // the type of the graph's result, until that is read
    }
  }
  DnnObject *window = referred(d, operation, names->window, {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR}, call);
  if (!window)
    return std::nullopt;
  problem.strides = window->all<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  problem.dilations = window->all<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  problem.before = window->all<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  problem.after = window->all<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  return problem;
}

namespace {

/// Adds the operation that follows a convolution: + bias, in f32. False after a message. The tensors between the
/// operations are virtual; cuDNN lists this graph among its specialised engines that are compiled beforehand
/// ("ConvBiasAct"). Stricter than the library: no other operations, in no other order.
bool readFinish(StandIn &d, DnnProblem &problem, const std::vector<DnnObject *> &operations, const DnnObject *made,
                const char *call) {
  auto bad = [&](std::string text) {
    refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_NOT_SUPPORTED, fmt::format("{}: {}", call, text));
    return false;
  };
  if ((operations.size() > 1 && problem.direction != DnnProblem::Forward) || operations.size() > 2)
    return bad("operations behind a convolution's gradient, or more than a bias");
  for (size_t i = 1; i < operations.size(); ++i) {
    const DnnObject &operation = *operations[i];
    if (!operation.finalized || operation.type != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
      return bad(fmt::format("a descriptor of type {} behind a convolution", int(operation.type)));
    DnnObject *how = referred(d, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                              {CUDNN_BACKEND_POINTWISE_DESCRIPTOR}, call),
              *from =
                  referred(d, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, {CUDNN_BACKEND_TENSOR_DESCRIPTOR}, call),
              *to =
                  referred(d, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, {CUDNN_BACKEND_TENSOR_DESCRIPTOR}, call);
    if (!how || !from || !to)
      return false;
    if (from != made || !from->one<unsigned char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL))
      return bad("an operation behind a convolution that does not read the virtual tensor of the one before it");
    const auto mode = how->one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    if (mode != CUDNN_POINTWISE_ADD)
      return bad(fmt::format("arithmetic of mode {} behind a convolution", int(mode)));
    if (how->one<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC) != CUDNN_DATA_FLOAT)
      return bad("arithmetic behind a convolution in another type than f32");
    if (const auto type = from->one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE); type != CUDNN_DATA_FLOAT)
      problem.between = type;
    std::optional<DnnProblem::Tensor> result = tensorOf(d, *to, call);
    if (!result)
      return false;
    if (result->dims != problem.y.dims || result->strides != problem.y.strides)
      return bad("a result of another shape than the convolution's");
    problem.y = std::move(*result);
    problem.finish = DnnProblem::Bias;
    made = to;
    DnnObject *bias =
        referred(d, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, {CUDNN_BACKEND_TENSOR_DESCRIPTOR}, call);
    std::optional<DnnProblem::Tensor> row = bias ? tensorOf(d, *bias, call) : std::nullopt;
    if (!row)
      return false;
    problem.bias = std::move(*row);
  }
  return made->one<unsigned char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) ? bad("a graph whose result is virtual") : true;
}

} // namespace

std::optional<DnnProblem> problemOfGraph(StandIn &d, const DnnObject &graph, const char *call) {
  std::vector<DnnObject *> operations;
  for (cudnnBackendDescriptor_t one : graph.all<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    operations.push_back(findDnn(d, one, false, call));
    if (!operations.back())
      return std::nullopt;
  }
  std::optional<DnnProblem> problem = problemOfOperation(d, *operations.front(), call);
  const DnnObject *made = problem ? referred(d, *operations.front(), namesOf(*operations.front())->y,
                                             {CUDNN_BACKEND_TENSOR_DESCRIPTOR}, call)
                                  : nullptr;
  if (!made || !readFinish(d, *problem, operations, made, call))
    return std::nullopt;
  if (std::string wrong = problem->wrong(); !wrong.empty()) {
    refuseDnn(d, FaultKind::Misuse, CUDNN_STATUS_BAD_PARAM, fmt::format("{}: {}", call, wrong));
    return std::nullopt;
  }
  return problem;
}

} // namespace tcc::emulation

//===- DnnAttention.cpp - attention by cuDNN -----------------------------===//
//
// Tensors of the library have the dimensions batch, heads, rows, columns. Keys (and, in the gradient, values) are
// described transposed, by their strides. Intermediate results are virtual tensors in f32, except the operands of
// products: weights and gradients of scores have the operands' type there.
//
// A bias is added to the scaled scores, before the diagonal is compared; dimensions of extent 1 are repeated. Its
// gradient is that of the scores before they are multiplied by the scale, summed where the bias is repeated.
//
//===----------------------------------------------------------------------===//
#include "runtime/cuda/DnnAttention.h"
#include "support/Advice.h"

#include "runtime/plan/AttentionLayout.h"
#include "runtime/plan/DType.h"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>
#include <limits>

namespace tcc::cuda {

namespace {
using Dims = std::array<int64_t, 4>;

std::string wayOut() {
  return fmt::format("compile with {}, which generates kernels",
                     advice::compileSet("compiler.attention_calls", "none"));
}

Dims denseStrides(const Dims &dims) {
  Dims strides{};
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0; step *= dims[i])
    strides[i] = step;
  return strides;
}

/// Swaps rows and columns.
Dims transposed(Dims dims) {
  std::swap(dims[2], dims[3]);
  return dims;
}

Dims stridesIn(const plan::AttentionCall::Tensor &tensor) {
  return {tensor.strides(0), tensor.strides(1), tensor.strides(2), tensor.strides(3)};
}
} // namespace

/// Builds the operations of a graph. The first library call that fails sets `status`; all later calls do nothing.
class DnnAttention::Builder {
public:
  explicit Builder(DnnAttention &made) : made(made) {
    const plan::AttentionCall &call = made.call;
    type = call.dtype() == plan::F16 ? api::CUDNN_DATA_HALF : api::CUDNN_DATA_BFLOAT16;
    scores = {call.batch(), call.heads(), call.queries(), call.keys()};
    rows = {call.batch(), call.heads(), call.queries(), 1};
    tensors = plan::attentionTensors(call);
  }

  void forward() {
    const Tensor query = operand(), key = operand(true), value = operand(), bias = biasOperand(), output = operand(),
                 stats = operand();
    const Tensor scale = number(static_cast<float>(made.call.scale()));
    const Tensor score =
        masked(biased(pointwise(api::CUDNN_POINTWISE_MUL, multiplied(query, key, scores), scale, scores), bias));
    const Tensor most = reduced(api::CUDNN_REDUCE_TENSOR_MAX, score, between(rows));
    const Tensor weight =
        pointwise(api::CUDNN_POINTWISE_EXP, pointwise(api::CUDNN_POINTWISE_SUB, score, most, scores), Tensor(), scores);
    const Tensor sum = reduced(api::CUDNN_REDUCE_TENSOR_ADD, weight, between(rows));
    pointwise(api::CUDNN_POINTWISE_ADD, most, pointwise(api::CUDNN_POINTWISE_LOG, sum, Tensor(), rows), Tensor(),
              stats);
    const Tensor narrow = between(scores, type);
    pointwise(api::CUDNN_POINTWISE_DIV, weight, sum, Tensor(), narrow);
    multiply(narrow, value, output);
  }

  void gradient() {
    const plan::AttentionCall &call = made.call;
    const Tensor query = operand(), key = operand(true), value = operand(true), output = operand(), stats = operand(),
                 outputGrad = operand(), bias = biasOperand(), queryGrad = operand(), keyGrad = operand(),
                 valueGrad = operand();
    const Tensor scale = number(static_cast<float>(call.scale())), one = number(1);
    const Dims outputs{call.batch(), call.heads(), call.queries(), call.width()}, turned = transposed(scores);
    // δ = Σ output·outputGrad of each row, in the scratch.
    const Tensor sums = reduced(api::CUDNN_REDUCE_TENSOR_ADD,
                                pointwise(api::CUDNN_POINTWISE_MUL, outputGrad, output, outputs), between(rows));
    const Tensor delta = described(rows, denseStrides(rows), api::CUDNN_DATA_FLOAT, made.scratch);
    pointwise(api::CUDNN_POINTWISE_MUL, sums, one, Tensor(), delta);
    // Recompute the weights, and multiply them with outputGrad.
    const Tensor raw = biased(pointwise(api::CUDNN_POINTWISE_MUL, multiplied(query, key, scores), scale, scores), bias);
    const Tensor weight = pointwise(api::CUDNN_POINTWISE_EXP,
                                    masked(pointwise(api::CUDNN_POINTWISE_SUB, raw, stats, scores)), Tensor(), scores);
    sumHeads(reshaped(weight, turned), outputGrad, valueGrad, call.width());
    // Gradients of scores, and their products with keys and queries.
    const Tensor weightGrad = multiplied(outputGrad, value, scores);
    const Tensor relative = pointwise(api::CUDNN_POINTWISE_SUB, weightGrad, delta, scores);
    const Tensor unscaled = pointwise(api::CUDNN_POINTWISE_MUL, relative, weight, scores);
    if (call.bias_gradient())
      reduce(api::CUDNN_REDUCE_TENSOR_ADD, unscaled, operand());
    const Tensor scoreGrad = pointwise(api::CUDNN_POINTWISE_MUL, unscaled, scale, scores);
    sumHeads(reshaped(scoreGrad, turned), query, keyGrad, call.depth());
    const Dims keyRows{call.batch(), call.key_heads(), call.keys(), call.depth()};
    const Tensor keyAgain = between(keyRows, type, stridesIn(call.tensors(1)));
    reshape(key, keyAgain);
    multiply(scoreGrad, keyAgain, queryGrad);
  }

  Status finish() {
    if (!status.ok())
      return status;
    DnnDescriptor graph = create(api::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (status.ok())
      status = graph.set(api::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, made.handle)
                   .set(api::CUDNN_ATTR_OPERATIONGRAPH_OPS, std::span<const api::cudnnBackendDescriptor_t>(operations))
                   .finalize("making a graph of attention");
    made.graph = std::move(graph);
    return status;
  }

private:
  /// Null if there is no such tensor.
  using Tensor = DnnDescriptor;

  DnnDescriptor create(api::cudnnBackendDescriptorType_t kind) {
    if (!status.ok())
      return {};
    Expected<DnnDescriptor> descriptor = DnnDescriptor::create(made.library, kind);
    if (!descriptor) {
      status = descriptor.status();
      return {};
    }
    return descriptor.take();
  }
  void keep(DnnDescriptor &descriptor, const char *what) {
    if (status.ok())
      status = descriptor.finalize(what);
    made.parts.push_back(descriptor);
  }

  Tensor describe(const Dims &dims, const Dims &strides, api::cudnnDataType_t of, int64_t alignment, bool isVirtual,
                  bool isByValue) {
    DnnDescriptor tensor = create(api::CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    if (!status.ok())
      return tensor;
    tensor.set(api::CUDNN_ATTR_TENSOR_DATA_TYPE, of)
        .set(api::CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<const int64_t>(dims))
        .set(api::CUDNN_ATTR_TENSOR_STRIDES, std::span<const int64_t>(strides))
        .set(api::CUDNN_ATTR_TENSOR_UNIQUE_ID, ++uid)
        .set(api::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
    if (isVirtual)
      tensor.set(api::CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
    if (isByValue)
      tensor.set(api::CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
    keep(tensor, "describing a tensor");
    return tensor;
  }
  /// Describes a tensor in memory.
  Tensor described(const Dims &dims, const Dims &strides, api::cudnnDataType_t of, api::CUdeviceptr address) {
    Tensor tensor = describe(dims, strides, of, dnnAlignmentOf(address), false, false);
    made.uids.push_back(uid);
    made.data.push_back(reinterpret_cast<void *>(address));
    return tensor;
  }
  /// The call's next tensor.
  Tensor operand(bool turn = false) {
    const size_t index = next++;
    const plan::AttentionTensor &tensor = tensors[index];
    const Dims strides = stridesIn(made.call.tensors(static_cast<int>(index)));
    return described(turn ? transposed(tensor.dims) : tensor.dims, turn ? transposed(strides) : strides,
                     tensor.kind == plan::AttentionTensor::Rows ? api::CUDNN_DATA_FLOAT : type, made.addresses[index]);
  }
  Tensor biasOperand() { return made.call.bias_batch() > 0 ? operand() : Tensor(); }
  Tensor number(float value) {
    Tensor tensor = describe({1, 1, 1, 1}, {1, 1, 1, 1}, api::CUDNN_DATA_FLOAT, sizeof value, false, true);
    made.numbers->push_back(value); // reserved: addresses stay
    made.uids.push_back(uid);
    made.data.push_back(&made.numbers->back());
    return tensor;
  }
  Tensor between(const Dims &dims, api::cudnnDataType_t of = api::CUDNN_DATA_FLOAT) {
    return between(dims, of, denseStrides(dims));
  }
  Tensor between(const Dims &dims, api::cudnnDataType_t of, const Dims &strides) {
    return describe(dims, strides, of, 16, true, false);
  }

  void add(DnnDescriptor &operation) {
    keep(operation, "describing an operation");
    operations.push_back(operation.get());
  }

  void multiply(const Tensor &a, const Tensor &b, const Tensor &to) {
    DnnDescriptor how = create(api::CUDNN_BACKEND_MATMUL_DESCRIPTOR),
                  operation = create(api::CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    if (!status.ok())
      return;
    how.set(api::CUDNN_ATTR_MATMUL_COMP_TYPE, api::CUDNN_DATA_FLOAT);
    keep(how, "describing a product");
    operation.set(api::CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)
        .set(api::CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
        .set(api::CUDNN_ATTR_OPERATION_MATMUL_CDESC, to)
        .set(api::CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    add(operation);
  }
  Tensor multiplied(const Tensor &a, const Tensor &b, const Dims &dims) {
    Tensor to = between(dims);
    multiply(a, b, to);
    return to;
  }
  /// Adds a pointwise operation with result `to`, or a virtual tensor of `dims`.
  Tensor pointwise(api::cudnnPointwiseMode_t mode, const Tensor &x, const Tensor &b, const Dims &dims) {
    Tensor to = between(dims);
    pointwise(mode, x, b, Tensor(), to);
    return to;
  }
  void pointwise(api::cudnnPointwiseMode_t mode, const Tensor &x, const Tensor &b, const Tensor &t, const Tensor &to,
                 api::cudnnDataType_t in = api::CUDNN_DATA_FLOAT, int64_t axis = -1) {
    DnnDescriptor how = create(api::CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
                  operation = create(api::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    if (!status.ok())
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
  void reduce(api::cudnnReduceTensorOp_t by, const Tensor &x, const Tensor &to) {
    DnnDescriptor how = create(api::CUDNN_BACKEND_REDUCTION_DESCRIPTOR),
                  operation = create(api::CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    if (!status.ok())
      return;
    how.set(api::CUDNN_ATTR_REDUCTION_COMP_TYPE, api::CUDNN_DATA_FLOAT).set(api::CUDNN_ATTR_REDUCTION_OPERATOR, by);
    keep(how, "describing a reduction");
    operation.set(api::CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)
        .set(api::CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to)
        .set(api::CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    add(operation);
  }
  Tensor reduced(api::cudnnReduceTensorOp_t by, const Tensor &x, const Tensor &to) {
    reduce(by, x, to);
    return to;
  }
  void reshape(const Tensor &x, const Tensor &to) {
    DnnDescriptor operation = create(api::CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    if (!status.ok())
      return;
    operation.set(api::CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x).set(api::CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to);
    add(operation);
  }
  /// The transposed scores, in the operands' type.
  Tensor reshaped(const Tensor &x, const Dims &turned) {
    Tensor to = between(turned, type, transposed(denseStrides(scores)));
    reshape(x, to);
    return to;
  }
  /// A product for each head, summed over the heads that share a key head.
  void sumHeads(const Tensor &a, const Tensor &b, const Tensor &to, int64_t features) {
    if (made.call.heads() == made.call.key_heads())
      return multiply(a, b, to);
    const Tensor all = between({made.call.batch(), made.call.heads(), made.call.keys(), features}, type);
    multiply(a, b, all);
    reduce(api::CUDNN_REDUCE_TENSOR_ADD, all, to);
  }
  Tensor biased(const Tensor &score, const Tensor &bias) {
    return bias ? pointwise(api::CUDNN_POINTWISE_ADD, score, bias, scores) : score;
  }
  /// Sets scores above the diagonal to −∞.
  Tensor masked(const Tensor &score) {
    if (!made.call.causal())
      return score;
    const Tensor row = between(scores, api::CUDNN_DATA_INT32), column = between(scores, api::CUDNN_DATA_INT32),
                 seen = between(scores, api::CUDNN_DATA_BOOLEAN), to = between(scores);
    pointwise(api::CUDNN_POINTWISE_GEN_INDEX, score, Tensor(), Tensor(), row, api::CUDNN_DATA_FLOAT, 2);
    pointwise(api::CUDNN_POINTWISE_GEN_INDEX, score, Tensor(), Tensor(), column, api::CUDNN_DATA_FLOAT, 3);
    pointwise(api::CUDNN_POINTWISE_CMP_GE, row, column, Tensor(), seen, api::CUDNN_DATA_BOOLEAN);
    pointwise(api::CUDNN_POINTWISE_BINARY_SELECT, score, number(-std::numeric_limits<float>::infinity()), seen, to);
    return to;
  }

  DnnAttention &made;
  api::cudnnDataType_t type;
  Dims scores, rows;
  std::vector<plan::AttentionTensor> tensors;
  size_t next = 0; ///< of them, to be described
  std::vector<api::cudnnBackendDescriptor_t> operations;
  int64_t uid = 0;
  Status status;
};

Expected<DnnAttention> DnnAttention::describe(std::shared_ptr<const DnnLibrary> library, api::cudnnHandle_t handle,
                                              const plan::AttentionCall &call,
                                              std::span<const api::CUdeviceptr> pointers, api::CUdeviceptr scratch) {
  if (library->versionNumber() < kLeastVersion)
    return error("attention runs on cuDNN 9.19 or later, this machine has {}; install another, or {}",
                 library->version(), wayOut());
  DnnAttention made;
  made.library = std::move(library);
  made.handle = handle;
  made.call = call;
  made.scratch = scratch;
  const std::vector<plan::AttentionTensor> tensors = plan::attentionTensors(call);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const plan::AttentionCall::Tensor &tensor = call.tensors(static_cast<int>(i));
    made.addresses.push_back(pointers[tensor.operand()] +
                             static_cast<uint64_t>(tensor.offset()) * tensors[i].elementBytes(call));
  }
  constexpr size_t kMostNumbers = 4;
  made.numbers = std::make_shared<std::vector<float>>();
  made.numbers->reserve(kMostNumbers);
  Builder builder(made);
  if (call.kind() == plan::AttentionCall::GRADIENT)
    builder.gradient();
  else
    builder.forward();
  Status status = builder.finish();
  return status.ok() ? Expected<DnnAttention>(std::move(made)) : status;
}

std::string DnnAttention::text() const {
  std::string places, bias;
  const std::vector<plan::AttentionTensor> tensors = plan::attentionTensors(call);
  for (size_t i = 0; i < tensors.size(); ++i)
    places += fmt::format(
        ", {} {}",
        tensors[i].kind == plan::AttentionTensor::Rows ? "rows" : fmt::format("{}", fmt::join(tensors[i].dims, "x")),
        fmt::join(call.tensors(static_cast<int>(i)).strides(), " "));
  if (call.bias_batch() > 0)
    bias = fmt::format(", bias {}x{}{}", call.bias_batch(), call.bias_heads(),
                       call.bias_gradient() ? " and its gradient" : "");
  std::vector<int64_t> aligned;
  for (api::CUdeviceptr address : addresses)
    aligned.push_back(dnnAlignmentOf(address));
  return fmt::format("attention {} {}{}{}, scale {}, {} keys{}, workspace {}, aligned {}",
                     call.kind() == plan::AttentionCall::GRADIENT ? "gradient" : "forward",
                     plan::DType_Name(call.dtype()), call.causal() ? " causal" : "", bias,
                     static_cast<float>(call.scale()), call.keys(), places, call.library_scratch_bytes(),
                     fmt::join(aligned, " "));
}

DnnEngines DnnAttention::engines() const {
  return {library,
          handle,
          graph,
          {call.library_scratch_bytes() - plan::attentionRowBytes(call), /*tensorCores=*/true, /*compiles=*/true}};
}

Expected<std::vector<DnnEngine>> DnnAttention::candidates(int most) const {
  return engines().candidates(most, text(), wayOut());
}

Status DnnAttention::use(const DnnEngine &chosen) {
  engine = chosen;
  Expected<DnnDescriptor> made = DnnDescriptor::create(library, api::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  if (!made)
    return made.status();
  pack = made.take();
  const api::CUdeviceptr behind = scratch + plan::attentionRowBytes(call);
  const std::array<void *, 1> workspace = {engine.workspaceBytes ? reinterpret_cast<void *>(behind) : nullptr};
  return pack.set(api::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const int64_t>(uids))
      .setPointers(api::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, data)
      .setPointers(api::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace)
      .finalize("giving attention its operands");
}

Status DnnAttention::submit(api::CUstream stream) const {
  Status status = library->check((*library)->setStream(handle, stream), "taking a stream");
  return status.ok()
             ? library->check((*library)->execute(handle, engine.plan.get(), pack.get()), "submitting attention")
             : status;
}

std::vector<DnnAttention::Range> DnnAttention::operandRanges() const {
  std::vector<Range> ranges;
  const std::vector<plan::AttentionTensor> tensors = plan::attentionTensors(call);
  for (size_t i = 0; i < tensors.size(); ++i) {
    int64_t last = 0;
    for (int d = 0; d < 4; ++d)
      last += call.tensors(static_cast<int>(i)).strides(d) * (tensors[i].dims[static_cast<size_t>(d)] - 1);
    ranges.push_back({addresses[i], static_cast<uint64_t>(last + 1) * tensors[i].elementBytes(call)});
  }
  return ranges;
}

} // namespace tcc::cuda

//===- DnnAttention.cpp - attention by cuDNN -----------------------------===//
//
// Tensors of the library have the dimensions batch, heads, rows, columns. Keys (and, in the gradient, values) are
// described transposed, by their strides. Intermediate results are virtual tensors in f32, except the operands of
// products: weights and gradients of scores have the operands' type there.
//
// A bias is added to the scaled scores, before the diagonal is compared; dimensions of extent 1 are repeated. Its
// gradient is that of the scores before they are multiplied by the scale, summed where the bias is repeated.
//
// Of the gradient's forms we use the one without atomic additions: it stores the gradients of the scores in the
// workspace, where a second product and the sum for the bias's gradient read them. (No engine note reveals that the
// other form adds in arbitrary order.)
//
// NVRTC compiles engines when they are made ready, so the run records its version in addition to cuDNN's.
//
//===----------------------------------------------------------------------===//
#include "runtime/cuda/DnnCall.h"
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

/// Describes the operations of attention and of its gradient.
class Attention {
public:
  /// `addresses` of the call's tensors.
  Attention(DnnGraph &graph, const plan::AttentionCall &call, std::span<const api::CUdeviceptr> addresses,
            api::CUdeviceptr scratch)
      : graph(graph), call(call), addresses(addresses), scratch(scratch) {
    type = call.dtype() == plan::F16 ? api::CUDNN_DATA_HALF : api::CUDNN_DATA_BFLOAT16;
    scores = {call.batch(), call.heads(), call.queries(), call.keys()};
    rows = {call.batch(), call.heads(), call.queries(), 1};
    tensors = plan::attentionTensors(call);
  }

  void forward() {
    const Tensor query = operand(), key = operand(true), value = operand(), bias = biasOperand(), output = operand(),
                 stats = operand();
    const Tensor scale = number(static_cast<float>(call.scale()));
    const Tensor score =
        masked(biased(pointwise(api::CUDNN_POINTWISE_MUL, multiplied(query, key, scores), scale, scores), bias));
    const Tensor most = reduced(api::CUDNN_REDUCE_TENSOR_MAX, score, between(rows));
    const Tensor weight =
        pointwise(api::CUDNN_POINTWISE_EXP, pointwise(api::CUDNN_POINTWISE_SUB, score, most, scores), Tensor(), scores);
    const Tensor sum = reduced(api::CUDNN_REDUCE_TENSOR_ADD, weight, between(rows));
    graph.pointwise(api::CUDNN_POINTWISE_ADD, most, pointwise(api::CUDNN_POINTWISE_LOG, sum, Tensor(), rows), Tensor(),
                    stats);
    const Tensor narrow = between(scores, type);
    graph.pointwise(api::CUDNN_POINTWISE_DIV, weight, sum, Tensor(), narrow);
    multiply(narrow, value, output);
  }

  void gradient() {
    const Tensor query = operand(), key = operand(true), value = operand(true), output = operand(), stats = operand(),
                 outputGrad = operand(), bias = biasOperand(), queryGrad = operand(), keyGrad = operand(),
                 valueGrad = operand();
    const Tensor scale = number(static_cast<float>(call.scale())), one = number(1);
    const Dims outputs{call.batch(), call.heads(), call.queries(), call.width()}, turned = transposed(scores);
    // δ = Σ output·outputGrad of each row, in the scratch.
    const Tensor sums = reduced(api::CUDNN_REDUCE_TENSOR_ADD,
                                pointwise(api::CUDNN_POINTWISE_MUL, outputGrad, output, outputs), between(rows));
    const Tensor delta = graph.operand(rows, denseStrides(rows), api::CUDNN_DATA_FLOAT, scratch);
    graph.pointwise(api::CUDNN_POINTWISE_MUL, sums, one, Tensor(), delta);
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
    const Tensor keyAgain = graph.between(keyRows, stridesIn(call.tensors(1)), type);
    reshape(key, keyAgain);
    multiply(scoreGrad, keyAgain, queryGrad);
  }

private:
  using Tensor = DnnGraph::Tensor;

  /// The call's next tensor.
  Tensor operand(bool turn = false) {
    const size_t index = next++;
    const plan::AttentionTensor &tensor = tensors[index];
    const Dims strides = stridesIn(call.tensors(static_cast<int>(index)));
    return graph.operand(turn ? transposed(tensor.dims) : tensor.dims, turn ? transposed(strides) : strides,
                         tensor.kind == plan::AttentionTensor::Rows ? api::CUDNN_DATA_FLOAT : type, addresses[index]);
  }
  Tensor biasOperand() { return call.bias_batch() > 0 ? operand() : Tensor(); }
  Tensor number(float value) { return graph.number(value, std::tuple_size_v<Dims>); }
  Tensor between(const Dims &dims, api::cudnnDataType_t of = api::CUDNN_DATA_FLOAT) {
    return graph.between(dims, denseStrides(dims), of);
  }

  void multiply(const Tensor &a, const Tensor &b, const Tensor &to) {
    DnnDescriptor how = graph.create(api::CUDNN_BACKEND_MATMUL_DESCRIPTOR),
                  operation = graph.create(api::CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    if (graph.failed())
      return;
    how.set(api::CUDNN_ATTR_MATMUL_COMP_TYPE, api::CUDNN_DATA_FLOAT);
    graph.keep(how, "describing a product");
    operation.set(api::CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)
        .set(api::CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
        .set(api::CUDNN_ATTR_OPERATION_MATMUL_CDESC, to)
        .set(api::CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    graph.add(operation);
  }
  Tensor multiplied(const Tensor &a, const Tensor &b, const Dims &dims) {
    Tensor to = between(dims);
    multiply(a, b, to);
    return to;
  }
  /// Adds a pointwise operation with result `to`, or a virtual tensor of `dims`.
  Tensor pointwise(api::cudnnPointwiseMode_t mode, const Tensor &x, const Tensor &b, const Dims &dims) {
    Tensor to = between(dims);
    graph.pointwise(mode, x, b, Tensor(), to);
    return to;
  }
  void reduce(api::cudnnReduceTensorOp_t by, const Tensor &x, const Tensor &to) {
    DnnDescriptor how = graph.create(api::CUDNN_BACKEND_REDUCTION_DESCRIPTOR),
                  operation = graph.create(api::CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    if (graph.failed())
      return;
    how.set(api::CUDNN_ATTR_REDUCTION_COMP_TYPE, api::CUDNN_DATA_FLOAT).set(api::CUDNN_ATTR_REDUCTION_OPERATOR, by);
    graph.keep(how, "describing a reduction");
    operation.set(api::CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)
        .set(api::CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to)
        .set(api::CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    graph.add(operation);
  }
  Tensor reduced(api::cudnnReduceTensorOp_t by, const Tensor &x, const Tensor &to) {
    reduce(by, x, to);
    return to;
  }
  void reshape(const Tensor &x, const Tensor &to) {
    DnnDescriptor operation = graph.create(api::CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    if (graph.failed())
      return;
    operation.set(api::CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x).set(api::CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to);
    graph.add(operation);
  }
  /// The transposed scores, in the operands' type.
  Tensor reshaped(const Tensor &x, const Dims &turned) {
    Tensor to = graph.between(turned, transposed(denseStrides(scores)), type);
    reshape(x, to);
    return to;
  }
  /// A product for each head, summed over the heads that share a key head.
  void sumHeads(const Tensor &a, const Tensor &b, const Tensor &to, int64_t features) {
    if (call.heads() == call.key_heads())
      return multiply(a, b, to);
    const Tensor all = between({call.batch(), call.heads(), call.keys(), features}, type);
    multiply(a, b, all);
    reduce(api::CUDNN_REDUCE_TENSOR_ADD, all, to);
  }
  Tensor biased(const Tensor &score, const Tensor &bias) {
    return bias ? pointwise(api::CUDNN_POINTWISE_ADD, score, bias, scores) : score;
  }
  /// Sets scores above the diagonal to −∞.
  Tensor masked(const Tensor &score) {
    if (!call.causal())
      return score;
    const Tensor row = between(scores, api::CUDNN_DATA_INT32), column = between(scores, api::CUDNN_DATA_INT32),
                 seen = between(scores, api::CUDNN_DATA_BOOLEAN), to = between(scores);
    graph.pointwise(api::CUDNN_POINTWISE_GEN_INDEX, score, Tensor(), Tensor(), row, api::CUDNN_DATA_FLOAT, 2);
    graph.pointwise(api::CUDNN_POINTWISE_GEN_INDEX, score, Tensor(), Tensor(), column, api::CUDNN_DATA_FLOAT, 3);
    graph.pointwise(api::CUDNN_POINTWISE_CMP_GE, row, column, Tensor(), seen, api::CUDNN_DATA_BOOLEAN);
    graph.pointwise(api::CUDNN_POINTWISE_BINARY_SELECT, score, number(-std::numeric_limits<float>::infinity()), seen,
                    to);
    return to;
  }

  DnnGraph &graph;
  const plan::AttentionCall &call;
  std::span<const api::CUdeviceptr> addresses;
  api::CUdeviceptr scratch;
  api::cudnnDataType_t type;
  Dims scores, rows;
  std::vector<plan::AttentionTensor> tensors;
  size_t next = 0; ///< of them, to be described
};

std::vector<api::CUdeviceptr> addressesOf(const plan::AttentionCall &call, std::span<const api::CUdeviceptr> pointers) {
  const std::vector<plan::AttentionTensor> tensors = plan::attentionTensors(call);
  std::vector<api::CUdeviceptr> addresses;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const plan::AttentionCall::Tensor &tensor = call.tensors(static_cast<int>(i));
    addresses.push_back(pointers[tensor.operand()] +
                        static_cast<uint64_t>(tensor.offset()) * tensors[i].elementBytes(call));
  }
  return addresses;
}
} // namespace

std::string attentionText(const plan::AttentionCall &call, std::span<const api::CUdeviceptr> pointers) {
  const std::vector<plan::AttentionTensor> tensors = plan::attentionTensors(call);
  std::string places, bias;
  for (size_t i = 0; i < tensors.size(); ++i)
    places += fmt::format(
        ", {} {}",
        tensors[i].kind == plan::AttentionTensor::Rows ? "rows" : fmt::format("{}", fmt::join(tensors[i].dims, "x")),
        fmt::join(call.tensors(static_cast<int>(i)).strides(), " "));
  if (call.bias_batch() > 0)
    bias = fmt::format(", bias {}x{}{}", call.bias_batch(), call.bias_heads(),
                       call.bias_gradient() ? " and its gradient" : "");
  std::vector<int64_t> aligned;
  for (api::CUdeviceptr address : addressesOf(call, pointers))
    aligned.push_back(dnnAlignmentOf(address));
  return fmt::format("attention {} {}{}{}, scale {}, {} keys{}, workspace {}, aligned {}",
                     call.kind() == plan::AttentionCall::GRADIENT ? "gradient" : "forward",
                     plan::DType_Name(call.dtype()), call.causal() ? " causal" : "", bias,
                     static_cast<float>(call.scale()), call.keys(), places, call.library_scratch_bytes(),
                     fmt::join(aligned, " "));
}

Status tooOldForAttention(const DnnLibrary &library) {
  return error("attention runs on cuDNN 9.19 or later, this machine has {}; install another, or {}", library.version(),
               wayOut());
}

Expected<DnnCall> describeAttention(std::shared_ptr<const DnnLibrary> library, api::cudnnHandle_t handle,
                                    const plan::AttentionCall &call, std::span<const api::CUdeviceptr> pointers,
                                    api::CUdeviceptr scratch) {
  if (library->versionNumber() < kLeastDnnForAttention)
    return tooOldForAttention(*library);
  const std::vector<api::CUdeviceptr> addresses = addressesOf(call, pointers);
  DnnGraph graph(std::move(library), handle);
  Attention attention(graph, call, addresses, scratch);
  if (call.kind() == plan::AttentionCall::GRADIENT)
    attention.gradient();
  else
    attention.forward();
  const uint64_t rowBytes = plan::attentionRowBytes(call);
  return graph.finish({attentionText(call, pointers),
                       wayOut(),
                       {call.library_scratch_bytes() - rowBytes, /*tensorCores=*/true, /*compiles=*/true},
                       scratch + rowBytes});
}

} // namespace tcc::cuda

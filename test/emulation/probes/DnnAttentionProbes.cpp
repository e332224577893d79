//===- DnnAttentionProbes.cpp - attention with a bias ---------------------===//
//
// The runtime's own calls, on numbers whose results are known without arithmetic: a bias that leaves one key to each
// query, and weights that are all the same. attention-check compares random numbers with f64.
//
//===----------------------------------------------------------------------===//
#include "runtime/cuda/DnnCall.h"
#include "runtime/plan/AttentionLayout.h"
#include "test/emulation/probes/Probe.h"

#include <cmath>
#include <functional>

using namespace tcc::probes;
namespace plan = tcc::plan;

namespace {

uint16_t narrow(float value, plan::DType type) {
  if (type == plan::F16)
    return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
  const auto word = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}
float widen(uint16_t bits, plan::DType type) {
  return type == plan::F16 ? float(std::bit_cast<_Float16>(bits)) : std::bit_cast<float>(uint32_t(bits) << 16);
}

/// A call of attention on dense tensors, each in memory of its own.
class Call {
public:
  static constexpr int64_t kBatch = 2, kHeads = 2, kFeatures = 8;

  Call(Program &program, plan::AttentionCall::Kind kind, plan::DType type, int64_t positions, int64_t biasBatch,
       int64_t biasHeads, bool causal)
      : p(program) {
    call.set_kind(kind);
    call.set_dtype(type);
    call.set_batch(kBatch), call.set_heads(kHeads), call.set_key_heads(kHeads);
    call.set_queries(positions), call.set_keys(positions);
    call.set_depth(kFeatures), call.set_width(kFeatures);
    call.set_scale(0.5);
    call.set_causal(causal);
    call.set_bias_batch(biasBatch), call.set_bias_heads(biasHeads);
    call.set_bias_gradient(kind == plan::AttentionCall::GRADIENT);
    call.set_library_scratch_bytes(plan::attentionRowBytes(call) + (uint64_t(4) << 20));
    tensors = plan::attentionTensors(call);
    for (size_t i = 0; i < tensors.size(); ++i) {
      plan::AttentionCall::Tensor &at = *call.add_tensors();
      at.set_operand(uint32_t(i));
      const auto &dims = tensors[i].dims;
      for (int64_t stride : {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], int64_t(1)})
        at.add_strides(stride);
      memory.push_back(take(bytesOf(i)));
    }
    scratch = take(call.library_scratch_bytes());
  }
  ~Call() {
    for (CUdeviceptr one : memory)
      cu.memFree(one);
    cu.memFree(scratch);
  }
  Call(const Call &) = delete;

  /// The value of a tensor's element, by its coordinates.
  using Values = std::function<float(int64_t n, int64_t h, int64_t i, int64_t j)>;
  void put(const char *name, const Values &values) {
    const size_t at = find(name);
    const auto &dims = tensors[at].dims;
    std::vector<char> bytes(bytesOf(at));
    size_t index = 0;
    for (int64_t n = 0; n < dims[0]; ++n)
      for (int64_t h = 0; h < dims[1]; ++h)
        for (int64_t i = 0; i < dims[2]; ++i)
          for (int64_t j = 0; j < dims[3]; ++j, ++index) {
            const float value = values(n, h, i, j);
            if (tensors[at].kind == plan::AttentionTensor::Rows)
              reinterpret_cast<float *>(bytes.data())[index] = value;
            else
              reinterpret_cast<uint16_t *>(bytes.data())[index] = narrow(value, call.dtype());
          }
    EXPECT(cu.memcpyHtoDAsync(memory[at], bytes.data(), bytes.size(), p.stream) == CUDA_SUCCESS);
    EXPECT(cu.streamSynchronize(p.stream) == CUDA_SUCCESS);
  }
  std::vector<float> get(const char *name) {
    const size_t at = find(name);
    std::vector<char> bytes(bytesOf(at));
    EXPECT(cu.memcpyDtoHAsync(bytes.data(), memory[at], bytes.size(), p.stream) == CUDA_SUCCESS);
    EXPECT(cu.streamSynchronize(p.stream) == CUDA_SUCCESS);
    std::vector<float> values(bytes.size() / tensors[at].elementBytes(call));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = tensors[at].kind == plan::AttentionTensor::Rows
                      ? reinterpret_cast<const float *>(bytes.data())[i]
                      : widen(reinterpret_cast<const uint16_t *>(bytes.data())[i], call.dtype());
    return values;
  }

  /// Runs the first engine that a plan may take; results are NaN before. False: there is none, or it failed.
  bool run() {
    for (size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i].isWritten)
        EXPECT(cu.memsetD8Async(memory[i], 0xff, bytesOf(i), p.stream) == CUDA_SUCCESS);
    auto opened = tcc::cuda::DnnLibrary::open();
    if (!opened)
      return false;
    static const auto library = std::make_shared<const tcc::cuda::DnnLibrary>(opened.take());
    static cudnnHandle_t handle = nullptr;
    if (!handle && dnn.create(&handle) != CUDNN_STATUS_SUCCESS)
      return false;
    auto attention = tcc::cuda::describeAttention(library, handle, call, memory, scratch);
    if (!attention)
      return false;
    auto engines = attention->candidates(1);
    return engines && attention->use(engines->front()).ok() && attention->submit(p.stream).ok() &&
           cu.streamSynchronize(p.stream) == CUDA_SUCCESS;
  }

private:
  CUdeviceptr take(uint64_t bytes) {
    CUdeviceptr made = 0;
    EXPECT(cu.memAlloc(&made, bytes) == CUDA_SUCCESS);
    return made;
  }
  size_t find(const std::string &name) const {
    size_t at = 0;
    while (tensors[at].name != name)
      ++at;
    return at;
  }
  uint64_t bytesOf(size_t at) const {
    uint64_t bytes = tensors[at].elementBytes(call);
    for (int64_t dim : tensors[at].dims)
      bytes *= uint64_t(dim);
    return bytes;
  }

  Program &p;
  plan::AttentionCall call;
  std::vector<plan::AttentionTensor> tensors;
  std::vector<CUdeviceptr> memory;
  CUdeviceptr scratch = 0;
};

/// Every way to broadcast a bias, in both types.
template <typename Check> void everyBias(Check check) {
  for (plan::DType type : {plan::BF16, plan::F16})
    for (int64_t batch : {int64_t(1), Call::kBatch})
      for (int64_t heads : {int64_t(1), Call::kHeads})
        check(type, batch, heads);
}

/// A bias leaves one key to each query, and is the negative of its scaled score: the output is that key's value, and
/// logsumexp is 0.
void selects(Program &p, bool causal) {
  everyBias([&](plan::DType type, int64_t biasBatch, int64_t biasHeads) {
    constexpr int64_t kPositions = 16;
    Call call(p, plan::AttentionCall::FORWARD, type, kPositions, biasBatch, biasHeads, causal);
    auto chosen = [&](int64_t n, int64_t h, int64_t i) {
      const int64_t key = 3 * i + 5 * (biasBatch > 1 ? n : 0) + 7 * (biasHeads > 1 ? h : 0);
      return key % (causal ? i + 1 : kPositions);
    };
    call.put("query", [](int64_t, int64_t, int64_t, int64_t f) { return f == 0 ? 1.F : 0.F; });
    call.put("key", [](int64_t, int64_t, int64_t j, int64_t f) { return f == 0 ? float(2 * j) : 0.F; });
    auto value = [](int64_t n, int64_t h, int64_t j, int64_t f) { return float(64 * n + 32 * h + j - 4 * f); };
    call.put("value", value);
    call.put("bias",
             [&](int64_t n, int64_t h, int64_t i, int64_t j) { return j == chosen(n, h, i) ? -float(j) : -32768.F; });
    EXPECT(call.run());
    const std::vector<float> output = call.get("output"), rows = call.get("logsumexp");
    bool selected = true, scaled = true;
    for (int64_t row = 0; row < int64_t(rows.size()); ++row) {
      const int64_t i = row % kPositions, h = row / kPositions % Call::kHeads, n = row / kPositions / Call::kHeads;
      for (int64_t f = 0; f < Call::kFeatures; ++f)
        selected &= output[size_t(row * Call::kFeatures + f)] == value(n, h, chosen(n, h, i), f);
      scaled &= std::abs(rows[size_t(row)]) < 1e-5F;
    }
    EXPECT(selected);
    EXPECT(scaled);
  });
}

/// All weights of a query are the same, and values have the mean 0: gradients of scores are outputGrad · value / keys.
void sums(Program &p, int64_t positions, float bias) {
  everyBias([&](plan::DType type, int64_t biasBatch, int64_t biasHeads) {
    Call call(p, plan::AttentionCall::GRADIENT, type, positions, biasBatch, biasHeads, false);
    auto zero = [](int64_t, int64_t, int64_t, int64_t) { return 0.F; };
    auto value = [&](int64_t j) { return float(2 * j - (positions - 1)); };
    auto grad = [](int64_t n, int64_t h, int64_t i) { return float(1 + 2 * n + h + i % 3); };
    for (const char *name : {"query", "key", "output"})
      call.put(name, zero);
    call.put("value", [&](int64_t, int64_t, int64_t j, int64_t f) { return f == 0 ? value(j) : 0.F; });
    call.put("the output's gradient",
             [&](int64_t n, int64_t h, int64_t i, int64_t f) { return f == 0 ? grad(n, h, i) : 0.F; });
    call.put("logsumexp",
             [&](int64_t, int64_t, int64_t, int64_t) { return bias + std::log(static_cast<float>(positions)); });
    call.put("bias", [&](int64_t, int64_t, int64_t, int64_t) { return bias; });
    EXPECT(call.run());
    const std::vector<float> got = call.get("bias's gradient");
    bool summed = true, finite = true;
    for (int64_t at = 0; at < int64_t(got.size()); ++at) {
      const int64_t j = at % positions, i = at / positions % positions, h = at / positions / positions % biasHeads,
                    n = at / positions / positions / biasHeads;
      float wanted = 0;
      for (int64_t sample = 0; sample < Call::kBatch; ++sample)
        for (int64_t head = 0; head < Call::kHeads; ++head)
          if ((biasBatch == 1 || sample == n) && (biasHeads == 1 || head == h))
            wanted += grad(sample, head, i) * value(j) / float(positions);
      summed &= std::abs(got[size_t(at)] - wanted) <= 0.01F * std::abs(wanted);
    }
    EXPECT(summed);
    for (const char *name : {"query's gradient", "key's gradient", "value's gradient"})
      for (float one : call.get(name))
        finite &= std::isfinite(one);
    EXPECT(finite);
    EXPECT(call.run());
    EXPECT(got == call.get("bias's gradient"));
  });
}

} // namespace

PROBE(DnnAttentionTakesABias, "cuDNN frontend: Attention, SDPA forward, bias mask and its dimensions") {
  selects(p, /*causal=*/false);
}
PROBE(DnnAttentionTakesABiasBesideADiagonal, "cuDNN frontend: Attention, SDPA forward, bias and causal masks") {
  selects(p, /*causal=*/true);
}
PROBE(DnnAttentionSumsABiasGradient, "cuDNN frontend: Attention, SDPA backward, dBias, deterministic algorithm") {
  for (int64_t positions : {16, 128})
    sums(p, positions, 0);
}
// e^120 overflows f32: values that an engine computes for padding behind the last key must not reach the other keys.
PROBE(DnnAttentionTakesLowBiases, "cuDNN frontend: Attention, SDPA backward, dBias") {
  for (int64_t positions : {16, 128})
    sums(p, positions, -120);
}

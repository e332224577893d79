//===- AttentionCheck.cpp - attention by cuDNN on a card -----------------===//
//
//   attention-check [--small]
//
// Runs the runtime's calls of attention and its gradient with each engine that the plan would allow, on random numbers
// of heads that are slices of one tensor, and prints, as lines of JSON: time, workspace, whether the bits repeat, and
// the largest errors against f64 relative to the bounds of docs/design/attention-kernel.md. Exit status 1 if an error
// exceeds its bound or bits differ. --small takes sizes that the emulated card computes in seconds; on it, that is the
// default. Biases are those of plans: random numbers, keys that are excluded by −2^15 (each query keeps its own), and
// numbers near −120, since e^120 is no f32.
//
//===----------------------------------------------------------------------===//
#include "runtime/cuda/Card.h"
#include "runtime/cuda/DnnCall.h"
#include "runtime/plan/AttentionLayout.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>

using namespace tcc;
using namespace tcc::cuda;

namespace {

struct Shape {
  int64_t batch, heads, keyHeads, positions, features;
  bool causal;
  plan::DType type;
  int64_t biasBatch = 0, biasHeads = 0; ///< 0: no bias
  enum { Random, Excluding, Low } biases = Random;
  bool biasGradient = true;

  bool isBiased() const { return biasBatch > 0; }
  int64_t biasElements() const { return biasBatch * biasHeads * positions * positions; }
  int64_t biasAt(int64_t n, int64_t h, int64_t i, int64_t j) const {
    return (((biasBatch > 1 ? n : 0) * biasHeads + (biasHeads > 1 ? h : 0)) * positions + i) * positions + j;
  }
};

float widened(uint16_t bits, plan::DType type) {
  return type == plan::BF16 ? std::bit_cast<float>(uint32_t(bits) << 16) : float(std::bit_cast<_Float16>(bits));
}
uint16_t narrowed(float value, plan::DType type) {
  if (type != plan::BF16)
    return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
  const auto word = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

/// Device memory of a check.
class Buffers {
public:
  Buffers(const DriverLibrary &driver, api::CUstream stream) : driver(driver), stream(stream) {}
  ~Buffers() {
    for (api::CUdeviceptr one : owned)
      (void)driver->memFree(one);
  }
  api::CUdeviceptr take(uint64_t bytes) {
    api::CUdeviceptr made = 0;
    check(driver->memAlloc(&made, bytes));
    check(driver->memsetD8Async(made, 0xff, bytes, stream)); // NaN
    owned.push_back(made);
    return made;
  }
  template <typename T> void put(api::CUdeviceptr to, const std::vector<T> &from) {
    check(driver->memcpyHtoDAsync(to, from.data(), from.size() * sizeof(T), stream));
    wait();
  }
  template <typename T> std::vector<T> get(api::CUdeviceptr from, size_t count) {
    std::vector<T> to(count);
    check(driver->memcpyDtoHAsync(to.data(), from, count * sizeof(T), stream));
    wait();
    return to;
  }
  void wait() { check(driver->streamSynchronize(stream)); }
  void check(api::CUresult result) const {
    if (Status status = driver.check(result, "attention-check"); !status.ok()) {
      std::fprintf(stderr, "%s\n", status.message().c_str());
      std::exit(1);
    }
  }

private:
  const DriverLibrary &driver;
  api::CUstream stream;
  std::vector<api::CUdeviceptr> owned;
};

/// Queries, keys and values side by side in one tensor, as one product makes them; outputs and gradients likewise.
plan::AttentionCall callOf(const Shape &s, bool gradient) {
  plan::AttentionCall call;
  call.set_kind(gradient ? plan::AttentionCall::GRADIENT : plan::AttentionCall::FORWARD);
  call.set_dtype(s.type);
  call.set_batch(s.batch);
  call.set_heads(s.heads);
  call.set_key_heads(s.keyHeads);
  call.set_queries(s.positions);
  call.set_keys(s.positions);
  call.set_depth(s.features);
  call.set_width(s.features);
  call.set_scale(1 / std::sqrt(double(s.features)));
  call.set_causal(s.causal);
  call.set_bias_batch(s.biasBatch);
  call.set_bias_heads(s.biasHeads);
  call.set_bias_gradient(gradient && s.isBiased() && s.biasGradient);
  const int64_t out = s.heads * s.features, row = out + 2 * s.keyHeads * s.features;
  auto add = [&](uint32_t operand, int64_t offset, int64_t step) {
    plan::AttentionCall::Tensor &tensor = *call.add_tensors();
    tensor.set_operand(operand);
    tensor.set_offset(offset);
    for (int64_t stride : {s.positions * step, s.features, step, int64_t(1)})
      tensor.add_strides(stride);
  };
  auto addBias = [&](uint32_t operand) {
    plan::AttentionCall::Tensor &tensor = *call.add_tensors();
    tensor.set_operand(operand);
    const int64_t matrix = s.positions * s.positions;
    for (int64_t stride : {s.biasHeads * matrix, matrix, s.positions, int64_t(1)})
      tensor.add_strides(stride);
  };
  auto addRows = [&](uint32_t operand) {
    plan::AttentionCall::Tensor &tensor = *call.add_tensors();
    tensor.set_operand(operand);
    for (int64_t stride : {s.heads * s.positions, s.positions, int64_t(1), int64_t(1)})
      tensor.add_strides(stride);
  };
  for (int64_t offset : {int64_t(0), out, out + s.keyHeads * s.features})
    add(0, offset, row);
  if (!gradient && s.isBiased())
    addBias(5);
  add(1, 0, out);
  addRows(2);
  if (gradient) {
    add(3, 0, out);
    if (s.isBiased())
      addBias(5);
    for (int64_t offset : {int64_t(0), out, out + s.keyHeads * s.features})
      add(4, offset, row);
    if (call.bias_gradient())
      addBias(6);
  }
  const uint64_t scores = uint64_t(s.batch * s.heads) * uint64_t((s.positions + 127) / 128 * 128) *
                          uint64_t((s.positions + 127) / 128 * 128) * 2;
  const uint64_t heads = uint64_t(s.batch * s.heads * (s.positions + 127) / 128 * 128 * s.features) * 4;
  call.set_library_scratch_bytes((gradient ? scores + heads : 0) + (uint64_t(64) << 10) +
                                 plan::attentionRowBytes(call));
  return call;
}

/// Attention of a batch and head in f64, with the sums that bound errors.
struct Exact {
  std::vector<double> output, outputBound, queryGrad, queryBound, keyGrad, keyBound, valueGrad, valueBound, logsumexp,
      scoreGrad, scoreBound; ///< scoreGrad and scoreBound: of every score, before it is scaled

  Exact(const Shape &s, const std::vector<uint16_t> &qkv, const std::vector<uint16_t> &grads,
        const std::vector<uint16_t> &bias, int64_t n, int64_t h) {
    const int64_t out = s.heads * s.features, row = out + 2 * s.keyHeads * s.features, d = s.features, t = s.positions,
                  group = s.heads / s.keyHeads;
    auto at = [&](int64_t i, int64_t offset, int64_t head, int64_t f) {
      return double(widened(qkv[size_t((n * t + i) * row + offset + head * d + f)], s.type));
    };
    auto grad = [&](int64_t i, int64_t f) {
      return double(widened(grads[size_t((n * t + i) * out + h * d + f)], s.type));
    };
    for (auto *one : {&output, &outputBound, &queryGrad, &queryBound, &keyGrad, &keyBound, &valueGrad, &valueBound})
      one->assign(size_t(t * d), 0);
    for (auto *one : {&scoreGrad, &scoreBound})
      one->assign(size_t(t * t), 0);
    logsumexp.resize(size_t(t));
    const double scale = double(float(1 / std::sqrt(double(d))));
    std::vector<double> weights(static_cast<size_t>(t));
    for (int64_t i = 0; i < t; ++i) {
      const int64_t seen = s.causal ? i + 1 : t;
      double most = -INFINITY, total = 0, delta = 0, deltaSize = 0;
      for (int64_t j = 0; j < seen; ++j) {
        double sum = 0;
        for (int64_t f = 0; f < d; ++f)
          sum += at(i, 0, h, f) * at(j, out, h / group, f);
        sum *= scale;
        if (s.isBiased())
          sum += double(widened(bias[size_t(s.biasAt(n, h, i, j))], s.type));
        most = std::max(most, weights[size_t(j)] = sum);
      }
      for (int64_t j = 0; j < seen; ++j)
        total += weights[size_t(j)] = std::exp(weights[size_t(j)] - most);
      logsumexp[size_t(i)] = most + std::log(total);
      for (int64_t j = 0; j < seen; ++j) {
        weights[size_t(j)] /= total;
        for (int64_t f = 0; f < d; ++f) {
          const double value = at(j, out + s.keyHeads * d, h / group, f);
          output[size_t(i * d + f)] += weights[size_t(j)] * value;
          outputBound[size_t(i * d + f)] += weights[size_t(j)] * std::abs(value);
        }
      }
      for (int64_t f = 0; f < d; ++f) {
        delta += output[size_t(i * d + f)] * grad(i, f);
        deltaSize += std::abs(output[size_t(i * d + f)] * grad(i, f));
      }
      for (int64_t j = 0; j < seen; ++j) {
        double weightGrad = 0;
        for (int64_t f = 0; f < d; ++f)
          weightGrad += grad(i, f) * at(j, out + s.keyHeads * d, h / group, f);
        const double unscaled = weights[size_t(j)] * (weightGrad - delta), gradient = unscaled * scale;
        const double size = std::abs(gradient) + weights[size_t(j)] * deltaSize * scale;
        scoreGrad[size_t(i * t + j)] = unscaled;
        scoreBound[size_t(i * t + j)] = std::abs(unscaled) + weights[size_t(j)] * deltaSize;
        for (int64_t f = 0; f < d; ++f) {
          const double q = at(i, 0, h, f), k = at(j, out, h / group, f), g = grad(i, f);
          queryGrad[size_t(i * d + f)] += gradient * k;
          queryBound[size_t(i * d + f)] += size * std::abs(k);
          keyGrad[size_t(j * d + f)] += gradient * q;
          keyBound[size_t(j * d + f)] += size * std::abs(q);
          valueGrad[size_t(j * d + f)] += weights[size_t(j)] * g;
          valueBound[size_t(j * d + f)] += std::abs(weights[size_t(j)] * g);
        }
      }
    }
  }
};

/// The largest error in units of its bound: 2⁻⁸ (f16: 2⁻¹¹) of the sum of absolute terms, for the rounding of weights
/// or scores' gradients, of the result, and of the output, from which δ is computed.
double worstOf(const Shape &s, const std::vector<double> &exact, const std::vector<double> &bound,
               const std::vector<uint16_t> &got, int64_t n, int64_t offset, int64_t step) {
  const double unit = std::ldexp(1, s.type == plan::BF16 ? -8 : -11);
  double worst = 0;
  for (int64_t i = 0; i < s.positions; ++i)
    for (int64_t f = 0; f < s.features; ++f) {
      const double value = double(widened(got[size_t((n * s.positions + i) * step + offset + f)], s.type));
      const double error =
          std::abs(value - exact[size_t(i * s.features + f)]) / (unit * (3 * bound[size_t(i * s.features + f)] + 1e-3));
      worst = std::isnan(value) ? INFINITY : std::max(worst, error);
    }
  return worst;
}

/// The part of the bias's gradient that head `head` of sample `sample` reads: the gradients of scores, and their
/// bounds, summed over all samples and heads that share this part of the bias.
struct ExactBias {
  std::vector<double> value, bound;
  ExactBias(const Shape &s, const std::vector<uint16_t> &qkv, const std::vector<uint16_t> &grads,
            const std::vector<uint16_t> &bias, int64_t sample, int64_t head)
      : value(size_t(s.positions * s.positions)), bound(value.size()) {
    for (int64_t n = 0; n < s.batch; ++n)
      for (int64_t h = 0; h < s.heads; ++h) {
        if ((s.biasBatch > 1 && n != sample) || (s.biasHeads > 1 && h != head))
          continue;
        const Exact one(s, qkv, grads, bias, n, h);
        for (size_t at = 0; at < value.size(); ++at) {
          value[at] += one.scoreGrad[at];
          bound[at] += one.scoreBound[at];
        }
      }
  }

  /// As worstOf().
  double worst(const Shape &s, const std::vector<uint16_t> &got, int64_t sample, int64_t head) const {
    const double unit = std::ldexp(1, s.type == plan::BF16 ? -8 : -11);
    const auto first = size_t(s.biasAt(sample, head, 0, 0));
    double worst = 0;
    for (size_t at = 0; at < value.size(); ++at) {
      const auto one = double(widened(got[first + at], s.type));
      const double error = std::abs(one - value[at]) / (unit * (3 * bound[at] + 1e-3));
      worst = std::isnan(one) ? double(INFINITY) : std::max(worst, error);
    }
    return worst;
  }
};

class Check {
public:
  Check(const DriverLibrary &driver, api::CUstream stream, std::shared_ptr<const DnnLibrary> dnn,
        api::cudnnHandle_t handle)
      : driver(driver), stream(stream), dnn(std::move(dnn)), handle(handle) {}

  bool run(const Shape &s) {
    Buffers memory(driver, stream);
    const int64_t out = s.heads * s.features, row = out + 2 * s.keyHeads * s.features, places = s.batch * s.positions;
    const plan::AttentionCall forward = callOf(s, false), gradient = callOf(s, true);
    const uint64_t biasBytes = uint64_t(std::max<int64_t>(8, s.biasElements())) * 2;
    std::array<api::CUdeviceptr, 7> operands = {memory.take(uint64_t(places * row) * 2),
                                                memory.take(uint64_t(places * out) * 2),
                                                memory.take(uint64_t(s.batch * s.heads * s.positions) * 4),
                                                memory.take(uint64_t(places * out) * 2),
                                                memory.take(uint64_t(places * row) * 2),
                                                memory.take(biasBytes),
                                                memory.take(biasBytes)};
    const api::CUdeviceptr scratch = memory.take(gradient.library_scratch_bytes());
    std::vector<uint16_t> qkv(size_t(places * row)), grads(size_t(places * out));
    uint32_t state = 1;
    for (auto *values : {&qkv, &grads})
      for (uint16_t &value : *values) {
        state = state * 1664525u + 1013904223u;
        value = narrowed(float(state >> 8) * 0x1p-22F - 2, s.type);
      }
    std::vector<uint16_t> bias(size_t(s.biasElements()));
    for (size_t at = 0; at < bias.size(); ++at) {
      state = state * 1664525u + 1013904223u;
      const size_t t = size_t(s.positions), key = at % t, query = at / t % t;
      float value = float(state >> 8) * 0x1p-22F - 2;
      if (s.biases == Shape::Low)
        value -= 120;
      if (s.biases == Shape::Excluding && key != query && value > 0)
        value = -32768;
      bias[at] = narrowed(value, s.type);
    }
    memory.put(operands[0], qkv);
    memory.put(operands[3], grads);
    if (s.isBiased())
      memory.put(operands[5], bias);
    bool good = true;
    const int64_t sample = s.batch - 1, head = s.heads - 1;
    const bool compares = s.heads == s.keyHeads;
    const Exact exact(s, qkv, grads, bias, sample, head);
    std::optional<ExactBias> exactBias;
    if (gradient.bias_gradient())
      exactBias.emplace(s, qkv, grads, bias, sample, head);
    for (const plan::AttentionCall *call : {&forward, &gradient}) {
      const bool isGradient = call == &gradient;
      Expected<DnnCall> attention = describeAttention(dnn, handle, *call, operands, scratch);
      Expected<std::vector<DnnEngine>> engines =
          attention ? attention->candidates(8) : Expected<std::vector<DnnEngine>>(attention.status());
      if (!engines) {
        std::printf("{\"shape\":\"%s\",\"gradient\":%s,\"problem\":\"%s\"}\n", textOf(s).c_str(),
                    isGradient ? "true" : "false", engines.status().message().substr(0, 300).c_str());
        return false;
      }
      // The first engine runs last, since the gradient reads the output that it leaves.
      for (size_t e = engines->size(); e-- > 0;) {
        const DnnEngine &engine = (*engines)[e];
        double seconds = 0;
        Status status = attention->use(engine);
        if (status.ok())
          status = time(*attention, seconds);
        const size_t count = size_t(places) * size_t(isGradient ? row : out);
        const std::vector<uint16_t> first = memory.get<uint16_t>(operands[isGradient ? 4 : 1], count);
        std::vector<uint16_t> firstBias;
        if (isGradient && exactBias)
          firstBias = memory.get<uint16_t>(operands[6], bias.size());
        for (int again = 0; again < 3 && status.ok(); ++again)
          status = attention->submit(stream);
        memory.wait();
        bool repeats = first == memory.get<uint16_t>(operands[isGradient ? 4 : 1], count);
        if (!firstBias.empty())
          repeats &= firstBias == memory.get<uint16_t>(operands[6], bias.size());
        std::string errors;
        double worst = 0;
        auto compare = [&](const char *name, const std::vector<double> &value, const std::vector<double> &bound,
                           int64_t offset, int64_t step) {
          const double error = worstOf(s, value, bound, first, sample, offset + head * s.features, step);
          char text[64];
          std::snprintf(text, sizeof text, ",\"%s\":%.3f", name, std::isfinite(error) ? error : 1e30);
          errors += text;
          worst = std::max(worst, error);
        };
        if (!isGradient) {
          compare("output", exact.output, exact.outputBound, 0, out);
          const std::vector<float> sums = memory.get<float>(operands[2], size_t(s.batch * s.heads * s.positions));
          double off = 0;
          for (int64_t i = 0; i < s.positions; ++i)
            off = std::max(off, std::abs(double(sums[size_t((sample * s.heads + head) * s.positions + i)]) -
                                         exact.logsumexp[size_t(i)]));
          char text[64];
          std::snprintf(text, sizeof text, ",\"logsumexp\":%.3g", off);
          errors += text;
          worst = std::max(worst, off > 1e-4 || std::isnan(off) ? double(INFINITY) : 0.0);
        } else {
          compare("query", exact.queryGrad, exact.queryBound, 0, row);
          if (compares) {
            compare("key", exact.keyGrad, exact.keyBound, out, row);
            compare("value", exact.valueGrad, exact.valueBound, 2 * out, row);
          }
          if (!firstBias.empty()) {
            const double error = exactBias->worst(s, firstBias, sample, head);
            errors += fmt::format(",\"bias\":{:.3f}", std::isfinite(error) ? error : 1e30);
            worst = std::max(worst, error);
          }
        }
        std::printf(
            "{\"shape\":\"%s\",\"gradient\":%s,\"engine\":\"%s\",\"workspace\":%llu,\"us\":%.1f,\"repeats\":%s%s%s}\n",
            textOf(s).c_str(), isGradient ? "true" : "false", engine.code().c_str(),
            static_cast<unsigned long long>(engine.workspaceBytes), seconds * 1e6, repeats ? "true" : "false",
            errors.c_str(), status.ok() ? "" : ",\"problem\":\"failed\"");
        std::fflush(stdout);
        good = good && status.ok() && repeats && worst <= 1;
      }
    }
    return good;
  }

private:
  static std::string textOf(const Shape &s) {
    constexpr const char *kBiases[] = {"", " that excludes keys", " near -120"};
    std::string bias;
    if (s.isBiased())
      bias = fmt::format(" bias {}x{}{}{}", s.biasBatch, s.biasHeads, kBiases[s.biases],
                         s.biasGradient ? "" : ", no gradient");
    return fmt::format("{} {}x{}{}x{}x{}{}{}", s.type == plan::BF16 ? "bf16" : "f16", s.batch, s.heads,
                       s.heads != s.keyHeads ? fmt::format("({})", s.keyHeads) : "", s.positions, s.features,
                       s.causal ? " causal" : "", bias);
  }

  /// The least time of several runs, in seconds.
  Status time(const DnnCall &attention, double &seconds) {
    std::array<api::CUevent, 2> events{};
    for (api::CUevent &event : events)
      (void)driver->eventCreate(&event, api::CU_EVENT_DEFAULT);
    Status status;
    for (int run = 0; run < 6 && status.ok(); ++run) {
      (void)driver->eventRecord(events[0], stream);
      status = attention.submit(stream);
      (void)driver->eventRecord(events[1], stream);
      if (status.ok())
        status = driver.check(driver->eventSynchronize(events[1]), "waiting");
      float milliseconds = 0;
      (void)driver->eventElapsedTime(&milliseconds, events[0], events[1]);
      if (run > 0)
        seconds = run == 1 ? double(milliseconds) / 1000 : std::min(seconds, double(milliseconds) / 1000);
    }
    for (api::CUevent event : events)
      (void)driver->eventDestroy(event);
    return status;
  }

  const DriverLibrary &driver;
  api::CUstream stream;
  std::shared_ptr<const DnnLibrary> dnn;
  api::cudnnHandle_t handle;
};

int fail(const Status &status) {
  std::fprintf(stderr, "attention-check: %s\n", status.message().c_str());
  return 1;
}
} // namespace

int main(int count, char **arguments) {
  Expected<DriverLibrary> driver = DriverLibrary::open();
  if (!driver)
    return fail(driver.status());
  Expected<Card> card = Card::open(*driver);
  if (!card)
    return fail(card.status());
  Expected<DnnLibrary> opened = DnnLibrary::open();
  if (!opened)
    return fail(opened.status());
  auto dnn = std::make_shared<const DnnLibrary>(opened.take());
  api::cudnnHandle_t handle = nullptr;
  api::CUstream stream = nullptr;
  if (Status status = dnn->check((*dnn)->create(&handle), "starting cuDNN"); !status.ok())
    return fail(status);
  if (Status status = driver->check((*driver)->streamCreate(&stream, api::CU_STREAM_NON_BLOCKING), "making a stream");
      !status.ok())
    return fail(status);
  std::printf("{\"device\":\"%s\",\"cudnn\":\"%s\"}\n", card->name().c_str(), dnn->version().c_str());
  const bool small = card->name().starts_with("Emulated") || (count > 1 && std::strcmp(arguments[1], "--small") == 0);
  std::vector<Shape> shapes;
  if (small)
    shapes = {{2, 2, 2, 65, 16, true, plan::BF16},
              {1, 4, 2, 33, 24, false, plan::F16},
              {2, 2, 2, 33, 16, false, plan::BF16, 1, 2},
              {2, 4, 2, 20, 8, true, plan::F16, 1, 1, Shape::Excluding},
              {2, 2, 2, 17, 8, false, plan::BF16, 2, 2, Shape::Low},
              {2, 2, 2, 17, 8, false, plan::F16, 2, 1, Shape::Random, false}};
  else
    shapes = {{8, 12, 12, 1024, 64, true, plan::BF16},
              {8, 12, 12, 1024, 64, false, plan::BF16},
              {8, 12, 12, 1024, 64, true, plan::F16},
              {2, 16, 4, 2048, 128, true, plan::BF16},
              {8, 3, 3, 65, 64, false, plan::BF16},
              {4, 4, 4, 33, 24, true, plan::BF16},
              {64, 12, 12, 1024, 64, true, plan::BF16},
              {8, 12, 12, 1024, 64, false, plan::BF16, 1, 12},
              {8, 12, 12, 256, 64, true, plan::F16, 1, 1, Shape::Excluding},
              {2, 16, 4, 2048, 128, true, plan::BF16, 1, 16, Shape::Random, false},
              {256, 3, 3, 49, 32, false, plan::BF16, 256, 3},
              {64, 6, 6, 49, 32, false, plan::F16, 1, 6},
              {4, 4, 4, 33, 24, true, plan::BF16, 4, 1, Shape::Excluding},
              {4, 4, 4, 65, 64, false, plan::BF16, 1, 4, Shape::Low},
              {4, 4, 4, 128, 64, false, plan::F16, 1, 1, Shape::Low},
              {4, 4, 4, 200, 64, false, plan::BF16, 1, 4, Shape::Low}};
  bool good = true;
  {
    Check check(*driver, stream, dnn, handle);
    for (const Shape &shape : shapes)
      good = check.run(shape) && good;
  }
  (void)(*dnn)->destroy(handle);
  (void)(*driver)->streamDestroy(stream);
  return good ? 0 : 1;
}

//===- DnnConvolution.cpp - engines of the stand-in, and what they compute ===//
//
// Sums are made in f32, one rounding a step, split into parts if the engine has several, and rounded once to the
// result's type. The lists of engines are our own: each begins with engines that are unusable for a caller who needs
// reproducible bits or f32's precision, and the first usable one is never the fastest.
//
//===----------------------------------------------------------------------===//
#include "test/emulation/driver/DnnConvolution.h"

#include "test/emulation/driver/BlasArithmetic.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace tcc::cuda::api;

namespace tcc::emulation {

namespace {
cudaDataType asCuda(cudnnDataType_t type) {
  return type == CUDNN_DATA_FLOAT ? CUDA_R_32F : type == CUDNN_DATA_HALF ? CUDA_R_16F : CUDA_R_16BF;
}

enum Engine : int64_t {
  kAnyOrder,
  kGreedy,
  kNarrows,
  kWinograd,
  kFourier,
  kSumsIn16,
  kCompiles,
  kNever,
  kTensor,
  kPlain,
  kStrict
};
} // namespace

int64_t DnnProblem::Tensor::elements() const {
  int64_t count = 1;
  for (int64_t dim : dims)
    count *= dim;
  return count;
}

int64_t DnnProblem::terms() const {
  if (direction == Filter)
    return y.elements() / y.dims[1];
  const int64_t groups = x.dims[1] / w.dims[1];
  return w.elements() / (direction == Forward ? w.dims[0] : w.dims[1]) / (direction == Forward ? 1 : groups);
}

std::string DnnProblem::wrong() const {
  const size_t spatial = strides.size();
  if (spatial < 2 || spatial > 3)
    return fmt::format("{} spatial dimensions", spatial);
  for (const Tensor *tensor : {&x, &w, &y}) {
    if (tensor->dims.size() != spatial + 2)
      return fmt::format("a tensor of {} dimensions with {} spatial ones", tensor->dims.size(), spatial);
    if (tensor->type != x.type)
      return "tensors of several types";
  }
  if (finish != Sums &&
      (bias.dims.size() != y.dims.size() || bias.dims[1] != y.dims[1] || bias.elements() != y.dims[1]))
    return "a bias that has not one element for each feature";
  if (x.dims[1] % w.dims[1] || w.dims[0] % (x.dims[1] / w.dims[1]) || y.dims[1] != w.dims[0] || y.dims[0] != x.dims[0])
    return "channels or batches that do not fit";
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t room = x.dims[i + 2] + before[i] + after[i] - dilations[i] * (w.dims[i + 2] - 1) - 1;
    if (room < 0 || room / strides[i] + 1 != y.dims[i + 2])
      return fmt::format("{} outputs along spatial dimension {}", y.dims[i + 2], i);
  }
  return "";
}

const std::vector<DnnEngineRule> &dnnEngines() {
  static const std::vector<DnnEngineRule> engines = {
      {kAnyOrder, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, {}, 0, 10, true},
      {kGreedy, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, {}, 0, 12, true}, // more workspace than anybody has
      {kNarrows, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}, {}, 0, 14, true},
      {kWinograd, {CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4}, {}, 0, 11, true},
      {kFourier, {CUDNN_NUMERICAL_NOTE_FFT}, {}, 0, 13, true},
      {kSumsIn16, {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, {}, 0, 9, true},
      {kCompiles, {}, {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}, 0, 8, true},
      {kNever, {}, {}, 0, 7, false},
      {kTensor, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, {CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API}, 4, 50, true},
      {kPlain, {}, {}, 4, 80, true},
      {kStrict, {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}, {}, 0, 90, true},
      {kDnnGraphGreedy, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}, 0, 20, true},
      {kDnnGraphNever, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}, 0, 15, false},
      {kDnnGraphFused,
       {CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
       {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API},
       2,
       60,
       true},
      {kDnnGraphSlow, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}, 0, 90, true}};
  return engines;
}

const DnnEngineRule *findDnnEngine(int64_t index) {
  for (const DnnEngineRule &engine : dnnEngines())
    if (engine.index == index)
      return &engine;
  return nullptr;
}

bool hasNote(const DnnEngineRule &engine, cudnnBackendNumericalNote_t note) {
  return std::find(engine.notes.begin(), engine.notes.end(), note) != engine.notes.end();
}

std::vector<DnnConfiguration> dnnHeuristics(const DnnProblem &problem, cudnnBackendHeurMode_t mode) {
  if (!problem.wrong().empty())
    return {};
  if (!standIn().options.engines)
    return {{kAnyOrder, 0}, {kWinograd, 0}};
  // cuDNN 9.26 lists no engine for a bias of another type, nor for 16-bit tensors between the operations.
  if (problem.finish != DnnProblem::Sums &&
      (!standIn().options.epilogues || problem.bias.type != problem.y.type || problem.between != CUDNN_DATA_FLOAT))
    return {};
  if (mode == CUDNN_HEUR_MODE_FALLBACK)
    return {{kStrict, 0}};
  if (mode == CUDNN_HEUR_MODE_B) // heuristics B know fewer graphs
    return problem.strides.size() == 3 ? std::vector<DnnConfiguration>() : std::vector<DnnConfiguration>{{kPlain, 3}};
  std::vector<DnnConfiguration> list = {{kAnyOrder, 0}, {kGreedy, 0},   {kNarrows, 0}, {kWinograd, 0}, {kFourier, 0},
                                        {kSumsIn16, 0}, {kCompiles, 0}, {kNever, 0},   {kTensor, 1},   {kTensor, 2}};
  if (problem.terms() > 1)
    list.insert(list.end(), {{kPlain, 1}, {kPlain, 2}});
  return list;
}

/// Tensor-core engines copy tensors that are not channels-last; engines with several parts keep partial sums in f32.
uint64_t dnnWorkspace(const DnnProblem &problem, const DnnConfiguration &configuration) {
  if (configuration.engine == kGreedy)
    return uint64_t(1) << 40;
  uint64_t bytes = problem.w.bytes() + 131; // deliberately not a round number
  if (configuration.engine == kTensor && !problem.channelsLast())
    bytes += problem.x.bytes() + problem.y.bytes();
  if (problem.direction == DnnProblem::Filter && configuration.tile > 1)
    bytes += static_cast<uint64_t>(problem.w.elements()) * 4;
  return bytes;
}

namespace {

/// A tensor's elements in the order N, C, spatial, rounded as the engine rounds its operands.
std::vector<float> elementsOf(const DnnProblem::Tensor &tensor, const void *from, const DnnEngineRule &engine) {
  const bool tf32 = tensor.type == CUDNN_DATA_FLOAT && hasNote(engine, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  const bool narrows = hasNote(engine, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
  std::vector<float> all(static_cast<size_t>(tensor.elements()));
  std::vector<int64_t> at(tensor.dims.size());
  for (float &element : all) {
    int64_t index = 0;
    for (size_t i = 0; i < at.size(); ++i)
      index += at[i] * tensor.strides[i];
    element = static_cast<float>(loadElement(from, static_cast<uint64_t>(index), asCuda(tensor.type)));
    if (narrows)
      element = static_cast<float>(static_cast<_Float16>(element));
    else if (tf32)
      element = toTf32(element);
    for (size_t i = at.size(); i-- > 0 && ++at[i] == tensor.dims[i];)
      at[i] = 0;
  }
  return all;
}

void storeElements(const DnnProblem::Tensor &tensor, void *to, const std::vector<float> &all) {
  std::vector<int64_t> at(tensor.dims.size());
  for (float element : all) {
    int64_t index = 0;
    for (size_t i = 0; i < at.size(); ++i)
      index += at[i] * tensor.strides[i];
    storeElement(to, static_cast<uint64_t>(index), element, asCuda(tensor.type));
    for (size_t i = at.size(); i-- > 0 && ++at[i] == tensor.dims[i];)
      at[i] = 0;
  }
}

/// The sum of one element: terms arrive in order, and equal parts of them are summed separately.
class Sum {
public:
  Sum(int64_t terms, int64_t parts, bool backwards) : part((terms + parts - 1) / parts), backwards(backwards) {
    partial.resize(static_cast<size_t>(parts));
  }
  void add(int64_t term, float left, float right) {
    float &one = partial[static_cast<size_t>(term / part)];
    one =
        static_cast<float>(double(left) * double(right) + double(one)); // the product is exact: one rounding, as an fma
  }
  float take() {
    float sum = 0;
    if (backwards)
      std::reverse(partial.begin(), partial.end());
    for (float &one : partial) {
      sum += one;
      one = 0;
    }
    return sum;
  }

private:
  int64_t part;
  bool backwards;
  std::vector<float> partial;
};

/// Always three spatial dimensions: with two, the first has extent 1.
struct Extents {
  int64_t x[3] = {1, 1, 1}, w[3] = {1, 1, 1}, y[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1},
          before[3] = {0, 0, 0};
  explicit Extents(const DnnProblem &p) {
    const size_t spatial = p.strides.size(), skip = 3 - spatial;
    for (size_t i = 0; i < spatial; ++i) {
      x[i + skip] = p.x.dims[i + 2];
      w[i + skip] = p.w.dims[i + 2];
      y[i + skip] = p.y.dims[i + 2];
      stride[i + skip] = p.strides[i];
      dilation[i + skip] = p.dilations[i];
      before[i + skip] = p.before[i];
    }
  }
  static int64_t volume(const int64_t (&extent)[3]) { return extent[0] * extent[1] * extent[2]; }

  /// The pixel of x that a tap of an output reads, -1 in the padding.
  int64_t source(int64_t output, int64_t tap) const {
    int64_t at[3], index = 0;
    for (int i = 2; i >= 0; --i) {
      at[i] = output % y[i] * stride[i] - before[i] + tap % w[i] * dilation[i];
      output /= y[i];
      tap /= w[i];
    }
    for (int i = 0; i < 3; ++i) {
      if (at[i] < 0 || at[i] >= x[i])
        return -1;
      index = index * x[i] + at[i];
    }
    return index;
  }
};

} // namespace

std::optional<Fault> DnnWork::run(uint32_t work) const {
  Memory &memory = standIn().machine.memory();
  const char *what = "cudnnBackendExecute";
  const DnnProblem &p = problem;
  for (const DnnProblem::Tensor *tensor : {&p.x, &p.w, &p.y})
    if (auto fault =
            memory.touchByWork(of(*tensor), tensor->bytes(), tensor == &p.result() ? kWrite : kRead, work, what))
      return fault;
  if (p.finish != DnnProblem::Sums)
    if (auto fault = memory.touchByWork(bias, p.bias.bytes(), kRead, work, what))
      return fault;
  const DnnEngineRule &engine = *findDnnEngine(configuration.engine);
  if (uint64_t bytes = dnnWorkspace(p, configuration)) {
    if (auto fault = memory.touchByWork(workspace, bytes, kWrite, work, what))
      return fault;
    std::memset(workspace, 0xff, bytes);
  }
  const bool anyOrder = hasNote(engine, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  const bool backwards = anyOrder && (standIn().options.machine.seed * 31 + work) * 2654435761 >> 13 & 1;
  const int64_t parts = anyOrder ? 4 : std::max<int64_t>(1, configuration.tile);
  const Extents e(p);
  const int64_t batch = p.x.dims[0], channels = p.x.dims[1], features = p.y.dims[1], groupChannels = p.w.dims[1],
                groups = channels / groupChannels, groupFeatures = features / groups, taps = Extents::volume(e.w),
                pixelsX = Extents::volume(e.x), pixelsY = Extents::volume(e.y);
  std::vector<float> x = p.direction == DnnProblem::Data ? std::vector<float>() : elementsOf(p.x, this->x, engine);
  std::vector<float> w = p.direction == DnnProblem::Filter ? std::vector<float>() : elementsOf(p.w, this->w, engine);
  std::vector<float> y = p.direction == DnnProblem::Forward ? std::vector<float>() : elementsOf(p.y, this->y, engine);
  std::vector<float> result(static_cast<size_t>(p.result().elements()));
  std::vector<int64_t> sources(static_cast<size_t>(pixelsY * taps));
  for (int64_t q = 0; q < pixelsY; ++q)
    for (int64_t t = 0; t < taps; ++t)
      sources[static_cast<size_t>(q * taps + t)] = e.source(q, t);
  Sum sum(std::max<int64_t>(1, p.terms()), parts, backwards);
  auto at = [](auto &values, int64_t index) -> auto & { return values[static_cast<size_t>(index)]; };
  if (p.direction == DnnProblem::Forward) {
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t k = 0; k < features; ++k)
        for (int64_t q = 0; q < pixelsY; ++q) {
          const int64_t first = n * channels + k / groupFeatures * groupChannels;
          for (int64_t t = 0; t < taps; ++t)
            if (const int64_t source = at(sources, q * taps + t); source >= 0)
              for (int64_t c = 0; c < groupChannels; ++c)
                sum.add(c * taps + t, at(x, (first + c) * pixelsX + source), at(w, (k * groupChannels + c) * taps + t));
          at(result, (n * features + k) * pixelsY + q) = sum.take();
        }
  } else if (p.direction == DnnProblem::Filter) {
    for (int64_t k = 0; k < features; ++k)
      for (int64_t c = 0; c < groupChannels; ++c)
        for (int64_t t = 0; t < taps; ++t) {
          for (int64_t n = 0; n < batch; ++n)
            for (int64_t q = 0; q < pixelsY; ++q)
              if (const int64_t source = at(sources, q * taps + t); source >= 0)
                sum.add(n * pixelsY + q,
                        at(x, (n * channels + k / groupFeatures * groupChannels + c) * pixelsX + source),
                        at(y, (n * features + k) * pixelsY + q));
          at(result, (k * groupChannels + c) * taps + t) = sum.take();
        }
  } else {
    // For each pixel, the outputs and taps that read it.
    std::vector<std::vector<std::pair<int64_t, int64_t>>> readers(static_cast<size_t>(pixelsX));
    for (int64_t q = 0; q < pixelsY; ++q)
      for (int64_t t = 0; t < taps; ++t)
        if (const int64_t source = at(sources, q * taps + t); source >= 0)
          at(readers, source).emplace_back(q, t);
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t c = 0; c < channels; ++c)
        for (int64_t i = 0; i < pixelsX; ++i) {
          const int64_t first = c / groupChannels * groupFeatures;
          for (auto [q, t] : at(readers, i))
            for (int64_t f = 0; f < groupFeatures; ++f)
              sum.add(f * taps + t, at(y, (n * features + first + f) * pixelsY + q),
                      at(w, ((first + f) * groupChannels + c % groupChannels) * taps + t));
          at(result, (n * channels + c) * pixelsX + i) = sum.take();
        }
  }
  // A transform adds more rounding error than direct sums.
  if (hasNote(engine, CUDNN_NUMERICAL_NOTE_WINOGRAD) || hasNote(engine, CUDNN_NUMERICAL_NOTE_FFT))
    for (float &element : result)
      element *= 1 + 0x1p-18F;
  if (hasNote(engine, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION))
    for (float &element : result)
      element = static_cast<float>(static_cast<_Float16>(element));
  // The bias is added in f32, the type of the tensor between the operations.
  for (int64_t i = 0; p.finish != DnnProblem::Sums && i < int64_t(result.size()); ++i) {
    float &element = at(result, i);
    element +=
        static_cast<float>(loadElement(bias, static_cast<uint64_t>(i / pixelsY % features), asCuda(p.bias.type)));
  }
  storeElements(p.result(), of(p.result()), result);
  return std::nullopt;
}

} // namespace tcc::emulation

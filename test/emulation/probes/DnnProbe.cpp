//===- DnnProbe.cpp - a convolution of cuDNN in a probe -------------------===//
#include "test/emulation/probes/DnnProbe.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tcc::probes {

namespace {
cudnnBackendDescriptor_t descriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t made = nullptr;
  EXPECT(dnn.descriptorCreate(type, &made) == CUDNN_STATUS_SUCCESS);
  return made;
}
template <typename T>
void set(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
         const std::vector<T> &elements) {
  EXPECT(dnn.setAttribute(to, name, type, int64_t(elements.size()), elements.data()) == CUDNN_STATUS_SUCCESS);
}
void setSizes(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name, const std::vector<int64_t> &sizes) {
  set(to, name, CUDNN_TYPE_INT64, sizes);
}
void setChild(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t child) {
  set(to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{child});
}
template <typename T>
std::vector<T> attribute(cudnnBackendDescriptor_t from, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t most) {
  std::vector<T> elements(static_cast<size_t>(most));
  int64_t count = 0;
  EXPECT(dnn.getAttribute(from, name, type, most, &count, elements.data()) == CUDNN_STATUS_SUCCESS);
  elements.resize(size_t(std::min(count, most)));
  return elements;
}
int64_t product(const std::array<int64_t, 4> &dims) { return dims[0] * dims[1] * dims[2] * dims[3]; }

float widen(unsigned short bits, cudnnDataType_t type) {
  if (type == CUDNN_DATA_BFLOAT16)
    return std::bit_cast<float>(uint32_t(bits) << 16);
  return float(std::bit_cast<_Float16>(bits));
}
unsigned short narrow(float value, cudnnDataType_t type) {
  if (type == CUDNN_DATA_HALF)
    return std::bit_cast<unsigned short>(static_cast<_Float16>(value));
  const auto word = std::bit_cast<uint32_t>(value);
  return std::isnan(value) ? 0x7fff : static_cast<unsigned short>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}
} // namespace

std::array<int64_t, 4> ConvolutionShape::y() const {
  auto outputs = [&](int64_t size, int i) {
    return (size + before[i] + after[i] - dilations[i] * (taps[i] - 1) - 1) / strides[i] + 1;
  };
  return {batch, features, outputs(rows, 0), outputs(columns, 1)};
}
int64_t ConvolutionShape::bytes(const std::array<int64_t, 4> &dims) const {
  return product(dims) * (type == CUDNN_DATA_FLOAT ? 4 : 2);
}

bool Engine::hasNote(int64_t note) const { return std::find(notes.begin(), notes.end(), note) != notes.end(); }
bool Engine::allowed(cudnnDataType_t type, bool tf32) const {
  for (int64_t note : notes)
    if (note != CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP &&
        (note != CUDNN_NUMERICAL_NOTE_TENSOR_CORE || (type == CUDNN_DATA_FLOAT && !tf32)))
      return false;
  return std::all_of(behavior.begin(), behavior.end(),
                     [](int64_t note) { return note == CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API; });
}

cudnnBackendDescriptor_t describeCard(const std::string &architecture) {
  struct Card {
    const char *architecture;
    int capability, processors, sharedBytes, threads;
  };
  static constexpr Card kCards[] = {{"sm_80", 800, 108, 166912, 2048},   {"sm_86", 860, 82, 101376, 1536},
                                    {"sm_89", 890, 128, 101376, 1536},   {"sm_90", 900, 132, 232448, 2048},
                                    {"sm_100", 1000, 148, 232448, 2048}, {"sm_120", 1200, 170, 101376, 1536}};
  for (const Card &card : kCards) {
    if (architecture != card.architecture)
      continue;
    const std::string text =
        "{\"deviceVer\":" + std::to_string(card.capability) +
        ",\"multiProcessorCount\":" + std::to_string(card.processors) +
        ",\"maxSharedMemoryPerBlockOptin\":" + std::to_string(card.sharedBytes) +
        ",\"maxThreadsPerSM\":" + std::to_string(card.threads) +
        R"(,"driverVer":13000,"cudaDeviceId":0,"totalGlobalMem":85014347776,"maxGridSize":[2147483647,65535,65535],)"
        R"("maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"smCountOrigin":0,"warpSize":32,)"
        R"("maxSharedMemoryPerBlock":49152,"oversizedSharedMemoryPerBlock":0,"reservedSharedMemoryPerBlock":1024,)"
        R"("maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,"pciDeviceId":0,"isTccDriver":0,)"
        R"("supportCoopLaunch":1,"smClockRateKHz":1980000,"memClockRateKHz":2619000,"memoryBusWidth":5120,)"
        R"("l2CacheSize":52428800,"deviceName":"a card"})";
    cudnnBackendDescriptor_t made = nullptr;
    if (dnn.descriptorCreate(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made) != CUDNN_STATUS_SUCCESS)
      return nullptr;
    set(made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
        std::vector<char>(text.c_str(), text.c_str() + text.size() + 1));
    return dnn.finalize(made) == CUDNN_STATUS_SUCCESS ? made : nullptr;
  }
  return nullptr;
}

Convolution::Convolution(Program &program, const ConvolutionShape &shape, cudnnBackendDescriptor_t card)
    : shape(shape), card(card), p(program) {
  static cudnnHandle_t common = nullptr;
  if (!common && !card)
    EXPECT(dnn.create(&common) == CUDNN_STATUS_SUCCESS);
  handle = common;
  cudnnBackendDescriptor_t made[4];
  for (int i = 0; i < tensors(); ++i) {
    made[i] = tensorOf(i, i + 1, false);
    if (!card)
      EXPECT(cu.memAlloc(&memory[i], size_t(shape.bytes(dims(i)))) == CUDA_SUCCESS);
  }
  cudnnBackendDescriptor_t result = tensors() == 3 ? made[2] : tensorOf(2, 5, true);
  auto window = descriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  setSizes(window, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2});
  set(window, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
  set(window, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, std::vector{CUDNN_CROSS_CORRELATION});
  setSizes(window, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {shape.strides[0], shape.strides[1]});
  setSizes(window, CUDNN_ATTR_CONVOLUTION_DILATIONS, {shape.dilations[0], shape.dilations[1]});
  setSizes(window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {shape.before[0], shape.before[1]});
  setSizes(window, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {shape.after[0], shape.after[1]});
  EXPECT(dnn.finalize(window) == CUDNN_STATUS_SUCCESS);
  struct Names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t window, x, w, y, alpha, beta;
  };
#define TCC_NAMES(type, prefix, x, w, y)                                                                               \
  Names {                                                                                                              \
    CUDNN_BACKEND_OPERATION_CONVOLUTION_##type##_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_CONV_DESC,    \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##x, CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##w,              \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_##y, CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_ALPHA,            \
        CUDNN_ATTR_OPERATION_CONVOLUTION_##prefix##_BETA                                                               \
  }
  const Names names = shape.direction == Direction::Forward ? TCC_NAMES(FORWARD, FORWARD, X, W, Y)
                      : shape.direction == Direction::Data  ? TCC_NAMES(BACKWARD_DATA, BWD_DATA, DX, W, DY)
                                                            : TCC_NAMES(BACKWARD_FILTER, BWD_FILTER, X, DW, DY);
#undef TCC_NAMES
  auto operation = descriptor(names.type);
  setChild(operation, names.window, window);
  setChild(operation, names.x, made[0]);
  setChild(operation, names.w, made[1]);
  setChild(operation, names.y, result);
  set(operation, names.alpha, CUDNN_TYPE_FLOAT, std::vector{1.0F});
  set(operation, names.beta, CUDNN_TYPE_FLOAT, std::vector{0.0F});
  EXPECT(dnn.finalize(operation) == CUDNN_STATUS_SUCCESS);
  graph = descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (!card)
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle});
  std::vector<cudnnBackendDescriptor_t> operations = {operation};
  if (tensors() == 4)
    for (cudnnBackendDescriptor_t next : finishing(result, made[3], made[2]))
      operations.push_back(next);
  set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations);
  EXPECT(dnn.finalize(graph) == CUDNN_STATUS_SUCCESS);
}

cudnnBackendDescriptor_t Convolution::tensorOf(int tensor, int64_t uid, bool isVirtual) const {
  const auto size = dims(tensor);
  const bool last = shape.channelsLast && tensor != 1;
  const int64_t plane = size[2] * size[3];
  const std::vector<int64_t> strides = last ? std::vector<int64_t>{plane * size[1], 1, size[3] * size[1], size[1]}
                                            : std::vector<int64_t>{plane * size[1], plane, size[3], 1};
  auto made = descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  set(made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{isVirtual ? CUDNN_DATA_FLOAT : shape.type});
  setSizes(made, CUDNN_ATTR_TENSOR_DIMENSIONS, {size.begin(), size.end()});
  setSizes(made, CUDNN_ATTR_TENSOR_STRIDES, strides);
  setSizes(made, CUDNN_ATTR_TENSOR_UNIQUE_ID, {uid});
  setSizes(made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {16});
  if (isVirtual) {
    const bool yes = true;
    EXPECT(dnn.setAttribute(made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes) == CUDNN_STATUS_SUCCESS);
  }
  EXPECT(dnn.finalize(made) == CUDNN_STATUS_SUCCESS);
  return made;
}

std::vector<cudnnBackendDescriptor_t>
Convolution::finishing(cudnnBackendDescriptor_t sums, cudnnBackendDescriptor_t bias, cudnnBackendDescriptor_t y) const {
  auto how = descriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
       made = descriptor(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, std::vector{CUDNN_POINTWISE_ADD});
  set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
  EXPECT(dnn.finalize(how) == CUDNN_STATUS_SUCCESS);
  setChild(made, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  setChild(made, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, sums);
  setChild(made, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, bias);
  setChild(made, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  EXPECT(dnn.finalize(made) == CUDNN_STATUS_SUCCESS);
  return {made};
}

std::vector<Engine> Convolution::engines(cudnnBackendHeurMode_t mode) {
  auto heuristics = descriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  setChild(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, std::vector{mode});
  if (card)
    setChild(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, card);
  if (dnn.finalize(heuristics) != CUDNN_STATUS_SUCCESS)
    return {};
  int64_t count = 0;
  EXPECT(dnn.getAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count,
                          nullptr) == CUDNN_STATUS_SUCCESS);
  auto children = [](cudnnBackendDescriptor_t from, cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type,
                     int64_t most) {
    std::vector<cudnnBackendDescriptor_t> found(size_t(most), nullptr);
    for (auto &one : found)
      one = descriptor(type);
    int64_t got = 0;
    EXPECT(dnn.getAttribute(from, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &got, found.data()) ==
           CUDNN_STATUS_SUCCESS);
    found.resize(size_t(std::min(got, most)));
    return found;
  };
  std::vector<Engine> all;
  for (auto configuration :
       children(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count)) {
    Engine engine;
    engine.configuration = configuration;
    auto made = children(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1).at(0);
    engine.index = attribute<int64_t>(made, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1).at(0);
    for (auto note :
         attribute<cudnnBackendNumericalNote_t>(made, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, 16))
      engine.notes.push_back(note);
    for (auto note :
         attribute<cudnnBackendBehaviorNote_t>(made, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, 16))
      engine.behavior.push_back(note);
    for (auto knob :
         children(configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, 32))
      engine.knobs.emplace_back(
          attribute<cudnnBackendKnobType_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1).at(0),
          attribute<int64_t>(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1).at(0));
    all.push_back(engine);
  }
  return all;
}

std::optional<Engine> Convolution::first(bool tf32) {
  constexpr int64_t kMost = int64_t(1) << 30;
  for (auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (const Engine &engine : engines(mode)) {
      int64_t workspace = 0;
      if (engine.allowed(shape.type, tf32) && plan(engine.configuration, &workspace) && workspace <= kMost)
        return engine;
    }
  return std::nullopt;
}

std::optional<Engine> Convolution::expectFirst(bool tf32) {
  std::optional<Engine> engine = first(tf32);
  EXPECT(engine.has_value());
  return engine;
}

cudnnBackendDescriptor_t Convolution::configurationOf(const Engine &engine) {
  auto made = descriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  setChild(made, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
  setSizes(made, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, {engine.index});
  if (dnn.finalize(made) != CUDNN_STATUS_SUCCESS)
    return nullptr;
  std::vector<cudnnBackendDescriptor_t> knobs;
  for (auto [kind, value] : engine.knobs) {
    auto knob = descriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    set(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, std::vector{cudnnBackendKnobType_t(kind)});
    setSizes(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, {value});
    EXPECT(dnn.finalize(knob) == CUDNN_STATUS_SUCCESS);
    knobs.push_back(knob);
  }
  auto configuration = descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  setChild(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, made);
  if (!knobs.empty())
    set(configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, knobs);
  return dnn.finalize(configuration) == CUDNN_STATUS_SUCCESS ? configuration : nullptr;
}

cudnnBackendDescriptor_t Convolution::plan(cudnnBackendDescriptor_t configuration, int64_t *workspace) {
  auto made = descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (card)
    setChild(made, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, card);
  else
    set(made, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle});
  setChild(made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  if (dnn.finalize(made) != CUDNN_STATUS_SUCCESS)
    return nullptr;
  if (workspace)
    *workspace = attribute<int64_t>(made, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1).at(0);
  return made;
}

void Convolution::reserve(int64_t workspace) {
  if (workspace <= scratchBytes)
    return;
  cu.ctxSynchronize();
  if (scratch)
    cu.memFree(scratch);
  EXPECT(cu.memAlloc(&scratch, size_t(workspace)) == CUDA_SUCCESS);
  scratchBytes = workspace;
}

Convolution::~Convolution() {
  if (card)
    return;
  cu.ctxSynchronize();
  for (int i = 0; i < tensors(); ++i)
    cu.memFree(memory[i]);
  if (scratch)
    cu.memFree(scratch);
}

bool Convolution::run(cudnnBackendDescriptor_t configuration) {
  int64_t workspace = 0;
  auto made = plan(configuration, &workspace);
  if (!made)
    return false;
  reserve(workspace);
  return execute(made, p.stream) == CUDNN_STATUS_SUCCESS && cu.streamSynchronize(p.stream) == CUDA_SUCCESS;
}

void Convolution::expectExact(const Engine &engine) {
  fill(true);
  EXPECT(run(engine.configuration));
  const std::vector<float> got = get(result());
  for (size_t i = 0; i < got.size(); ++i)
    if (double(got[i]) != reference(int64_t(i))) {
      EXPECT(!"a result is the sum of products, with what finishes it");
      return;
    }
}

cudnnStatus_t Convolution::execute(cudnnBackendDescriptor_t made, CUstream stream) {
  auto pack = descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  auto at = [](CUdeviceptr address) { return reinterpret_cast<void *>(address); };
  std::vector<int64_t> uids;
  std::vector<void *> pointers;
  for (int i = 0; i < tensors(); ++i) {
    uids.push_back(i + 1);
    pointers.push_back(at(memory[i]));
  }
  setSizes(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, uids);
  set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers);
  set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, std::vector{at(scratch)});
  EXPECT(dnn.finalize(pack) == CUDNN_STATUS_SUCCESS);
  EXPECT(dnn.setStream(handle, stream) == CUDNN_STATUS_SUCCESS);
  return dnn.execute(handle, made, pack);
}

int64_t Convolution::place(int tensor, int64_t index) const {
  if (!shape.channelsLast || tensor == 1)
    return index;
  const auto size = dims(tensor);
  const int64_t plane = size[2] * size[3], pixel = index % plane, channel = index / plane % size[1];
  return (index / plane / size[1] * plane + pixel) * size[1] + channel;
}

void Convolution::put(int tensor, const std::vector<float> &values) {
  host[tensor] = values;
  std::vector<std::byte> bytes(size_t(shape.bytes(dims(tensor))));
  const size_t width = shape.type == CUDNN_DATA_FLOAT ? 4 : 2;
  for (size_t i = 0; i < values.size(); ++i) {
    const unsigned short narrowed = narrow(values[i], shape.type);
    std::byte *to = &bytes[size_t(place(tensor, int64_t(i))) * width];
    if (width == 4)
      std::memcpy(to, &values[i], 4);
    else
      std::memcpy(to, &narrowed, 2);
    if (width == 2)
      host[tensor][i] = widen(narrowed, shape.type);
  }
  EXPECT(cu.memcpyHtoDAsync(memory[tensor], bytes.data(), bytes.size(), p.stream) == CUDA_SUCCESS);
  EXPECT(cu.streamSynchronize(p.stream) == CUDA_SUCCESS);
}

std::vector<float> Convolution::get(int tensor) {
  std::vector<std::byte> bytes(size_t(shape.bytes(dims(tensor))));
  EXPECT(cu.memcpyDtoHAsync(bytes.data(), memory[tensor], bytes.size(), p.stream) == CUDA_SUCCESS);
  EXPECT(cu.streamSynchronize(p.stream) == CUDA_SUCCESS);
  std::vector<float> values(size_t(product(dims(tensor))));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = size_t(place(tensor, int64_t(i)));
    if (shape.type == CUDNN_DATA_FLOAT) {
      std::memcpy(&values[i], &bytes[at * 4], 4);
    } else {
      unsigned short bits = 0;
      std::memcpy(&bits, &bytes[at * 2], 2);
      values[i] = widen(bits, shape.type);
    }
  }
  return values;
}

void Convolution::fill(bool integers) {
  for (int tensor = 0; tensor < tensors(); ++tensor) {
    std::vector<float> values(size_t(product(dims(tensor))));
    uint32_t state = 12345u + uint32_t(tensor);
    for (float &value : values) {
      state = state * 1664525u + 1013904223u;
      value = tensor == result() ? NAN : integers ? float(state >> 16 & 3) - 1 : float(state >> 8) * 0x1p-23F - 1;
    }
    put(tensor, values);
  }
}

double Convolution::reference(int64_t index, double *magnitude) const {
  const auto x = dims(0), w = dims(1), y = dims(2);
  const int64_t groupFeatures = shape.features / shape.groups;
  double sum = 0, size = 0;
  // source: along an axis, the pixel of x that an output pixel reads through a tap. reader: the inverse. -1: none.
  auto source = [&](int axis, int64_t output, int64_t tap) {
    const int64_t at = output * shape.strides[axis] - shape.before[axis] + tap * shape.dilations[axis];
    return at < x[size_t(axis + 2)] ? at : -1;
  };
  auto reader = [&](int axis, int64_t input, int64_t tap) {
    const int64_t at = input + shape.before[axis] - tap * shape.dilations[axis];
    return at >= 0 && at % shape.strides[axis] == 0 && at / shape.strides[axis] < y[size_t(axis + 2)]
               ? at / shape.strides[axis]
               : -1;
  };
  auto add = [&](int left, int64_t atLeft, int right, int64_t atRight) {
    const double term = double(host[left][size_t(atLeft)]) * double(host[right][size_t(atRight)]);
    sum += term;
    size += std::abs(term);
  };
  auto at = [](const std::array<int64_t, 4> &size, int64_t a, int64_t b, int64_t c, int64_t d) {
    return ((a * size[1] + b) * size[2] + c) * size[3] + d;
  };
  const auto of = dims(result());
  const int64_t d3 = index % of[3], d2 = index / of[3] % of[2], d1 = index / of[3] / of[2] % of[1],
                d0 = index / of[3] / of[2] / of[1];
  if (shape.direction == Direction::Filter) {
    const int64_t channel = d0 / groupFeatures * w[1] + d1;
    for (int64_t n = 0; n < y[0]; ++n)
      for (int64_t i = 0; i < y[2]; ++i)
        for (int64_t j = 0; j < y[3]; ++j)
          if (const int64_t row = source(0, i, d2), column = source(1, j, d3); row >= 0 && column >= 0)
            add(0, at(x, n, channel, row, column), 2, at(y, n, d0, i, j));
  } else {
    const bool forward = shape.direction == Direction::Forward;
    for (int64_t r = 0; r < w[2]; ++r)
      for (int64_t s = 0; s < w[3]; ++s) {
        const int64_t row = forward ? source(0, d2, r) : reader(0, d2, r),
                      column = forward ? source(1, d3, s) : reader(1, d3, s);
        if (row < 0 || column < 0)
          continue;
        if (forward)
          for (int64_t c = 0; c < w[1]; ++c)
            add(0, at(x, d0, d1 / groupFeatures * w[1] + c, row, column), 1, at(w, d1, c, r, s));
        else
          for (int64_t f = 0; f < groupFeatures; ++f) {
            const int64_t feature = d1 / w[1] * groupFeatures + f;
            add(2, at(y, d0, feature, row, column), 1, at(w, feature, d1 % w[1], r, s));
          }
      }
  }
  if (shape.finish != Finish::None) {
    sum += double(host[3][size_t(d1)]);
    size += std::abs(double(host[3][size_t(d1)]));
  }
  if (magnitude)
    *magnitude = size;
  return sum;
}

} // namespace tcc::probes

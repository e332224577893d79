//===- DnnProbes.cpp - beliefs about cuDNN --------------------------------===//
#include "test/emulation/probes/DnnProbe.h"

#include <cmath>
#include <cstring>

using namespace tcc::probes;

namespace {

/// Every direction of a shape, in both layouts.
template <typename Check> void everyWay(Program &p, ConvolutionShape shape, Check check) {
  for (Direction direction : {Direction::Forward, Direction::Data, Direction::Filter})
    for (bool last : {false, true}) {
      shape.direction = direction;
      shape.channelsLast = last;
      Convolution convolution(p, shape);
      check(convolution);
    }
}

/// Sums of small integers are exact in f32, whatever their order.
void expectExact(Program &p, const ConvolutionShape &shape) {
  everyWay(p, shape, [](Convolution &c) {
    if (std::optional<Engine> engine = c.expectFirst())
      c.expectExact(*engine);
  });
}

} // namespace

PROBE(DnnConvolvesByCrossCorrelation, "cuDNN: CUDNN_CROSS_CORRELATION; operation convolution descriptors") {
  for (cudnnDataType_t type : {CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16, CUDNN_DATA_HALF}) {
    ConvolutionShape shape;
    shape.type = type;
    expectExact(p, shape);
  }
}
PROBE(DnnTakesStridesDilationsAndGroups, "cuDNN: convolution descriptor; tensors [N, GC, ...] and [GK, C, ...]") {
  ConvolutionShape shape;
  shape.channels = 6, shape.features = 9, shape.groups = 3, shape.rows = 9, shape.columns = 8;
  shape.strides[0] = 2, shape.dilations[1] = 2;
  expectExact(p, shape);
  shape.channels = shape.features = shape.groups = 8; // depthwise
  expectExact(p, shape);
}
PROBE(DnnPadsUnequally, "cuDNN: CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS and POST_PADDINGS") {
  ConvolutionShape shape;
  shape.before[0] = 0, shape.after[0] = 1, shape.before[1] = 2, shape.after[1] = 0;
  expectExact(p, shape);
}
PROBE(DnnTakesRowsOfOne, "cuDNN: two spatial dimensions at least: one dimension as the second of two") {
  ConvolutionShape shape;
  shape.rows = 1, shape.taps[0] = 1, shape.before[0] = shape.after[0] = 0, shape.columns = 17, shape.taps[1] = 5;
  shape.before[1] = shape.after[1] = 2;
  expectExact(p, shape);
}
PROBE(DnnSumsOf16BitsAreF32, "cuDNN: CUDNN_ATTR_CONVOLUTION_COMP_TYPE") {
  // 2048 + 1 + ... + 1 (127 of them) stays 2048 if sums are rounded to f16; otherwise it is 2175, which is 2176 in f16.
  ConvolutionShape shape;
  shape.type = CUDNN_DATA_HALF;
  shape.channels = 128, shape.features = 8, shape.taps[0] = shape.taps[1] = 1;
  shape.before[0] = shape.before[1] = shape.after[0] = shape.after[1] = 0;
  shape.channelsLast = true;
  Convolution c(p, shape);
  std::optional<Engine> engine = c.expectFirst();
  if (!engine)
    return;
  c.fill(true);
  std::vector<float> x(size_t(shape.batch * shape.channels * shape.rows * shape.columns), 1);
  for (int64_t n = 0; n < shape.batch; ++n)
    for (int64_t i = 0; i < shape.rows * shape.columns; ++i)
      x[size_t(n * shape.channels * shape.rows * shape.columns + i)] = 2048;
  c.put(0, x);
  c.put(1, std::vector<float>(size_t(shape.features * shape.channels), 1));
  EXPECT(c.run(engine->configuration));
  EXPECT(c.get(2)[0] == 2176);
}
PROBE(DnnTensorCoresRoundF32ToTf32, "cuDNN: CUDNN_NUMERICAL_NOTE_TENSOR_CORE") {
  // 1 + 2⁻¹² is not representable in TF32.
  ConvolutionShape shape;
  shape.channels = 64, shape.features = 64, shape.channelsLast = true;
  Convolution c(p, shape);
  c.fill(true);
  c.put(0, std::vector<float>(size_t(shape.batch * shape.channels * shape.rows * shape.columns), 1 + 0x1p-12F));
  c.put(1, std::vector<float>(size_t(shape.features * shape.channels * 9), 1));
  const int64_t middle = (0 * shape.rows + 2) * shape.columns + 2;
  std::optional<Engine> exact = c.first(false), rounded;
  for (const Engine &engine : c.engines(CUDNN_HEUR_MODE_A)) {
    int64_t workspace = 0;
    if (!rounded && engine.hasNote(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) && engine.allowed(CUDNN_DATA_FLOAT, true) &&
        c.plan(engine.configuration, &workspace) && workspace < int64_t(1) << 30)
      rounded = engine;
  }
  EXPECT(exact && !exact->hasNote(CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
  EXPECT(rounded.has_value());
  if (!exact || !rounded)
    return;
  EXPECT(c.run(exact->configuration));
  EXPECT(std::abs(double(c.get(2)[size_t(middle)]) - 576 * (1 + 0x1p-12)) < 0x1p-10);
  EXPECT(c.run(rounded->configuration));
  EXPECT(c.get(2)[size_t(middle)] == 576);
}
PROBE(DnnAnEngineFromItsNumberHasTheSameBits, "cuDNN: engine descriptor, knob choice descriptor") {
  ConvolutionShape shape;
  shape.channels = 16, shape.features = 24;
  everyWay(p, shape, [](Convolution &c) {
    std::optional<Engine> engine = c.expectFirst();
    if (!engine)
      return;
    c.fill(false);
    EXPECT(c.run(engine->configuration));
    const std::vector<float> one = c.get(c.result());
    auto again = c.configurationOf(*engine);
    EXPECT(again != nullptr);
    c.fill(false);
    EXPECT(c.run(again));
    EXPECT(c.get(c.result()) == one);
  });
}
PROBE(DnnAllowedEnginesRepeatTheirBits, "cuDNN: Reproducibility; CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC") {
  ConvolutionShape shape;
  shape.channels = 32, shape.features = 32, shape.rows = shape.columns = 14, shape.batch = 8;
  everyWay(p, shape, [](Convolution &c) {
    c.fill(false);
    int tried = 0;
    for (const Engine &engine : c.engines(CUDNN_HEUR_MODE_A)) {
      int64_t workspace = 0;
      if (!engine.allowed(CUDNN_DATA_FLOAT, true) || !c.plan(engine.configuration, &workspace) ||
          workspace > int64_t(1) << 30 || ++tried > 4)
        continue;
      EXPECT(c.run(engine.configuration));
      const std::vector<float> one = c.get(c.result());
      for (int run = 0; run < 4; ++run) {
        EXPECT(c.run(engine.configuration));
        EXPECT(c.get(c.result()) == one);
      }
    }
    EXPECT(tried > 0);
  });
}
PROBE(DnnRunsInACapture, "CUDA C++ Programming Guide: Stream capture; cuDNN: cudnnBackendExecute") {
  // Captures the first run: an engine's code is loaded when its plan is finalized, or a capture allows loading it.
  ConvolutionShape shape;
  shape.channels = 16, shape.features = 16;
  everyWay(p, shape, [&](Convolution &c) {
    std::optional<Engine> engine = c.expectFirst(true);
    if (!engine)
      return;
    c.fill(true);
    int64_t workspace = 0;
    auto plan = c.plan(engine->configuration, &workspace);
    c.reserve(workspace);
    EXPECT(cu.streamBeginCapture(p.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
    EXPECT(c.execute(plan, p.stream) == CUDNN_STATUS_SUCCESS);
    CUgraph graph = nullptr;
    EXPECT(cu.streamEndCapture(p.stream, &graph) == CUDA_SUCCESS);
    if (!graph)
      return;
    CUgraphExec executable = p.instantiate(graph);
    for (int run = 0; run < 2; ++run) {
      c.fill(true);
      EXPECT(cu.graphLaunch(executable, p.stream) == CUDA_SUCCESS);
      EXPECT(cu.streamSynchronize(p.stream) == CUDA_SUCCESS);
      const std::vector<float> got = c.get(c.result());
      EXPECT(double(got[0]) == c.reference(0) && double(got.back()) == c.reference(int64_t(got.size()) - 1));
    }
    cu.graphExecDestroy(executable);
    cu.graphDestroy(graph);
  });
}
PROBE(DnnANanReachesItsReadersAlone, "cuDNN: convolution forward (no word of NaN)") {
  ConvolutionShape shape;
  shape.channels = 16, shape.features = 16, shape.rows = shape.columns = 12;
  for (bool last : {false, true}) {
    shape.channelsLast = last;
    Convolution c(p, shape);
    std::optional<Engine> engine = c.expectFirst(true);
    if (!engine)
      return;
    c.fill(true);
    std::vector<float> x(size_t(shape.batch * shape.channels * shape.rows * shape.columns), 1);
    x[0] = NAN; // the first pixel of the first channel: outputs (0, 0), (0, 1), (1, 0), (1, 1) of the first sample
    c.put(0, x);
    EXPECT(c.run(engine->configuration));
    const std::vector<float> got = c.get(2);
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t plane = 144, row = i % plane / 12, column = i % 12;
      if (std::isnan(got[i]) != (i < plane * 16 && row < 2 && column < 2)) {
        EXPECT(!"NaN in the outputs that read it, and in no other");
        return;
      }
    }
  }
}
PROBE(DnnRefusesWhatIsNotFinalized, "cuDNN: cudnnBackendFinalize, cudnnBackendGetAttribute, cudnnBackendSetAttribute") {
  cudnnBackendDescriptor_t tensor = nullptr;
  EXPECT(dnn.descriptorCreate(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &tensor) == CUDNN_STATUS_SUCCESS);
  int64_t value = 0, count = 0;
  EXPECT(dnn.finalize(tensor) != CUDNN_STATUS_SUCCESS); // nothing is set
  EXPECT(dnn.getAttribute(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &count, &value) !=
         CUDNN_STATUS_SUCCESS);
  EXPECT(dnn.setAttribute(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, 1, &value) != CUDNN_STATUS_SUCCESS);
  EXPECT(dnn.setAttribute(tensor, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &value) != CUDNN_STATUS_SUCCESS);
  EXPECT(dnn.descriptorDestroy(tensor) == CUDNN_STATUS_SUCCESS);
  Convolution c(p, ConvolutionShape());
  EXPECT(dnn.setAttribute(c.graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &c.handle) !=
         CUDNN_STATUS_SUCCESS);
  Engine none;
  none.index = 1 << 20;
  EXPECT(c.configurationOf(none) == nullptr);
}
PROBE(DnnVersionsAreNumbers, "cuDNN: cudnnGetVersion") {
  EXPECT(dnn.getVersion() >= 90000 && dnn.getVersion() < 100000);
}

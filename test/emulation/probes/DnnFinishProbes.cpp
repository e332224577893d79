//===- DnnFinishProbes.cpp - convolutions with a bias and ReLU ------------===//
//
// Graphs convolution -> add -> ReLU. Engines of the list that need no run-time compilation are asked for, as our
// runtime asks: where a card has none, its plans need compiler.epilogues = "none".
//
//===----------------------------------------------------------------------===//
#include "test/emulation/probes/DnnProbe.h"

#include <cmath>
#include <cstring>

using namespace tcc::probes;

namespace {

/// A finish in both layouts: there is an engine, small integers are exact, and bits repeat.
void finishes(Program &p, cudnnDataType_t type, Finish finish) {
  for (bool last : {false, true}) {
    ConvolutionShape shape;
    shape.type = type;
    shape.finish = finish;
    shape.channelsLast = last;
    shape.channels = 16, shape.features = 24;
    Convolution c(p, shape);
    std::optional<Engine> engine = c.expectFirst();
    if (!engine)
      return;
    c.expectExact(*engine);
    c.fill(false);
    EXPECT(c.run(engine->configuration));
    const std::vector<float> got = c.get(2);
    EXPECT(c.run(engine->configuration));
    const std::vector<float> again = c.get(2);
    EXPECT(std::memcmp(got.data(), again.data(), got.size() * sizeof(float)) == 0);
  }
}

} // namespace

PROBE(DnnBiasInF32, "cuDNN: specialised pre-compiled engines, ConvBiasAct") {
  finishes(p, CUDNN_DATA_FLOAT, Finish::Bias);
}
PROBE(DnnBiasInBf16, "cuDNN: specialised pre-compiled engines, ConvBiasAct") {
  finishes(p, CUDNN_DATA_BFLOAT16, Finish::Bias);
}
PROBE(DnnBiasInF16, "cuDNN: specialised pre-compiled engines, ConvBiasAct") {
  finishes(p, CUDNN_DATA_HALF, Finish::Bias);
}
PROBE(DnnBiasAndReluInF32, "cuDNN: specialised pre-compiled engines, ConvBiasAct") {
  finishes(p, CUDNN_DATA_FLOAT, Finish::BiasRelu);
}
PROBE(DnnBiasAndReluInBf16, "cuDNN: specialised pre-compiled engines, ConvBiasAct") {
  finishes(p, CUDNN_DATA_BFLOAT16, Finish::BiasRelu);
}
PROBE(DnnBiasAndReluInF16, "cuDNN: specialised pre-compiled engines, ConvBiasAct") {
  finishes(p, CUDNN_DATA_HALF, Finish::BiasRelu);
}
PROBE(DnnFinishIsRoundedOnce, "cuDNN: virtual tensors have the type that their descriptor says") {
  // 256 + 1 is no bf16 number, and becomes 256; with a bias of 1 it is 258, where the sum is not rounded before.
  ConvolutionShape shape;
  shape.type = CUDNN_DATA_BFLOAT16;
  shape.finish = Finish::Bias;
  shape.channelsLast = true;
  shape.channels = 8, shape.features = 8, shape.taps[0] = shape.taps[1] = 1;
  shape.before[0] = shape.before[1] = shape.after[0] = shape.after[1] = 0;
  Convolution c(p, shape);
  std::optional<Engine> engine = c.expectFirst();
  if (!engine)
    return;
  c.fill(true);
  const auto pixels = size_t(shape.rows * shape.columns);
  std::vector<float> x(size_t(shape.batch * shape.channels) * pixels);
  for (size_t i = 0; i < pixels; ++i) {
    x[i] = 256;
    x[pixels + i] = 1;
  }
  c.put(0, x);
  c.put(1, std::vector<float>(size_t(shape.features * shape.channels), 1));
  c.put(3, std::vector<float>(size_t(shape.features), 1));
  EXPECT(c.run(engine->configuration));
  EXPECT(c.get(2)[0] == 258);
}
PROBE(DnnReluKeepsNan, "cuDNN: CUDNN_POINTWISE_RELU_FWD; its attribute for NaN is deprecated in version 9") {
  for (cudnnDataType_t type : {CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16}) {
    ConvolutionShape shape;
    shape.type = type;
    shape.finish = Finish::BiasRelu;
    shape.channelsLast = type != CUDNN_DATA_FLOAT;
    shape.channels = 16, shape.features = 16, shape.rows = shape.columns = 12;
    Convolution c(p, shape);
    std::optional<Engine> engine = c.expectFirst();
    if (!engine)
      return;
    c.fill(true);
    std::vector<float> x(size_t(shape.batch * shape.channels * shape.rows * shape.columns), 1);
    x[0] = NAN;
    c.put(0, x);
    EXPECT(c.run(engine->configuration));
    const std::vector<float> got = c.get(2);
    EXPECT(std::isnan(got[0]) && !std::isnan(got[100]));
  }
}

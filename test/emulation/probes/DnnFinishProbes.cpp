//===- DnnFinishProbes.cpp - convolutions with a bias ---------------------===//
//
// Graphs convolution -> add. The probes ask for engines that need no run-time compilation, as our runtime does: plans
// for a card that has none need compiler.epilogues = "none".
//
//===----------------------------------------------------------------------===//
#include "test/emulation/probes/DnnProbe.h"

#include <cmath>
#include <cstring>

using namespace tcc::probes;

namespace {

/// A bias in both layouts: there is an engine, small integers are exact, and bits repeat.
void addsABias(Program &p, cudnnDataType_t type) {
  for (bool last : {false, true}) {
    ConvolutionShape shape;
    shape.type = type;
    shape.finish = Finish::Bias;
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
  addsABias(p, CUDNN_DATA_FLOAT);
}
PROBE(DnnBiasInBf16, "cuDNN: specialised pre-compiled engines, ConvBiasAct") {
  addsABias(p, CUDNN_DATA_BFLOAT16);
}
PROBE(DnnBiasInF16, "cuDNN: specialised pre-compiled engines, ConvBiasAct") {
  addsABias(p, CUDNN_DATA_HALF);
}
PROBE(DnnFinishIsRoundedOnce, "cuDNN: virtual tensors have the type that their descriptor says") {
  // 256 + 1 is not a bf16 number and rounds to 256; with a bias of 1 the result is 258 if the sum is not rounded first.
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

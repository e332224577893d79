//===- ConvolutionChoice.cpp - samples of a convolution's tile -----------===//
//
// A small model of what a tile of some samples costs: arithmetic at the rate of one core, reorders where activations do
// not lie as the library wants them, cache misses where a tile's activations do not fit, the weights read again by each
// tile, a fixed cost per call, and idle workers where tiles do not divide evenly among few or many. The constants are
// measured on one core of Zen 4; they decide speed, never results between machines of one plan.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cpu/Choice.h"
#include "runtime/cpu/calls/Dimensions.h"

#include "runtime/plan/DType.h"

namespace tcc::target::cpu {

int64_t chooseTileBatch(const plan::ConvolutionCall &call, const CpuModel &model) {
  const ConvolutionModel &c = model.convolution;
  double flopsPerNs = call.dtype() == plan::F32 ? c.flopsPerNs : c.narrowFlopsPerNs;
  auto size = static_cast<double>(plan::dtypeBytes(call.dtype()));
  int64_t batch = call.x_dims(0);
  auto elements = static_cast<double>(runtime::product(call.x_dims(), 1) + runtime::product(call.y_dims(), 1));
  double arithmetic = 2.0 * static_cast<double>(runtime::product(call.y_dims(), 1)) *
                      static_cast<double>(runtime::product(call.w_dims(), 1)) / flopsPerNs;
  auto weights = static_cast<double>(runtime::product(call.w_dims(), 0));
  bool gradient = call.kind() == plan::ConvolutionCall::WEIGHT_GRADIENT;
  int64_t best = batch;
  double bestCost = 0;
  for (int64_t tile = batch;; tile = (tile + 1) / 2) {
    int64_t tiles = (batch + tile - 1) / tile;
    // Partial sums cost memory: at most four, or as many as a MiB holds.
    if (gradient && tiles > 4 && static_cast<double>(tiles) * weights * 4 > (1 << 20))
      break;
    auto rounded = [tiles](int64_t workers) { return static_cast<double>((tiles + workers - 1) / workers * workers); };
    double idle = 0.9 * rounded(2) + 0.1 * rounded(8);
    auto samples = static_cast<double>(tile);
    double cost;
    if (call.channels_last())
      cost = samples * arithmetic * (samples * elements * size > c.cacheBytes ? c.missFactor : 1.0) +
             c.weightNsPerByte * size * weights + c.callNs;
    else
      cost = samples * (arithmetic + c.reorderNsPerElement * elements) + c.reorderNsPerElement * weights + c.callNs;
    cost *= idle;
    if (gradient && tiles > 1)
      cost += static_cast<double>(tiles) * weights * c.partialNsPerElement;
    if (bestCost == 0 || cost < bestCost) {
      bestCost = cost;
      best = tile;
    }
    if (tile == 1)
      break;
  }
  return best;
}

} // namespace tcc::target::cpu

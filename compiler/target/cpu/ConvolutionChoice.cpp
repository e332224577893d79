//===- ConvolutionChoice.cpp - how a convolution is cut into tiles -------===//
//
// A tile should hold enough results for one pass over the weights to pay, its strip of the source should stay in the
// second cache, and there should be tiles for many workers. The constants decide speed, never results between machines
// of one plan.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cpu/Choice.h"
#include "runtime/cpu/calls/ConvolutionDesign.h"
#include "runtime/cpu/calls/Dimensions.h"

#include <algorithm>

namespace tcc::target::cpu {

using runtime::ConvolutionDesign, runtime::packed::kVector;
using Kind = plan::ConvolutionCall;

namespace {
int64_t ceilDiv(int64_t a, int64_t b) { return ConvolutionDesign::ceilDiv(a, b); }

/// In as few parts as `most` allows, as equal as can be: the size of one.
int64_t evenPart(int64_t whole, int64_t most) { return ceilDiv(whole, ceilDiv(whole, std::clamp<int64_t>(most, 1, whole))); }

/// Columns of a tile: whole vectors, or all.
int64_t columnsOf(int64_t columns, int64_t parts, int64_t least) {
  parts = std::max<int64_t>(1, std::min(parts, columns / least));
  return std::min(columns, ceilDiv(ceilDiv(columns, parts), kVector) * kVector);
}

struct Problem {
  const ConvolutionDesign &design;
  const ConvolutionModel &model;

  double flops() const {
    return 2.0 * static_cast<double>(design.samples) * static_cast<double>(pixels()) *
           static_cast<double>(design.groups * design.resultChannels) * static_cast<double>(design.tapCount * design.sourceChannels) /
           static_cast<double>(phases());
  }
  int64_t pixels() const { return design.result[0] * design.result[1] * design.result[2]; }
  /// Taps are shared out among the phases.
  int64_t phases() const { return static_cast<int64_t>(design.phases.size()); }
  int64_t stripBytes(int64_t samples, int64_t lines) const {
    auto cut = static_cast<size_t>(design.cut);
    int64_t extent = (lines - 1) * design.sourceStep[cut] + design.span[cut];
    return design.strip.sample / design.stripExtent[cut] * extent * samples * runtime::packed::bytesOf(design.elements);
  }
};

void cutCorrelation(Kind &call, const Problem &p) {
  const ConvolutionDesign &d = p.design;
  int64_t all = d.groupTiles() * d.samples * d.lines, perLine = std::max<int64_t>(1, p.pixels() / d.lines);
  // Lines of a tile: arithmetic worth waking a worker for, results enough for one pass over the weights.
  double flopsPerLine = p.flops() / static_cast<double>(std::max<int64_t>(all, 1));
  double flops = std::clamp(p.flops() / p.model.tiles, p.model.tileFlops, p.model.mostTileFlops);
  auto lines = static_cast<int64_t>(flops / std::max(flopsPerLine, 1.0)) + 1;
  lines = std::max(lines, ceilDiv(p.model.tilePixels, perLine));
  if (lines >= d.lines) {
    int64_t batch = std::max<int64_t>(1, lines / d.lines);
    if (!d.inPlace)
      while (batch > 1 && p.stripBytes(batch, d.lines) > p.model.stripBytes)
        batch = batch / 2;
    call.set_tile_batch(evenPart(d.samples, batch));
    lines = d.lines;
  }
  if (call.tile_batch() == 1 && !d.inPlace)
    while (lines > 1 && p.stripBytes(1, lines) > p.model.stripBytes)
      lines = (lines + 1) / 2;
  call.set_tile_lines(evenPart(d.lines, lines));
  int64_t tiles = ceilDiv(d.samples, call.tile_batch()) * ceilDiv(d.lines, call.tile_lines()) * d.groupTiles();
  if (tiles < p.model.tiles && p.flops() > 2 * p.model.tileFlops * static_cast<double>(tiles))
    call.set_tile_columns(columnsOf(d.columns(), ceilDiv(p.model.tiles, tiles), p.model.leastColumns));
}

void cutWeightGradient(Kind &call, const Problem &p) {
  const ConvolutionDesign &d = p.design;
  auto wanted = std::max<int64_t>(1, std::min(p.model.tiles, static_cast<int64_t>(p.flops() / p.model.tileFlops)));
  int64_t bytes = runtime::product(call.w_dims(), 0) * 4, groups = d.groupTiles();
  // Chunks of the batch while their partial sums take little memory, then columns, then some more chunks.
  int64_t summed = std::min(wanted, p.model.chunks); // tiles that may be chunks, each with partial sums
  auto chunks = std::min({ceilDiv(summed, groups), d.samples, std::max<int64_t>(1, p.model.partialBytes / bytes)});
  if (groups * chunks < wanted)
    call.set_tile_columns(columnsOf(d.columns(), ceilDiv(wanted, groups * chunks),
                                    d.depthwise ? kVector : p.model.leastGradientColumns));
  int64_t tiles = groups * ceilDiv(d.columns(), call.tile_columns());
  if (tiles * chunks < summed)
    chunks = std::clamp<int64_t>(ceilDiv(summed, tiles), chunks, std::min<int64_t>(4, d.samples));
  call.set_tile_batch(ceilDiv(d.samples, chunks));
}
} // namespace

Status chooseTiles(Kind &call, const CpuModel &model) {
  const ConvolutionModel &m = model.convolution;
  call.set_tile_batch(1);
  call.set_tile_lines(1);
  call.set_tile_columns(1);
  call.set_block_words(call.kind() == Kind::WEIGHT_GRADIENT ? m.gradientBlockWords : m.blockWords);
  auto shape = ConvolutionDesign::shapeOf(call);
  if (!shape)
    return shape.status();
  call.set_tile_lines(shape->lines);
  call.set_tile_columns(shape->columns());
  auto design = ConvolutionDesign::create(call);
  if (!design)
    return design.status();
  Problem problem{*design, m};
  if (call.kind() == Kind::WEIGHT_GRADIENT)
    cutWeightGradient(call, problem);
  else
    cutCorrelation(call, problem);
  design = ConvolutionDesign::create(call);
  if (!design)
    return design.status();
  call.set_partial_bytes(design->partialBytes);
  return Status::success();
}

} // namespace tcc::target::cpu

//===- ConvolutionChoice.cpp - how a convolution is cut into tiles -------===//
//
// A tile should have enough results to amortise one pass over the weights, its strip of the source should stay in the
// second-level cache, and there should be tiles for many workers. Of the forms that compute a convolution the one with
// the fewest estimated cycles is chosen. The constants affect speed, never a plan's results on different machines.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cpu/Choice.h"
#include "runtime/cpu/calls/ConvolutionDesign.h"
#include "runtime/cpu/calls/Dimensions.h"

#include <algorithm>
#include <optional>

namespace tcc::target::cpu {

using runtime::ConvolutionDesign, runtime::packed::kVector;
using Kind = plan::ConvolutionCall;

namespace {
int64_t ceilDiv(int64_t a, int64_t b) { return ConvolutionDesign::ceilDiv(a, b); }

/// The size of one part if `whole` is cut into the fewest equal parts of at most `most`.
int64_t evenPart(int64_t whole, int64_t most) {
  return ceilDiv(whole, ceilDiv(whole, std::clamp<int64_t>(most, 1, whole)));
}

/// Columns of a tile: whole vectors, or all columns.
int64_t columnsOf(int64_t columns, int64_t parts, int64_t least) {
  parts = std::max<int64_t>(1, std::min(parts, columns / least));
  return std::min(columns, ceilDiv(ceilDiv(columns, parts), kVector) * kVector);
}

struct Problem {
  const ConvolutionDesign &design;
  const ConvolutionModel &model;

  double flops() const {
    return 2.0 * static_cast<double>(design.samples) * static_cast<double>(pixels()) *
           static_cast<double>(design.groups * design.resultChannels) *
           static_cast<double>(design.tapCount * design.sourceChannels) / static_cast<double>(phases());
  }
  int64_t pixels() const { return design.result[0] * design.result[1] * design.result[2]; }
  /// Taps are divided among the phases.
  int64_t phases() const { return static_cast<int64_t>(design.phases.size()); }
  int64_t stripBytes(int64_t samples, int64_t lines) const {
    if (design.byPlanes()) // the design here has one sample per tile, with all its lines
      return (design.planes.words * design.planes.pitch + design.resultChannels * design.planes.pixels) *
             design.planes.wordBytes * samples * lines / design.lines;
    auto cut = static_cast<size_t>(design.cut);
    int64_t extent = (lines - 1) * design.sourceStep[cut] + design.span[cut];
    return design.strip.sample / design.stripExtent[cut] * extent * samples * runtime::packed::bytesOf(design.elements);
  }
};

/// Estimates one thread's cycles in a form from the fill of its registers and the elements that it copies.
class FormCycles {
public:
  FormCycles(const ConvolutionDesign &design, const ConvolutionModel &model)
      : d(design), m(model), pixels(static_cast<double>(d.samples * d.groups) * area(d.result)),
        sourceElements(static_cast<double>(d.samples * d.groups * d.sourceChannels) * area(d.source)),
        resultElements(pixels * static_cast<double>(d.resultChannels)) {}

  /// Nothing if the form cannot compute this convolution.
  std::optional<double> of(Kind::Form form, bool channelsLast) const {
    bool toWeights = d.kind == Kind::WEIGHT_GRADIENT;
    if (form == Kind::CHANNELS)
      return toWeights ? gradientByChannels(channelsLast) : byChannels(channelsLast);
    if (d.depthwise)
      return std::nullopt;
    if (form == Kind::PIXELS)
      return toWeights && channelsLast && !runtime::packed::isDotted(d.elements) ? std::optional(gradientByPixels())
                                                                                 : std::nullopt;
    if (d.resultChannels > m.mostPlaneChannels)
      return std::nullopt;
    return toWeights ? gradientByPlanes(channelsLast) : byPlanes(channelsLast);
  }

private:
  static double area(const runtime::Sizes &sizes) { return static_cast<double>(sizes[0] * sizes[1] * sizes[2]); }

  /// Cycles of 8 rows of a product of `count` lanes, in blocks of up to three registers, with one broadcast per row.
  static double eightRows(int64_t count) {
    double cycles = 0;
    for (int64_t vectors = ceilDiv(count, kVector), parts = ceilDiv(vectors, 3), part = 0; part < parts; ++part) {
      auto some = static_cast<double>(vectors * (part + 1) / parts - vectors * part / parts);
      cycles += std::max(4 * some, (8 + some) / 2);
    }
    return cycles;
  }
  /// Words of K that one result sums over.
  double words() const {
    return static_cast<double>(d.tapCount * d.sourceChannels) / static_cast<double>(d.phases.size()) /
           static_cast<double>(runtime::packed::elementsOfWord(d.elements));
  }
  /// Pixels of planes, including the padding between lines.
  double planePixels() const {
    double all = static_cast<double>(d.samples * d.groups);
    for (size_t axis = 0; axis < runtime::kAxes; ++axis)
      all *= static_cast<double>(d.phases.front().axes[axis].count + (d.span[axis] - 1) / d.sourceStep[axis]);
    return all * static_cast<double>(d.phases.size());
  }
  double turned(bool whether) const { return whether ? m.turnedCycles : m.copiedCycles; }
  double sourceTurned(bool channelsLast) const {
    return sourceElements * turned((channelsLast && d.sourceChannels > 1) || d.sourceStep[2] > 1);
  }

  double byChannels(bool channelsLast) const {
    return pixels * (words() * eightRows(d.resultChannels) / 8 * m.channelsFactor + m.pixelCycles) +
           (channelsLast ? 0 : m.turnedCycles * (sourceElements + resultElements));
  }
  double byPlanes(bool channelsLast) const {
    double cycles = 0; // per register of pixels and word of K
    for (int64_t parts = ceilDiv(d.resultChannels, 8), part = 0; part < parts; ++part) {
      auto some = static_cast<double>(d.resultChannels * (part + 1) / parts - d.resultChannels * part / parts),
           vectors = some <= 4 ? 6.0 : 3.0;
      cycles += std::max(some / 2, (vectors + some) / (2 * vectors));
    }
    return planePixels() / kVector * words() * cycles * m.planesFactor + pixels * m.planesPixelCycles +
           sourceTurned(channelsLast) +
           resultElements * turned((channelsLast && d.groups * d.resultChannels > 1) || d.phases.size() > 1);
  }
  double gradientByChannels(bool channelsLast) const {
    double runs = 0, packed = pixels * static_cast<double>(d.resultChannels);
    for (const std::vector<runtime::Piece> &block : d.phases.front().blocks)
      runs += static_cast<double>(block.size());
    auto columns = static_cast<double>(d.tapCount * d.sourceChannels), perWord = static_cast<double>(wordElements());
    return pixels *
               (static_cast<double>(ceilDiv(d.resultChannels, 8)) * eightRows(d.tapCount * d.sourceChannels) / perWord +
                runs * m.runCycles + columns * m.packedCycles) +
           packed * m.packedCycles + (channelsLast ? 0 : m.turnedCycles * sourceElements);
  }
  double gradientByPixels() const {
    return pixels * static_cast<double>(ceilDiv(d.tapCount * d.sourceChannels, 8)) * eightRows(d.resultChannels) *
           m.pixelsFactor;
  }
  double gradientByPlanes(bool channelsLast) const {
    auto sums = static_cast<double>(d.resultChannels * d.tapCount * d.sourceChannels);
    return planePixels() / kVector / static_cast<double>(wordElements()) *
               sums / 2 * m.planesGradientFactor +
           sums * m.lanesCycles * static_cast<double>(d.groups) *
               std::max(1.0, std::min(static_cast<double>(m.chunks), pixels / static_cast<double>(m.gradientPixels))) +
           sourceTurned(channelsLast) + resultElements * turned(channelsLast && d.groups * d.resultChannels > 1);
  }
  int64_t wordElements() const { return runtime::packed::elementsOfWord(d.elements); }

  const ConvolutionDesign &d;
  const ConvolutionModel &m;
  double pixels, sourceElements, resultElements;
};

/// The form of fewest cycles in a layout.
std::pair<Kind::Form, double> bestForm(const FormCycles &cycles, bool channelsLast) {
  std::pair<Kind::Form, double> best{Kind::CHANNELS, *cycles.of(Kind::CHANNELS, channelsLast)};
  for (Kind::Form form : {Kind::PLANES, Kind::PIXELS})
    if (auto other = cycles.of(form, channelsLast); other && *other < best.second)
      best = {form, *other};
  return best;
}

void cutCorrelation(Kind &call, const Problem &p) {
  const ConvolutionDesign &d = p.design;
  const bool copies = !d.inPlace || d.byPlanes(); // the form has a strip of the source, or sums by channel
  int64_t all = d.groupTiles() * d.samples * d.lines, perLine = std::max<int64_t>(1, p.pixels() / d.lines);
  // Lines of a tile: enough arithmetic to be worth waking a worker, enough results to amortise a pass over the weights.
  double flopsPerLine = p.flops() / static_cast<double>(std::max<int64_t>(all, 1));
  double flops = std::clamp(p.flops() / p.model.tiles, p.model.tileFlops, p.model.mostTileFlops);
  auto lines = static_cast<int64_t>(flops / std::max(flopsPerLine, 1.0)) + 1;
  lines = std::max(lines, ceilDiv(p.model.tilePixels, perLine));
  if (lines >= d.lines) {
    int64_t batch = std::max<int64_t>(1, lines / d.lines);
    if (copies)
      while (batch > 1 && p.stripBytes(batch, d.lines) > p.model.stripBytes)
        batch = batch / 2;
    call.set_tile_batch(evenPart(d.samples, batch));
    lines = d.lines;
  }
  if (call.tile_batch() == 1 && copies)
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
  // Cut the batch while partial sums take little memory, then columns, then the batch a little more.
  int64_t summed = std::min(wanted, p.model.chunks); // tiles that may be chunks, each with partial sums
  int64_t most = std::clamp<int64_t>(d.samples * p.pixels() / p.model.gradientPixels, 1, d.samples); // chunks
  auto chunks = std::min({ceilDiv(summed, groups), most, std::max<int64_t>(1, p.model.partialBytes / bytes)});
  int64_t least = groups * chunks >= p.model.fewTiles
                      ? p.model.leastGradientColumns
                      : std::clamp(d.columns() / 2, p.model.leastColumns, p.model.leastGradientColumns);
  if (groups * chunks < wanted)
    call.set_tile_columns(
        columnsOf(d.columns(), ceilDiv(wanted, groups * chunks), d.depthwise ? kVector : least));
  int64_t tiles = groups * ceilDiv(d.columns(), call.tile_columns());
  if (tiles * chunks < summed)
    chunks = std::clamp<int64_t>(ceilDiv(summed, tiles), chunks, std::min<int64_t>(4, most));
  call.set_tile_batch(ceilDiv(d.samples, chunks));
}
} // namespace

Expected<double> chooseTiles(Kind &call, const CpuModel &model) {
  const ConvolutionModel &m = model.convolution;
  call.set_form(Kind::CHANNELS);
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
  FormCycles cycles(*design, m);
  auto first = bestForm(cycles, false), last = bestForm(cycles, true), best = call.channels_last() ? last : first;
  if (best.first != Kind::CHANNELS) {
    call.set_form(best.first);
    if (call.kind() == Kind::WEIGHT_GRADIENT && best.first == Kind::PLANES)
      call.set_block_words(std::clamp<int64_t>(
          m.planeBlockBytes / 4 / (design->sourceChannels + design->resultChannels), 128, m.mostPlaneBlockWords));
    design = ConvolutionDesign::create(call);
    if (!design)
      return design.status();
  }
  Problem problem{*design, m};
  if (call.kind() == Kind::WEIGHT_GRADIENT)
    cutWeightGradient(call, problem);
  else
    cutCorrelation(call, problem);
  design = ConvolutionDesign::create(call);
  if (!design)
    return design.status();
  call.set_partial_bytes(design->partialBytes);
  return (best.second - std::min(first.second, last.second)) / m.turnedCycles;
}

} // namespace tcc::target::cpu

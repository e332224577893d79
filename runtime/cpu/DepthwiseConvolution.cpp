//===- DepthwiseConvolution.cpp - a channel in, a channel out ------------===//
//
// A register holds channels: each result is a sum over taps of the source's channels times the tap's weights; the
// weights' gradient sums over pixels instead. A line of results is cut into runs with the same taps, because taps
// outside the source are skipped, so that a channels-last source is read in place.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/ConvolutionParts.h"
#include "runtime/cpu/DepthwiseLoops.h"

#include <algorithm>

namespace tcc::runtime::convolution {

using packed::kVector;

namespace {
constexpr int64_t kChannelsOfATile = 64; ///< of the sums of chunks

/// Results of one line that have the same taps.
struct Run {
  Sizes at; ///< the first of them
  int64_t pixels;
  int64_t source; ///< bytes from the strip's start to the element that the first result reads by a tap at 0
  int64_t tapCount;
};

class Depthwise final : public LibraryCall {
public:
  explicit Depthwise(ConvolutionDesign made)
      : d(std::move(made)), toWeights(d.kind == plan::ConvolutionCall::WEIGHT_GRADIENT) {}

  int stages() const override { return 2; }
  int64_t tiles(int stage) const override {
    if (stage == longestStage())
      return d.tiles();
    return toWeights ? (d.groups + kChannelsOfATile - 1) / kChannelsOfATile : 1;
  }
  int longestStage() const override { return toWeights ? 0 : 1; }

  bool run(int stage, const CallContext &context, int64_t begin, int64_t end) const override {
    if (stage == longestStage()) {
      for (int64_t tile = begin; tile < end; ++tile) {
        char *slot = context.scratch + d.sharedBytes +
                     slotOf(tile, d.tiles(), context.worker, context.workers) * d.slotBytes;
        toWeights ? runGradient(tile, context.pointers, slot)
                  : runTile(tile, context.pointers, reinterpret_cast<const float *>(context.scratch), slot);
      }
    } else if (toWeights) {
      finishWeightGradient(d, static_cast<const float *>(context.pointers[3]), context.pointers[2],
                           begin * kChannelsOfATile, std::min(end * kChannelsOfATile, d.groups));
    } else {
      widenDepthwiseWeights(d, static_cast<const char *>(context.pointers[1]),
                            reinterpret_cast<float *>(context.scratch));
    }
    return true;
  }

private:
  int64_t pitchOfWeights() const { return (d.groups + kVector - 1) / kVector * kVector; }
  int64_t area() const { return d.result[0] * d.result[1] * d.result[2]; }

  /// Calls visit(sample, run) for the results of a phase in a range; the run's taps are in `taps`.
  template <typename Visit>
  void forEachRun(const Phase &phase, const Range &range, depthwise::Tap *taps, Visit visit) const {
    Sizes begin{0, 0, 0}, end{phase.axes[0].count, phase.axes[1].count, phase.axes[2].count}, origin{0, 0, 0};
    auto cut = static_cast<size_t>(d.cut);
    origin[cut] = range.firstLine;
    begin[cut] = std::min(range.firstLine, end[cut]);
    end[cut] = std::min(range.lastLine, end[cut]);
    for (int64_t sample = 0; sample < range.samples(); ++sample)
      for (int64_t i = begin[0]; i < end[0]; ++i)
        for (int64_t j = begin[1]; j < end[1]; ++j)
          for (Sizes at{i, j, begin[2]}; at[2] < end[2];) {
            Run run = runAt(phase, at, end[2], origin, taps);
            run.source += sample * d.strip.sample * packed::bytesOf(d.elements);
            visit(sample, run);
            at[2] += run.pixels;
          }
  }

  /// The results from `at` on that have the same taps. A tap's source is relative to the strip's first element.
  Run runAt(const Phase &phase, const Sizes &at, int64_t end, const Sizes &origin, depthwise::Tap *taps) const {
    Sizes from{}, least{}, most{};
    int64_t place = 0, step = d.sourceStep[2];
    for (size_t axis = 0; axis < kAxes; ++axis) {
      from[axis] = (at[axis] - origin[axis]) * d.sourceStep[axis];
      place += from[axis] * d.strip.axis[axis];
      // In place, the strip begins where the first result's first tap would; there are no elements before the source.
      least[axis] = d.inPlace ? -d.low[axis] - origin[axis] * d.sourceStep[axis] : 0;
      most[axis] = d.inPlace ? least[axis] + d.source[axis] : INT64_MAX;
    }
    Run run{at, end - at[2], 0, 0};
    int64_t number = -1;
    for (const Tap &i : phase.axes[0].taps)
      for (const Tap &j : phase.axes[1].taps)
        for (const Tap &k : phase.axes[2].taps) {
          ++number;
          int64_t x = from[0] + i.at, y = from[1] + j.at, z = from[2] + k.at;
          if (x < least[0] || x >= most[0] || y < least[1] || y >= most[1])
            continue;
          if (z < least[2])
            run.pixels = std::min(run.pixels, (least[2] - z + step - 1) / step);
          else if (z < most[2]) {
            if (most[2] != INT64_MAX)
              run.pixels = std::min(run.pixels, (most[2] - z + step - 1) / step);
            taps[run.tapCount++] = {i.at * d.strip.axis[0] + j.at * d.strip.axis[1] + k.at * d.strip.axis[2], number};
          }
        }
    run.source += place * packed::bytesOf(d.elements);
    return run;
  }

  void runTile(int64_t tile, void *const *pointers, const float *weights, char *slot) const {
    int64_t column = tile % d.columnTiles(), rest = tile / d.columnTiles();
    int64_t line = rest % d.lineTiles() * d.tileLines, sample = rest / d.lineTiles() * d.tileBatch;
    Range range{sample, std::min(sample + d.tileBatch, d.samples), line, std::min(line + d.tileLines, d.lines)};
    const char *source = strip(d, static_cast<const char *>(pointers[0]), 0, range, slot);
    auto *taps = reinterpret_cast<depthwise::Tap *>(slot + d.offsetRows);
    for (const Phase &phase : d.phases)
      forEachRun(phase, range, taps, [&](int64_t image, const Run &run) {
        int64_t result = resultAt(d, phase, range.firstSample + image, run.at), pixel = result / d.groups;
        if (!d.channelsLast)
          result = pixel / area() * d.groups * area() + pixel % area();
        depthwise::correlate({.narrowSource = d.narrowOperands,
                              .narrowResult = d.narrowResult,
                              .source = source + run.source,
                              .sourcePitch = d.sourceStep[2] * d.strip.axis[2],
                              .taps = taps,
                              .tapCount = run.tapCount,
                              .weights = weights + phase.panelWords * pitchOfWeights(),
                              .weightPitch = pitchOfWeights(),
                              .result = static_cast<char *>(pointers[2]),
                              .resultAt = result,
                              .resultPitch = phase.axes[2].step * (d.channelsLast ? d.groups : 1),
                              .planePitch = d.channelsLast ? 0 : area(),
                              .pixels = run.pixels,
                              .begin = column * d.tileColumns,
                              .end = std::min((column + 1) * d.tileColumns, d.groups)});
      });
  }

  void runGradient(int64_t tile, void *const *pointers, char *slot) const {
    int64_t column = tile % d.columnTiles(), chunk = tile / d.columnTiles();
    int64_t begin = column * d.tileColumns, channels = std::min(d.tileColumns, d.groups - begin);
    float *sums = static_cast<float *>(pointers[3]) + chunk * static_cast<int64_t>(d.partialBytes / 4) + begin;
    for (int64_t tap = 0; tap < d.tapCount; ++tap)
      std::fill_n(sums + tap * d.groups, channels, 0.0f);
    int64_t last = std::min((chunk + 1) * d.tileBatch, d.samples), size = d.narrowOperands ? 2 : 4;
    auto *taps = reinterpret_cast<depthwise::Tap *>(slot + d.offsetRows);
    for (int64_t sample = chunk * d.tileBatch; sample < last; sample += d.blockSamples)
      for (int64_t line = 0; line < d.lines; line += d.blockLines) {
        Range range{sample, std::min(sample + d.blockSamples, last), line, std::min(line + d.blockLines, d.lines)};
        const char *source = strip(d, static_cast<const char *>(pointers[0]), 0, range, slot);
        forEachRun(d.phases.front(), range, taps, [&](int64_t image, const Run &run) {
          int64_t pixel = (run.at[0] * d.result[1] + run.at[1]) * d.result[2] + run.at[2],
                  number = range.firstSample + image;
          int64_t gradient = d.channelsLast ? (number * area() + pixel) * d.groups + begin
                                            : (number * d.groups + begin) * area() + pixel;
          depthwise::addProducts({.narrow = d.narrowOperands,
                                  .source = source + run.source + begin * packed::bytesOf(d.elements),
                                  .sourcePitch = d.sourceStep[2] * d.strip.axis[2],
                                  .gradient = static_cast<const char *>(pointers[1]) + gradient * size,
                                  .gradientPitch = d.channelsLast ? d.groups : 1,
                                  .planePitch = d.channelsLast ? 1 : area(),
                                  .taps = taps,
                                  .tapCount = run.tapCount,
                                  .sums = sums,
                                  .sumPitch = d.groups,
                                  .pixels = run.pixels,
                                  .channels = channels});
        });
      }
  }

  ConvolutionDesign d;
  bool toWeights;
};
} // namespace

std::unique_ptr<LibraryCall> makeDepthwise(ConvolutionDesign design) {
  return std::make_unique<Depthwise>(std::move(design));
}

} // namespace tcc::runtime::convolution

//===- PlaneConvolution.cpp - convolutions of few channels ---------------===//
//
// A register holds pixels, not channels (PlaneProduct.h). A tile copies its part of the source into planes, unless it
// can read the source in place. A correlation then sums each pixel over taps and channels in the order of
// Correlation.cpp, so that both forms have the same bits. The gradient of the weights sums over pixels, with 16 partial
// sums per weight, one per lane; no tap needs a copy of its own.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/ConvolutionParts.h"
#include "runtime/cpu/PlaneProduct.h"

#include <algorithm>
#include <cstring>

namespace tcc::runtime::convolution {

using packed::Elements, packed::kVector, packed::Store;
using Kind = plan::ConvolutionCall;

namespace {
/// Pixels in memory, some channels of each.
struct Pixels {
  const char *data;
  int64_t pitch, plane; ///< elements from one pixel, or channel, to the next
  int64_t channels;
};

template <typename From, typename To> void copyPixels(const From *from, int64_t pitch, int64_t count, To *to) {
  for (int64_t i = 0; i < count; ++i)
    if constexpr (sizeof(From) < sizeof(To))
      to[i] = widen(from[i * pitch]);
    else
      to[i] = from[i * pitch];
}

/// Converts pixels to words of planes: f32, widened bf16, pairs of channels in bf16, or (`halves`) bf16 unchanged.
class Turner {
public:
  Turner(Elements elements, bool halves, char *room) : elements(elements), halves(halves), room(room) {}

  /// `to`: the first word of channels; the next one is `pitch` elements further.
  void copy(const Pixels &from, int64_t count, char *to, int64_t pitch) const {
    bool pairs = elements == Elements::Bf16 && !halves;
    if (from.plane == 1 && from.channels > 1)
      return turn(from, count, to, pitch);
    const int64_t size = halves ? 2 : 4;
    if (from.pitch == 1 && (halves || elements == Elements::F32))
      return packed::copyLines(from.data, from.plane * size, from.channels, count * size, to, pitch * size);
    if (pairs)
      return pair(from, count, reinterpret_cast<uint32_t *>(to), pitch);
    for (int64_t c = 0; c < from.channels; ++c) {
      const char *plane = from.data + c * from.plane * packed::bytesOf(elements);
      if (halves)
        copyPixels(reinterpret_cast<const uint16_t *>(plane), from.pitch, count,
                   reinterpret_cast<uint16_t *>(to) + c * pitch);
      else if (elements == Elements::F32)
        copyPixels(reinterpret_cast<const float *>(plane), from.pitch, count,
                   reinterpret_cast<float *>(to) + c * pitch);
      else
        copyPixels(reinterpret_cast<const uint16_t *>(plane), from.pitch, count,
                   reinterpret_cast<float *>(to) + c * pitch);
    }
  }

private:
  /// Transposes adjacent channels, 16 pixels at a time.
  void turn(const Pixels &from, int64_t count, char *to, int64_t pitch) const {
    auto *turned = reinterpret_cast<uint32_t *>(room);
    Elements taken = halves ? Elements::WideBf16 : elements;
    int64_t words = packed::wordsOf(from.channels, taken);
    for (int64_t i = 0; i < count; i += kVector) {
      int64_t some = std::min(kVector, count - i);
      packed::packColumns(turned,
                          {from.data + i * from.pitch * packed::bytesOf(taken), from.pitch, true, taken}, some,
                          from.channels);
      for (int64_t word = 0; word < words; ++word) {
        const uint32_t *row = turned + word * kVector;
        if (!halves)
          std::memcpy(to + (word * pitch + i) * 4, row, static_cast<size_t>(some) * 4);
        else
          for (int64_t lane = 0; lane < some; ++lane)
            reinterpret_cast<uint16_t *>(to)[word * pitch + i + lane] = static_cast<uint16_t>(row[lane] >> 16);
      }
    }
  }

  static void pair(const Pixels &from, int64_t count, uint32_t *to, int64_t pitch) {
    for (int64_t c = 0; c < from.channels; c += 2, to += pitch) {
      auto *low = reinterpret_cast<const uint16_t *>(from.data) + c * from.plane;
      const uint16_t *high = c + 1 < from.channels ? low + from.plane : nullptr;
      for (int64_t i = 0; i < count; ++i)
        to[i] = low[i * from.pitch] | (high ? static_cast<uint32_t>(high[i * from.pitch]) << 16 : 0);
    }
  }

  Elements elements;
  bool halves;
  char *room;
};

/// Results of a range along each axis, of a phase.
Sizes resultsOf(const ConvolutionDesign &d, const Phase &phase, const Range &range) {
  Sizes results{phase.axes[0].count, phase.axes[1].count, phase.axes[2].count};
  int64_t &cut = results[static_cast<size_t>(d.cut)];
  cut = std::min(range.lastLine, cut) - std::min(range.firstLine, cut);
  return results;
}

/// Copies the source elements that a range of results reads into planes; edges are zeros.
void copyPlanes(const ConvolutionDesign &d, const char *source, int64_t group, const Range &range, const Turner &turner,
                char *to) {
  const Planes &planes = d.planes;
  const int64_t size = d.narrowOperands ? 2 : 4, all = d.groups * d.sourceChannels,
                area = d.source[0] * d.source[1] * d.source[2], step = d.sourceStep[2];
  Sizes begin = d.low, extent = d.stripExtent;
  auto cut = static_cast<size_t>(d.cut);
  begin[cut] += range.firstLine * d.sourceStep[cut];
  extent[cut] = (range.lastLine - range.firstLine - 1) * d.sourceStep[cut] + d.span[cut];
  bool hasEdges = false;
  for (size_t axis = 0; axis < kAxes; ++axis)
    hasEdges |= begin[axis] < 0 || begin[axis] + extent[axis] > d.source[axis];
  if (hasEdges)
    std::memset(to, 0, static_cast<size_t>(planes.words * planes.pitch * planes.wordBytes));
  for (int64_t sample = 0; sample < range.samples(); ++sample)
    for (int64_t i = 0; i < extent[0]; ++i)
      for (int64_t j = 0; j < extent[1]; ++j) {
        int64_t y = begin[0] + i, x = begin[1] + j, ofI = i % d.sourceStep[0], ofJ = j % d.sourceStep[1];
        if (ofI >= planes.classes[0] || ofJ >= planes.classes[1] || y < 0 || y >= d.source[0] || x < 0 ||
            x >= d.source[1])
          continue;
        int64_t line = ((range.firstSample + sample) * (d.channelsLast ? 1 : all) * d.source[0] + y) * d.source[1] + x;
        line *= d.source[2]; // its first pixel: elements of a plane
        for (int64_t ofK = 0; ofK < planes.classes[2]; ++ofK) {
          // The elements k · step + ofK of the strip's line that exist in the source.
          const int64_t before = -begin[2] - ofK; // of the source's first pixel
          int64_t first = before > 0 ? ConvolutionDesign::ceilDiv(before, step) : 0,
                  last = std::min(extent[2] - 1, d.source[2] - 1 - begin[2]) - ofK;
          if (last < first * step)
            continue;
          int64_t count = last / step - first + 1, pixel = begin[2] + first * step + ofK;
          int64_t place = ((ofI * planes.classes[1] + ofJ) * planes.classes[2] + ofK) * planes.classPitch +
                          sample * planes.sample +
                          (i / d.sourceStep[0] * planes.extent[1] + j / d.sourceStep[1]) * planes.extent[2] + first;
          int64_t element = d.channelsLast ? (line + pixel) * all + group * d.sourceChannels
                                           : line + group * d.sourceChannels * area + pixel;
          turner.copy({source + element * size, (d.channelsLast ? all : 1) * step, d.channelsLast ? 1 : area,
                       d.sourceChannels},
                      count, to + place * planes.wordBytes, planes.pitch);
        }
      }
}

class PlaneCorrelation final : public CorrelationCall {
public:
  using CorrelationCall::CorrelationCall;

private:
  void runTile(const Tile &tile, void *const *pointers, const char *panels, char *slot) const override {
    const char *source = slot;
    if (d.inPlace)
      source = static_cast<const char *>(pointers[0]) + inPlaceElement(tile) * 4;
    else
      copyPlanes(d, static_cast<const char *>(pointers[0]), tile.group, tile.range,
                 {d.weightElements(), false, slot + d.offsetPanel}, slot);
    for (size_t phase = 0; phase < d.phases.size(); ++phase) {
      Sizes results = resultsOf(d, d.phases[phase], tile.range);
      if (results[0] * results[1] * results[2] > 0)
        runPhase(tile, phase, results, source, panels, pointers[2], slot);
    }
  }

  int64_t inPlaceElement(const Tile &tile) const {
    Sizes begin = d.low;
    begin[static_cast<size_t>(d.cut)] += tile.range.firstLine;
    return tile.range.firstSample * d.planes.sample + tile.group * d.sourceChannels * d.planes.pitch +
           (begin[0] * d.source[1] + begin[1]) * d.source[2] + begin[2];
  }

  /// All samples of a copy are one run of pixels; in place, each sample is a run.
  void runPhase(const Tile &tile, size_t index, const Sizes &results, const char *source, const char *panels,
                void *result, char *slot) const {
    const Phase &phase = d.phases[index];
    const std::vector<int64_t> &places = d.planes.places[index];
    auto *sums = reinterpret_cast<float *>(slot + d.offsetSums);
    const int64_t runs = d.inPlace ? tile.range.samples() : 1,
                  pixels = d.planes.run(tile.range.samples() / runs, results),
                  runPitch = ConvolutionDesign::ceilDiv(pixels, kVector) * kVector, sumsPitch = runs * runPitch;
    const auto all = static_cast<int64_t>(places.size()), block = std::max<int64_t>(1, phase.blockWords);
    int64_t word = 0;
    do {
      for (int64_t panel = 0; panel < d.panels(); ++panel) {
        int64_t column = d.panelColumn(panel), columns = d.panelColumn(panel + 1) - column;
        if (column < tile.begin || column >= tile.end)
          continue;
        const int64_t width = d.panelVectors(panel) * kVector,
                      parts = ConvolutionDesign::ceilDiv(columns, packed::kPlaneChannels);
        auto *words =
            reinterpret_cast<const uint32_t *>(panels) + column * d.weightWords + (phase.panelWords + word) * width;
        for (int64_t part = 0; part < parts; ++part) {
          int64_t first = columns * part / parts, channels = columns * (part + 1) / parts - first;
          for (int64_t run = 0; run < runs; ++run)
            packed::multiplyPlanes(packed::isDotted(d.elements), channels,
                                   {.source = source + run * d.planes.sample * 4,
                                    .places = places.data() + word,
                                    .words = std::min(block, all - word),
                                    .weights = words + first,
                                    .weightPitch = width,
                                    .pixels = pixels,
                                    .sums = sums + (column + first - tile.begin) * sumsPitch + run * runPitch,
                                    .sumsPitch = sumsPitch,
                                    .adds = word > 0});
        }
      }
      word += block;
    } while (word < all);
    spread(tile, phase, results, d.inPlace ? runPitch : d.planes.sample, sums, sumsPitch, static_cast<char *>(result),
           slot);
  }

  /// Writes sums to the result.
  void spread(const Tile &tile, const Phase &phase, const Sizes &results, int64_t samplePitch, const float *sums,
              int64_t sumsPitch, char *result, char *slot) const {
    Sizes at{0, 0, 0};
    at[static_cast<size_t>(d.cut)] = tile.range.firstLine;
    for (int64_t sample = 0; sample < tile.range.samples(); ++sample)
      for (int64_t i = 0; i < results[0]; ++i)
        for (int64_t j = 0; j < results[1]; ++j)
          spreadLine(phase, tile, resultAt(d, phase, tile.range.firstSample + sample, {at[0] + i, at[1] + j, at[2]}),
                     results[2], sums + sample * samplePitch + (i * d.planes.extent[1] + j) * d.planes.extent[2],
                     sumsPitch, result, slot);
  }

  /// `element`: of the line's first result, channels last, channel 0.
  void spreadLine(const Phase &phase, const Tile &tile, int64_t element, int64_t count, const float *sums,
                  int64_t sumsPitch, char *result, char *slot) const {
    const int64_t all = d.groups * d.resultChannels, area = d.result[0] * d.result[1] * d.result[2],
                  size = d.narrowResult ? 2 : 4, step = phase.axes[2].step, channel = tile.group * d.resultChannels;
    const Store store = d.narrowResult ? Store::Round : Store::Overwrite;
    if (d.channelsLast && all > 1) {
      auto *turned = reinterpret_cast<uint32_t *>(slot + d.offsetPanel);
      for (int64_t first = tile.begin; first < tile.end; first += kVector) {
        int64_t channels = std::min(kVector, tile.end - first);
        for (int64_t i = 0; i < count; i += kVector) {
          int64_t some = std::min(kVector, count - i);
          packed::packColumns(turned,
                              {reinterpret_cast<const char *>(sums + (first - tile.begin) * sumsPitch + i), sumsPitch,
                               true, Elements::F32},
                              channels, some);
          packed::storePixels(reinterpret_cast<const float *>(turned), kVector, some, channels,
                              result + (element + i * step * all + channel + first) * size, step * all * size, store);
        }
      }
      return;
    }
    if (step == 1 && !d.narrowResult) {
      int64_t pixel = element / all, plane = pixel / area * all * area + pixel % area;
      packed::copyLines(reinterpret_cast<const char *>(sums), sumsPitch * 4, tile.end - tile.begin, count * 4,
                        result + (plane + (channel + tile.begin) * area) * 4, area * 4);
      return;
    }
    int64_t pixel = element / all, plane = pixel / area * all * area + pixel % area;
    for (int64_t c = tile.begin; c < tile.end; ++c) {
      const float *from = sums + (c - tile.begin) * sumsPitch;
      char *to = result + (plane + (channel + c) * area) * size;
      if (step == 1)
        for (int64_t i = 0; i < count; i += kVector)
          packed::storePixels(from + i, 0, 1, std::min(kVector, count - i), to + i * size, 0, store);
      else if (d.narrowResult)
        for (int64_t i = 0; i < count; ++i)
          reinterpret_cast<uint16_t *>(to)[i * step] = roundToBf16(from[i]);
      else
        for (int64_t i = 0; i < count; ++i)
          reinterpret_cast<float *>(to)[i * step] = from[i];
    }
  }
};

class PlaneWeightGradient final : public WeightGradientCall {
public:
  using WeightGradientCall::WeightGradientCall;

private:
  void addBlock(const Block &block, void *const *pointers, char *slot) const override {
    const Turner turner(d.weightElements(), d.planes.wordBytes == 2, slot + d.offsetPanel);
    copyPlanes(d, static_cast<const char *>(pointers[0]), block.group, block.range, turner, slot);
    copyGradient(block, static_cast<const char *>(pointers[1]), turner, slot);
    const int64_t size = d.planes.wordBytes, vector = kVector * 4 / size,
                  run = d.planes.run(block.range.samples(), resultsOf(d, d.phases.front(), block.range)),
                  words = ConvolutionDesign::ceilDiv(run, vector) * kVector, row = d.tapCount * d.sourceChannels,
                  pitch = d.planes.pixels * size / 4, end = std::min(block.end, row);
    const int64_t parts = ConvolutionDesign::ceilDiv(d.resultChannels, packed::kPlaneChannels);
    auto *gradient = reinterpret_cast<const uint32_t *>(slot + d.offsetRows);
    for (int64_t part = 0; part < parts; ++part) {
      int64_t first = d.resultChannels * part / parts, rows = d.resultChannels * (part + 1) / parts - first;
      for (int64_t column = block.begin; column < end; column += packed::kPlaneColumns)
        packed::multiplyPlaneGradient(packed::isDotted(d.elements), rows, std::min(packed::kPlaneColumns, end - column),
                                      {.source = slot,
                                       .places = d.planes.places.front().data() + column,
                                       .valid = reinterpret_cast<const uint32_t *>(slot + d.planes.offsetValid),
                                       .gradient = gradient + first * pitch,
                                       .gradientPitch = pitch,
                                       .words = words,
                                       .sums = block.sums + first * row + column,
                                       .sumsPitch = row,
                                       .adds = !block.first});
    }
  }

  /// Copies the result's gradient and its mask to the positions of the planes' pixels.
  void copyGradient(const Block &block, const char *gradient, const Turner &turner, char *slot) const {
    const int64_t size = d.planes.wordBytes, all = d.groups * d.resultChannels,
                  area = d.result[0] * d.result[1] * d.result[2], of = d.narrowOperands ? 2 : 4;
    const Sizes results = resultsOf(d, d.phases.front(), block.range);
    Sizes at{0, 0, 0};
    at[static_cast<size_t>(d.cut)] = block.range.firstLine;
    std::memset(slot + d.offsetRows, 0, static_cast<size_t>(d.resultChannels * d.planes.pixels * size));
    std::memset(slot + d.planes.offsetValid, 0, static_cast<size_t>(d.planes.pixels * size));
    for (int64_t sample = 0; sample < block.range.samples(); ++sample)
      for (int64_t i = 0; i < results[0]; ++i)
        for (int64_t j = 0; j < results[1]; ++j) {
          int64_t place =
              sample * d.planes.sample + (i * d.planes.extent[1] + j) * d.planes.extent[2];
          int64_t pixel = ((at[0] + i) * d.result[1] + at[1] + j) * d.result[2] + at[2],
                  image = block.range.firstSample + sample, channel = block.group * d.resultChannels;
          int64_t element = d.channelsLast ? (image * area + pixel) * all + channel
                                           : (image * all + channel) * area + pixel;
          turner.copy({gradient + element * of, d.channelsLast ? all : 1, d.channelsLast ? 1 : area, d.resultChannels},
                      results[2], slot + d.offsetRows + static_cast<uint64_t>(place * size), d.planes.pixels);
          std::memset(slot + d.planes.offsetValid + static_cast<uint64_t>(place * size), 0xff,
                      static_cast<size_t>(results[2] * size));
        }
  }
};
} // namespace

std::unique_ptr<LibraryCall> makeByPlanes(ConvolutionDesign design) {
  if (design.kind == Kind::WEIGHT_GRADIENT)
    return std::make_unique<PlaneWeightGradient>(std::move(design));
  return std::make_unique<PlaneCorrelation>(std::move(design));
}

} // namespace tcc::runtime::convolution

//===- ConvolutionParts.cpp - packing and unpacking for convolutions -----===//
#include "runtime/cpu/ConvolutionParts.h"

#include <algorithm>
#include <cstring>

namespace tcc::runtime::convolution {

using packed::Elements, packed::kVector;
using Kind = plan::ConvolutionCall;

namespace {
template <typename From, typename To> void copyChannels(To *to, const From *from, int64_t count) {
  if constexpr (sizeof(From) == sizeof(To))
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(To));
  else
    for (int64_t i = 0; i < count; ++i)
      to[i] = widen(from[i]);
}

template <typename From, typename To>
void copyPixels(To *to, int64_t pitch, const From *from, int64_t fromPitch, int64_t channels, int64_t pixels) {
  if (channels == 3) { // an RGB image
    for (int64_t pixel = 0; pixel < pixels; ++pixel, to += pitch, from += fromPitch) {
      copyChannels(to, from, 1);
      copyChannels(to + 1, from + 1, 1);
      copyChannels(to + 2, from + 2, 1);
    }
    return;
  }
  for (int64_t pixel = 0; pixel < pixels; ++pixel)
    copyChannels(to + pixel * pitch, from + pixel * fromPitch, channels);
}

/// Elements of one pixel after the other, from channels that lie `plane` elements apart.
template <typename From, typename To>
void interleave(To *to, int64_t pitch, const From *from, int64_t plane, int64_t channels, int64_t pixels) {
  if (channels < kVector) {
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t pixel = 0; pixel < pixels; ++pixel)
        copyChannels(to + pixel * pitch + c, from + c * plane + pixel, 1);
    return;
  }
  // 16 pixels of 48 channels at a time, as f32.
  alignas(64) uint32_t turned[kVector * packed::kColumns];
  constexpr Elements elements = sizeof(From) == 4 ? Elements::F32 : Elements::WideBf16;
  for (int64_t p0 = 0; p0 < pixels; p0 += kVector)
    for (int64_t c0 = 0; c0 < channels; c0 += packed::kColumns) {
      int64_t count = std::min(packed::kColumns, channels - c0), width = (count + kVector - 1) / kVector * kVector,
              some = std::min(kVector, pixels - p0);
      packed::packColumns(turned, {reinterpret_cast<const char *>(from + c0 * plane + p0), plane, true, elements},
                          count, some);
      for (int64_t i = 0; i < some; ++i) {
        To *place = to + (p0 + i) * pitch + c0;
        if constexpr (sizeof(To) == 4)
          std::memcpy(place, turned + i * width, static_cast<size_t>(count) * 4);
        else
          for (int64_t c = 0; c < count; ++c)
            place[c] = static_cast<To>(turned[i * width + c] >> 16);
      }
    }
}

template <typename From, typename To>
void copyStrip(const ConvolutionDesign &d, const From *source, int64_t group, const Range &range, To *to) {
  int64_t channels = d.depthwise ? d.groups : d.sourceChannels,
          all = d.depthwise ? d.groups : d.groups * d.sourceChannels;
  int64_t first = d.depthwise ? 0 : group * d.sourceChannels, area = d.source[0] * d.source[1] * d.source[2];
  Sizes begin = d.low, extent = d.stripExtent;
  auto cut = static_cast<size_t>(d.cut);
  begin[cut] += range.firstLine * d.sourceStep[cut];
  extent[cut] = (range.lastLine - range.firstLine - 1) * d.sourceStep[cut] + d.span[cut];
  // The pixels of a line that exist in the source.
  int64_t from = std::clamp<int64_t>(-begin[2], 0, extent[2]),
          end = std::clamp<int64_t>(d.source[2] - begin[2], from, extent[2]), pitch = d.stripChannels;
  for (int64_t sample = 0; sample < range.samples(); ++sample)
    for (int64_t i = 0; i < extent[0]; ++i)
      for (int64_t j = 0; j < extent[1]; ++j) {
        To *line = to + sample * d.strip.sample + i * d.strip.axis[0] + j * d.strip.axis[1];
        int64_t y = begin[0] + i, x = begin[1] + j;
        if (y < 0 || y >= d.source[0] || x < 0 || x >= d.source[1] || from == end) {
          std::memset(line, 0, static_cast<size_t>(extent[2] * pitch) * sizeof(To));
          continue;
        }
        std::memset(line, 0, static_cast<size_t>(from * pitch) * sizeof(To));
        std::memset(line + end * pitch, 0, static_cast<size_t>((extent[2] - end) * pitch) * sizeof(To));
        To *inner = line + from * pitch;
        int64_t pixel = (y * d.source[1] + x) * d.source[2] + begin[2] + from, count = end - from;
        if (pitch != channels) // append one channel of zeros
          for (int64_t at = 0; at < count; ++at)
            inner[at * pitch + channels] = 0;
        if (!d.channelsLast) {
          interleave(inner, pitch, source + ((range.firstSample + sample) * all + first) * area + pixel, area, channels,
                     count);
          continue;
        }
        const From *pixels = source + ((range.firstSample + sample) * area + pixel) * all + first;
        if (pitch == all)
          copyChannels(inner, pixels, count * pitch);
        else
          copyPixels(inner, pitch, pixels, all, channels, count);
      }
}
} // namespace

const char *strip(const ConvolutionDesign &d, const char *source, int64_t group, const Range &range, char *room) {
  if (d.inPlace) {
    Sizes begin = d.low;
    begin[static_cast<size_t>(d.cut)] += range.firstLine * d.sourceStep[static_cast<size_t>(d.cut)];
    int64_t at = range.firstSample * d.strip.sample;
    for (size_t axis = 0; axis < kAxes; ++axis)
      at += begin[axis] * d.strip.axis[axis];
    return source + at * packed::bytesOf(d.elements);
  }
  if (!d.narrowOperands)
    copyStrip(d, reinterpret_cast<const uint32_t *>(source), group, range, reinterpret_cast<uint32_t *>(room));
  else if (packed::isNarrow(d.elements))
    copyStrip(d, reinterpret_cast<const uint16_t *>(source), group, range, reinterpret_cast<uint16_t *>(room));
  else
    copyStrip(d, reinterpret_cast<const uint16_t *>(source), group, range, reinterpret_cast<float *>(room));
  return room;
}

int64_t weightChunks(const ConvolutionDesign &d) { return (d.sourceChannels + d.chunkChannels - 1) / d.chunkChannels; }

void packWeights(const ConvolutionDesign &d, const char *weights, int64_t group, int64_t panel, int64_t chunk,
                 char *panels, char *room) {
  int64_t first = d.panelColumn(panel), columns = d.panelColumn(panel + 1) - first,
          width = d.panelVectors(panel) * kVector;
  int64_t channel = chunk * d.chunkChannels, channels = std::min(d.chunkChannels, d.sourceChannels - channel);
  int64_t size = d.narrowOperands ? 2 : 4, taps = d.tapCount, perWord = packed::elementsOfWord(d.elements);
  bool toInput = d.kind == Kind::INPUT_GRADIENT;
  auto *to =
      reinterpret_cast<uint32_t *>(panels) + group * static_cast<int64_t>(d.panelBytes() / 4) + first * d.weightWords;
  // From the weights' element of the first of these channels: [o][c][tap].
  const char *from = weights + (toInput ? ((group * d.sourceChannels + channel) * d.resultChannels + first) * taps
                                        : ((group * d.resultChannels + first) * d.sourceChannels + channel) * taps) *
                                   size;
  if (taps == 1) {
    packed::Source source{from, toInput ? d.resultChannels : d.sourceChannels, !toInput, d.weightElements()};
    for (const Phase &phase : d.phases)
      if (!phase.kernels.empty())
        packed::packColumns(to + (phase.panelWords + channel / perWord) * width, source, columns, channels);
    return;
  }
  // In f32: words of all taps of a channel, one after the other.
  auto *words = reinterpret_cast<uint32_t *>(room);
  Elements wide = d.narrowOperands ? Elements::WideBf16 : Elements::F32;
  if (!toInput)
    packed::packColumns(words, {from, d.sourceChannels * taps, true, wide}, columns, channels * taps);
  else
    for (int64_t i = 0; i < channels; ++i)
      packed::packColumns(words + i * taps * width, {from + i * d.resultChannels * taps * size, taps, true, wide},
                          columns, taps);
  for (const Phase &phase : d.phases)
    for (size_t tap = 0; tap < phase.kernels.size(); ++tap) {
      int64_t word = phase.panelWords + (static_cast<int64_t>(tap) * d.stripChannels + channel) / perWord;
      for (int64_t i = 0; i < channels; i += perWord, ++word) {
        const uint32_t *row = words + (i * taps + phase.kernels[tap]) * width;
        uint32_t *place = to + word * width;
        if (perWord == 1) {
          std::memcpy(place, row, static_cast<size_t>(width) * 4);
          continue;
        }
        const uint32_t *next = i + 1 < channels ? row + taps * width : nullptr;
        for (int64_t lane = 0; lane < width; ++lane)
          place[lane] = row[lane] >> 16 | (next ? next[lane] & 0xffff0000u : 0);
      }
    }
}

void widenDepthwiseWeights(const ConvolutionDesign &d, const char *weights, float *to) {
  for (const Phase &phase : d.phases)
    for (size_t tap = 0; tap < phase.kernels.size(); ++tap) {
      float *place =
          to + (phase.panelWords + static_cast<int64_t>(tap)) * ((d.groups + kVector - 1) / kVector * kVector);
      for (int64_t c = 0; c < d.groups; ++c) {
        int64_t at = c * d.tapCount + phase.kernels[tap];
        place[c] = d.narrowOperands ? widen(reinterpret_cast<const uint16_t *>(weights)[at])
                                    : reinterpret_cast<const float *>(weights)[at];
      }
    }
}

int64_t resultAt(const ConvolutionDesign &d, const Phase &phase, int64_t sample, const Sizes &at) {
  int64_t place = sample;
  for (size_t axis = 0; axis < kAxes; ++axis)
    place = place * d.result[axis] + phase.axes[axis].first + phase.axes[axis].step * at[axis];
  return place * d.groups * (d.depthwise ? 1 : d.resultChannels);
}

namespace {
/// Sums of chunks, added in order: to[i] for the `count` sums from `from` on.
void addChunks(const float *from, int64_t chunk, int64_t chunks, int64_t count, float *to) {
  std::memcpy(to, from, static_cast<size_t>(count) * 4);
  for (int64_t i = 1; i < chunks; ++i)
    for (int64_t at = 0; at < count; ++at)
      to[at] += from[i * chunk + at];
}
} // namespace

void finishWeightGradient(const ConvolutionDesign &d, const float *partials, void *result, int64_t begin, int64_t end) {
  const int64_t channels = d.depthwise ? 1 : d.sourceChannels, taps = d.tapCount, row = taps * channels,
                chunk = static_cast<int64_t>(d.partialBytes / 4), outputs = d.resultChannels;
  auto store = [&](int64_t o, int64_t tap, int64_t c, float sum) {
    int64_t at = (o * channels + c) * taps + tap;
    if (d.narrowResult)
      static_cast<uint16_t *>(result)[at] = roundToBf16(sum);
    else
      static_cast<float *>(result)[at] = sum;
  };
  constexpr int64_t together = 256;
  float sums[together];
  if (!d.depthwise && !d.byPixels()) {
    for (int64_t o = begin; o < end; ++o)
      for (int64_t first = 0; first < row; first += together) {
        int64_t count = std::min(together, row - first), tap = first / channels, c = first % channels;
        addChunks(partials + o * row + first, chunk, d.batchTiles(), count, sums);
        for (int64_t i = 0; i < count; ++i) {
          store(o, tap, c, sums[i]);
          if (++c == channels) {
            c = 0;
            ++tap;
          }
        }
      }
    return;
  }
  // Rows of sums by output: those of a depthwise convolution have all groups' channels.
  const int64_t width = d.depthwise ? d.groups : outputs;
  for (int64_t first = begin, count = 0; first < end; first += count) {
    const int64_t group = first / width;
    count = std::min({together, end - first, (group + 1) * width - first});
    for (int64_t tap = 0; tap < taps; ++tap)
      for (int64_t c = 0; c < channels; ++c) {
        addChunks(partials + (group * row + tap * channels + c) * width + first % width, chunk, d.batchTiles(), count,
                  sums);
        for (int64_t i = 0; i < count; ++i)
          store(first + i, tap, c, sums[i]);
      }
  }
}

int64_t CorrelationCall::tiles(int stage) const { return stage == 0 ? std::min(d.tiles(), weightParts()) : d.tiles(); }

bool CorrelationCall::run(int stage, const CallContext &context, int64_t begin, int64_t end) const {
  for (int64_t tile = begin; tile < end; ++tile) {
    char *slot =
        context.scratch + d.sharedBytes + slotOf(tile, tiles(stage), context.worker, context.workers) * d.slotBytes;
    if (stage == 1) {
      int64_t column = tile % d.columnTiles() * d.tileColumns, rest = tile / d.columnTiles();
      int64_t line = rest % d.lineTiles() * d.tileLines, sample = rest / d.lineTiles() % d.batchTiles() * d.tileBatch,
              group = rest / d.lineTiles() / d.batchTiles();
      runTile({{sample, std::min(sample + d.tileBatch, d.samples), line, std::min(line + d.tileLines, d.lines)},
               group, column, std::min(column + d.tileColumns, d.resultChannels)},
              context.pointers, context.scratch + group * static_cast<int64_t>(d.panelBytes()), slot);
      continue;
    }
    // The tile's share of the parts.
    int64_t parts = weightParts(), chunks = weightChunks(d);
    for (int64_t part = parts * tile / tiles(0); part < parts * (tile + 1) / tiles(0); ++part)
      packWeights(d, static_cast<const char *>(context.pointers[1]), part / chunks / d.panels(),
                  part / chunks % d.panels(), part % chunks, context.scratch, slot);
  }
  return true;
}

} // namespace tcc::runtime::convolution

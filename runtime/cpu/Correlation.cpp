//===- Correlation.cpp - convolutions and gradients of their inputs ------===//
//
// First all workers pack the weights into panels. A tile then copies its strip of the source and multiplies, for each
// block of K, every panel with all of its results, 8 at a time (TapProduct.h). Sums are kept in the result if it is f32
// with channels last, else in scratch until they are complete.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/ConvolutionParts.h"
#include "runtime/cpu/TapProduct.h"

#include <algorithm>
#include <cstring>

namespace tcc::runtime::convolution {

using packed::kRows, packed::Store;

namespace {
constexpr int64_t kColdElements = 1 << 18;

class Correlation final : public CorrelationCall {
public:
  explicit Correlation(ConvolutionDesign made)
      : CorrelationCall(std::move(made)),
        isCold(d.channelsLast && !d.narrowResult &&
               d.samples * d.groups * d.resultChannels * d.result[0] * d.result[1] * d.result[2] >= kColdElements) {}

private:
  /// Offsets of a tile's results of a phase: in the strip (bytes), in the result and in the sums (elements).
  struct Rows {
    int64_t *source, *result, *sums;
    int64_t count;
  };

  void runTile(const Tile &tile, void *const *pointers, const char *panels, char *slot) const override {
    const char *source = strip(d, static_cast<const char *>(pointers[0]), tile.group, tile.range, slot);
    for (const Phase &phase : d.phases) {
      Rows rows = placesOf(phase, tile.range, sumsPitch(tile.begin, tile.end), slot);
      if (rows.count > 0)
        multiplyPhase(phase, rows, source, panels, tile.begin, tile.end, tile.group, pointers[2], slot);
    }
  }

  /// Calls visit(sample, place of the first along each axis, count) for the lines of results of a phase in a range.
  template <typename Visit> void forEachLine(const Phase &phase, const Range &range, Visit visit) const {
    Sizes begin{0, 0, 0}, end{phase.axes[0].count, phase.axes[1].count, phase.axes[2].count};
    auto cut = static_cast<size_t>(d.cut);
    begin[cut] = std::min(range.firstLine, end[cut]);
    end[cut] = std::min(range.lastLine, end[cut]);
    for (int64_t sample = 0; sample < range.samples(); ++sample)
      for (int64_t i = begin[0]; i < end[0]; ++i)
        for (int64_t j = begin[1]; j < end[1]; ++j)
          visit(sample, Sizes{i, j, begin[2]}, end[2] - begin[2]);
  }

  static int64_t sumsPitch(int64_t begin, int64_t end) {
    return (end - begin + packed::kVector - 1) / packed::kVector * packed::kVector;
  }

  Rows placesOf(const Phase &phase, const Range &range, int64_t sumsPitch, char *slot) const {
    auto *places = reinterpret_cast<int64_t *>(slot + d.offsetRows);
    Rows rows{places, places + d.tileRows(), places + 2 * d.tileRows(), 0};
    int64_t size = packed::bytesOf(d.elements), step = d.sourceStep[2] * d.strip.axis[2] * size,
            resultStep = phase.axes[2].step * d.groups * d.resultChannels;
    Sizes first{0, 0, 0};
    first[static_cast<size_t>(d.cut)] = range.firstLine;
    forEachLine(phase, range, [&](int64_t sample, const Sizes &at, int64_t count) {
      int64_t place = sample * d.strip.sample;
      for (size_t axis = 0; axis < kAxes; ++axis)
        place += (at[axis] - first[axis]) * d.sourceStep[axis] * d.strip.axis[axis];
      place *= size;
      int64_t result = resultAt(d, phase, range.firstSample + sample, at);
      for (int64_t i = 0; i < count; ++i, place += step, result += resultStep, ++rows.count) {
        rows.source[rows.count] = place;
        rows.result[rows.count] = result;
        rows.sums[rows.count] = rows.count * sumsPitch;
      }
    });
    return rows;
  }

  void multiplyPhase(const Phase &phase, const Rows &rows, const char *source, const char *panels, int64_t begin,
                     int64_t end, int64_t group, void *result, char *slot) const {
    auto *sums = reinterpret_cast<float *>(slot + d.offsetSums);
    const int64_t size = packed::bytesOf(d.elements), resultSize = d.narrowResult ? 2 : 4;
    const int64_t channel = group * d.resultChannels; // of the tensor
    const bool dots = packed::isDotted(d.elements);
    if (phase.blocks.empty()) {
      clear(rows, channel + begin, end - begin, result);
      return;
    }
    int64_t word = phase.panelWords;
    for (size_t index = 0; index < phase.blocks.size(); ++index) {
      const std::vector<Piece> &block = phase.blocks[index];
      bool first = index == 0, last = index + 1 == phase.blocks.size();
      for (int64_t panel = 0; panel < d.panels(); ++panel) {
        int64_t column = d.panelColumn(panel), columns = d.panelColumn(panel + 1) - column;
        if (column < begin || column >= end)
          continue;
        auto *words = reinterpret_cast<const uint32_t *>(panels) + column * d.weightWords +
                      word * d.panelVectors(panel) * packed::kVector;
        packed::TapBlock taps{.source = source,
                              .sourceAt = nullptr,
                              .pieces = block.data(),
                              .pieceCount = static_cast<int64_t>(block.size()),
                              .elementBytes = size,
                              .panel = words,
                              .before = nullptr,
                              .beforeAt = nullptr,
                              .result = nullptr,
                              .resultAt = nullptr,
                              .store = Store::Overwrite,
                              .isCold = isCold && first};
        // The last block writes results if they are channels last; all other blocks write sums.
        char *whole = static_cast<char *>(result) + (channel + column) * resultSize;
        float *partial = d.keepsSums ? sums + column - begin : reinterpret_cast<float *>(whole);
        const int64_t *partialAt = d.keepsSums ? rows.sums : rows.result;
        bool completes = last && d.channelsLast;
        taps.result = completes ? static_cast<void *>(whole) : partial;
        taps.store = completes && d.narrowResult ? Store::Round : Store::Overwrite;
        taps.before = first ? nullptr : partial;
        for (int64_t row = 0; row < rows.count; row += kRows) {
          taps.sourceAt = rows.source + row;
          taps.resultAt = (completes ? rows.result : partialAt) + row;
          taps.beforeAt = partialAt + row;
          packed::multiplyTaps(dots, std::min(kRows, rows.count - row), columns, taps);
        }
      }
      for (const Piece &piece : block)
        word += piece.words;
    }
    if (!d.channelsLast)
      spread(rows, sums, begin, end, channel, result);
  }

  /// Zeroes results that no tap reaches.
  void clear(const Rows &rows, int64_t channel, int64_t count, void *result) const {
    int64_t all = d.groups * d.resultChannels, area = d.result[0] * d.result[1] * d.result[2],
            size = d.narrowResult ? 2 : 4;
    auto *to = static_cast<char *>(result);
    for (int64_t row = 0; row < rows.count; ++row) {
      if (d.channelsLast) {
        std::memset(to + (rows.result[row] + channel) * size, 0, static_cast<size_t>(count * size));
        continue;
      }
      int64_t pixel = rows.result[row] / all, at = (pixel / area * all + channel) * area + pixel % area;
      for (int64_t c = 0; c < count; ++c)
        std::memset(to + (at + c * area) * size, 0, static_cast<size_t>(size));
    }
  }

  /// Transposes sums of pixels to planes of channels.
  void spread(const Rows &rows, const float *sums, int64_t begin, int64_t end, int64_t channel, void *result) const {
    int64_t all = d.groups * d.resultChannels, area = d.result[0] * d.result[1] * d.result[2];
    constexpr int64_t together = packed::kColumns; // pixels that are transposed at a time
    alignas(64) uint32_t turned[packed::kVector * packed::kColumns];
    for (int64_t r0 = 0; r0 < rows.count; r0 += together) {
      int64_t count = std::min(together, rows.count - r0), places[together];
      for (int64_t i = 0; i < count; ++i) {
        int64_t pixel = rows.result[r0 + i] / all;
        places[i] = pixel / area * all * area + pixel % area;
      }
      int64_t pitch = (count + packed::kVector - 1) / packed::kVector * packed::kVector;
      bool runs = places[count - 1] - places[0] == count - 1;
      for (int64_t c0 = begin; c0 < end; c0 += packed::kVector) {
        int64_t channels = std::min(packed::kVector, end - c0);
        packed::packColumns(turned,
                            {reinterpret_cast<const char *>(sums + rows.sums[r0] + c0 - begin), sumsPitch(begin, end),
                             true, packed::Elements::F32},
                            count, channels);
        for (int64_t c = 0; c < channels; ++c) {
          auto *plane = reinterpret_cast<const float *>(turned + c * pitch);
          int64_t at = (channel + c0 + c) * area;
          if (runs && !d.narrowResult)
            std::memcpy(static_cast<float *>(result) + places[0] + at, plane, static_cast<size_t>(count) * 4);
          else if (d.narrowResult)
            for (int64_t i = 0; i < count; ++i)
              static_cast<uint16_t *>(result)[places[i] + at] = roundToBf16(plane[i]);
          else
            for (int64_t i = 0; i < count; ++i)
              static_cast<float *>(result)[places[i] + at] = plane[i];
        }
      }
    }
  }

  bool isCold; ///< the result is so large that the core's second cache does not keep it until the next step
};
} // namespace

std::unique_ptr<LibraryCall> makeCorrelation(ConvolutionDesign design) {
  return std::make_unique<Correlation>(std::move(design));
}

} // namespace tcc::runtime::convolution

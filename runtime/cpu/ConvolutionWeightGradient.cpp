//===- ConvolutionWeightGradient.cpp - gradients of convolutions' weights -===//
//
// A product over pixels: rows are the output channels, columns the taps and input channels, which are adjacent in a
// strip. A tile is a chunk of the batch and some columns. For each block of K it packs the pixels of the result's
// gradient, then multiplies them with one panel of columns after another. Finally, sums over chunks are added in order.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/ConvolutionParts.h"
#include "runtime/cpu/PixelProduct.h"

#include <algorithm>

namespace tcc::runtime::convolution {

using packed::Elements, packed::kRows, packed::kVector;

namespace {
constexpr int64_t kRowsOfATile = 16; ///< of the sums of chunks

/// Calls visit(sample, outer axes' places, first pixel and pixels of the innermost axis) for each line of a block.
template <typename Visit> void forEachLine(const ConvolutionDesign &d, const Range &range, Visit visit) {
  Sizes begin{0, 0, 0}, end = d.result;
  begin[static_cast<size_t>(d.cut)] = range.firstLine;
  end[static_cast<size_t>(d.cut)] = range.lastLine;
  for (int64_t sample = 0; sample < range.samples(); ++sample)
    for (int64_t i = begin[0]; i < end[0]; ++i)
      for (int64_t j = begin[1]; j < end[1]; ++j)
        visit(sample, Sizes{i, j, begin[2]}, end[2] - begin[2]);
}

class WeightGradient final : public WeightGradientCall {
public:
  using WeightGradientCall::WeightGradientCall;

private:
  void addBlock(const Block &block, void *const *pointers, char *slot) const override {
    const char *source = strip(d, static_cast<const char *>(pointers[0]), block.group, block.range, slot);
    multiplyBlock(block.range, source, static_cast<const char *>(pointers[1]), block.group, block.begin, block.end,
                  block.sums, d.tapCount * d.sourceChannels, block.first, slot);
  }

  /// The gradient of y: pixels are words of K, some output channels rows.
  void packGradient(const Range &range, const char *gradient, int64_t channel, int64_t rows, int64_t words,
                    uint32_t *to) const {
    const int64_t all = d.groups * d.resultChannels, area = d.result[0] * d.result[1] * d.result[2],
                  size = d.narrowOperands ? 2 : 4, perWord = packed::elementsOfWord(d.elements);
    auto sourceOf = [&](int64_t image, int64_t pixel) {
      int64_t element =
          d.channelsLast ? (image * area + pixel) * all + channel : (image * all + channel) * area + pixel;
      return packed::Source{gradient + element * size, d.channelsLast ? all : area, !d.channelsLast,
                            d.weightElements()};
    };
    // Pixels are contiguous across lines and samples, but a pair of pixels must not cross a line.
    if (d.channelsLast && d.result[2] % perWord == 0) {
      int64_t first = range.firstLine;
      for (int axis = d.cut + 1; axis < kAxes; ++axis)
        first *= d.result[static_cast<size_t>(axis)];
      return packed::packRows(to, sourceOf(range.firstSample, first), rows, words * perWord);
    }
    int64_t at = 0;
    forEachLine(d, range, [&](int64_t sample, const Sizes &place, int64_t pixels) {
      int64_t pixel = (place[0] * d.result[1] + place[1]) * d.result[2] + place[2];
      packed::packRows(to + at * kRows, sourceOf(range.firstSample + sample, pixel), rows, pixels, kRows * words);
      at += packed::wordsOf(pixels, d.elements);
    });
  }

  void multiplyBlock(const Range &range, const char *source, const char *gradient, int64_t group, int64_t begin,
                     int64_t end, float *sums, int64_t row, bool first, char *slot) const {
    const bool dots = packed::isDotted(d.elements);
    int64_t words = 0;
    forEachLine(d, range,
                [&](int64_t, const Sizes &, int64_t pixels) { words += packed::wordsOf(pixels, d.elements); });
    auto *left = reinterpret_cast<uint32_t *>(slot + d.offsetRows),
         *right = reinterpret_cast<uint32_t *>(slot + d.offsetPanel);
    Sizes origin{0, 0, 0};
    origin[static_cast<size_t>(d.cut)] = range.firstLine;
    for (int64_t firstRow = 0; firstRow < d.resultChannels; firstRow += ConvolutionDesign::kGradientRows) {
      int64_t rows = std::min(ConvolutionDesign::kGradientRows, d.resultChannels - firstRow);
      packGradient(range, gradient, group * d.resultChannels + firstRow, rows, words, left);
      for (const ColumnPanel &panel : d.columnPanels) {
        if (panel.first < begin || panel.first >= end)
          continue;
        int64_t width = (panel.count + kVector - 1) / kVector * kVector, at = 0;
        forEachLine(d, range, [&](int64_t sample, const Sizes &place, int64_t pixels) {
          int64_t element = sample * d.strip.sample;
          for (size_t axis = 0; axis < kAxes; ++axis)
            element += (place[axis] - origin[axis]) * d.sourceStep[axis] * d.strip.axis[axis];
          const packed::Source from{source + (element + (panel.runs.size() == 1 ? panel.runs.front().at : 0)) *
                                                 packed::bytesOf(d.elements),
                                  d.sourceStep[2] * d.strip.axis[2], false, d.elements};
        if (panel.runs.size() == 1)
          packed::packColumns(right + at * width, from, panel.count, pixels);
        else
          packed::packColumnRuns(right + at * width, from, panel.runs.data(), static_cast<int64_t>(panel.runs.size()),
                                 panel.count, pixels);
        at += packed::wordsOf(pixels, d.elements);
        });
        packed::Ahead ahead;
        for (int64_t o = 0; o < rows; o += kRows) {
          float *to = sums + (firstRow + o) * row + panel.first;
          packed::multiply(dots, {left + o * words, 0}, right, std::min(kRows, rows - o), panel.count,
                           {words, first ? nullptr : to, row, to, row, packed::Store::Overwrite, false, &ahead});
        }
      }
    }
  }
};

/// A register holds channels of the result's gradient; rows are elements of the source, read in place.
class PixelWeightGradient final : public WeightGradientCall {
public:
  explicit PixelWeightGradient(ConvolutionDesign made) : WeightGradientCall(std::move(made)) {
    for (const std::vector<Piece> &block : d.phases.front().blocks)
      for (const Piece &piece : block)
        for (int64_t word = 0; word < piece.words; ++word)
          rowAt.push_back((piece.at + word) * packed::bytesOf(d.elements));
  }

private:
  void addBlock(const Block &block, void *const *pointers, char *slot) const override {
    const char *source = strip(d, static_cast<const char *>(pointers[0]), block.group, block.range, slot);
    const int64_t all = d.groups * d.resultChannels, size = d.narrowOperands ? 2 : 4;
    auto *lines = reinterpret_cast<packed::PixelLine *>(slot + d.offsetRows);
    int64_t lineCount = 0;
    Sizes origin{0, 0, 0};
    origin[static_cast<size_t>(d.cut)] = block.range.firstLine;
    forEachLine(d, block.range, [&](int64_t sample, const Sizes &place, int64_t pixels) {
      int64_t element = sample * d.strip.sample;
      for (size_t axis = 0; axis < kAxes; ++axis)
        element += (place[axis] - origin[axis]) * d.sourceStep[axis] * d.strip.axis[axis];
      int64_t pixel =
          (((block.range.firstSample + sample) * d.result[0] + place[0]) * d.result[1] + place[1]) * d.result[2];
      lines[lineCount++] = {element * packed::bytesOf(d.elements), (pixel + place[2]) * all * size, pixels};
    });
    const int64_t end = std::min(block.end, static_cast<int64_t>(rowAt.size())), outputs = d.resultChannels;
    for (int64_t column = 0; column < outputs; column += packed::kColumns)
      for (int64_t row = block.begin; row < end; row += kRows)
        packed::multiplyPixels(std::min(kRows, end - row), std::min(packed::kColumns, outputs - column),
                               {.source = source,
                                .sourceAt = rowAt.data() + row,
                                .sourcePitch = d.sourceStep[2] * d.strip.axis[2] * packed::bytesOf(d.elements),
                                .gradient = static_cast<const char *>(pointers[1]) +
                                            (block.group * outputs + column) * size,
                                .gradientPitch = all * size,
                                .narrow = d.narrowOperands,
                                .lines = lines,
                                .lineCount = lineCount,
                                .sums = block.sums + row * outputs + column,
                                .sumsPitch = outputs,
                                .adds = !block.first});
  }

  std::vector<int64_t> rowAt; ///< bytes from a pixel in the strip to the element of each tap and channel
};
} // namespace

int64_t WeightGradientCall::tiles(int stage) const {
  return stage == 0 ? d.tiles() : (d.groups * d.resultChannels + kRowsOfATile - 1) / kRowsOfATile;
}

bool WeightGradientCall::run(int stage, const CallContext &context, int64_t begin, int64_t end) const {
  if (stage == 1) {
    finishWeightGradient(d, static_cast<const float *>(context.pointers[3]), context.pointers[2], begin * kRowsOfATile,
                         std::min(end * kRowsOfATile, d.groups * d.resultChannels));
    return true;
  }
  for (int64_t tile = begin; tile < end; ++tile)
    runTile(tile, context.pointers,
            context.scratch + slotOf(tile, d.tiles(), context.worker, context.workers) * d.slotBytes);
  return true;
}

void WeightGradientCall::runTile(int64_t tile, void *const *pointers, char *slot) const {
  int64_t part = tile % d.columnTiles(), rest = tile / d.columnTiles(), chunk = rest % d.batchTiles(),
          group = rest / d.batchTiles();
  auto *sums = d.keepsPartials ? static_cast<float *>(pointers[3]) + chunk * static_cast<int64_t>(d.partialBytes / 4)
                               : static_cast<float *>(pointers[2]);
  sums += group * d.resultChannels * d.tapCount * d.sourceChannels;
  bool first = true;
  int64_t end = std::min((chunk + 1) * d.tileBatch, d.samples);
  for (int64_t sample = chunk * d.tileBatch; sample < end; sample += d.blockSamples)
    for (int64_t line = 0; line < d.lines; line += d.blockLines) {
      Range range{sample, std::min(sample + d.blockSamples, end), line, std::min(line + d.blockLines, d.lines)};
      addBlock({range, group, part * d.tileColumns, (part + 1) * d.tileColumns, sums, first}, pointers, slot);
      first = false;
    }
}

std::unique_ptr<LibraryCall> makeWeightGradient(ConvolutionDesign design) {
  if (design.byPixels())
    return std::make_unique<PixelWeightGradient>(std::move(design));
  return std::make_unique<WeightGradient>(std::move(design));
}

} // namespace tcc::runtime::convolution

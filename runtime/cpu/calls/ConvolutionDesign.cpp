//===- ConvolutionDesign.cpp - a convolution as products -----------------===//
#include "runtime/cpu/calls/ConvolutionDesign.h"

#include "runtime/cpu/calls/Dimensions.h"
#include "runtime/cpu/calls/Needs.h"

#include <algorithm>
#include <fmt/ranges.h>

namespace tcc::runtime {

using Kind = plan::ConvolutionCall;
using packed::Elements, packed::kColumns, packed::kRows, packed::kVector, packed::kVectors;

namespace {
constexpr int64_t kMostStripBytes = int64_t(1) << 40;
constexpr int64_t kMostTaps = 1 << 20, kMostPhases = 1 << 12; ///< limits, because loading a plan lists them all
constexpr int64_t kPackedTogether = 512; ///< elements of a channel's kernel times channels

template <typename Field> Sizes sizesOf(const Field &field, int from, int64_t missing) {
  Sizes sizes;
  sizes.fill(missing);
  int count = field.size() - from;
  for (int i = 0; i < count; ++i)
    sizes[static_cast<size_t>(kAxes - count + i)] = field[from + i];
  return sizes;
}

int64_t roundUp(int64_t value, int64_t unit) { return ConvolutionDesign::ceilDiv(value, unit) * unit; }

/// The begin of a part when `whole` is cut into `parts` parts whose sizes differ by at most one.
int64_t partBegin(int64_t whole, int64_t parts, int64_t part) { return whole * part / parts; }

uint64_t bytes(int64_t count, int64_t size) { return alignScratch(static_cast<uint64_t>(count * size)); }

/// Results first + step · i of an input's gradient along an axis, and the taps that reach them: result i reads the
/// source at i + t, where t · stride = first + pad − index · dilation.
std::vector<PhaseOfAxis> gradientPhases(int64_t results, int64_t kernel, int64_t stride, int64_t dilation,
                                        int64_t pad) {
  std::vector<PhaseOfAxis> phases;
  for (int64_t first = 0; first < std::min(stride, results); ++first) {
    PhaseOfAxis phase{first, stride, ConvolutionDesign::ceilDiv(results - first, stride), {}};
    for (int64_t index = kernel - 1; index >= 0; --index)
      if (int64_t distance = first + pad - index * dilation; distance % stride == 0)
        phase.taps.push_back({index, distance / stride});
    phases.push_back(std::move(phase));
  }
  return phases;
}
} // namespace

Elements ConvolutionDesign::weightElements() const {
  return !narrowOperands ? Elements::F32 : elements == Elements::Bf16 ? Elements::Bf16 : Elements::WideBf16;
}

int64_t ConvolutionDesign::columns() const {
  if (kind == Kind::WEIGHT_GRADIENT)
    return depthwise ? groups : tapCount * sourceChannels;
  return depthwise ? groups : resultChannels;
}

int64_t ConvolutionDesign::tiles() const {
  int64_t lineParts = kind == Kind::WEIGHT_GRADIENT ? 1 : lineTiles();
  return batchTiles() * lineParts * columnTiles() * groupTiles();
}

uint64_t ConvolutionDesign::panelBytes() const {
  return bytes(weightWords * roundUp(depthwise ? groups : resultChannels, kVector), 4);
}

int64_t ConvolutionDesign::blockLineCount() const {
  int64_t perStep = 1;
  for (int axis = cut; axis < 2; ++axis)
    perStep *= axis == cut ? blockLines : result[static_cast<size_t>(axis)];
  return blockSamples * perStep;
}

int64_t ConvolutionDesign::tileRows() const {
  int64_t most = 0;
  for (const Phase &phase : phases) {
    int64_t along = phase.axes[static_cast<size_t>(cut)].count;
    most = std::max(most, phase.pixels() / along * std::min(along, tileLines));
  }
  return most * tileBatch;
}

void ConvolutionDesign::makePhases(const Kind &call) {
  Sizes kernel = sizesOf(call.w_dims(), 2, 1), strides = sizesOf(call.strides(), 0, 1),
        dilations = sizesOf(call.dilations(), 0, 1), pads = sizesOf(call.pads_begin(), 0, 0);
  std::array<std::vector<PhaseOfAxis>, kAxes> axes;
  for (size_t axis = 0; axis < kAxes; ++axis) {
    if (kind == Kind::INPUT_GRADIENT) {
      axes[axis] = gradientPhases(result[axis], kernel[axis], strides[axis], dilations[axis], pads[axis]);
      sourceStep[axis] = 1;
    } else {
      PhaseOfAxis phase{0, 1, result[axis], {}};
      for (int64_t index = 0; index < kernel[axis]; ++index)
        phase.taps.push_back({index, index * dilations[axis] - pads[axis]});
      axes[axis].push_back(std::move(phase));
      sourceStep[axis] = strides[axis];
    }
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (const PhaseOfAxis &phase : axes[axis])
      for (const Tap &tap : phase.taps) {
        least = std::min(least, tap.at);
        most = std::max(most, tap.at);
      }
    if (least > most)
      least = most = 0; // no result is reached along this axis
    low[axis] = least;
    span[axis] = most - least + 1;
    for (PhaseOfAxis &phase : axes[axis])
      for (Tap &tap : phase.taps)
        tap.at -= least;
  }
  for (const PhaseOfAxis &a : axes[0])
    for (const PhaseOfAxis &b : axes[1])
      for (const PhaseOfAxis &c : axes[2]) {
        Phase phase;
        phase.axes = {a, b, c};
        for (const Tap &i : a.taps)
          for (const Tap &j : b.taps)
            for (const Tap &k : c.taps)
              phase.kernels.push_back((i.index * kernel[1] + j.index) * kernel[2] + k.index);
        phases.push_back(std::move(phase));
      }
  lines = 0;
  for (const Phase &phase : phases)
    lines = std::max(lines, phase.axes[static_cast<size_t>(cut)].count);
}

void ConvolutionDesign::makeStrip() {
  bool toWeights = kind == Kind::WEIGHT_GRADIENT;
  int64_t channels = depthwise ? groups : sourceChannels;
  stripChannels = elements == Elements::Bf16 && !toWeights ? roundUp(channels, 2) : channels;
  // Elements that have to be widened cannot be read in place.
  inPlace = channelsLast && (groups == 1 || depthwise) && stripChannels == channels &&
            (narrowOperands ? packed::isNarrow(elements) : true);
  Sizes counts{};
  for (const Phase &phase : phases)
    for (size_t axis = 0; axis < kAxes; ++axis)
      counts[axis] = std::max(counts[axis], phase.axes[axis].count);
  // The loops of depthwise convolutions skip taps outside the source.
  for (size_t axis = 0; axis < kAxes && !depthwise; ++axis)
    inPlace &= low[axis] >= 0 && low[axis] + (counts[axis] - 1) * sourceStep[axis] + span[axis] <= source[axis];
  counts[static_cast<size_t>(cut)] = stripLines;
  int64_t pitch = stripChannels;
  for (size_t axis = kAxes; axis-- > 0;) {
    stripExtent[axis] = inPlace ? source[axis] : (counts[axis] - 1) * sourceStep[axis] + span[axis];
    strip.axis[axis] = pitch;
    pitch *= stripExtent[axis];
  }
  strip.sample = pitch;
}

void ConvolutionDesign::makeBlocks() {
  // The weights' gradient multiplies along pixels: its strips are columns, not words of K.
  bool toWeights = kind == Kind::WEIGHT_GRADIENT;
  int64_t perWord = toWeights ? 1 : packed::elementsOfWord(elements);
  weightWords = 0;
  for (Phase &phase : phases) {
    // Adjacent taps are one piece.
    std::vector<Piece> pieces;
    for (const Tap &i : phase.axes[0].taps)
      for (const Tap &j : phase.axes[1].taps)
        for (const Tap &k : phase.axes[2].taps) {
          int64_t at = i.at * strip.axis[0] + j.at * strip.axis[1] + k.at * strip.axis[2],
                  words = stripChannels / perWord;
          if (!depthwise && !pieces.empty() && pieces.back().at + pieces.back().words * perWord == at)
            pieces.back().words += words;
          else
            pieces.push_back({at, depthwise ? 1 : words});
        }
    int64_t total = 0;
    for (const Piece &piece : pieces)
      total += piece.words;
    phase.panelWords = weightWords;
    weightWords += total;
    if (pieces.empty())
      continue;
    if (depthwise) {
      phase.blocks.push_back(std::move(pieces));
      continue;
    }
    int64_t most = toWeights ? total : roundUp(ceilDiv(total, ceilDiv(total, blockWords)), kVector), left = 0;
    phase.blockWords = most;
    for (Piece piece : pieces)
      while (piece.words > 0) {
        if (left == 0) {
          phase.blocks.emplace_back();
          left = most;
        }
        int64_t words = std::min(left, piece.words);
        phase.blocks.back().push_back({piece.at, words});
        piece.at += words * perWord;
        piece.words -= words;
        left -= words;
      }
  }
}

/// Panels have up to three vectors, of sizes as equal as possible, within the columns of a tile.
void ConvolutionDesign::makePanels() {
  if (kind == Kind::WEIGHT_GRADIENT) {
    int64_t first = 0;
    for (const std::vector<Piece> &block : phases.front().blocks)
      for (const Piece &piece : block) {
        // Narrow pieces share a panel.
        if (!columnPanels.empty() && columnPanels.back().count + piece.words <= kColumns) {
          columnPanels.back().runs.push_back({piece.at, piece.words});
          columnPanels.back().count += piece.words;
          first += piece.words;
          continue;
        }
        int64_t vectors = ceilDiv(piece.words, kVector), parts = ceilDiv(vectors, kVectors);
        for (int64_t part = 0; part < parts; ++part) {
          int64_t begin = partBegin(vectors, parts, part) * kVector,
                  end = std::min(piece.words, partBegin(vectors, parts, part + 1) * kVector);
          columnPanels.push_back({first + begin, end - begin, {{piece.at + begin, end - begin}}});
        }
        first += piece.words;
      }
    return;
  }
  for (int64_t tile = 0; tile < resultChannels; tile += tileColumns) {
    int64_t vectors = ceilDiv(std::min(tileColumns, resultChannels - tile), kVector),
            parts = ceilDiv(vectors, kVectors);
    for (int64_t part = 0; part < parts; ++part)
      panelColumns.push_back(tile + partBegin(vectors, parts, part) * kVector);
  }
  panelColumns.push_back(resultChannels);
}

uint64_t ConvolutionDesign::tapListBytes() const { return bytes(tapCount * 2, 8); }

Status ConvolutionDesign::layOut() {
  // (double, because a descriptor's numbers may be arbitrarily large)
  double stripElements = static_cast<double>(stripSamples);
  for (int64_t extent : stripExtent)
    stripElements *= static_cast<double>(extent);
  if (stripElements * static_cast<double>(stripChannels) > static_cast<double>(kMostStripBytes) / 4)
    return error("a convolution whose padded tiles are too large");
  if (byPlanes()) {
    layOutPlanes();
    return Status::success();
  }
  int64_t stripBytes =
      inPlace ? 0 : static_cast<int64_t>(bytes(stripSamples * strip.sample, packed::bytesOf(elements)));
  if (kind == Kind::WEIGHT_GRADIENT) {
    if (depthwise) {
      offsetRows = static_cast<uint64_t>(stripBytes);
      slotBytes = offsetRows + tapListBytes();
    } else if (byPixels()) {
      offsetRows = static_cast<uint64_t>(stripBytes);
      slotBytes = offsetRows + bytes(blockLineCount() * 3, 8);
    } else {
      int64_t words = blockLineCount() * lineWords;
      offsetRows = static_cast<uint64_t>(stripBytes);
      offsetPanel = offsetRows + bytes(roundUp(std::min(resultChannels, kGradientRows), kRows) * words, 4);
      slotBytes = offsetPanel + bytes(kColumns * words + kVector, 4);
    }
    partialBytes = keepsPartials ? static_cast<uint64_t>((depthwise ? groups : groups * resultChannels) * tapCount *
                                                         (depthwise ? 1 : sourceChannels)) * 4
                                 : 0;
    return Status::success();
  }
  offsetRows = static_cast<uint64_t>(stripBytes);
  offsetSums = offsetRows + (depthwise ? tapListBytes() : bytes(tileRows() * 3, 8));
  slotBytes = offsetSums + (keepsSums && !depthwise ? bytes(tileRows() * roundUp(tileColumns, kVector), 4) : 0);
  // Weights are packed in an earlier stage, in the same slots.
  if (!depthwise)
    slotBytes = std::max(slotBytes, bytes(chunkChannels * tapCount * kColumns, 4));
  sharedBytes = panelBytes() * static_cast<uint64_t>(groupTiles());
  return Status::success();
}

Expected<ConvolutionDesign> ConvolutionDesign::shapeOf(const Kind &call) {
  if (Status status = checkShape(call); !status.ok())
    return status;
  ConvolutionDesign d;
  d.kind = call.kind();
  bool toInput = d.kind == Kind::INPUT_GRADIENT;
  d.samples = call.x_dims(0);
  d.groups = call.groups();
  d.tapCount = product(call.w_dims(), 2);
  int64_t inputs = call.w_dims(1), outputs = call.w_dims(0) / call.groups();
  d.sourceChannels = toInput ? outputs : inputs;
  d.resultChannels = toInput ? inputs : outputs;
  d.source = sizesOf(toInput ? call.y_dims() : call.x_dims(), 2, 1);
  d.result = sizesOf(toInput ? call.x_dims() : call.y_dims(), 2, 1);
  d.channelsLast = call.channels_last();
  d.depthwise = d.groups > 1 && inputs == 1 && outputs == 1;
  d.cut = kAxes - (call.x_dims_size() - 2);
  d.narrowOperands = call.dtype() == plan::BF16;
  d.narrowResult = d.narrowOperands && (call.result_dtype() == plan::DTYPE_NONE || call.result_dtype() == plan::BF16);
  d.elements = !d.narrowOperands ? Elements::F32
               : d.depthwise     ? Elements::WideBf16
               : call.widened()  ? Elements::F32
                                 : Elements::Bf16;
  d.form = call.form();
  if (d.form != Kind::CHANNELS &&
      (d.depthwise || !Kind::Form_IsValid(d.form) ||
       (d.byPixels() && (d.kind != Kind::WEIGHT_GRADIENT || !d.channelsLast || packed::isDotted(d.elements)))))
    return error("no call computes this convolution in form {}", static_cast<int>(d.form));
  int64_t phaseCount = 1;
  for (int axis = 0; toInput && axis < call.strides_size(); ++axis)
    phaseCount *= std::min({call.strides(axis), call.x_dims(axis + 2), kMostPhases + 1});
  if (d.tapCount > kMostTaps || phaseCount > kMostPhases)
    return error("no call convolves with {} taps and strides {}: it must be compiled", d.tapCount,
                 fmt::join(call.strides(), "x"));
  d.makePhases(call);
  return d;
}

Expected<ConvolutionDesign> ConvolutionDesign::create(const Kind &call) {
  auto shape = shapeOf(call);
  if (!shape)
    return shape;
  ConvolutionDesign d = shape.take();
  bool toWeights = d.kind == Kind::WEIGHT_GRADIENT;
  d.tileBatch = call.tile_batch();
  d.tileLines = call.tile_lines();
  d.tileColumns = call.tile_columns();
  d.blockWords = call.block_words();
  if (d.tileBatch < 1 || d.tileBatch > d.samples || d.tileLines < 1 || d.tileLines > d.lines || d.tileColumns < 1 ||
      d.tileColumns > d.columns() || d.blockWords < 1 || (toWeights && d.tileLines != d.lines) ||
      (d.tileColumns < d.columns() && d.tileColumns % kVector != 0))
    return error("a convolution in tiles of {} samples, {} lines, {} columns, in blocks of {}: not of {}, {} and {}",
                 d.tileBatch, d.tileLines, d.tileColumns, d.blockWords, d.samples, d.lines, d.columns());
  d.chunkChannels = std::min(d.sourceChannels, std::max<int64_t>(2, kPackedTogether / d.tapCount / 2 * 2));
  d.stripLines = d.tileLines;
  d.stripSamples = d.tileBatch;
  if (toWeights) {
    int64_t perWord = d.depthwise ? 1 : packed::elementsOfWord(d.elements), inner = 1;
    for (int axis = d.cut + 1; axis < 2; ++axis)
      inner *= d.result[static_cast<size_t>(axis)];
    int64_t rowWords = ceilDiv(d.result[2], perWord), stepWords = inner * rowWords; // of one step along `cut`
    if (d.cut == 2)
      d.blockLines = std::min(d.result[2], d.blockWords * perWord);
    else
      d.blockLines = std::clamp<int64_t>(d.blockWords / stepWords, 1, d.lines);
    d.lineWords = d.cut == 2 ? ceilDiv(d.blockLines, perWord) : rowWords;
    if (d.blockLines == d.lines)
      d.blockSamples =
          std::clamp<int64_t>(d.blockWords / (d.cut == 2 ? rowWords : d.lines * stepWords), 1, d.tileBatch);
    d.stripLines = d.blockLines;
    d.stripSamples = d.blockSamples;
    d.keepsPartials = d.batchTiles() > 1 || d.tapCount > 1 || d.narrowResult || d.depthwise || d.byPixels();
  } else {
    d.keepsSums = !d.channelsLast || d.byPlanes();
  }
  d.makeStrip();
  d.makeBlocks();
  if (d.byPlanes())
    if (Status status = d.makePlanes(); !status.ok())
      return status;
  if (!toWeights && !d.depthwise && d.narrowResult)
    for (const Phase &phase : d.phases)
      d.keepsSums |= phase.blocks.size() > 1;
  if (!d.depthwise)
    d.makePanels();
  if (Status status = d.layOut(); !status.ok())
    return status;
  return d;
}

} // namespace tcc::runtime

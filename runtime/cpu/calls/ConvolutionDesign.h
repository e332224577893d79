//===- ConvolutionDesign.h - a convolution as products ----------*- C++ -*-===//
//
// A convolution's descriptor determines which elements are multiplied, and the layout of operands in scratch. Both are
// computed here; nothing is chosen.
//
// A forward convolution and the gradient of its input are the same problem, a *correlation*: each element of the result
// is a sum over taps of elements of a *source*. The gradient of a convolution with strides has several *phases*,
// classes of result elements with the same taps: along an axis, those whose index is the same modulo the stride. The
// gradient of the weights is a product over pixels of the forward pass's source and the result's gradient.
//
// Spatial axes are three here; a convolution of fewer has axes of size 1 before its own.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_CALLS_CONVOLUTIONDESIGN_H
#define TCC_RUNTIME_CPU_CALLS_CONVOLUTIONDESIGN_H

#include "runtime/cpu/calls/PanelWords.h"
#include "runtime/plan/plan.pb.h"
#include "support/Status.h"

#include <array>
#include <cstdint>
#include <vector>

namespace tcc::runtime {

inline constexpr int kAxes = 3;
using Sizes = std::array<int64_t, kAxes>;

/// An element of the kernel along an axis, and the offset of its source from the strip's element of a result.
struct Tap {
  int64_t index, at;
};

/// `count` results first, first + step, … along an axis, which have the same taps; taps are in the order of reading.
struct PhaseOfAxis {
  int64_t first, step, count;
  std::vector<Tap> taps;
};

/// Words of K that are adjacent in a strip and in a panel of weights.
struct Piece {
  int64_t at;    ///< elements from the strip's element of a result
  int64_t words; ///< at most those of a block of K
};

/// Results with the same taps.
struct Phase {
  std::array<PhaseOfAxis, kAxes> axes;
  std::vector<int64_t> kernels;            ///< the kernel's elements by tap, in the order of K
  std::vector<std::vector<Piece>> blocks; ///< of K
  int64_t blockWords = 0;                 ///< of K in each block but the last
  int64_t panelWords = 0;                  ///< offset of this phase's part in a panel, in words of K

  int64_t pixels() const { return axes[0].count * axes[1].count * axes[2].count; }
};

/// Columns of the weights' gradient that are multiplied together.
struct ColumnPanel {
  int64_t first; ///< column: tap · channels + channel
  int64_t count;
  std::vector<packed::ColumnRun> runs; ///< elements from the strip's element of a result
};

/// Elements from one sample, or one step along an axis, to the next.
struct Pitch {
  int64_t sample;
  Sizes axis;
};

/// The strip of a convolution by planes: [word of channels][class][sample][pixel]. A class holds the source's elements
/// that have the same index modulo the step between results, along each axis, so that adjacent results read adjacent
/// words. The weights' gradient has a plane for each channel; with bf16 dot products its words are pairs of pixels.
struct Planes {
  Sizes classes, extent; ///< along each axis: classes that taps read, elements of a class
  int64_t sample;        ///< elements from one sample to the next,
  int64_t classPitch;    ///< from one class to the next,
  int64_t pitch;         ///< from one word of channels to the next
  int64_t words;         ///< of channels
  int64_t wordBytes;     ///< of an element of a plane
  int64_t pixels;        ///< of a plane, per tile or block of K of the weights' gradient: rounded up to whole registers
  /// [phase][word of K, or column of the weights' gradient]: bytes to the element that the first result reads.
  std::vector<std::vector<int64_t>> places;
  uint64_t offsetValid = 0; ///< in a slot: the mask of the weights' gradient, all ones for real pixels

  /// Elements from the first result to the end of the last one.
  int64_t run(int64_t samples, const Sizes &results) const;
};

class ConvolutionDesign {
public:
  /// Error: a shape or tiles that fit no convolution.
  static Expected<ConvolutionDesign> create(const plan::ConvolutionCall &call);
  /// Only the parts that depend on the shape alone: no tiles, strips or panels.
  static Expected<ConvolutionDesign> shapeOf(const plan::ConvolutionCall &call);

  plan::ConvolutionCall::Kind kind;
  int64_t samples, groups, tapCount;
  /// Channels of a group. The gradient of the weights has those of x and y.
  int64_t sourceChannels, resultChannels;
  Sizes source, result; ///< whole tensors; the weights' gradient: x and y
  bool channelsLast;
  /// Groups have one input and one output channel each; a register holds channels of several groups.
  bool depthwise;
  plan::ConvolutionCall::Form form; ///< which elements a register holds
  bool byPlanes() const { return form == plan::ConvolutionCall::PLANES; }
  bool byPixels() const { return form == plan::ConvolutionCall::PIXELS; }
  int cut; ///< the axis that tiles cut

  bool narrowOperands, narrowResult;       ///< stored as bf16
  packed::Elements elements;               ///< of strips, as they are multiplied
  packed::Elements weightElements() const; ///< of weights as they are stored

  std::vector<Phase> phases;
  Sizes sourceStep, low, span; ///< from result to result; the first tap's source element; elements that taps reach over

  // Tiles: samples × results along `cut` (of each phase) × channels of the result, or columns of the weights' gradient.
  int64_t tileBatch, tileLines, tileColumns, blockWords;
  int64_t lines; ///< results along `cut`, in the phase with the most
  int64_t columns() const; ///< number of columns, which tileColumns cuts
  int64_t batchTiles() const { return ceilDiv(samples, tileBatch); }
  int64_t lineTiles() const { return ceilDiv(lines, tileLines); }
  int64_t columnTiles() const { return ceilDiv(columns(), tileColumns); }
  int64_t groupTiles() const { return depthwise ? 1 : groups; }
  int64_t tiles() const;

  // Strips: the part of the source that a tile, or a block of K of the weights' gradient, reads, padded, channels last.
  bool inPlace;            ///< the source itself is used as the strip
  int64_t stripChannels;   ///< of a pixel
  int64_t stripLines;      ///< results along `cut` for which a strip suffices
  int64_t stripSamples;
  Pitch strip;             ///< elements
  Sizes stripExtent;
  Planes planes;

  // Panels of weights: of up to 48 result channels, all K; for all tiles.
  std::vector<int64_t> panelColumns; ///< the first channel of each panel of a group; at last, the number of channels
  int64_t panels() const { return static_cast<int64_t>(panelColumns.size()) - 1; }
  int64_t panelColumn(int64_t panel) const { return panelColumns[static_cast<size_t>(panel)]; }
  int64_t panelVectors(int64_t panel) const {
    return ceilDiv(panelColumn(panel + 1) - panelColumn(panel), packed::kVector);
  }
  int64_t weightWords = 0; ///< of K, all phases
  int64_t chunkChannels;   ///< source channels that are packed at a time
  uint64_t panelBytes() const; ///< all panels of a group

  // The weights' gradient: partial sums [chunk of the batch][o][tap][c] in f32, if they cannot be written to the result
  // directly; in the form PIXELS, [chunk of the batch][tap][c][o].
  bool keepsPartials = false;
  std::vector<ColumnPanel> columnPanels;
  static constexpr int64_t kGradientRows = 256; ///< output channels that are packed at a time
  int64_t blockSamples = 1, blockLines = 1; ///< of a block of K
  int64_t lineWords = 0;                    ///< of K, of the innermost axis
  int64_t blockLineCount() const;           ///< innermost lines of a block
  uint64_t partialBytes = 0;                ///< of a chunk

  bool keepsSums = false; ///< a correlation's tile keeps its sums in scratch, because the result cannot hold them
  // A worker's slot, bytes from its start.
  uint64_t offsetRows = 0, offsetSums = 0, offsetPanel = 0, slotBytes = 0, sharedBytes = 0;

  /// The most results of a phase in a tile.
  int64_t tileRows() const;

  static int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

private:
  void makePhases(const plan::ConvolutionCall &call);
  void makeStrip();
  void makeBlocks();
  void makePanels();
  Status makePlanes();
  void layOutPlanes();
  uint64_t tapListBytes() const; ///< of a depthwise convolution's line
  Status layOut();
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_CALLS_CONVOLUTIONDESIGN_H

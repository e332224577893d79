//===- ConvolutionParts.h - packing and unpacking for convolutions -------===//
//
// Copies between a plan's tensors and the operands of the products: padded strips of the source, panels of weights, and
// sums that are converted to results.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_CONVOLUTIONPARTS_H
#define TCC_RUNTIME_CPU_CONVOLUTIONPARTS_H

#include "runtime/cpu/LibraryPrimitive.h"
#include "runtime/cpu/PackedProduct.h"
#include "runtime/cpu/calls/ConvolutionDesign.h"

namespace tcc::runtime::convolution {

/// A part of the results: samples, and elements along the axis that tiles cut, of each phase.
struct Range {
  int64_t firstSample, lastSample, firstLine, lastLine; ///< last: one behind
  int64_t samples() const { return lastSample - firstSample; }
};

/// The strip for a range of results, copied to `room` or in place; returns its element for the first result, in sample
/// range.firstSample. It has the channels of `group`; for depthwise convolutions, all channels.
const char *strip(const ConvolutionDesign &design, const char *source, int64_t group, const Range &range, char *room);

/// Packs some source channels of one panel of weights; `room` has the bytes of a worker's slot.
void packWeights(const ConvolutionDesign &design, const char *weights, int64_t group, int64_t panel, int64_t chunk,
                 char *panels, char *room);
/// Chunks of source channels.
int64_t weightChunks(const ConvolutionDesign &design);

/// The weights of a depthwise convolution as f32: [tap, in the order of the phases][channel].
void widenDepthwiseWeights(const ConvolutionDesign &design, const char *weights, float *to);

/// Offset of a result of a phase in a channels-last tensor: elements from the start to its channel 0.
int64_t resultAt(const ConvolutionDesign &design, const Phase &phase, int64_t sample, const Sizes &at);

/// A correlation: all workers pack the weights, then run tiles.
class CorrelationCall : public LibraryCall {
public:
  explicit CorrelationCall(ConvolutionDesign made) : d(std::move(made)) {}

  int stages() const final { return 2; }
  /// Tiles of a stage; for the packing of weights at most the number of slots.
  int64_t tiles(int stage) const final;
  int longestStage() const final { return 1; }
  bool run(int stage, const CallContext &context, int64_t begin, int64_t end) const final;

protected:
  struct Tile {
    Range range;
    int64_t group, begin, end; ///< of the result's channels
  };
  /// `panels`: the group's weights.
  virtual void runTile(const Tile &tile, void *const *pointers, const char *panels, char *slot) const = 0;

  ConvolutionDesign d;

private:
  int64_t weightParts() const { return d.groups * d.panels() * weightChunks(d); }
};

/// The gradient of the weights: tiles sum blocks of pixels, then chunks of the batch are added.
class WeightGradientCall : public LibraryCall {
public:
  explicit WeightGradientCall(ConvolutionDesign made) : d(std::move(made)) {}

  int stages() const final { return d.keepsPartials ? 2 : 1; }
  int64_t tiles(int stage) const final;
  bool run(int stage, const CallContext &context, int64_t begin, int64_t end) const final;

protected:
  struct Block {
    Range range; ///< of the result's pixels
    int64_t group, begin, end; ///< columns; `end` may be beyond the last one
    float *sums; ///< [o][column] of the group
    bool first;  ///< this is the first block of the sums
  };
  virtual void addBlock(const Block &block, void *const *pointers, char *slot) const = 0;

  ConvolutionDesign d;

private:
  void runTile(int64_t tile, void *const *pointers, char *slot) const;
};

/// Runs of a correlation, of the weights' gradient, and of depthwise convolutions.
std::unique_ptr<LibraryCall> makeCorrelation(ConvolutionDesign design);
std::unique_ptr<LibraryCall> makeWeightGradient(ConvolutionDesign design);
std::unique_ptr<LibraryCall> makeDepthwise(ConvolutionDesign design);
/// Runs of any direction whose design is by planes.
std::unique_ptr<LibraryCall> makeByPlanes(ConvolutionDesign design);

/// Converts rows [begin, end) of the weights' gradient: adds the partial sums [chunk][o][tap][c] in the order of
/// chunks, and transposes c and tap.
void finishWeightGradient(const ConvolutionDesign &design, const float *partials, void *result, int64_t begin,
                          int64_t end);

inline float widen(uint16_t value) {
  uint32_t bits = static_cast<uint32_t>(value) << 16;
  float wide;
  __builtin_memcpy(&wide, &bits, 4);
  return wide;
}

} // namespace tcc::runtime::convolution

#endif // TCC_RUNTIME_CPU_CONVOLUTIONPARTS_H

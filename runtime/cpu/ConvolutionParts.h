//===- ConvolutionParts.h - what all convolutions do with operands -------===//
//
// Copies between a plan's tensors and what the products read and write: padded strips of the source, panels of weights,
// sums that become results.
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

/// The strip's element of the first result of a range, sample range.firstSample: copied into `room`, or in place. Of the
/// channels of `group`; of all for depthwise convolutions.
const char *strip(const ConvolutionDesign &design, const char *source, int64_t group, const Range &range, char *room);

/// Packs some source channels of one panel of weights; `room` has the bytes of a worker's slot.
void packWeights(const ConvolutionDesign &design, const char *weights, int64_t group, int64_t panel, int64_t chunk,
                 char *panels, char *room);
/// Chunks of source channels.
int64_t weightChunks(const ConvolutionDesign &design);

/// The weights of a depthwise convolution as f32: [tap, in the order of the phases][channel].
void widenDepthwiseWeights(const ConvolutionDesign &design, const char *weights, float *to);

/// Where a result of a phase lies: elements from the start of the tensor to its channel 0, channels last.
int64_t resultAt(const ConvolutionDesign &design, const Phase &phase, int64_t sample, const Sizes &at);

/// A correlation: all workers pack the weights, then run tiles.
class CorrelationCall : public LibraryCall {
public:
  explicit CorrelationCall(ConvolutionDesign made) : d(std::move(made)) {}

  int stages() const final { return 2; }
  /// Of weights no more than there are slots for.
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
    int64_t group, begin, end; ///< columns; `end` may lie behind the last one
    float *sums; ///< [o][column] of the group
    bool first;  ///< the sums begin with this block
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
/// Of any direction whose design is by planes.
std::unique_ptr<LibraryCall> makeByPlanes(ConvolutionDesign design);

/// Sums of the weights' gradient, by chunk, become the gradient: chunks are added in order, and c and tap change places.
/// `rows` of [o][tap][c]; from row `begin` on.
void finishWeightGradient(const ConvolutionDesign &design, const float *partials, void *result, int64_t begin, int64_t end);

inline float widen(uint16_t value) {
  uint32_t bits = static_cast<uint32_t>(value) << 16;
  float wide;
  __builtin_memcpy(&wide, &bits, 4);
  return wide;
}

} // namespace tcc::runtime::convolution

#endif // TCC_RUNTIME_CPU_CONVOLUTIONPARTS_H

//===- Winograd.h - shapes of convolutions by Winograd's method -*- C++ -*-===//
//
// The shared part of the ops, their kernels and the pass that chooses them. Everything follows from the shapes, so that
// bits do not depend on the machine.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_DIALECT_WINOGRAD_H
#define TCC_DIALECT_WINOGRAD_H

#include "compiler/dialect/Builders.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>

namespace tcc::train {

struct WinogradShape {
  /// A tile is 4×4 outputs and the 6×6 inputs they depend on, with 3×3 weights.
  static constexpr int64_t kOutputs = 4, kTaps = 3, kInputs = kOutputs + kTaps - 1, kPoints = kInputs * kInputs;

  int64_t batch, height, width, channels; ///< of the input
  int64_t rows, columns, features;        ///< of the output
  int64_t padTop, padLeft;
  /// Outputs with the same index modulo the dilation along both axes form a grid: an undilated convolution. A tile
  /// belongs to one grid; grids with fewer rows or columns than others have partial tiles.
  int64_t dilationRows, dilationColumns;
  int64_t channelsAtATime = 0; ///< 0: channelBlock() chooses

  int64_t grids() const { return dilationRows * dilationColumns; }
  /// Tiles of a grid.
  int64_t tileRows() const { return llvm::divideCeil(llvm::divideCeil(rows, dilationRows), kOutputs); }
  int64_t tileColumns() const { return llvm::divideCeil(llvm::divideCeil(columns, dilationColumns), kOutputs); }
  int64_t tiles() const { return batch * grids() * tileRows() * tileColumns(); }
  /// True if no tile reaches beyond the last output.
  bool tilesAreFull() const {
    return rows % (kOutputs * dilationRows) == 0 && columns % (kOutputs * dilationColumns) == 0;
  }

  /// Tiles that are transformed and multiplied together: their transforms and the transformed weights should stay in a
  /// core's second-level cache.
  static constexpr int64_t kBlock = 16, kGradBlock = 24;

  // The convolution. A kernel's tile (a "task" here) is a part of the features and a chunk of the tiles: it transforms
  // the weights of its part once for its chunk.
  int64_t featurePart() const { return features % 64 == 0 || features % 64 > 32 ? 64 : 32; }
  int64_t featureParts() const { return llvm::divideCeil(features, featurePart()); }
  int64_t chunkTiles() const {
    int64_t chunks = std::min(llvm::divideCeil(kTasks, featureParts()), llvm::divideCeil(tiles(), kLeastChunk));
    return llvm::divideCeil(llvm::divideCeil(tiles(), chunks), kBlock) * kBlock;
  }
  int64_t chunks() const { return llvm::divideCeil(tiles(), chunkTiles()); }
  /// Channels whose weights are in scratch at a time. These are not all channels if a task has so few tiles that the
  /// sums of all tiles take less memory than the weights. Each sum adds channels in the same order either way.
  int64_t channelBlock() const {
    if (channelsAtATime)
      return channelsAtATime;
    return channels % kChannelBlock == 0 && chunkTiles() <= kFewTiles ? kChannelBlock : channels;
  }
  /// Tiles whose sums are in scratch at a time.
  int64_t sumTiles() const { return channelBlock() < channels ? chunkTiles() : kBlock; }

  // The gradient of the weights. A task is a block of channels, one of features, and a part of the tiles.
  int64_t gradChannels() const { return std::min<int64_t>(64, llvm::divideCeil(channels, 8) * 8); }
  int64_t gradFeatures() const { return featurePart(); }
  int64_t gradBlocks() const {
    return llvm::divideCeil(channels, gradChannels()) * llvm::divideCeil(features, gradFeatures());
  }
  int64_t gradPartTiles() const {
    int64_t parts = std::min(llvm::divideCeil(kGradTasks, gradBlocks()), llvm::divideCeil(tiles(), kLeastChunk));
    return llvm::divideCeil(llvm::divideCeil(tiles(), parts), kGradBlock) * kGradBlock;
  }
  int64_t gradParts() const { return llvm::divideCeil(tiles(), gradPartTiles()); }

  /// Cost in multiply-adds: of a direct convolution, of Winograd's method, and of the weight gradient by that method.
  double directOperations() const { return 9.0 * double(batch * rows * columns) * double(channels) * double(features); }
  double productOperations() const { return double(kPoints) * double(tiles()) * double(channels) * double(features); }
  double operations() const;
  double gradOperations() const;

private:
  /// Wanted numbers of tasks, for many cores; least tiles of a task, to amortise the transform of the weights.
  static constexpr int64_t kTasks = 32, kGradTasks = 16, kLeastChunk = 64;
  static constexpr int64_t kChannelBlock = 128, kFewTiles = 64;
};

/// The shape of a convolution from types: input and output channels-last.
inline WinogradShape winogradShapeOf(mlir::Value input, mlir::Value output, llvm::ArrayRef<int64_t> padsBegin,
                                     llvm::ArrayRef<int64_t> dilations) {
  llvm::ArrayRef<int64_t> x = shapeOf(input), y = shapeOf(output);
  return {x[0], x[1], x[2], x[3], y[1], y[2], y[3], padsBegin[0], padsBegin[1], dilations[0], dilations[1]};
}
WinogradShape winogradShapeOf(WinogradConvOp op);
WinogradShape winogradShapeOf(WinogradWeightGradOp op);

/// The type of sums: f64 for f64, else f32.
mlir::Type winogradSumType(mlir::Type element);

} // namespace tcc::train

#endif // TCC_DIALECT_WINOGRAD_H

//===- CpuModel.h - tuning constants of the CPU target ----------*- C++ -*-===//
//
// Every tuning constant of the CPU's choices: tiles, implementations, layouts. They affect speed, never the values that
// a plan computes; a change affects new plans only. Rates are those of one core of Zen 4 at 4.9 GHz with the other core
// busy, unless stated otherwise; `test/bench/performance.py` measures the effect of a change on whole steps.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_COMPILER_TARGET_CPU_CPUMODEL_H
#define TCC_COMPILER_TARGET_CPU_CPUMODEL_H

#include "compiler/target/CostModel.h"

#include <cstdint>

namespace tcc::target::cpu {

/// How products are cut. Results above `partialElements` have enough tiles without partial sums, unless K is so long
/// that A and B are `partialShare` times larger.
struct SplitModel {
  int64_t partialElements = 1 << 16;
  int64_t partialShare = 32;
  int64_t lastCacheBytes = 24 << 20;
  double tileFlops = 1e6; ///< a smaller product is one tile: waking threads would cost more
};

/// Products by one-thread primitives of oneDNN.
struct LibraryModel {
  double flopsPerNs = 115.0;
  double narrowFlopsPerNs = 228.0;  ///< bf16 products
  double copyNsPerByte = 0.07;      ///< read strided, write dense, mostly from the second and third cache
  double transposeNsPerByte = 0.05; ///< inside the library
  double interleaveNsPerByte = 0.022; ///< inside the library: bf16 needs pairs of rows of B interleaved
  double callNs = 700.0;
  double streamNsPerByte = 0.08; ///< from memory, where an operand is larger than the last cache
  double fetchNsPerByte = 0.02;  ///< from the last cache, if a part does not stay in the worker's own
  int64_t cacheBytes = 1 << 20;
  int64_t copyBytes = 3 << 19; ///< copies of a worker: planned memory, so kept small
  int64_t hiddenRows = 96;     ///< from this many rows on, arithmetic hides reading B from the last cache
  int64_t thinRows = 32; ///< so few rows wait for B: cut K (chunks of B are dense) rather than columns (copied)
};

/// Products on packed panels; times in cycles.
struct PanelModel {
  double stepLatency = 5.0;  ///< of one multiply-add: bounds panels with few sums
  double panelCycles = 40.0; ///< overhead of a pair of panels, without its sums
  double sumCycles = 2.5;    ///< to store a vector of sums, and to load it again for each later block of K
  double packColumns = 10.0; ///< to pack a vector of words of B, into the second-level cache
  double copyAhead = 2.0;    ///< to pack such a vector during products
  double packRows = 4.0;     ///< to pack a word of a panel of A
  double tileCycles = 600.0;
  double fetchPerByte = 0.12;  ///< packing an operand that is in no cache of the core
  double streamPerByte = 0.3;  ///< packing an operand that is not in the last cache either
  int64_t blockWords = 384;         ///< most words of a block of K
  int64_t blockWordsInPlace = 1024; ///< likewise, if rows of A are not copied
  int64_t panelBytes = 640 << 10;   ///< of A, in the second-level cache
  int64_t slotBytes = 3 << 19;      ///< of a worker: planned memory, so kept small
  double scratchSlack = 1.02; ///< largest slowdown of a product for less scratch, if that lowers the peak of memory
  double slack = 1.02; ///< largest slowdown on few workers for tiles that keep many busy
  // Shapes for which the library is slower (suitsPanels).
  int64_t fewRows = 48, wideRow = 2048, narrowRow = 512, shortSum = 256, sum = 512;
  int64_t pairsSum = 768, pairsLongSum = 1024, pairsWideRow = 769; ///< bf16
};

/// Products of few rows.
struct FewRowsModel {
  // Limits above which the library, or packed panels, are as fast (suitsFewRows).
  int64_t mostPairRows = 47, mostRowsOfLongSums = 32, shortSum = 1024;
  double flopsPerNs = 100.0, narrowFlopsPerNs = 180.0, bytesPerNs = 25.0;
  double tileNs = 1000.0; ///< least time of a tile that is worth handing to a worker
  int64_t mostTiles = 64;
  int64_t unit = 32;    ///< columns of a tile are a multiple of this, or
  int64_t fewTiles = 8; ///< of 2 or 4 times as much for few rows, if so many tiles remain: longer pieces of B's rows
};

/// Products whose rows go to a kernel. Sizes of a tile: rows of C in scratch, and panels of A. If all of B stays in the
/// second-level cache, rows of C are few enough for the first-level cache, where the kernel finds them. Else a tile has
/// more rows, to amortise reading the panels of B.
struct RowsModel {
  int64_t rowsBytes = 384 << 10, panelBytes = 256 << 10;
  int64_t nearRowsBytes = 32 << 10, nearBytes = 256 << 10;
  int64_t tiles = 16, leastRows = 16;
};

/// Convolutions.
struct ConvolutionModel {
  int64_t tiles = 64;                          ///< wanted number; fewer if a tile would have less than tileFlops
  int64_t chunks = 16;                         ///< most parts of the batch, each with partial sums (weight gradient)
  double tileFlops = 3e5, mostTileFlops = 5e7; ///< of a tile
  int64_t tilePixels = 96;      ///< least pixels of a tile, which share one pass over the weights
  int64_t stripBytes = 512 << 10; ///< most bytes of a tile's strip, which stays in the second-level cache
  int64_t leastColumns = 48, leastGradientColumns = 192; ///< of a tile; the second: if fewTiles tiles remain
  int64_t fewTiles = 4;
  int64_t blockWords = 384, gradientBlockWords = 384;    ///< of K
  int64_t partialBytes = 3 << 19; ///< most bytes of all chunks' partial sums; four chunks may exceed it
  int64_t gradientPixels = 256;   ///< least pixels of a chunk, to amortise adding its partial sums
  int64_t planeBlockBytes = 96 << 10; ///< of both operands in a block of K (weight gradient by planes)
  int64_t mostPlaneBlockWords = 2048;

  // Cycles of the forms, fitted to convolutions-bench on Zen 5. A factor scales the cycles of the multiplications, two
  // registers per cycle; the other constants are added.
  double channelsFactor = 1.2, planesFactor = 1.4, planesGradientFactor = 1.9, pixelsFactor = 1.35;
  double pixelCycles = 8, planesPixelCycles = 6; ///< of each result
  double turnedCycles = 2;     ///< of an element copied between channels first and channels last, or with a stride
  double copiedCycles = 0.3;   ///< of an element copied in its own layout
  double lanesCycles = 10;     ///< to add a register's lanes, once per weight and chunk in the gradient by planes
  double runCycles = 8, packedCycles = 0.2; ///< weight gradient by channels: of a pixel's run; of a packed element
  int64_t mostPlaneChannels = 32; ///< most channels of a result; more have not been measured
};

struct CpuModel {
  CostModel nominal; ///< two cores with AVX-512, rounded
  SplitModel split;
  LibraryModel library;
  PanelModel panels;
  FewRowsModel fewRows;
  RowsModel rows;
  ConvolutionModel convolution;
};

} // namespace tcc::target::cpu

#endif // TCC_COMPILER_TARGET_CPU_CPUMODEL_H

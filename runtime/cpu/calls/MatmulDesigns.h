//===- MatmulDesigns.h - a product's scratch, by implementation -*- C++ -*-===//
//
// Each implementation of a product has its own layout of a tile's scratch, which is computed here from shape and tiles;
// nothing is chosen.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_CALLS_MATMULDESIGNS_H
#define TCC_RUNTIME_CPU_CALLS_MATMULDESIGNS_H

#include "runtime/cpu/calls/MatmulTiling.h"
#include "runtime/cpu/calls/Needs.h"
#include "runtime/cpu/calls/PanelWords.h"

#include <algorithm>
#include <optional>

namespace tcc::runtime {

/// The layout of a B in 4 or 8 bits (MatmulCall.four_bits).
packed::CodeLayout codesOf(const plan::FourBits &layout);

/// A product on packed panels (PackedMatmul.cpp).
struct PackedDesign {
  PackedDesign(const MatmulShape &shape, const MatmulTiling &tiling, bool accumulate);

  MatmulShape shape;
  MatmulTiling tiling;
  packed::Elements elements, elementsOfB; ///< B's as stored: elements to be rounded are f32
  bool accumulate;                        ///< C holds the addend
  std::optional<packed::CodeLayout> codes; ///< B is stored in 4 or 8 bits; its scales are the operand behind it
  /// True if zero points or the numbers of nested scales are one more operand.
  bool hasRest() const {
    return codes && (codes->scaleNumbers || (codes->grid && codes->grid->zeros != packed::CodeGrid::Zeros::None));
  }
  // A worker's slot: panels of A, two panels of B, and sums of a tile that C cannot hold between blocks of K.
  uint64_t offsetB = 0, offsetSums = 0, slotBytes = 0;

  /// Of a panel of B: whole vectors.
  int64_t panelColumns() const {
    return std::min(packed::kColumns, tiling::roundUp(tiling.tileN, packed::kVector));
  }
  bool partial() const { return tiling.chunks(shape) > 1; }
  bool keepsSums() const { return !partial() && (accumulate || shape.narrowC) && tiling.blockK < tiling.chunkK; }
  int64_t tiles() const { return tiling.tiles(shape); }
};

/// A product of few rows that reads its second matrix in place (FewRowsMatmul.cpp): without scratch.
struct FewRowsDesign {
  FewRowsDesign(const MatmulShape &shape, const MatmulTiling &tiling, bool accumulate);

  MatmulShape shape;
  MatmulTiling tiling;                    ///< all rows and all of K, some columns
  packed::Elements elements, elementsOfB; ///< B's as stored: elements to be rounded are f32
  bool accumulate;                        ///< C holds the addend

  int64_t tiles() const { return tiling::ceilDiv(shape.n, tiling.tileN); }
};
inline constexpr int64_t kMostFewRows = 64;

/// A product whose rows go to a kernel as soon as they are computed (RowwiseMatmul.cpp).
struct RowwiseDesign {
  RowwiseDesign(const MatmulShape &shape, int64_t tileM, int64_t blockK);

  MatmulShape shape;
  int64_t tileM, blockK; ///< rows of a tile; K of a block of sums
  packed::Elements elements, elementsOfB;
  // A worker's slot: panels of A, then the tile's rows of C. All share B in panels.
  uint64_t offsetC = 0, slotBytes = 0, sharedBytes = 0;

  int64_t tiles() const { return tiling::ceilDiv(shape.m, tileM); }
};
inline constexpr int kMostRowOperands = 64; ///< operands of the kernel, not counting C

/// An upper bound of the scratch that a tile's primitive takes in one call: columns of B and rows of A that it copies,
/// sums of a long K, and data for each batch. Measured with oneDNN 2.6.3 (`Matmul.LibraryScratchIsBounded`); for AMX,
/// which was not measured, copies of whole operands are assumed.
uint64_t libraryScratchBound(const MatmulShape &shape, const MatmulTiling &tiling, CpuLevel level);

/// A product by one-thread primitives of oneDNN (Matmul.cpp), which require dense operands.
struct LibraryMatmulDesign {
  /// `libraryBytes`: the most scratch that the library takes in one call.
  LibraryMatmulDesign(const MatmulShape &shape, const MatmulTiling &tiling, bool accumulate, uint64_t libraryBytes);

  MatmulShape shape;
  MatmulTiling tiling;
  bool accumulate; ///< C holds the addend
  // A worker's slot: the library's own scratch, then copies of A, B and C (bytes from its start).
  uint64_t offsetA = 0, offsetB = 0, offsetC = 0, slotBytes = 0;

  bool partial() const { return tiling.chunks(shape) > 1; }
  /// True if a tile of C is computed in scratch. With accumulation that includes tiles with several blocks of K,
  /// because the product is summed before it is added.
  bool packsC() const { return tiling.packC(shape) || (accumulate && !partial() && tiling.blockK < tiling.chunkK); }
  /// True if a tile has a single block, which adds to C directly.
  bool addsFirst() const { return accumulate && !partial() && !packsC(); }
  /// Position of C (or of the partial sums) among the operands: the addend precedes it and has the same memory.
  int positionOfC() const { return accumulate ? 3 : 2; }
  int64_t tiles() const { return tiling.tiles(shape); }
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_CALLS_MATMULDESIGNS_H

//===- RowwiseMatmul.h - a product whose rows go to a kernel -------------===//
#ifndef TCC_RUNTIME_CPU_ROWWISEMATMUL_H
#define TCC_RUNTIME_CPU_ROWWISEMATMUL_H

#include "runtime/cpu/PackedMatmul.h"

#include <optional>

namespace tcc::runtime {

inline constexpr int kMostRowOperands = 64; ///< of the kernel, beside C

/// Everything decided about a product whose rows go to a kernel as they are made.
struct RowwiseDesign {
  /// Nothing where such a product would not have the bits of a product by itself, or would need more memory than its
  /// result takes. `plain`: how the product by itself is cut, `packed`: by PackedMatmul.
  static std::optional<RowwiseDesign> create(const MatmulShape &shape, const MatmulTiling &plain, bool packed);

  MatmulShape shape;
  int64_t tileM, blockK; ///< rows of a tile; K of a block of sums
  packed::Elements elements, elementsOfB;
  // A worker's slot: panels of A, then the tile's rows of C. All share B in panels.
  uint64_t offsetC, slotBytes, sharedBytes;

  int64_t tiles() const { return tiling::ceilDiv(shape.m, tileM); }
};

/// `kernel` has `operands` pointers behind that of C.
std::unique_ptr<LibraryCall> makeRowwiseMatmul(const RowwiseDesign &design, plan::KernelFunction kernel, int operands);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_ROWWISEMATMUL_H

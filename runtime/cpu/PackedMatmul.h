//===- PackedMatmul.h - products on packed panels, without the library ---===//
#ifndef TCC_RUNTIME_CPU_PACKEDMATMUL_H
#define TCC_RUNTIME_CPU_PACKEDMATMUL_H

#include "runtime/cpu/LibraryPrimitive.h"
#include "runtime/cpu/MatmulTiling.h"
#include "runtime/cpu/PackedProduct.h"

namespace tcc::runtime {

/// Everything decided about a product on packed panels.
struct PackedDesign {
  PackedDesign(const MatmulShape &shape, bool accumulate);

  MatmulShape shape;
  MatmulTiling tiling;
  packed::Elements elements, elementsOfB; ///< B's where they lie: what is rounded is f32 there
  bool accumulate;                        ///< C holds what the product is added to
  // A worker's slot: panels of A, two panels of B, and sums of a tile that C cannot hold between blocks of K.
  uint64_t offsetB = 0, offsetSums = 0, slotBytes = 0;

  bool partial() const { return tiling.chunks(shape) > 1; }
  bool keepsSums() const { return !partial() && (accumulate || shape.narrowC) && tiling.blockK < tiling.chunkK; }
  int64_t tiles() const;
};

/// Of products on packed panels, as a kernel of the plan.
const char *kernelNameOf(packed::Elements elements);

std::unique_ptr<LibraryCall> makePackedMatmul(const PackedDesign &design);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_PACKEDMATMUL_H

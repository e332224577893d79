//===- FewRowsMatmul.h - products of few rows, without the library -------===//
#ifndef TCC_RUNTIME_CPU_FEWROWSMATMUL_H
#define TCC_RUNTIME_CPU_FEWROWSMATMUL_H

#include "runtime/cpu/LibraryPrimitive.h"
#include "runtime/cpu/MatmulTiling.h"
#include "runtime/cpu/PackedProduct.h"

namespace tcc::runtime {

/// True where a product of few rows that reads its second matrix as it lies is faster than the library's.
bool suitsFewRows(const MatmulShape &shape);

/// Everything decided about such a product.
struct FewRowsDesign {
  FewRowsDesign(const MatmulShape &shape, bool accumulate);

  MatmulShape shape;
  MatmulTiling tiling;                    ///< all rows and all of K, some columns
  packed::Elements elements, elementsOfB; ///< B's where they lie: what is rounded is f32 there
  bool accumulate;                        ///< C holds what the product is added to
  uint64_t slotBytes = 0;                 ///< no scratch

  bool partial() const { return false; }
  int64_t tiles() const { return tiling::ceilDiv(shape.n, tiling.tileN); }
  const char *name() const; ///< as a kernel of the plan
};

std::unique_ptr<LibraryCall> makeFewRowsMatmul(const FewRowsDesign &design);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_FEWROWSMATMUL_H

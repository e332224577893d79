//===- FewRowsProduct.h - a few rows times columns, read in place --------===//
//
// The inner kernel of FewRowsMatmul.cpp. AVX-512; bf16 needs its dot product instructions.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_FEWROWSPRODUCT_H
#define TCC_RUNTIME_CPU_FEWROWSPRODUCT_H

#include "runtime/cpu/PackedProduct.h"
#include "runtime/cpu/calls/MatmulDesigns.h"

namespace tcc::runtime::fewrows {

inline constexpr int64_t kMostRows = kMostFewRows;

/// A tile: all rows of A, at most kMostRows, times adjacent columns of B. A is stored along K, in bf16 if B is bf16 or
/// rounded to it, else in f32. Strides are in elements.
struct Tile {
  const char *a;
  int64_t aStride, rows;
  packed::Source b;
  int64_t columns, behind; ///< number of the tile's columns of B, and of the columns after them
  int64_t k;
  char *c;
  int64_t cStride;
  packed::Store store;
};

void multiply(const Tile &tile);

} // namespace tcc::runtime::fewrows

#endif // TCC_RUNTIME_CPU_FEWROWSPRODUCT_H

//===- FewRowsProduct.h - a few rows times columns that lie in memory ----===//
//
// What a tile of FewRowsMatmul.cpp is made of. AVX-512; bf16 needs its dot product instructions.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_FEWROWSPRODUCT_H
#define TCC_RUNTIME_CPU_FEWROWSPRODUCT_H

#include "runtime/cpu/PackedProduct.h"
#include "runtime/cpu/calls/MatmulDesigns.h"

namespace tcc::runtime::fewrows {

inline constexpr int64_t kMostRows = kMostFewRows;

/// All rows of A, at most kMostRows, along K, in f32 or, where B is bf16 or rounded to it, bf16; times adjacent columns
/// of B. Strides are in elements.
struct Tile {
  const char *a;
  int64_t aStride, rows;
  packed::Source b;
  int64_t columns, behind; ///< of B: the tile's, and those that lie behind them
  int64_t k;
  char *c;
  int64_t cStride;
  packed::Store store;
};

void multiply(const Tile &tile);

} // namespace tcc::runtime::fewrows

#endif // TCC_RUNTIME_CPU_FEWROWSPRODUCT_H

//===- TapProduct.h - rows at any address times a panel of weights -------===//
//
// The inner kernel of a correlation: the sums of up to 8 results over a block of K. Each result reads words of the
// source at its own address, in pieces; all read the same panel of weights (PackedProduct.h).
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_TAPPRODUCT_H
#define TCC_RUNTIME_CPU_TAPPRODUCT_H

#include "runtime/cpu/PackedProduct.h"
#include "runtime/cpu/calls/ConvolutionDesign.h"

namespace tcc::runtime::packed {

struct TapBlock {
  const char *source;
  const int64_t *sourceAt; ///< bytes from `source`, of each row
  const Piece *pieces;
  int64_t pieceCount;
  int64_t elementBytes;  ///< unit of the pieces' offsets
  const uint32_t *panel; ///< whole vectors of `columns` words, by word of K
  const float *before;   ///< the sums so far, or null
  const int64_t *beforeAt; ///< elements from `before`, of each row
  void *result;
  const int64_t *resultAt; ///< elements from `result`, of each row
  Store store;
  bool isCold; ///< the result is not in the core's caches: its lines are prefetched during the computation
};

/// Sums of `rows` results, at most kRows, and `columns` channels, at most kColumns. `dots`: words are pairs of bf16.
void multiplyTaps(bool dots, int64_t rows, int64_t columns, const TapBlock &block);

/// The functions above at one machine level (Vectors.h).
struct TapKernels {
  decltype(&packed::multiplyTaps) multiplyTaps;
};
namespace baseline {
extern const TapKernels kTap;
}
namespace avx2 {
extern const TapKernels kTap;
}
namespace avx512 {
extern const TapKernels kTap;
}

} // namespace tcc::runtime::packed

#endif // TCC_RUNTIME_CPU_TAPPRODUCT_H

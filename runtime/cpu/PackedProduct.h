//===- PackedProduct.h - a block of a product from packed panels ---------===//
//
// The inner kernels of PackedMatmul.cpp: packing of operands into panels, and the product of two panels in registers.
// Their bits are the same at every machine level; products of pairs of bf16 need the dot product instructions of
// AVX-512.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_PACKEDPRODUCT_H
#define TCC_RUNTIME_CPU_PACKEDPRODUCT_H

#include "runtime/cpu/calls/PanelWords.h"

#include <cstdint>

namespace tcc::runtime::packed {

/// Rows of A for a product of panels: packed, kRows words for each word of K, or in place along K.
struct RowPanel {
  const uint32_t *data;
  int64_t stride; ///< words from one row to the next, if in place; 0: packed
};

/// Prefetches the cache lines of a row, which may start inside a line (if the number of columns is odd).
/// (always_inline, because GCC considers a function that only prefetches to have no effect.)
template <int ForWriting> inline __attribute__((always_inline)) void fetchLines(const char *row, int64_t bytes) {
  constexpr int64_t line = 64;
  for (const char *at = row - reinterpret_cast<uintptr_t>(row) % line; at < row + bytes; at += line)
    __builtin_prefetch(at, ForWriting);
}

/// Packs rows of A into panels of kRows, or at most kColumns columns of B into one panel of as few vectors as possible,
/// for `k` elements of K. Missing lanes of a register are zero. Panels of rows are `apart` words apart; 0: dense.
void packRows(uint32_t *to, const Source &source, int64_t rows, int64_t k, int64_t apart = 0);
void packColumns(uint32_t *to, const Source &source, int64_t columns, int64_t k);

/// Packs columns of several runs into one panel, of f32 or bf16 stored across K. The panel has room for one more
/// vector.
void packColumnRuns(uint32_t *to, const Source &source, const ColumnRun *runs, int64_t runCount, int64_t columns,
                    int64_t k);

/// How a sum is stored.
enum class Store {
  Overwrite, ///< as f32
  Add,       ///< added to the stored f32
  Round,     ///< to bf16, the nearest even
};

/// Work that prepares the next products, interleaved in small steps with the multiplications of the current ones. If
/// the words of B need no shuffling, it packs the next panel, one word of K per step; else it prefetches the panel's
/// memory, one line per step.
struct Ahead {
  int64_t period = 4; ///< words of K between two steps

  const char *row = nullptr; ///< in memory
  int64_t strideBytes = 0, rowBytes = 0;

  // If packed: words of K that are left, vectors of each, lanes of the last one.
  uint32_t *to = nullptr;
  int64_t words = 0, vectors = 0;
  uint16_t lastLanes = 0;
  bool widens = false; ///< converts bf16 to f32

  // If prefetched: lines of 64 bytes, row by row.
  int64_t rows = 0, at = 0;
};

/// Packs columns of B into the panel `to`, or prefetches them, while `panels` panels of A are multiplied.
Ahead packedDuring(uint32_t *to, const Source &source, int64_t columns, int64_t k, int64_t panels);

/// Packs the columns that are left.
void finish(Ahead &ahead, uint32_t *to, const Source &source, int64_t columns, int64_t k);

struct Block {
  int64_t words;       ///< of K
  const float *before; ///< the sum so far, or null
  int64_t beforeStride;
  void *result;
  int64_t resultStride; ///< in elements
  Store store;
  bool isCold; ///< the result is not in the core's caches: its lines are prefetched during the computation
  Ahead *ahead;
};

/// One panel of A (`rows`) times one of B (`columns`, in as few vectors as possible). `dots`: words are pairs of bf16.
void multiply(bool dots, const RowPanel &a, const uint32_t *b, int64_t rows, int64_t columns, const Block &block);

/// The functions above at one machine level (Vectors.h); ProductLevels.cpp calls those of this machine.
struct PackedKernels {
  decltype(&packed::packRows) packRows;
  decltype(&packed::packColumns) packColumns;
  decltype(&packed::packColumnRuns) packColumnRuns;
  decltype(&packed::packedDuring) packedDuring;
  decltype(&packed::finish) finish;
  decltype(&packed::multiply) multiply;
};
namespace baseline {
extern const PackedKernels kPacked;
}
namespace avx2 {
extern const PackedKernels kPacked;
}
namespace avx512 {
extern const PackedKernels kPacked;
}

} // namespace tcc::runtime::packed

#endif // TCC_RUNTIME_CPU_PACKEDPRODUCT_H

//===- PackedProduct.h - a block of a product from packed panels ---------===//
//
// What a tile of PackedMatmul.cpp is made of: copies of operands into panels, and the product of two panels in
// registers. AVX-512, or AVX2 with the same bits (PackedProductAvx2.cpp); products of pairs of bf16 need the dot product
// instructions of AVX-512.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_PACKEDPRODUCT_H
#define TCC_RUNTIME_CPU_PACKEDPRODUCT_H

#include "runtime/cpu/calls/PanelWords.h"

#include <cstdint>

namespace tcc::runtime::packed {

/// Rows of A as a panel takes them: packed, kRows words for each word of K, or in place along K.
struct RowPanel {
  const uint32_t *data;
  int64_t stride; ///< words from one row to the next, if in place; 0: packed
};

/// Prefetches the cache lines of a row, which starts inside a line where the matrix has an odd number of columns.
/// (Inlined by force: GCC takes a function that only fetches for one without effect.)
template <int ForWriting> inline __attribute__((always_inline)) void fetchLines(const char *row, int64_t bytes) {
  constexpr int64_t line = 64;
  for (const char *at = row - reinterpret_cast<uintptr_t>(row) % line; at < row + bytes; at += line)
    __builtin_prefetch(at, ForWriting);
}

/// Copies rows of A into panels of kRows, or columns of B, at most kColumns, into one panel of as many vectors as it
/// takes; K of `k` elements. Lanes of a register that are not there are zeros. Panels of rows lie `apart` words apart;
/// 0: dense.
void packRows(uint32_t *to, const Source &source, int64_t rows, int64_t k, int64_t apart = 0);
void packColumns(uint32_t *to, const Source &source, int64_t columns, int64_t k);

/// Packs columns of several runs into one panel, of f32 or bf16 that lies across K. The panel has room for a vector more.
void packColumnRuns(uint32_t *to, const Source &source, const ColumnRun *runs, int64_t runCount, int64_t columns, int64_t k);

/// What becomes of a sum.
enum class Store {
  Overwrite, ///< as f32
  Add,       ///< added to the f32 that is there
  Round,     ///< to bf16, the nearest even
};

/// What is got ready for the next products, a little at a time, while these keep the core's multipliers busy. Where the
/// words of a panel of B need no shuffling it is the next panel itself, a word of K at a step; else its memory is
/// fetched, a line at a step.
struct Ahead {
  int64_t period = 4; ///< words of K between two steps

  const char *row = nullptr; ///< in memory
  int64_t strideBytes = 0, rowBytes = 0;

  // Copied: words of K that are left, vectors of each, lanes of the last one.
  uint32_t *to = nullptr;
  int64_t words = 0, vectors = 0;
  uint16_t lastLanes = 0;
  bool widens = false; ///< bf16 becomes f32 on the way

  // Fetched: lines of 64 bytes, row by row.
  int64_t rows = 0, at = 0;
};

/// Columns of B that become the panel `to` while `panels` panels of A are multiplied, or are fetched meanwhile.
Ahead packedDuring(uint32_t *to, const Source &source, int64_t columns, int64_t k, int64_t panels);

/// Packs what is left of them.
void finish(Ahead &ahead, uint32_t *to, const Source &source, int64_t columns, int64_t k);

struct Block {
  int64_t words;       ///< of K
  const float *before; ///< the sum so far, or null
  int64_t beforeStride;
  void *result;
  int64_t resultStride; ///< in elements
  Store store;
  bool isCold; ///< the result lies in no cache of the core: its lines are fetched while the sums are made
  Ahead *ahead;
};

/// One panel of A (`rows`) times one of B (`columns`, in as many vectors as it takes). `dots`: words are pairs of bf16.
void multiply(bool dots, const RowPanel &a, const uint32_t *b, int64_t rows, int64_t columns, const Block &block);

/// The same with AVX2 alone, for words of f32.
namespace avx2 {
void packRows(uint32_t *to, const Source &source, int64_t rows, int64_t k, int64_t apart);
void packColumns(uint32_t *to, const Source &source, int64_t columns, int64_t k);
void packColumnRuns(uint32_t *to, const Source &source, const ColumnRun *runs, int64_t runCount, int64_t columns, int64_t k);
void multiply(const RowPanel &a, const uint32_t *b, int64_t rows, int64_t columns, const Block &block);
} // namespace avx2

} // namespace tcc::runtime::packed

#endif // TCC_RUNTIME_CPU_PACKEDPRODUCT_H

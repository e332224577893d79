//===- PackedProduct.h - a block of a product from packed panels ---------===//
//
// What a tile of PackedMatmul.cpp is made of: copies of operands into panels, and the product of two panels in
// registers. AVX-512; bf16 products need its dot product instructions.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_PACKEDPRODUCT_H
#define TCC_RUNTIME_CPU_PACKEDPRODUCT_H

#include <cstdint>

namespace tcc::runtime::packed {

/// What lies in memory, and the 32-bit words that it is multiplied as.
enum class Elements {
  F32,     ///< f32, a word each
  Bf16,    ///< bf16, a word for each pair along K: one dot product instruction
  Rounded, ///< f32 that is rounded to bf16, the nearest even, and multiplied as that; columns of B alone
  // Where no such instructions are used: an f32 word each, whose products are exact.
  WideBf16,    ///< bf16, widened as it is copied
  WideRounded, ///< f32 that is rounded to bf16, the nearest even, and widened again; columns of B alone
};

constexpr bool isNarrow(Elements elements) { return elements == Elements::Bf16 || elements == Elements::WideBf16; }

/// True where words are pairs.
constexpr bool isDotted(Elements elements) { return elements == Elements::Bf16 || elements == Elements::Rounded; }

/// Of an element in memory.
constexpr int64_t bytesOf(Elements elements) { return isNarrow(elements) ? 2 : 4; }

/// Elements of K in a word.
constexpr int64_t elementsOfWord(Elements elements) { return isDotted(elements) ? 2 : 1; }
constexpr int64_t wordsOf(int64_t k, Elements elements) {
  return (k + elementsOfWord(elements) - 1) / elementsOfWord(elements);
}

/// Lanes (rows of A, columns of B) times K of a matrix in memory.
struct Source {
  const char *data;
  int64_t stride; ///< elements from one row in memory to the next
  bool alongK;    ///< a row in memory is a lane; else it is an index of K
  Elements elements;
};

inline constexpr int64_t kVector = 16; ///< words of a register
inline constexpr int64_t kRows = 8;    ///< of a panel of A, at most
inline constexpr int64_t kVectors = 3; ///< of a panel of B, at most
inline constexpr int64_t kColumns = kVectors * kVector;

/// Rows of A as a panel takes them: packed, kRows words for each word of K, or where they lie along K.
struct RowPanel {
  const uint32_t *data;
  int64_t stride; ///< words from one row to the next, where they lie; 0: packed
};

/// True where rows of A need no copy: words that lie along K and are multiplied as they are.
bool readsRowsInPlace(const Source &source, int64_t k);

/// Words of packed rows: whole panels.
inline int64_t packedRowWords(int64_t count, int64_t words) { return (count + kRows - 1) / kRows * kRows * words; }

/// Copies rows of A into panels of kRows, or columns of B, at most kColumns, into one panel of as many vectors as it
/// takes; K of `k` elements. Lanes that are not there are zeros.
void packRows(uint32_t *to, const Source &source, int64_t rows, int64_t k);
void packColumns(uint32_t *to, const Source &source, int64_t columns, int64_t k);

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

} // namespace tcc::runtime::packed

#endif // TCC_RUNTIME_CPU_PACKEDPRODUCT_H

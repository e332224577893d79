//===- PanelWords.h - the words that our products multiply ------*- C++ -*-===//
//
// Which 32-bit words an operand in memory becomes, and how many of them a panel has: a tile's scratch follows from it.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_CALLS_PANELWORDS_H
#define TCC_RUNTIME_CPU_CALLS_PANELWORDS_H

#include <cstdint>

namespace tcc::runtime::packed {

/// The elements in memory, and the 32-bit words that they are multiplied as.
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

/// Columns that lie side by side in memory, from so many elements on.
struct ColumnRun {
  int64_t at, count;
};

inline constexpr int64_t kVector = 16; ///< words of a register
inline constexpr int64_t kRows = 8;    ///< of a panel of A, at most
inline constexpr int64_t kVectors = 3; ///< of a panel of B, at most
inline constexpr int64_t kColumns = kVectors * kVector;

/// True where rows of A need no copy: words that lie along K and are multiplied as they are.
inline bool readsRowsInPlace(const Source &source, int64_t k) {
  // Half a pair at the end would be multiplied with the element behind it.
  return source.alongK && source.elements != Elements::WideBf16 && k % elementsOfWord(source.elements) == 0;
}

/// Words of packed rows: whole panels.
inline int64_t packedRowWords(int64_t count, int64_t words) { return (count + kRows - 1) / kRows * kRows * words; }

} // namespace tcc::runtime::packed

#endif // TCC_RUNTIME_CPU_CALLS_PANELWORDS_H

//===- PanelWords.h - the words that our products multiply ------*- C++ -*-===//
//
// The 32-bit words to which an operand in memory is converted, and their number in a panel, which determines a tile's
// scratch.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_CALLS_PANELWORDS_H
#define TCC_RUNTIME_CPU_CALLS_PANELWORDS_H

#include <cstdint>
#include <optional>

namespace tcc::runtime::packed {

/// The elements in memory, and the 32-bit words as which they are multiplied.
enum class Elements {
  F32,     ///< f32, a word each
  Bf16,    ///< bf16, a word for each pair along K: one dot product instruction
  Rounded, ///< f32 that is rounded to bf16, to nearest even, and multiplied in bf16; only for columns of B
  // Without dot product instructions: an f32 word each, whose products are exact.
  WideBf16,    ///< bf16, widened when copied
  WideRounded, ///< f32 that is rounded to bf16, to nearest even, and widened again; only for columns of B
};

constexpr bool isNarrow(Elements elements) { return elements == Elements::Bf16 || elements == Elements::WideBf16; }

/// True if words are pairs.
constexpr bool isDotted(Elements elements) { return elements == Elements::Bf16 || elements == Elements::Rounded; }

/// Bytes of an element in memory.
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

/// Along K and along the columns: extents of a block, and distances of the scales and zero points of adjacent blocks.
struct CodeGrid {
  enum class Zeros { None, Codes, Numbers }; ///< Numbers: f32
  int64_t kBlock, columnBlock, kScale, columnScale, kZero, columnZero;
  Zeros zeros;
};

/// A matrix that is stored in 4 or 8 bits (runtime/plan/FourBits.h): the distances of its codes along K and from one
/// column to the next, of which one is 1.
struct CodeLayout {
  const float *numbers; ///< that the 16 codes stand for; null for bytes that are numbers themselves
  int blockBits;        ///< without a grid: 2^blockBits codes share a scale
  bool upperFirst;      ///< the first code of a byte is in its upper half
  int64_t kStride, columnStride;
  std::optional<CodeGrid> grid = std::nullopt; ///< scales belong to blocks of the matrix, not of the codes
  const float *scaleNumbers = nullptr;         ///< that the codes of nested scales stand for; null if scales are f32
};

/// Columns that are adjacent in memory, and the offset of the first in elements.
struct ColumnRun {
  int64_t at, count;
};

inline constexpr int64_t kVector = 16; ///< words of a register
inline constexpr int64_t kRows = 8;    ///< the most rows of a panel of A
inline constexpr int64_t kVectors = 3; ///< the most vectors of a panel of B
inline constexpr int64_t kColumns = kVectors * kVector;

/// True if rows of A need no copy: their words are stored along K and multiplied unchanged.
inline bool readsRowsInPlace(const Source &source, int64_t k) {
  // With an odd K, the last element would be paired with the element after the row.
  return source.alongK && source.elements != Elements::WideBf16 && k % elementsOfWord(source.elements) == 0;
}

/// Words of packed rows: whole panels.
inline int64_t packedRowWords(int64_t count, int64_t words) { return (count + kRows - 1) / kRows * kRows * words; }

} // namespace tcc::runtime::packed

#endif // TCC_RUNTIME_CPU_CALLS_PANELWORDS_H

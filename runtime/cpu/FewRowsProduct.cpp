//===- FewRowsProduct.cpp - a few rows times columns, read in place ------===//
//
// A product with few rows of A is bound by reading B, so B is read once, in place. If a row of B is one index of K, a
// few vectors of columns walk down K, and each word of A is broadcast to them (the inner kernel of Goto and van de
// Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 2008, without its copies). If rows of B run
// along K, like those of A, each sum consists of 16 partial sums of every 16th word, which are added at the end, for 16
// sums at once by a transposition. Either way the order of a sum depends on K alone. The next operands are prefetched:
// rows of B are too far apart for the hardware prefetcher.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/FewRowsProduct.h"

#include <array>
#include <cstring>
#include <utility>

#include "runtime/cpu/Vectors.h"

namespace tcc::runtime::fewrows {

using namespace packed; // words and vectors

namespace {
constexpr int64_t kWalkRows = 8;    // the most rows whose sums fit into registers
constexpr int64_t kWaiting = 64;    // columns whose sums are buffered before they are stored to C
constexpr int64_t kBlockSteps = 50; // vectors of K: those of 8 rows and 3 columns fit into the first-level cache
constexpr int64_t kAliasBytes = 4096, kCopyStride = (kBlockSteps + 1) * 64;
constexpr int64_t kBlockWords = 512; // words of K in a block, if they are rows of B
constexpr int64_t kAhead = 24;       // prefetch distance there, in words of K

/// One walk along K: rows of A, a group of B.
struct Walk {
  const char *a;
  int64_t aStride; ///< bytes
  const char *b;
  int64_t bStride;  ///< bytes
  const char *next; ///< the group of B that is walked next
  int64_t k;
  __mmask16 lastLanes; ///< of the last vector of columns
};

/// The destination of a walk's sums.
struct Result {
  char *data;
  int64_t stride; ///< elements
  Store store;
};

/// sum + left · right: one f32, or two bf16 of each word. (The dot product is inline assembly, so that its operands
/// stay in registers: GCC would load them again for each product.)
template <Elements E> TCC_INLINE __m512 addProduct(__m512 sum, Words left, Words right) {
  if constexpr (!isDotted(E))
    return _mm512_fmadd_ps(_mm512_castsi512_ps(left), _mm512_castsi512_ps(right), sum);
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(left), "v"(right));
  return sum;
}

template <Elements E> constexpr Elements elementsOfA() {
  return E == Elements::F32 ? E : isDotted(E) ? Elements::Bf16 : Elements::WideBf16;
}

//===-- B's rows lie along K ----------------------------------------------===//

/// [i] of the result: the sum of all of sums[i].
TCC_INLINE __m512 addAcross(const __m512 *sums) {
  __m512 quarters[4];
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    const __m512 *s = sums + 4 * i;
    __m512 low = _mm512_add_ps(_mm512_unpacklo_ps(s[0], s[1]), _mm512_unpackhi_ps(s[0], s[1]));
    __m512 high = _mm512_add_ps(_mm512_unpacklo_ps(s[2], s[3]), _mm512_unpackhi_ps(s[2], s[3]));
    __m512d l = _mm512_castps_pd(low), h = _mm512_castps_pd(high);
    quarters[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(l, h)), _mm512_castpd_ps(_mm512_unpackhi_pd(l, h)));
  }
  __m512 halves[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i)
    halves[i] = _mm512_add_ps(_mm512_shuffle_f32x4(quarters[2 * i], quarters[2 * i + 1], 0x88),
                              _mm512_shuffle_f32x4(quarters[2 * i], quarters[2 * i + 1], 0xdd));
  return _mm512_add_ps(_mm512_shuffle_f32x4(halves[0], halves[1], 0x88),
                       _mm512_shuffle_f32x4(halves[0], halves[1], 0xdd));
}

/// Writes the sums of `Count` rows and some columns to result[row * kWaiting + column], or adds them.
template <Elements E, int Count, int Columns> void walkAlong(const Walk &walk, float *result, bool adds) {
  constexpr int64_t perStep = kVector * elementsOfWord(E), sizeA = bytesOf(elementsOfA<E>()), size = bytesOf(E);
  constexpr int vectors = (Count * Columns + 15) / 16;
  __m512 sums[vectors * 16];
#pragma GCC unroll 32
  for (int i = 0; i < vectors * 16; ++i)
    sums[i] = _mm512_setzero_ps();
  const char *a = walk.a, *b = walk.b;
  const int64_t ahead = walk.next - walk.b;
  int64_t k = walk.k;
  for (; k >= perStep; k -= perStep, a += perStep * sizeA, b += perStep * size) {
    Words right[Columns];
#pragma GCC unroll 8
    for (int j = 0; j < Columns; ++j) {
      const char *from = b + j * walk.bStride;
      right[j] = loadAlong<E>(from, perStep);
      for (int64_t line = 0; line < perStep * size; line += 64)
        __builtin_prefetch(from + ahead + line, 0, 2);
    }
#pragma GCC unroll 8
    for (int i = 0; i < Count; ++i) {
      Words left = loadAlong<elementsOfA<E>()>(a + i * walk.aStride, perStep);
      __asm__("" : "+v"(left)); // keep it in a register: GCC would reload it per column, and loads are a bottleneck
#pragma GCC unroll 8
      for (int j = 0; j < Columns; ++j)
        sums[i * Columns + j] = addProduct<E>(sums[i * Columns + j], left, right[j]);
    }
  }
  if (k > 0) {
    Words right[Columns];
#pragma GCC unroll 8
    for (int j = 0; j < Columns; ++j)
      right[j] = loadAlong<E>(b + j * walk.bStride, k);
#pragma GCC unroll 8
    for (int i = 0; i < Count; ++i) {
      Words left = loadAlong<elementsOfA<E>()>(a + i * walk.aStride, k);
#pragma GCC unroll 8
      for (int j = 0; j < Columns; ++j)
        sums[i * Columns + j] = addProduct<E>(sums[i * Columns + j], left, right[j]);
    }
  }
  alignas(64) float total[vectors * 16];
#pragma GCC unroll 2
  for (int i = 0; i < vectors; ++i)
    _mm512_store_ps(total + 16 * i, addAcross(sums + 16 * i));
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Columns; ++j)
      result[i * kWaiting + j] = (adds ? result[i * kWaiting + j] : 0.0f) + total[i * Columns + j];
}

//===-- B's rows are indices of K -----------------------------------------===//

/// The words of K of adjacent columns, of which `left` elements are left.
template <Elements E, int Vectors>
TCC_INLINE void loadWords(Words (&words)[Vectors], const char *from,
                                                                const Walk &walk, int64_t left) {
  constexpr int64_t size = bytesOf(E);
  int j = 0;
  if constexpr (E == Elements::Bf16) {
    // One register holds columns of two vectors.
    const Words low = _mm512_set_epi32(0x2f000f, 0x2e000e, 0x2d000d, 0x2c000c, 0x2b000b, 0x2a000a, 0x290009, 0x280008,
                                       0x270007, 0x260006, 0x250005, 0x240004, 0x230003, 0x220002, 0x210001, 0x200000);
    const Words high = _mm512_add_epi32(low, _mm512_set1_epi32(0x100010));
#pragma GCC unroll 2
    for (; j + 1 < Vectors; j += 2) {
      __mmask32 lanes = (j + 2 < Vectors ? 0xffff0000u : __mmask32(walk.lastLanes) << 16) | 0xffffu;
      Words first = _mm512_maskz_loadu_epi16(lanes, from + j * kVector * size);
      Words second =
          left < 2 ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi16(lanes, from + walk.bStride + j * kVector * size);
      words[j] = _mm512_permutex2var_epi16(first, low, second);
      words[j + 1] = _mm512_permutex2var_epi16(first, high, second);
    }
  }
#pragma GCC unroll 8
  for (; j < Vectors; ++j)
    words[j] = loadAcross<E>(from + j * kVector * size, walk.bStride / size,
                             j + 1 < Vectors ? __mmask16(0xffff) : walk.lastLanes, left);
}

/// A word of a row of A, of which `left` elements are left.
template <Elements E> TCC_INLINE Words broadcast(const char *from, int64_t left) {
  if constexpr (isDotted(E))
    if (left < 2)
      return _mm512_set1_epi32(*reinterpret_cast<const uint16_t *>(from));
  if constexpr (elementsOfA<E>() == Elements::WideBf16)
    return _mm512_set1_epi32(*reinterpret_cast<const uint16_t *>(from) << 16);
  int word;
  __builtin_memcpy(&word, from, 4);
  return _mm512_set1_epi32(word);
}

template <Elements E, int Count, int Vectors>
TCC_INLINE void addWord(__m512 (&sums)[Count][Vectors], const char *a,
                                                              const char *b, const Walk &walk, int64_t left) {
  Words right[Vectors];
  loadWords<E, Vectors>(right, b, walk, left);
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i) {
    Words one = broadcast<E>(a + i * walk.aStride, left);
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j)
      sums[i][j] = addProduct<E>(sums[i][j], one, right[j]);
  }
}

/// Computes and stores the sums of `Count` rows with vectors of columns.
template <Elements E, int Count, int Vectors> void walkAcross(const Walk &walk, const Result &result) {
  constexpr int64_t perWord = elementsOfWord(E), sizeA = bytesOf(elementsOfA<E>());
  __m512 sums[Count][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j)
      sums[i][j] = _mm512_setzero_ps();
  const char *a = walk.a, *b = walk.b;
  const int64_t words = walk.k / perWord, behind = std::min(words, kAhead), bStep = perWord * walk.bStride;
  const struct {
    int64_t words;
    const char *fetched;
  } parts[2] = {{words - behind, b + behind * bStep}, {behind, walk.next}};
  for (auto [left, fetched] : parts)
    for (; left > 0; --left, a += perWord * sizeA, b += bStep, fetched += bStep) {
      for (int64_t row = 0; row < perWord; ++row)
        for (int64_t at = 0; at < Vectors * kVector * bytesOf(E); at += 64)
          __builtin_prefetch(fetched + row * walk.bStride + at);
      addWord<E, Count, Vectors>(sums, a, b, walk, perWord);
    }
  if (walk.k > words * perWord)
    addWord<E, Count, Vectors>(sums, a, b, walk, walk.k - words * perWord);
  const int64_t sizeC = result.store == Store::Round ? 2 : 4;
#pragma GCC unroll 8
  for (int i = 0; i < Count; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j)
      storeSums(result.data + (i * result.stride + j * kVector) * sizeC,
                j + 1 < Vectors ? __mmask16(0xffff) : walk.lastLanes, sums[i][j], result.store);
}

//===-- All rows and columns ----------------------------------------------===//

/// Columns, or vectors of columns, of a walk with 1 to 8 rows, chosen so that sums and words fit into registers.
constexpr std::array<int, kWalkRows> kAlongGroup = {4, 4, 4, 4, 4, 4, 3, 3}, kAcrossGroup = {8, 8, 6, 4, 4, 4, 3, 3};
constexpr int kGroup = 8;

using Along = void (*)(const Walk &, float *, bool);
using Across = void (*)(const Walk &, const Result &);
template <typename Walker> using Table = std::array<Walker, static_cast<size_t>(kWalkRows *kGroup)>;
constexpr auto kIndices = std::make_integer_sequence<int, kWalkRows * kGroup>();

constexpr size_t indexOf(int64_t rows, int64_t columns) {
  return static_cast<size_t>((rows - 1) * kGroup + columns - 1);
}
constexpr int rowsAt(int index) { return index / kGroup + 1; }
constexpr int columnsAt(int index, const std::array<int, kWalkRows> &groups) {
  return std::min(index % kGroup + 1, groups[static_cast<size_t>(index / kGroup)]);
}
template <Elements E, int... I> constexpr Table<Along> alongTable(std::integer_sequence<int, I...>) {
  return {walkAlong<E, rowsAt(I), columnsAt(I, kAlongGroup)>...};
}
template <Elements E, int... I> constexpr Table<Across> acrossTable(std::integer_sequence<int, I...>) {
  return {walkAcross<E, rowsAt(I), columnsAt(I, kAcrossGroup)>...};
}

/// Size of the part that starts at `at` when `whole` is cut into as few parts of at most `limit` as possible, whose
/// sizes differ by at most one.
int64_t partAt(int64_t at, int64_t whole, int64_t limit) {
  int64_t parts = (whole + limit - 1) / limit, size = whole / parts, larger = whole % parts;
  return at < larger * (size + 1) ? size + 1 : size;
}

/// Stores the sums of all rows for some columns at `c`.
void storeRows(const Tile &tile, char *c, const float *sums, int64_t stride, int64_t columns) {
  const int64_t sizeC = tile.store == Store::Round ? 2 : 4;
  for (int64_t row = 0; row < tile.rows; ++row)
    for (int64_t j = 0; j < columns; j += kVector)
      storeSums(c + (row * tile.cStride + j) * sizeC, firstLanes(columns - j), _mm512_load_ps(sums + row * stride + j),
                tile.store);
}

/// Works in blocks of K, so that rows of A stay in the core's first-level cache; sums of blocks are added in order.
/// Rows whose stride would map them to few sets of that cache are copied.
template <Elements E> void multiplyAlong(const Tile &tile) {
  static constexpr Table<Along> table = alongTable<E>(kIndices);
  constexpr int64_t sizeA = bytesOf(elementsOfA<E>()), size = bytesOf(E), perStep = kVector * elementsOfWord(E);
  const int64_t sizeC = tile.store == Store::Round ? 2 : 4, bStride = tile.b.stride * size;
  const int64_t steps = (tile.k + perStep - 1) / perStep;
  alignas(64) float sums[kMostRows * kWaiting];
  alignas(64) char copy[kWalkRows * kCopyStride];
  for (int64_t column = 0; column < tile.columns; column += kWaiting) {
    const char *b = tile.b.data + column * bStride;
    const int64_t columns = std::min(kWaiting, tile.columns - column);
    for (int64_t at = 0, block = 0; at < steps; at += block) {
      block = partAt(at, steps, kBlockSteps);
      const int64_t first = at * perStep, k = std::min(block * perStep, tile.k - first);
      const char *behind = nullptr;
      if (at + block < steps)
        behind = b + (first + k) * size;
      else if (column + columns < tile.columns + tile.behind)
        behind = b + columns * bStride;
      for (int64_t row = 0, rows = 0; row < tile.rows; row += rows) {
        rows = partAt(row, tile.rows, kWalkRows);
        Walk walk{
            tile.a + (row * tile.aStride + first) * sizeA, tile.aStride * sizeA, nullptr, bStride, nullptr, k, 0xffff};
        if (walk.aStride % kAliasBytes == 0) {
          for (int64_t i = 0; i < rows; ++i)
            std::memcpy(copy + i * kCopyStride, walk.a + i * walk.aStride, static_cast<size_t>(k * sizeA));
          walk.a = copy;
          walk.aStride = kCopyStride;
        }
        for (int64_t j = 0, group = 0; j < columns; j += group) {
          group = partAt(j, columns, kAlongGroup[static_cast<size_t>(rows - 1)]);
          walk.b = b + j * bStride + first * size;
          walk.next = j + group < columns ? walk.b + group * bStride : behind ? behind : walk.b;
          table[indexOf(rows, group)](walk, sums + row * kWaiting + j, at > 0);
        }
      }
    }
    storeRows(tile, tile.c + column * sizeC, sums, kWaiting, columns);
  }
}

/// Works in blocks of K, which bounds the length of each sum, and keeps the data that several panels of rows read in
/// the core's second-level cache.
template <Elements E> void multiplyAcross(const Tile &tile) {
  static constexpr Table<Across> table = acrossTable<E>(kIndices);
  constexpr int64_t sizeA = bytesOf(elementsOfA<E>()), size = bytesOf(E), perWord = elementsOfWord(E);
  const int64_t sizeC = tile.store == Store::Round ? 2 : 4, bStride = tile.b.stride * size;
  const int64_t vectors = (tile.columns + kVector - 1) / kVector, words = wordsOf(tile.k, E);
  const int64_t limit = kAcrossGroup[static_cast<size_t>(partAt(0, tile.rows, kWalkRows) - 1)];
  alignas(64) float sums[kMostRows * kGroup * kVector];
  for (int64_t vector = 0, group = 0; vector < vectors; vector += group) {
    group = partAt(vector, vectors, limit);
    const int64_t column = vector * kVector, columns = std::min(group * kVector, tile.columns - column);
    const char *b = tile.b.data + column * size;
    const char *behind = column + columns < tile.columns + tile.behind ? b + columns * size : b;
    char *c = tile.c + column * sizeC;
    for (int64_t at = 0, block = 0; at < words; at += block) {
      block = partAt(at, words, kBlockWords);
      const int64_t first = at * perWord, k = std::min(block * perWord, tile.k - first);
      const char *from = b + first * bStride, *next = at + block < words ? from + k * bStride : behind;
      for (int64_t row = 0, rows = 0; row < tile.rows; row += rows) {
        rows = partAt(row, tile.rows, kWalkRows);
        Walk walk{tile.a + (row * tile.aStride + first) * sizeA, tile.aStride * sizeA, from, bStride, next, k,
                  firstLanes(columns - (group - 1) * kVector)};
        Result result{c + row * tile.cStride * sizeC, tile.cStride, tile.store};
        if (block < words)
          result = {reinterpret_cast<char *>(sums + row * kGroup * kVector), kGroup * kVector,
                    at > 0 ? Store::Add : Store::Overwrite};
        table[indexOf(rows, group)](walk, result);
      }
    }
    if (words > kBlockWords)
      storeRows(tile, c, sums, kGroup * kVector, columns);
  }
}

template <Elements E> void multiplyAs(const Tile &tile) {
  return tile.b.alongK ? multiplyAlong<E>(tile) : multiplyAcross<E>(tile);
}
} // namespace

void multiply(const Tile &tile) {
  switch (tile.b.elements) {
  case Elements::F32:
    return multiplyAs<Elements::F32>(tile);
  case Elements::Bf16:
    return multiplyAs<Elements::Bf16>(tile);
  case Elements::Rounded:
    return multiplyAs<Elements::Rounded>(tile);
  case Elements::WideBf16:
    return multiplyAs<Elements::WideBf16>(tile);
  case Elements::WideRounded:
    return multiplyAs<Elements::WideRounded>(tile);
  }
}

} // namespace tcc::runtime::fewrows

TCC_LEVEL_END

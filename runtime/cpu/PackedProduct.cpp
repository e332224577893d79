//===- PackedProduct.cpp - a block of a product from packed panels -------===//
//
// The inner kernel of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (ACM TOMS 2008): a
// panel of A with 8 rows and one of B with 3 vectors are walked along K, and their 24 sums stay in registers. Every sum
// runs through K in order, whatever the panel's size.
//
// f32 and bf16 share all but one instruction: a word of K is one f32, or two bf16 that are multiplied and added at
// once. Multiplications leave the core's load and store units mostly idle; they are used to pack the next panel of B.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/PackedWords.h"
#include "runtime/cpu/calls/CpuLevel.h"

#include <array>
#include <utility>

#define TCC_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,prfchw,avx512bf16")))

namespace tcc::runtime::packed {

namespace {
/// Transposes within groups of four rows: 128-bit part L of row 4i + q gets the words 4L + q of rows 4i to 4i + 3.
template <int Count> TCC_AVX512 inline void transposeQuarters(Words (&rows)[Count]) {
  Words half[Count];
  for (int i = 0; i < Count; i += 2) {
    half[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    half[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < Count; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(half[i], half[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(half[i], half[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(half[i + 1], half[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(half[i + 1], half[i + 3]);
  }
}

/// Transposes four registers as a matrix of 128-bit parts.
TCC_AVX512 inline void transposeParts(Words a, Words b, Words c, Words d, Words (&to)[4]) {
  Words even0 = _mm512_shuffle_i32x4(a, b, 0x88), odd0 = _mm512_shuffle_i32x4(a, b, 0xdd);
  Words even1 = _mm512_shuffle_i32x4(c, d, 0x88), odd1 = _mm512_shuffle_i32x4(c, d, 0xdd);
  to[0] = _mm512_shuffle_i32x4(even0, even1, 0x88);
  to[1] = _mm512_shuffle_i32x4(odd0, odd1, 0x88);
  to[2] = _mm512_shuffle_i32x4(even0, even1, 0xdd);
  to[3] = _mm512_shuffle_i32x4(odd0, odd1, 0xdd);
}

/// Packs rows of a panel that are stored along K: 8 rows by 16 words at a time, two words of all rows per store.
template <Elements E>
TCC_AVX512 void packPanelAlong(uint32_t *to, const char *from, int64_t strideBytes, int64_t rows, int64_t k) {
  constexpr int64_t perWord = elementsOfWord(E), size = bytesOf(E);
  int64_t words = wordsOf(k, E);
  for (int64_t w = 0; w < words; w += kVector) {
    Words row[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i)
      row[i] = i < rows ? loadAlong<E>(from + i * strideBytes + w * perWord * size, k - w * perWord)
                        : _mm512_setzero_si512();
    transposeQuarters(row);
#pragma GCC unroll 2
    for (int q = 0; q < 4; q += 2) {
      Words pair[4];
      transposeParts(row[q], row[4 + q], row[q + 1], row[5 + q], pair);
#pragma GCC unroll 4
      for (int part = 0; part < 4; ++part) {
        int64_t at = w + 4 * part + q;
        if (at < words)
          _mm512_mask_storeu_epi32(to + at * kRows, at + 1 < words ? 0xffff : 0xff, pair[part]);
      }
    }
  }
}

/// Prefetches the next rows, which are too far apart for the hardware prefetcher; `left` words of K remain.
template <int64_t PerWord> inline void prefetchRows(const char *row, int64_t strideBytes, int64_t bytes, int64_t left) {
  constexpr int64_t ahead = 8;
  if (left <= ahead)
    return;
  for (int64_t part = 0; part < PerWord; ++part)
    fetchLines<0>(row + (ahead * PerWord + part) * strideBytes, bytes);
}

template <Elements E>
TCC_AVX512 void packRowsAs(uint32_t *to, const Source &source, int64_t rows, int64_t k, int64_t apart) {
  constexpr int64_t perWord = elementsOfWord(E), size = bytesOf(E);
  int64_t words = wordsOf(k, E), strideBytes = source.stride * size;
  if (apart == 0)
    apart = kRows * words;
  if (source.alongK) {
    for (int64_t row = 0; row < rows; row += kRows, to += apart)
      packPanelAlong<E>(to, source.data + row * strideBytes, strideBytes, std::min(kRows, rows - row), k);
    return;
  }
  // One register holds two panels.
  for (int64_t w = 0; w < words; ++w) {
    const char *from = source.data + w * perWord * strideBytes;
    prefetchRows<perWord>(from, strideBytes, rows * size, words - w);
    uint32_t *at = to + w * kRows;
    for (int64_t row = 0; row < rows; row += kVector, at += 2 * apart) {
      Words lanes = loadAcross<E>(from + row * size, source.stride, firstLanes(rows - row), k - w * perWord);
      _mm256_storeu_si256(reinterpret_cast<__m256i *>(at), _mm512_castsi512_si256(lanes));
      if (row + kRows < rows)
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(at + apart), _mm512_extracti64x4_epi64(lanes, 1));
    }
  }
}

/// Packs columns of a panel that are stored along K: 16 by 16 words at a time.
template <Elements E, int Vectors>
TCC_AVX512 void packColumnsAlong(uint32_t *to, const char *from, int64_t strideBytes, int64_t columns, int64_t k) {
  constexpr int64_t perWord = elementsOfWord(E), size = bytesOf(E);
  int64_t words = wordsOf(k, E);
  for (int64_t v = 0; v < Vectors; ++v, from += kVector * strideBytes, columns -= kVector)
    for (int64_t w = 0; w < words; w += kVector) {
      Words row[16];
      if (columns >= kVector && w + kVector <= k / perWord) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i)
          row[i] = loadAlong<E>(from + i * strideBytes + w * perWord * size, kVector * perWord);
      } else {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i)
          row[i] = i < columns ? loadAlong<E>(from + i * strideBytes + w * perWord * size, k - w * perWord)
                               : _mm512_setzero_si512();
      }
      transposeQuarters(row);
      uint32_t *at = to + (w * Vectors + v) * kVector;
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        Words across[4];
        transposeParts(row[q], row[4 + q], row[8 + q], row[12 + q], across);
#pragma GCC unroll 4
        for (int part = 0; part < 4; ++part)
          if (w + 4 * part + q < words)
            _mm512_store_si512(at + (4 * part + q) * Vectors * kVector, across[part]);
      }
    }
}

template <Elements E, int Vectors>
TCC_AVX512 void packColumnsAcross(uint32_t *to, const char *from, int64_t strideBytes, int64_t columns, int64_t k) {
  constexpr int64_t perWord = elementsOfWord(E), size = bytesOf(E);
  int64_t words = wordsOf(k, E);
  __mmask16 last = firstLanes(columns - (Vectors - 1) * kVector);
  for (int64_t w = 0; w < words; ++w, from += perWord * strideBytes, to += Vectors * kVector) {
    prefetchRows<perWord>(from, strideBytes, columns * size, words - w);
#pragma GCC unroll 3
    for (int v = 0; v < Vectors; ++v)
      _mm512_store_si512(to + v * kVector, loadAcross<E>(from + v * kVector * size, strideBytes / size,
                                                         v + 1 < Vectors ? __mmask16(0xffff) : last, k - w * perWord));
  }
}

template <Elements E> void packColumnsAs(uint32_t *to, const Source &source, int64_t columns, int64_t k) {
  using Pack = void (*)(uint32_t *, const char *, int64_t, int64_t, int64_t);
  constexpr Pack pack[2][kVectors] = {{packColumnsAcross<E, 1>, packColumnsAcross<E, 2>, packColumnsAcross<E, 3>},
                                      {packColumnsAlong<E, 1>, packColumnsAlong<E, 2>, packColumnsAlong<E, 3>}};
  pack[source.alongK][(columns + kVector - 1) / kVector - 1](to, source.data, source.stride * bytesOf(E), columns, k);
}

template <Elements E>
TCC_AVX512 void packRunsAs(uint32_t *to, const Source &source, const ColumnRun *runs, int64_t runCount, int64_t columns,
                           int64_t k) {
  constexpr int64_t perWord = elementsOfWord(E), size = bytesOf(E);
  const char *from = source.data;
  const int64_t width = (columns + kVector - 1) / kVector * kVector;
  for (int64_t w = 0; w < wordsOf(k, E); ++w, from += perWord * source.stride * size, to += width) {
    uint32_t *lane = to;
    for (int64_t run = 0; run < runCount; lane += runs[run++].count)
      for (int64_t v = 0; v < runs[run].count; v += kVector)
        _mm512_storeu_si512(lane + v, loadAcross<E>(from + (runs[run].at + v) * size, source.stride,
                                                    firstLanes(runs[run].count - v), k - w * perWord));
  }
}

//===-- Multiplying -------------------------------------------------------===//

template <int Rows, int Vectors>
TCC_AVX512 inline __attribute__((always_inline)) void finish(__m512 (&sums)[Rows][Vectors], int64_t columns,
                                                             const Block &block) {
  __mmask16 last = firstLanes(columns - (Vectors - 1) * kVector);
  int64_t size = block.store == Store::Round ? 2 : 4;
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j) {
      __mmask16 lanes = j + 1 < Vectors ? __mmask16(0xffff) : last;
      __m512 sum = sums[i][j];
      if (block.before)
        sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, block.before + i * block.beforeStride + j * kVector), sum);
      storeSums(static_cast<char *>(block.result) + (i * block.resultStride + j * kVector) * size, lanes, sum,
                block.store);
    }
}

inline __mmask16 lanesOf(const Ahead &next, int64_t vector) {
  return vector + 1 < next.vectors ? __mmask16(0xffff) : next.lastLanes;
}

/// Packs one word of K of the panel that is multiplied next.
TCC_AVX512 inline __attribute__((always_inline)) void copyWord(Ahead &next) {
  prefetchRows<1>(next.row, next.strideBytes, next.rowBytes, next.words);
  for (int64_t v = 0; v < next.vectors; ++v)
    _mm512_store_si512(next.to + v * kVector,
                       next.widens ? loadAcross<Elements::WideBf16>(next.row + v * kVector * 2, 0, lanesOf(next, v), 1)
                                   : loadAcross<Elements::F32>(next.row + v * kVector * 4, 0, lanesOf(next, v), 1));
  next.row += next.strideBytes;
  next.to += next.vectors * kVector;
  --next.words;
}

inline void fetchLine(Ahead &next) {
  if (next.rows == 0)
    return;
  __builtin_prefetch(next.row + next.at, 0, 2);
  if ((next.at += 64) < next.rowBytes)
    return;
  next.at = 0;
  next.row += next.strideBytes;
  --next.rows;
}

/// With dot products, only prefetches: shuffling bf16 into pairs would occupy the units that multiply.
template <bool Dots> TCC_AVX512 inline __attribute__((always_inline)) void step(Ahead &next) {
  if (!Dots && next.words > 0)
    copyWord(next);
  else
    fetchLine(next);
}

/// Prefetches the lines of a result: stores leave the core in order, so those of a block would wait for their lines one
/// after another.
TCC_AVX512 inline __attribute__((always_inline)) void fetchResult(const Block &block, int64_t rows, int64_t columns) {
  const int64_t size = block.store == Store::Round ? 2 : 4;
  auto *row = static_cast<const char *>(block.result);
  for (int64_t i = 0; i < rows; ++i, row += block.resultStride * size)
    fetchLines<1>(row, columns * size);
}

// One source, compiled for two instruction sets.
#define TCC_MULTIPLY(NAME, DOTS, TARGET, STEP)                                                                         \
  template <int Rows, int Vectors, bool InPlace>                                                                       \
  TARGET void NAME(const RowPanel &panel, const uint32_t *b, int64_t columns, const Block &block) {                    \
    __m512 sums[Rows][Vectors];                                                                                        \
    _Pragma("GCC unroll 8") for (int i = 0; i < Rows; ++i) _Pragma("GCC unroll 3") for (int j = 0; j < Vectors; ++j)   \
        sums[i][j] = _mm512_setzero_ps();                                                                              \
    if (block.isCold)                                                                                                  \
      fetchResult(block, Rows, columns);                                                                               \
    const uint32_t *a = panel.data;                                                                                    \
    const int64_t stride = InPlace ? panel.stride : 1, period = block.ahead->period;                                   \
    for (int64_t word = 0, end = 0; word < block.words;) {                                                             \
      step<DOTS>(*block.ahead);                                                                                        \
      for (end = std::min(word + period, block.words); word < end; ++word) {                                           \
        Words right[Vectors];                                                                                          \
        _Pragma("GCC unroll 3") for (int j = 0; j < Vectors; ++j) right[j] = _mm512_load_si512(b + j * kVector);       \
        _Pragma("GCC unroll 8") for (int i = 0; i < Rows; ++i) {                                                       \
          Words left = _mm512_set1_epi32(static_cast<int>(a[i * stride]));                                             \
          _Pragma("GCC unroll 3") for (int j = 0; j < Vectors; ++j) sums[i][j] = STEP(sums[i][j], left, right[j]);     \
        }                                                                                                              \
        a += InPlace ? 1 : kRows;                                                                                      \
        b += Vectors * kVector;                                                                                        \
      }                                                                                                                \
    }                                                                                                                  \
    finish<Rows, Vectors>(sums, columns, block);                                                                       \
  }
#define TCC_FMA(SUM, LEFT, RIGHT) _mm512_fmadd_ps(_mm512_castsi512_ps(LEFT), _mm512_castsi512_ps(RIGHT), SUM)
#define TCC_DOT(SUM, LEFT, RIGHT) _mm512_dpbf16_ps(SUM, (__m512bh)(LEFT), (__m512bh)(RIGHT))
TCC_MULTIPLY(multiplyF32, false, TCC_AVX512, TCC_FMA)
TCC_MULTIPLY(multiplyDots, true, TCC_AVX512_BF16, TCC_DOT)

using Multiply = void (*)(const RowPanel &, const uint32_t *, int64_t, const Block &);
using MultiplyTable = std::array<Multiply, kRows * kVectors>;
template <int... I> constexpr std::array<MultiplyTable, 4> multiplyTables(std::integer_sequence<int, I...>) {
  return {{{multiplyF32<I / kVectors + 1, I % kVectors + 1, false>...},
           {multiplyF32<I / kVectors + 1, I % kVectors + 1, true>...},
           {multiplyDots<I / kVectors + 1, I % kVectors + 1, false>...},
           {multiplyDots<I / kVectors + 1, I % kVectors + 1, true>...}}};
}
constexpr auto kMultiply = multiplyTables(std::make_integer_sequence<int, kRows * kVectors>());
} // namespace

static bool hasAvx512() { return cpuFeatures().avx512; }

Ahead packedDuring(uint32_t *to, const Source &source, int64_t columns, int64_t k, int64_t panels) {
  if (!hasAvx512())
    return {};
  int64_t size = bytesOf(source.elements);
  Ahead ahead;
  ahead.row = source.data;
  ahead.strideBytes = source.stride * size;
  ahead.rowBytes = (source.alongK ? k : columns) * size;
  if (source.alongK || (source.elements != Elements::F32 && source.elements != Elements::WideBf16)) {
    ahead.rowBytes += 32; // a row may start inside a line
    ahead.rows = source.alongK ? columns : k;
    return ahead;
  }
  ahead.period = panels;
  ahead.to = to;
  ahead.words = k;
  ahead.vectors = (columns + kVector - 1) / kVector;
  ahead.lastLanes = firstLanes(columns - (ahead.vectors - 1) * kVector);
  ahead.widens = source.elements == Elements::WideBf16;
  return ahead;
}

TCC_AVX512 static void copyRest(Ahead &ahead) {
  while (ahead.words > 0)
    copyWord(ahead);
}

void finish(Ahead &ahead, uint32_t *to, const Source &source, int64_t columns, int64_t k) {
  if (ahead.to == nullptr)
    return packColumns(to, source, columns, k);
  copyRest(ahead);
}

void packRows(uint32_t *to, const Source &source, int64_t rows, int64_t k, int64_t apart) {
  if (!hasAvx512())
    return avx2::packRows(to, source, rows, k, apart);
  switch (source.elements) {
  case Elements::F32:
    return packRowsAs<Elements::F32>(to, source, rows, k, apart);
  case Elements::Bf16:
    return packRowsAs<Elements::Bf16>(to, source, rows, k, apart);
  case Elements::WideBf16:
    return packRowsAs<Elements::WideBf16>(to, source, rows, k, apart);
  case Elements::Rounded:
  case Elements::WideRounded:
    break;
  }
  __builtin_unreachable(); // only B can have these elements
}

void packColumns(uint32_t *to, const Source &source, int64_t columns, int64_t k) {
  if (!hasAvx512())
    return avx2::packColumns(to, source, columns, k);
  switch (source.elements) {
  case Elements::F32:
    return packColumnsAs<Elements::F32>(to, source, columns, k);
  case Elements::Bf16:
    return packColumnsAs<Elements::Bf16>(to, source, columns, k);
  case Elements::Rounded:
    return packColumnsAs<Elements::Rounded>(to, source, columns, k);
  case Elements::WideBf16:
    return packColumnsAs<Elements::WideBf16>(to, source, columns, k);
  case Elements::WideRounded:
    return packColumnsAs<Elements::WideRounded>(to, source, columns, k);
  }
}

void packColumnRuns(uint32_t *to, const Source &source, const ColumnRun *runs, int64_t runCount, int64_t columns,
                    int64_t k) {
  if (!hasAvx512())
    return avx2::packColumnRuns(to, source, runs, runCount, columns, k);
  if (source.elements == Elements::F32)
    packRunsAs<Elements::F32>(to, source, runs, runCount, columns, k);
  else
    packRunsAs<Elements::Bf16>(to, source, runs, runCount, columns, k);
}

void multiply(bool dots, const RowPanel &a, const uint32_t *b, int64_t rows, int64_t columns, const Block &block) {
  if (!hasAvx512())
    return avx2::multiply(a, b, rows, columns, block);
  int64_t vectors = (columns + kVector - 1) / kVector;
  const MultiplyTable &table = kMultiply[(dots ? 2 : 0) + (a.stride ? 1 : 0)];
  table[static_cast<size_t>((rows - 1) * kVectors + vectors - 1)](a, b, columns, block);
}

} // namespace tcc::runtime::packed

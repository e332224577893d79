//===- PackedProduct.cpp - a block of a product from packed panels -------===//
//
// The inner kernel of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (ACM TOMS 2008): a
// panel of A with up to 8 rows and one of B with up to 48 columns are walked along K, and their sums stay in registers;
// a level with few registers cuts the panels into blocks. Every sum runs through K in order, whatever the block's size.
//
// f32 and bf16 share all but one instruction: a word of K is one f32, or two bf16 that are multiplied and added at
// once. With AVX-512 multiplications leave the core's load and store units mostly idle; they are used to pack the next
// panel of B.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/PackedProduct.h"

#include <array>
#include <utility>

#include "runtime/cpu/Vectors.h"

namespace tcc::runtime::packed::TCC_LEVEL {

namespace {
/// Packs `Count` lanes that are stored along K: word w of all of them goes to `to` + w * `stride`.
template <Elements E, int Count>
void packAlong(uint32_t *to, int64_t stride, const char *from, int64_t strideBytes, int64_t lanes, int64_t k) {
  constexpr int64_t perWord = elementsOfWord(E), wordBytes = perWord * bytesOf(E);
  const int64_t words = wordsOf(k, E);
  int64_t w = 0;
  if (lanes >= Count)
    for (; w + kLanes <= k / perWord; w += kLanes) {
      Words row[Count];
#pragma GCC unroll 16
      for (int i = 0; i < Count; ++i)
        row[i] = loadAlong<E>(from + i * strideBytes + w * wordBytes);
      storeTurned<true>(row, to + w * stride, stride, kLanes);
    }
  for (; w < words; w += kLanes) {
    Words row[Count];
#pragma GCC unroll 16
    for (int i = 0; i < Count; ++i)
      row[i] = i < lanes ? loadAlong<E>(from + i * strideBytes + w * wordBytes, k - w * perWord) : zeroWords();
    storeTurned<false>(row, to + w * stride, stride, words - w);
  }
}

/// Prefetches the next rows, which are too far apart for the hardware prefetcher; `left` words of K remain.
template <int64_t PerWord>
TCC_INLINE void prefetchRows(const char *row, int64_t strideBytes, int64_t bytes, int64_t left) {
  constexpr int64_t ahead = 8;
  if (left <= ahead)
    return;
  for (int64_t part = 0; part < PerWord; ++part)
    fetchLines<0>(row + (ahead * PerWord + part) * strideBytes, bytes);
}

template <Elements E> void packRowsAs(uint32_t *to, const Source &source, int64_t rows, int64_t k, int64_t apart) {
  constexpr int64_t perWord = elementsOfWord(E), size = bytesOf(E);
  const int64_t words = wordsOf(k, E), strideBytes = source.stride * size;
  if (apart == 0)
    apart = kRows * words;
  if (source.alongK) {
    constexpr int64_t turned = std::min(kRows, kLanes);
    for (int64_t row = 0; row < rows; row += turned)
      packAlong<E, turned>(to + row / kRows * apart + row % kRows, kRows, source.data + row * strideBytes, strideBytes,
                           rows - row, k);
    return;
  }
  for (int64_t w = 0; w < words; ++w) {
    const char *from = source.data + w * perWord * strideBytes;
    prefetchRows<perWord>(from, strideBytes, rows * size, words - w);
    uint32_t *at = to + w * kRows;
    int64_t row = 0;
    for (; row + kLanes <= rows; row += kLanes)
      storeRows(at + row / kRows * apart + row % kRows, apart,
                loadAcross<E>(from + row * size, source.stride, allLanes(), k - w * perWord), kLanes);
    if (row < rows)
      storeRows(at + row / kRows * apart + row % kRows, apart,
                loadAcross<E>(from + row * size, source.stride, firstLanes(rows - row), k - w * perWord), rows - row);
  }
}

/// Packs columns whose registers are adjacent in memory, in a panel with `stride` words of 32 bits for each word of K.
template <Elements E, int Vectors>
void packColumnsAcross(uint32_t *to, int64_t stride, const char *from, int64_t strideBytes, int64_t columns,
                       int64_t k) {
  constexpr int64_t perWord = elementsOfWord(E), size = bytesOf(E);
  const int64_t words = wordsOf(k, E);
  const Lanes last = firstLanes(columns - (Vectors - 1) * kLanes);
  for (int64_t w = 0; w < words; ++w, from += perWord * strideBytes, to += stride) {
    prefetchRows<perWord>(from, strideBytes, columns * size, words - w);
#pragma GCC unroll 6
    for (int v = 0; v < Vectors; ++v)
      store(to + v * kLanes, loadAcross<E>(from + v * kLanes * size, strideBytes / size,
                                           v + 1 < Vectors ? allLanes() : last, k - w * perWord));
  }
}

constexpr int kPanelVectors = kColumns / kLanes;
using PackAcross = void (*)(uint32_t *, int64_t, const char *, int64_t, int64_t, int64_t);
template <Elements E, int... I>
constexpr std::array<PackAcross, kPanelVectors> acrossTable(std::integer_sequence<int, I...>) {
  return {packColumnsAcross<E, I + 1>...};
}
template <Elements E>
constexpr std::array<PackAcross, kPanelVectors>
    kAcross = acrossTable<E>(std::make_integer_sequence<int, kPanelVectors>());

template <Elements E> void packColumnsAs(uint32_t *to, const Source &source, int64_t columns, int64_t k) {
  const int64_t strideBytes = source.stride * bytesOf(E), stride = (columns + kVector - 1) / kVector * kVector;
  if (!source.alongK)
    return kAcross<E>[static_cast<size_t>((columns - 1) / kLanes)](to, stride, source.data, strideBytes, columns, k);
  for (int64_t lane = 0; lane < columns; lane += kLanes)
    packAlong<E, kLanes>(to + lane, stride, source.data + lane * strideBytes, strideBytes, columns - lane, k);
}

template <Elements E>
void packRunsAs(uint32_t *to, const Source &source, const ColumnRun *runs, int64_t runCount, int64_t columns,
                int64_t k) {
  constexpr int64_t perWord = elementsOfWord(E), size = bytesOf(E);
  const char *from = source.data;
  const int64_t width = (columns + kVector - 1) / kVector * kVector;
  for (int64_t w = 0; w < wordsOf(k, E); ++w, from += perWord * source.stride * size, to += width) {
    uint32_t *lane = to;
    for (int64_t run = 0; run < runCount; lane += runs[run++].count)
      for (int64_t v = 0; v < runs[run].count; v += kLanes)
        store(lane + v, loadAcross<E>(from + (runs[run].at + v) * size, source.stride, firstLanes(runs[run].count - v),
                                      k - w * perWord));
  }
}

//===-- Packing ahead -----------------------------------------------------===//

#ifdef TCC_PACKS_AHEAD
TCC_INLINE Lanes lanesOf(const Ahead &next, int64_t vector) {
  return vector + 1 < next.vectors ? allLanes() : Lanes(next.lastLanes);
}

/// Packs one word of K of the panel that is multiplied next.
TCC_INLINE void copyWord(Ahead &next) {
  prefetchRows<1>(next.row, next.strideBytes, next.rowBytes, next.words);
  for (int64_t v = 0; v < next.vectors; ++v)
    storeAligned(next.to + v * kVector,
                 next.widens ? loadAcross<Elements::WideBf16>(next.row + v * kVector * 2, 0, lanesOf(next, v), 1)
                             : loadAcross<Elements::F32>(next.row + v * kVector * 4, 0, lanesOf(next, v), 1));
  next.row += next.strideBytes;
  next.to += next.vectors * kVector;
  --next.words;
}

TCC_INLINE void fetchLine(Ahead &next) {
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
template <bool Dots> TCC_INLINE void step(Ahead &next) {
  if (!Dots && next.words > 0)
    copyWord(next);
  else
    fetchLine(next);
}

Ahead packedDuring(uint32_t *to, const Source &source, int64_t columns, int64_t k, int64_t panels) {
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

void copyRest(Ahead &ahead) {
  while (ahead.words > 0)
    copyWord(ahead);
}
#else
Ahead packedDuring(uint32_t *, const Source &, int64_t, int64_t, int64_t) { return {}; }
void copyRest(Ahead &) {}
#endif

//===-- Multiplying -------------------------------------------------------===//

/// Adds the products of a word of K; rows of A are `lane` words apart.
template <bool Dots, int Rows, int Vectors>
TCC_INLINE void multiplyWord(Floats (&sums)[Rows][Vectors], const uint32_t *a, int64_t lane, const uint32_t *b) {
  Factors right[Vectors];
#pragma GCC unroll 3
  for (int j = 0; j < Vectors; ++j)
    right[j] = loadFactors(b + j * kLanes);
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
    const Factors left = broadcast(a + i * lane);
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j)
      sums[i][j] = multiplyFactors<Dots>(sums[i][j], left, right[j]);
  }
}

/// Stores whole registers of f32, added to earlier sums if there are any.
template <int Rows, int Vectors> TCC_INLINE void storeWhole(Floats (&sums)[Rows][Vectors], const Block &block) {
  auto *to = static_cast<float *>(block.result);
  if (const float *before = block.before) {
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i, before += block.beforeStride)
#pragma GCC unroll 3
      for (int j = 0; j < Vectors; ++j)
        sums[i][j] = add(asFloats(load(before + j * kLanes)), sums[i][j]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i, to += block.resultStride)
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j)
      store(to + j * kLanes, asWords(sums[i][j]));
}

/// Stores sums that are adjacent in memory. Not inline: the registers of the multiplication should know nothing of it.
__attribute__((noinline)) void storeRest(const float *sums, int64_t rows, int64_t vectors, int64_t columns,
                                         const Block &block) {
  const int64_t size = block.store == Store::Round ? 2 : 4;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < vectors; ++j, sums += kLanes) {
      const Lanes lanes = firstLanes(columns - j * kLanes);
      Floats sum = asFloats(load(sums));
      if (block.before)
        sum = add(asFloats(load(block.before + i * block.beforeStride + j * kLanes, lanes)), sum);
      storeSums(static_cast<char *>(block.result) + (i * block.resultStride + j * kLanes) * size, lanes, sum,
                block.store);
    }
}

/// Stores the sums of any block, by masks or through memory.
template <int Rows, int Vectors>
TCC_INLINE void storeBlock(Floats (&sums)[Rows][Vectors], int64_t columns, const Block &block) {
  if constexpr (kHasMasks) {
    const Lanes last = firstLanes(columns - (Vectors - 1) * kLanes);
    const int64_t size = block.store == Store::Round ? 2 : 4;
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
      for (int j = 0; j < Vectors; ++j) {
        const Lanes lanes = j + 1 < Vectors ? allLanes() : last;
        Floats sum = sums[i][j];
        if (block.before)
          sum = add(asFloats(load(block.before + i * block.beforeStride + j * kLanes, lanes)), sum);
        storeSums(static_cast<char *>(block.result) + (i * block.resultStride + j * kLanes) * size, lanes, sum,
                  block.store);
      }
    return;
  }
  if (columns >= Vectors * kLanes && block.store == Store::Overwrite)
    return storeWhole(sums, block);
  float all[Rows * Vectors * kLanes];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j)
      store(all + (i * Vectors + j) * kLanes, asWords(sums[i][j]));
  storeRest(all, Rows, Vectors, columns, block);
}

/// Rows of A by vectors of B, whose words of K are `bStride` apart.
template <int Rows, int Vectors, bool Dots, bool InPlace>
void multiplyBlock(const uint32_t *a, int64_t stride, const uint32_t *b, int64_t bStride, int64_t columns,
                   const Block &block) {
  Floats sums[Rows][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j)
      sums[i][j] = zero();
  const int64_t lane = InPlace ? stride : 1, aStep = InPlace ? 1 : kRows,
                bStep = kBlockIsPanel ? Vectors * kLanes : bStride;
#ifdef TCC_PACKS_AHEAD
  const int64_t period = block.ahead->period;
  for (int64_t word = 0, end = 0; word < block.words;) {
    step<Dots>(*block.ahead);
    for (end = std::min(word + period, block.words); word < end; ++word, a += aStep, b += bStep)
      multiplyWord<Dots>(sums, a, lane, b);
  }
#else
  int64_t words = block.words;
  for (; words >= kUnrolled; words -= kUnrolled)
#pragma GCC unroll 4
    for (int word = 0; word < kUnrolled; ++word, a += aStep, b += bStep)
      multiplyWord<Dots>(sums, a, lane, b);
  for (; words > 0; --words, a += aStep, b += bStep)
    multiplyWord<Dots>(sums, a, lane, b);
#endif
  storeBlock(sums, columns, block);
}

using MultiplyBlock = void (*)(const uint32_t *, int64_t, const uint32_t *, int64_t, int64_t, const Block &);
template <int Rows, int Vectors, bool Dots, bool InPlace> constexpr MultiplyBlock blockOf() {
  if constexpr (Rows > kMostRows[Vectors - 1] || (Dots && !kHasDots))
    return nullptr;
  else
    return multiplyBlock<Rows, Vectors, Dots, InPlace>;
}
using MultiplyTable = std::array<MultiplyBlock, kRows * kBlockVectors>;
template <bool Dots, bool InPlace, int... I>
constexpr MultiplyTable multiplyTable(std::integer_sequence<int, I...>) {
  return {blockOf<I / kBlockVectors + 1, I % kBlockVectors + 1, Dots, InPlace>()...};
}
constexpr auto kIndices = std::make_integer_sequence<int, kRows * kBlockVectors>();
constexpr MultiplyTable kMultiply[4] = {multiplyTable<false, false>(kIndices), multiplyTable<false, true>(kIndices),
                                        multiplyTable<true, false>(kIndices), multiplyTable<true, true>(kIndices)};

constexpr size_t indexOf(int64_t rows, int64_t vectors) {
  return static_cast<size_t>((rows - 1) * kBlockVectors + vectors - 1);
}

void multiply(bool dots, const RowPanel &a, const uint32_t *b, int64_t rows, int64_t columns, const Block &block) {
  const int64_t bStride = (columns + kVector - 1) / kVector * kVector, size = block.store == Store::Round ? 2 : 4;
  // Stores leave the core in order, so those of a block would wait for their lines one after another.
  if (block.isCold)
    for (int64_t i = 0; i < rows; ++i)
      fetchLines<1>(static_cast<const char *>(block.result) + i * block.resultStride * size, columns * size);
  const MultiplyTable &table = kMultiply[(dots ? 2 : 0) + (a.stride ? 1 : 0)];
  const int64_t vectors = (columns + kLanes - 1) / kLanes;
  if (kBlockIsPanel)
    return table[indexOf(rows, vectors)](a.data, a.stride, b, bStride, columns, block);
  Block part = block;
  for (int64_t vector = 0, group = 0; vector < vectors; vector += group) {
    group = std::min<int64_t>(vectors - vector, kBlockVectors);
    const int64_t column = vector * kLanes;
    for (int64_t row = 0, count = 0; row < rows; row += count) {
      count = firstPart(rows - row, kMostRows[group - 1]);
      part.before = block.before ? block.before + row * block.beforeStride + column : nullptr;
      part.result = static_cast<char *>(block.result) + (row * block.resultStride + column) * size;
      table[indexOf(count, group)](a.data + row * (a.stride ? a.stride : 1), a.stride, b + column, bStride,
                                   columns - column, part);
    }
  }
}

/// Only panels of B are rounded as they are packed, and only dot products multiply pairs.
template <Elements E, bool OfRows> constexpr bool kIsPacked =
    (kHasDots || !isDotted(E)) && !(OfRows && (E == Elements::Rounded || E == Elements::WideRounded));

template <Elements E> void packRowsIf(uint32_t *to, const Source &source, int64_t rows, int64_t k, int64_t apart) {
  if constexpr (kIsPacked<E, true>)
    return packRowsAs<E>(to, source, rows, k, apart);
  __builtin_unreachable();
}
template <Elements E> void packColumnsIf(uint32_t *to, const Source &source, int64_t columns, int64_t k) {
  if constexpr (kIsPacked<E, false>)
    return packColumnsAs<E>(to, source, columns, k);
  __builtin_unreachable();
}

void packRows(uint32_t *to, const Source &source, int64_t rows, int64_t k, int64_t apart) {
  switch (source.elements) {
  case Elements::F32:
    return packRowsIf<Elements::F32>(to, source, rows, k, apart);
  case Elements::Bf16:
    return packRowsIf<Elements::Bf16>(to, source, rows, k, apart);
  case Elements::WideBf16:
    return packRowsIf<Elements::WideBf16>(to, source, rows, k, apart);
  case Elements::Rounded:
  case Elements::WideRounded:
    break;
  }
  __builtin_unreachable(); // only B can have these elements
}

void packColumns(uint32_t *to, const Source &source, int64_t columns, int64_t k) {
  switch (source.elements) {
  case Elements::F32:
    return packColumnsAs<Elements::F32>(to, source, columns, k);
  case Elements::Bf16:
    return packColumnsIf<Elements::Bf16>(to, source, columns, k);
  case Elements::Rounded:
    return packColumnsIf<Elements::Rounded>(to, source, columns, k);
  case Elements::WideBf16:
    return packColumnsAs<Elements::WideBf16>(to, source, columns, k);
  case Elements::WideRounded:
    return packColumnsAs<Elements::WideRounded>(to, source, columns, k);
  }
}

void packColumnRuns(uint32_t *to, const Source &source, const ColumnRun *runs, int64_t runCount, int64_t columns,
                    int64_t k) {
  if (kHasDots && source.elements == Elements::Bf16)
    packRunsAs<kHasDots ? Elements::Bf16 : Elements::F32>(to, source, runs, runCount, columns, k);
  else
    packRunsAs<Elements::F32>(to, source, runs, runCount, columns, k);
}

void finish(Ahead &ahead, uint32_t *to, const Source &source, int64_t columns, int64_t k) {
  if (ahead.to == nullptr)
    return TCC_LEVEL::packColumns(to, source, columns, k);
  copyRest(ahead);
}
} // namespace

const PackedKernels kPacked = {packRows, packColumns, packColumnRuns, packedDuring, finish, multiply};

} // namespace tcc::runtime::packed::TCC_LEVEL

TCC_LEVEL_END

//===- PackedProductAvx2.cpp - a block of a product, with AVX2 -----------===//
//
// The panels of PackedProduct.cpp, packed and multiplied with registers of 8 words. Every sum runs through K in the
// same order by the same fused multiply-adds, so both files give the same bits. A panel of 8 rows and 48 columns is
// multiplied in blocks of 4 rows and 24 columns: their 12 sums fit into the 16 registers together with a word of A and
// three vectors of B.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/PackedWordsAvx2.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tcc::runtime::packed::avx2 {

namespace {
/// Loads eight adjacent elements as words.
template <Elements E> TCC_AVX2 inline __m256i loadEight(const char *from) {
  if constexpr (E == Elements::WideBf16)
    return _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from))), 16);
  __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from));
  return E == Elements::WideRounded ? roundToBf16(_mm256_castsi256_ps(words)) : words;
}

/// The same for at most `count` elements; the other lanes are zero.
template <Elements E> TCC_AVX2 inline __m256i load(const char *from, int64_t count) {
  if (count >= kEight)
    return loadEight<E>(from);
  if constexpr (E == Elements::WideBf16) {
    alignas(16) uint16_t few[kEight] = {};
    std::memcpy(few, from, static_cast<size_t>(std::max<int64_t>(count, 0)) * 2);
    return loadEight<E>(reinterpret_cast<const char *>(few));
  }
  __m256i words = _mm256_maskload_epi32(reinterpret_cast<const int *>(from), firstLanes(count));
  return E == Elements::WideRounded ? roundToBf16(_mm256_castsi256_ps(words)) : words;
}

TCC_AVX2 inline void transpose(__m256i (&rows)[8]) {
  __m256i pairs[8], quads[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    quads[i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
    quads[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
    quads[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    quads[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm256_permute2x128_si256(quads[i], quads[4 + i], 0x20);
    rows[4 + i] = _mm256_permute2x128_si256(quads[i], quads[4 + i], 0x31);
  }
}

/// Packs eight lanes that are stored along K: word w of all of them goes to `to` + w * `stride`.
template <Elements E>
TCC_AVX2 void packAlong(uint32_t *to, int64_t stride, const char *from, int64_t strideBytes, int64_t lanes, int64_t k) {
  int64_t w = 0;
  if (lanes >= kEight)
    for (; w + kEight <= k; w += kEight) {
      __m256i row[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i)
        row[i] = loadEight<E>(from + i * strideBytes + w * bytesOf(E));
      transpose(row);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i)
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(to + (w + i) * stride), row[i]);
    }
  for (; w < k; w += kEight) {
    __m256i row[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i)
      row[i] = i < lanes ? load<E>(from + i * strideBytes + w * bytesOf(E), k - w) : _mm256_setzero_si256();
    transpose(row);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i)
      if (w + i < k)
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(to + (w + i) * stride), row[i]);
  }
}

/// Packs lanes that are adjacent in memory. In the panel, registers are `apart` words apart and words of K `stride`
/// words.
template <Elements E>
TCC_AVX2 void packAcross(uint32_t *to, int64_t apart, int64_t stride, const char *from, int64_t strideBytes,
                         int64_t lanes, int64_t k) {
  constexpr int64_t ahead = 8; // prefetch distance: rows are too far apart for the hardware prefetcher
  for (int64_t w = 0; w < k; ++w, from += strideBytes, to += stride) {
    if (w + ahead < k)
      fetchLines<0>(from + ahead * strideBytes, lanes * bytesOf(E));
    uint32_t *at = to;
    int64_t lane = 0;
    for (; lane + kEight <= lanes; lane += kEight, at += apart)
      _mm256_storeu_si256(reinterpret_cast<__m256i *>(at), loadEight<E>(from + lane * bytesOf(E)));
    if (lane < lanes)
      _mm256_storeu_si256(reinterpret_cast<__m256i *>(at), load<E>(from + lane * bytesOf(E), lanes - lane));
  }
}

template <Elements E> void packRowsAs(uint32_t *to, const Source &source, int64_t rows, int64_t k, int64_t apart) {
  const int64_t strideBytes = source.stride * bytesOf(E);
  if (apart == 0)
    apart = kRows * k;
  if (!source.alongK)
    return packAcross<E>(to, apart, kRows, source.data, strideBytes, rows, k);
  for (int64_t row = 0; row < rows; row += kRows, to += apart)
    packAlong<E>(to, kRows, source.data + row * strideBytes, strideBytes, rows - row, k);
}

/// Packs columns of B. Words of K in the panel are whole vectors of 16 apart; only existing lanes are read.
template <Elements E> void packColumnsAs(uint32_t *to, const Source &source, int64_t columns, int64_t k) {
  const int64_t strideBytes = source.stride * bytesOf(E), stride = (columns + kVector - 1) / kVector * kVector;
  if (source.alongK) {
    for (int64_t lane = 0; lane < columns; lane += kEight)
      packAlong<E>(to + lane, stride, source.data + lane * strideBytes, strideBytes, columns - lane, k);
    return;
  }
  packAcross<E>(to, kEight, stride, source.data, strideBytes, columns, k);
}

//===-- Multiplying -------------------------------------------------------===//

constexpr int kUnrolled = 4; ///< words of K

/// Adds the products of a word of K; rows of A lie `lane` words apart.
template <int Rows, int Vectors>
TCC_AVX2 inline __attribute__((always_inline)) void multiplyWord(__m256 (&sums)[Rows][Vectors], const uint32_t *a,
                                                                 int64_t lane, const uint32_t *b) {
  __m256 right[Vectors];
#pragma GCC unroll 3
  for (int j = 0; j < Vectors; ++j)
    right[j] = _mm256_loadu_ps(reinterpret_cast<const float *>(b) + j * kEight);
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
    __m256 left = _mm256_broadcast_ss(reinterpret_cast<const float *>(a) + i * lane);
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j)
      sums[i][j] = _mm256_fmadd_ps(left, right[j], sums[i][j]);
  }
}

/// Stores the sums of most blocks: whole registers of f32, added to earlier sums if there are any.
template <int Rows, int Vectors>
TCC_AVX2 inline __attribute__((always_inline)) void storeWhole(__m256 (&sums)[Rows][Vectors], const Block &block) {
  auto *to = static_cast<float *>(block.result);
  if (const float *before = block.before) {
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i, before += block.beforeStride)
#pragma GCC unroll 3
      for (int j = 0; j < Vectors; ++j)
        sums[i][j] = _mm256_add_ps(_mm256_loadu_ps(before + j * kEight), sums[i][j]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i, to += block.resultStride)
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j)
      _mm256_storeu_ps(to + j * kEight, sums[i][j]);
}

/// Rows of A by vectors of B, whose words of K lie `bStride` apart.
template <int Rows, int Vectors, bool InPlace>
TCC_AVX2 void multiplyBlock(const uint32_t *a, int64_t stride, const uint32_t *b, int64_t bStride, int64_t columns,
                            const Block &block) {
  __m256 sums[Rows][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j)
      sums[i][j] = _mm256_setzero_ps();
  const int64_t lane = InPlace ? stride : 1, step = InPlace ? 1 : kRows;
  int64_t words = block.words;
  for (; words >= kUnrolled; words -= kUnrolled)
#pragma GCC unroll 4
    for (int word = 0; word < kUnrolled; ++word, a += step, b += bStride)
      multiplyWord(sums, a, lane, b);
  for (; words > 0; --words, a += step, b += bStride)
    multiplyWord(sums, a, lane, b);
  if (columns >= Vectors * kEight && block.store == Store::Overwrite)
    return storeWhole(sums, block);
  const int64_t size = block.store == Store::Round ? 2 : 4;
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < Vectors; ++j) {
      const int64_t count = columns - j * kEight;
      __m256 sum = sums[i][j];
      if (block.before) {
        const float *before = block.before + i * block.beforeStride + j * kEight;
        sum = _mm256_add_ps(count >= kEight ? _mm256_loadu_ps(before) : _mm256_maskload_ps(before, firstLanes(count)),
                            sum);
      }
      storeSums(static_cast<char *>(block.result) + (i * block.resultStride + j * kEight) * size, count, sum, block.store);
    }
}

using MultiplyBlock = void (*)(const uint32_t *, int64_t, const uint32_t *, int64_t, int64_t, const Block &);
template <bool InPlace>
constexpr std::array<std::array<MultiplyBlock, kBlockVectors>, kRows> kTable = {
    {{multiplyBlock<1, 1, InPlace>, multiplyBlock<1, 2, InPlace>, multiplyBlock<1, 3, InPlace>},
     {multiplyBlock<2, 1, InPlace>, multiplyBlock<2, 2, InPlace>, multiplyBlock<2, 3, InPlace>},
     {multiplyBlock<3, 1, InPlace>, multiplyBlock<3, 2, InPlace>, multiplyBlock<3, 3, InPlace>},
     {multiplyBlock<4, 1, InPlace>, multiplyBlock<4, 2, InPlace>, multiplyBlock<4, 3, InPlace>},
     {multiplyBlock<5, 1, InPlace>, multiplyBlock<5, 2, InPlace>, nullptr},
     {multiplyBlock<6, 1, InPlace>, multiplyBlock<6, 2, InPlace>, nullptr},
     {multiplyBlock<7, 1, InPlace>, nullptr, nullptr},
     {multiplyBlock<8, 1, InPlace>, nullptr, nullptr}}};

} // namespace

void packRows(uint32_t *to, const Source &source, int64_t rows, int64_t k, int64_t apart) {
  return source.elements == Elements::F32 ? packRowsAs<Elements::F32>(to, source, rows, k, apart)
                                          : packRowsAs<Elements::WideBf16>(to, source, rows, k, apart);
}

void packColumns(uint32_t *to, const Source &source, int64_t columns, int64_t k) {
  switch (source.elements) {
  case Elements::F32:
    return packColumnsAs<Elements::F32>(to, source, columns, k);
  case Elements::WideBf16:
    return packColumnsAs<Elements::WideBf16>(to, source, columns, k);
  case Elements::WideRounded:
    return packColumnsAs<Elements::WideRounded>(to, source, columns, k);
  case Elements::Bf16:
  case Elements::Rounded:
    break;
  }
  __builtin_unreachable(); // pairs need AVX-512
}

TCC_AVX2 void packColumnRuns(uint32_t *to, const Source &source, const ColumnRun *runs, int64_t runCount, int64_t columns,
                             int64_t k) {
  const int64_t width = (columns + kVector - 1) / kVector * kVector;
  const char *from = source.data;
  for (int64_t w = 0; w < k; ++w, from += source.stride * 4, to += width) {
    uint32_t *lane = to;
    for (int64_t run = 0; run < runCount; lane += runs[run++].count)
      for (int64_t v = 0; v < runs[run].count; v += kEight)
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(lane + v),
                            load<Elements::F32>(from + (runs[run].at + v) * 4, runs[run].count - v));
  }
}

void multiply(const RowPanel &a, const uint32_t *b, int64_t rows, int64_t columns, const Block &block) {
  const int64_t bStride = (columns + kVector - 1) / kVector * kVector, size = block.store == Store::Round ? 2 : 4;
  if (block.isCold)
    for (int64_t i = 0; i < rows; ++i)
      fetchLines<1>(static_cast<const char *>(block.result) + i * block.resultStride * size, columns * size);
  const auto &table = a.stride ? kTable<true> : kTable<false>;
  int64_t vectors = (columns + kEight - 1) / kEight;
  Block part = block;
  for (int64_t vector = 0, group = 0; vector < vectors; vector += group) {
    group = std::min(vectors - vector, kBlockVectors);
    const int64_t mostRows = group == 3 ? kBlockRows : group == 2 ? 6 : kRows, column = vector * kEight;
    for (int64_t row = 0, count = 0; row < rows; row += count) {
      count = firstPart(rows - row, mostRows);
      part.before = block.before ? block.before + row * block.beforeStride + column : nullptr;
      part.result = static_cast<char *>(block.result) + (row * block.resultStride + column) * size;
      table[static_cast<size_t>(count - 1)][static_cast<size_t>(group - 1)](
          a.data + row * (a.stride ? a.stride : 1), a.stride, b + column, bStride, columns - column, part);
    }
  }
}

} // namespace tcc::runtime::packed::avx2

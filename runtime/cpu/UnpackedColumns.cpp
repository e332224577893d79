//===- UnpackedColumns.cpp - panels of a matrix in 4 bits -----------------===//
//
// A run of codes along a row of the stored matrix is unpacked a register at a time: the numbers that codes stand for
// are a table in registers. Pairs of bf16 along a row look up a table of the block's sixteen values, rounded already.
// Runs that begin in the middle of a byte, or end inside a register or a block, go code by code.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/UnpackedColumns.h"

#include "runtime/cpu/Vectors.h"

namespace tcc::runtime::packed::TCC_LEVEL {

namespace {
float valueOf(const CodeSource &source, int64_t number) {
  const CodeLayout &layout = source.layout;
  const unsigned bits = (number % 2 == 0) == layout.upperFirst ? 4 : 0;
  return layout.numbers[source.bytes[number / 2] >> bits & 15] * source.scales[number >> layout.blockBits];
}

/// True if `wanted` codes from code `number` on begin with a byte and share a scale.
TCC_INLINE bool isRun(const CodeSource &source, int64_t number, int64_t wanted) {
  const int blockBits = source.layout.blockBits;
  return number % 2 == 0 && (number + wanted - 1) >> blockBits == number >> blockBits;
}

/// Up to kLanes values from code `number` on, as f32; other lanes are zero.
TCC_INLINE Words unpackRun(const CodeSource &source, int64_t number, int64_t count) {
  const CodeLayout &layout = source.layout;
  if (count >= kLanes && isRun(source, number, kLanes))
    return unpackCodes(source.bytes + number / 2, layout.upperFirst, layout.numbers,
                       source.scales[number >> layout.blockBits]);
  alignas(64) float few[kLanes] = {};
  for (int64_t i = 0; i < std::min(count, kLanes); ++i)
    few[i] = valueOf(source, number + i);
  return load(few);
}

/// The words of `lanes` adjacent columns, whose element of K has code `number`; `k` elements are left.
template <Elements E>
TCC_INLINE Words unpackAcross(const CodeSource &source, int64_t number, int64_t lanes, int64_t k) {
  const Words values = unpackRun(source, number, lanes);
  if constexpr (isDotted(E))
    return pairsOf<E>(values, k < 2 ? zeroWords() : unpackRun(source, number + source.layout.kStride, lanes));
  else
    return E == Elements::WideRounded ? roundedWide(asFloats(values)) : values;
}

/// Up to kLanes words along K from code `number` on; `k` elements are left.
template <Elements E> TCC_INLINE Words unpackAlong(const CodeSource &source, int64_t number, int64_t k) {
  if constexpr (isDotted(E)) {
    const CodeLayout &layout = source.layout;
    if (k >= 2 * kLanes && isRun(source, number, 2 * kLanes))
      return unpackPairs<E>(source.bytes + number / 2, layout.upperFirst, layout.numbers,
                            source.scales[number >> layout.blockBits]);
    alignas(64) float first[kLanes] = {}, second[kLanes] = {};
    for (int64_t i = 0; i < std::min(k, 2 * kLanes); ++i)
      (i % 2 ? second : first)[i / 2] = valueOf(source, number + i);
    return pairsOf<E>(load(first), load(second));
  } else {
    const Words values = unpackRun(source, number, k);
    return E == Elements::WideRounded ? roundedWide(asFloats(values)) : values;
  }
}

template <Elements E> void unpackColumnsAs(uint32_t *to, const CodeSource &source, int64_t columns, int64_t k) {
  constexpr int64_t perWord = elementsOfWord(E);
  const int64_t stride = (columns + kVector - 1) / kVector * kVector, kStride = source.layout.kStride,
                columnStride = source.layout.columnStride, words = wordsOf(k, E);
  if (columnStride == 1) {
    for (int64_t w = 0; w < words; ++w, to += stride)
      for (int64_t lane = 0; lane < stride; lane += kLanes)
        store(to + lane,
              unpackAcross<E>(source, source.first + w * perWord * kStride + lane, columns - lane, k - w * perWord));
    return;
  }
  for (int64_t lane = 0; lane < stride; lane += kLanes)
    for (int64_t w = 0; w < words; w += kLanes) {
      Words row[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i)
        row[i] = lane + i < columns
                     ? unpackAlong<E>(source, source.first + (lane + i) * columnStride + w * perWord, k - w * perWord)
                     : zeroWords();
      storeTurned<false>(row, to + w * stride + lane, stride, words - w);
    }
}

void unpackColumns(uint32_t *to, const CodeSource &source, Elements elements, int64_t columns, int64_t k) {
  switch (elements) {
  case Elements::F32:
    return unpackColumnsAs<Elements::F32>(to, source, columns, k);
  case Elements::WideRounded:
    return unpackColumnsAs<Elements::WideRounded>(to, source, columns, k);
  case Elements::Rounded:
    if constexpr (kHasDots)
      return unpackColumnsAs < kHasDots ? Elements::Rounded : Elements::F32 > (to, source, columns, k);
    break;
  case Elements::Bf16:
  case Elements::WideBf16:
    break;
  }
  __builtin_unreachable(); // a value of 4 bits is f32 before it is rounded
}
} // namespace

const UnpackKernels kUnpack = {unpackColumns};

} // namespace tcc::runtime::packed::TCC_LEVEL

TCC_LEVEL_END

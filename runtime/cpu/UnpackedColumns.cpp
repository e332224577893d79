//===- UnpackedColumns.cpp - panels of a matrix in 4 bits -----------------===//
//
// A run of codes along a row of the stored matrix is unpacked a register at a time: the numbers that codes stand for
// are a table in registers. Runs that begin in the middle of a byte, or end inside a register or a block, go code by
// code.
//
//===----------------------------------------------------------------------===//
#include "runtime/cpu/UnpackedColumns.h"

#include "runtime/cpu/Vectors.h"

namespace tcc::runtime::packed::TCC_LEVEL {

namespace {
/// Up to kLanes elements from code `number` on; other lanes are zero.
TCC_INLINE Words unpackRun(const CodeSource &source, int64_t number, int64_t count) {
  const CodeLayout &layout = source.layout;
  const int64_t block = number >> layout.blockBits;
  if (count >= kLanes && number % 2 == 0 && (number + kLanes - 1) >> layout.blockBits == block)
    return unpackCodes(source.bytes + number / 2, layout.upperFirst, layout.numbers, source.scales[block]);
  alignas(64) float few[kLanes] = {};
  for (int64_t i = 0; i < std::min(count, kLanes); ++i) {
    const int64_t at = number + i;
    const unsigned bits = (at % 2 == 0) == layout.upperFirst ? 4 : 0;
    few[i] = layout.numbers[source.bytes[at / 2] >> bits & 15] * source.scales[at >> layout.blockBits];
  }
  return load(few);
}

void unpackColumns(uint32_t *to, const CodeSource &source, int64_t columns, int64_t k) {
  const int64_t stride = (columns + kVector - 1) / kVector * kVector, kStride = source.layout.kStride,
                columnStride = source.layout.columnStride;
  if (columnStride == 1) {
    for (int64_t w = 0; w < k; ++w, to += stride)
      for (int64_t lane = 0; lane < stride; lane += kLanes)
        store(to + lane, unpackRun(source, source.first + w * kStride + lane, columns - lane));
    return;
  }
  for (int64_t lane = 0; lane < stride; lane += kLanes)
    for (int64_t w = 0; w < k; w += kLanes) {
      Words row[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i)
        row[i] = lane + i < columns ? unpackRun(source, source.first + (lane + i) * columnStride + w * kStride, k - w)
                                    : zeroWords();
      storeTurned<false>(row, to + w * stride + lane, stride, k - w);
    }
}
} // namespace

const UnpackKernels kUnpack = {unpackColumns};

} // namespace tcc::runtime::packed::TCC_LEVEL

TCC_LEVEL_END

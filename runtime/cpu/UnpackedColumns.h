//===- UnpackedColumns.h - panels of a matrix in 4 or 8 bits ----*- C++ -*-===//
//
// PackedMatmul.cpp copies columns of B into panels anyway; where B is stored in 4 or 8 bits (runtime/plan/FourBits.h),
// the copy multiplies each code's number, less its block's zero point if there is one, by its block's scale and, for
// products in bf16, rounds it, so that no widened matrix is in memory. Nested scales are widened one by one, too. The
// words are those of the widened matrix, bit for bit, at every machine level.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_UNPACKEDCOLUMNS_H
#define TCC_RUNTIME_CPU_UNPACKEDCOLUMNS_H

#include "runtime/cpu/calls/PanelWords.h"

#include <cstdint>

namespace tcc::runtime::packed {

/// A part of a matrix in 4 or 8 bits that begins at index k of K and a column; one of the layout's strides is 1.
struct CodeSource {
  const uint8_t *bytes;
  const void *scales; ///< f32, or codes if they are nested
  const void *rest;   ///< zero points, codes or f32 by the layout's grid; or the numbers of nested scales
  CodeLayout layout;
  int64_t k, column;
};

/// Packs at most kColumns columns into one panel, as packColumns does a matrix of `elements`, for `k` elements of K:
/// F32, or values that are rounded to bf16 (Rounded, WideRounded).
void unpackColumns(uint32_t *to, const CodeSource &source, Elements elements, int64_t columns, int64_t k);

/// The function at one machine level (Vectors.h); ProductLevels.cpp calls the one of this machine.
struct UnpackKernels {
  decltype(&packed::unpackColumns) unpackColumns;
};
namespace baseline {
extern const UnpackKernels kUnpack;
}
namespace avx2 {
extern const UnpackKernels kUnpack;
}
namespace avx512 {
extern const UnpackKernels kUnpack;
}

} // namespace tcc::runtime::packed

#endif // TCC_RUNTIME_CPU_UNPACKEDCOLUMNS_H

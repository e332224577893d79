//===- PixelProduct.h - the gradient of few weights from pixels in place -===//
//
// The inner kernel multiplies elements of the source (or of its strip) by the channels of the result's gradient and
// sums over pixels. It reads both operands at strided addresses, so that neither is packed into panels.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_PIXELPRODUCT_H
#define TCC_RUNTIME_CPU_PIXELPRODUCT_H

#include "runtime/cpu/PackedProduct.h"

#include <cstdint>

namespace tcc::runtime::packed {

/// A run of adjacent pixels.
struct PixelLine {
  int64_t source, gradient; ///< bytes to the first one's
  int64_t count;
};

struct PixelBlock {
  const char *source;      ///< f32
  const int64_t *sourceAt; ///< for each row, bytes from a pixel to the source's element
  int64_t sourcePitch;     ///< bytes from one pixel to the next
  const char *gradient;    ///< f32 or bf16 (`narrow`), of the first column
  int64_t gradientPitch;   ///< bytes
  bool narrow;
  const PixelLine *lines;
  int64_t lineCount;
  float *sums;             ///< [row][column]
  int64_t sumsPitch;
  bool adds;               ///< add to the stored sums
};

/// `rows` is at most kRows, `columns` at most kColumns.
void multiplyPixels(int64_t rows, int64_t columns, const PixelBlock &block);

/// The functions above at one machine level (Vectors.h).
struct PixelKernels {
  decltype(&packed::multiplyPixels) multiplyPixels;
};
namespace baseline {
extern const PixelKernels kPixel;
}
namespace avx2 {
extern const PixelKernels kPixel;
}
namespace avx512 {
extern const PixelKernels kPixel;
}

} // namespace tcc::runtime::packed

#endif // TCC_RUNTIME_CPU_PIXELPRODUCT_H

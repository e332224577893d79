//===- PlaneProduct.h - pixels of planes times few channels ----*- C++ -*-===//
//
// The inner kernels of convolutions of few channels. A register holds 16 adjacent pixels of one channel, so that one
// channel fills it. Each channel is a padded plane, contiguous across lines: the kernels also compute the positions
// between two lines, which the caller discards or masks. Words are f32, or pairs of bf16.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_PLANEPRODUCT_H
#define TCC_RUNTIME_CPU_PLANEPRODUCT_H

#include "runtime/cpu/PackedProduct.h"

#include <cstdint>

namespace tcc::runtime::packed {

inline constexpr int64_t kPlaneChannels = 8; ///< the most channels that are summed together
inline constexpr int64_t kPlaneColumns = 3;  ///< the most columns of a weight gradient that are summed together

/// Sums over words of K of pixels times channels.
struct PlaneBlock {
  const char *source;
  const int64_t *places; ///< bytes from `source` to the first pixel's word, of each word of K
  int64_t words;         ///< of K
  const uint32_t *weights; ///< of the first channel; channels are contiguous
  int64_t weightPitch;   ///< words from one word of K to the next
  int64_t pixels;        ///< the source is read only for these
  float *sums;           ///< whole registers are written
  int64_t sumsPitch;     ///< from one channel to the next
  bool adds;             ///< to the sums that are there
};

/// `channels` is at most kPlaneChannels. `dots`: words are pairs of bf16.
void multiplyPlanes(bool dots, int64_t channels, const PlaneBlock &block);

/// Sums over pixels of columns (channels of the source at a tap) times rows (channels of the result).
struct PlaneGradient {
  const char *source;
  const int64_t *places; ///< bytes from `source` to the first pixel's word, of each column
  const uint32_t *valid; ///< mask: all bits set for words that count
  const uint32_t *gradient; ///< of the first row
  int64_t gradientPitch; ///< words from one row to the next
  int64_t words;         ///< of pixels, whole registers
  float *sums;           ///< [row][column]
  int64_t sumsPitch;     ///< from one row to the next
  bool adds;             ///< to the sums that are there
};

/// `rows` is at most kPlaneChannels, `columns` at most kPlaneColumns. The 16 sums of a register are added in halves.
void multiplyPlaneGradient(bool dots, int64_t rows, int64_t columns, const PlaneGradient &block);

/// Copies the sums of `pixels` pixels and at most 16 `channels`, with a stride of `pitch` words between pixels, to a
/// stride of `strideBytes`.
void storePixels(const float *sums, int64_t pitch, int64_t pixels, int64_t channels, char *to, int64_t strideBytes,
                 Store store);

/// Copies `lines` lines of `bytes` bytes, an even number, from a stride of `fromPitch` bytes to a stride of `toPitch`
/// bytes.
void copyLines(const char *from, int64_t fromPitch, int64_t lines, int64_t bytes, char *to, int64_t toPitch);

/// The functions above at one machine level (Vectors.h).
struct PlaneKernels {
  decltype(&packed::multiplyPlanes) multiplyPlanes;
  decltype(&packed::multiplyPlaneGradient) multiplyPlaneGradient;
  decltype(&packed::storePixels) storePixels;
  decltype(&packed::copyLines) copyLines;
};
namespace baseline {
extern const PlaneKernels kPlane;
}
namespace avx2 {
extern const PlaneKernels kPlane;
}
namespace avx512 {
extern const PlaneKernels kPlane;
}

} // namespace tcc::runtime::packed

#endif // TCC_RUNTIME_CPU_PLANEPRODUCT_H

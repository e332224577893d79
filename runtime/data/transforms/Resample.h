//===- Resample.h - scale an image -----------------------------------------===//
#ifndef TCC_RUNTIME_DATA_TRANSFORMS_RESAMPLE_H
#define TCC_RUNTIME_DATA_TRANSFORMS_RESAMPLE_H

#include "runtime/data/transforms/Image.h"

#include <string_view>

namespace tcc::runtime {

enum class Filter { Nearest, Bilinear, Bicubic, Lanczos };
Filter filterOf(std::string_view name);

/// Scales the part of `from` (bytes) to height × width in `to`, bit for bit as Pillow scales the crop. If `antialias`
/// is false, Bilinear and Bicubic read only 2 and 4 pixels a side even if the image becomes smaller, like torch's
/// interpolate without antialias, within one grey level.
void resample(const Image &from, const Box &part, uint32_t height, uint32_t width, Filter filter, bool antialias,
              Image &to);

/// The combined effect of crops and one scaling: `window` of the result of scaling `part` of the image to height ×
/// width.
struct Cut {
  Box part;
  uint32_t height = 0, width = 0;
  Box window; ///< of the height × width pixels
  Filter filter = Filter::Bilinear;
  bool antialias = true;

  /// All of an image.
  static Cut of(uint32_t height, uint32_t width) {
    const Box all{0, 0, height, width};
    return {all, height, width, all};
  }
  bool isScaled() const { return height != part.height || width != part.width; }
  /// Crops the result so far to its part `to`.
  void narrow(const Box &to);
  /// Scales the result so far to this size. At most once: isScaled() must be false.
  void scale(uint32_t newHeight, uint32_t newWidth, Filter newFilter, bool newAntialias);

  /// The pixels of the image that are needed.
  Box source() const;
  /// Computes the pixels in `to`, bit for bit as resample and crops would. `from` holds only source().
  void make(const Image &from, Image &to) const;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_TRANSFORMS_RESAMPLE_H

//===- Resample.h - scale an image -----------------------------------------===//
#ifndef TCC_RUNTIME_DATA_TRANSFORMS_RESAMPLE_H
#define TCC_RUNTIME_DATA_TRANSFORMS_RESAMPLE_H

#include "runtime/data/transforms/Image.h"

#include <string_view>

namespace tcc::runtime {

enum class Filter { Nearest, Bilinear, Bicubic, Lanczos };
Filter filterOf(std::string_view name);

/// `to` becomes the part of `from` (of bytes), scaled to height × width: as Pillow scales the crop, bit for bit. Where
/// `antialias` is false and the image becomes smaller, Bilinear and Bicubic read 2 and 4 pixels a side all the same, as
/// torch's interpolate does without antialias, within one grey level.
void resample(const Image &from, const Box &part, uint32_t height, uint32_t width, Filter filter, bool antialias,
              Image &to);

/// Pixels that transforms choose and scale, as a whole: `window` of `part` of the image, scaled to height × width.
struct Cut {
  Box part;
  uint32_t height = 0, width = 0;
  Box window; ///< of those
  Filter filter = Filter::Bilinear;
  bool antialias = true;

  /// All of an image.
  static Cut of(uint32_t height, uint32_t width) {
    const Box all{0, 0, height, width};
    return {all, height, width, all};
  }
  bool isScaled() const { return height != part.height || width != part.width; }
  /// Crops: `to` is a part of the result so far.
  void narrow(const Box &to);
  /// Scales the result so far to this size. At most once: isScaled() must be false.
  void scale(uint32_t newHeight, uint32_t newWidth, Filter newFilter, bool newAntialias);

  /// The pixels of the image that it reads.
  Box source() const;
  /// `to` becomes these pixels: those of resample and of crops, bit for bit. `from` holds source() alone.
  void make(const Image &from, Image &to) const;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_TRANSFORMS_RESAMPLE_H

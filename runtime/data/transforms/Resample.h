//===- Resample.h - scale an image -----------------------------------------===//
#ifndef TCC_RUNTIME_DATA_TRANSFORMS_RESAMPLE_H
#define TCC_RUNTIME_DATA_TRANSFORMS_RESAMPLE_H

#include "runtime/data/transforms/Image.h"

#include <string_view>

namespace tcc::runtime {

enum class Filter { Nearest, Bilinear, Bicubic, Lanczos };
Filter filterOf(std::string_view name);

/// A part of an image, in pixels.
struct Box {
  uint32_t top = 0, left = 0, height = 0, width = 0;
};

/// `to` becomes the part of `from` (of bytes), scaled to height × width: as Pillow scales the crop, bit for bit. Where
/// `antialias` is false and the image becomes smaller, Bilinear and Bicubic read 2 and 4 pixels a side all the same, as
/// torch's interpolate does without antialias, within one grey level.
void resample(const Image &from, const Box &part, uint32_t height, uint32_t width, Filter filter, bool antialias,
              Image &to);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_TRANSFORMS_RESAMPLE_H

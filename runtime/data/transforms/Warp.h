//===- Warp.h - rotate, shear and shift an image ---------------------------===//
#ifndef TCC_RUNTIME_DATA_TRANSFORMS_WARP_H
#define TCC_RUNTIME_DATA_TRANSFORMS_WARP_H

#include "runtime/data/transforms/Resample.h"

#include <array>

namespace tcc::runtime {

/// Output pixel (x, y) shows the input at (m0·x + m1·y + m2, m3·x + m4·y + m5), both counted from the corners of
/// pixels.
using AffineMap = std::array<double, 6>;

/// torchvision's affine(): degrees clockwise, shifts in pixels, shears in degrees; about (centreX, centreY).
AffineMap affineMap(double degrees, double shiftX, double shiftY, double scale, double shearX, double shearY,
                    double centreX, double centreY);

/// Transforms `from` (bytes) by the map, bit for bit as Pillow's transform with Nearest, Bilinear or Bicubic; `fill`
/// has a level for each channel.
void warp(const Image &from, const AffineMap &map, Filter filter, std::span<const uint8_t> fill, Image &to);

/// Rotates counter-clockwise about the centre, bit for bit as Pillow's rotate. `image` is also the result, `spare`
/// scratch memory.
void rotate(Image &image, double degrees, Filter filter, std::span<const uint8_t> fill, Image &spare);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_TRANSFORMS_WARP_H

//===- Adjust.h - colours of an image --------------------------------------===//
//
// Pillow's adjustments of bytes, bit for bit, as torchvision calls them. All work in place, on 1 or 3 channels.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_TRANSFORMS_ADJUST_H
#define TCC_RUNTIME_DATA_TRANSFORMS_ADJUST_H

#include "runtime/data/transforms/Image.h"

namespace tcc::runtime::adjust {

void brightness(Image &image, double factor);
void contrast(Image &image, double factor);
void saturation(Image &image, double factor);
/// `shift` from −½ to ½ of the circle of hues.
void hue(Image &image, double shift);
void sharpness(Image &image, double factor, Image &spare);
/// Sets all channels to the luma.
void grayscale(Image &image);
/// Keeps the `bits` highest bits.
void posterize(Image &image, int bits);
/// Inverts levels of at least `threshold`.
void solarize(Image &image, double threshold);
/// Stretches each channel to 0 … 255.
void autocontrast(Image &image);
/// Equalises each channel's histogram.
void equalize(Image &image);

} // namespace tcc::runtime::adjust

#endif // TCC_RUNTIME_DATA_TRANSFORMS_ADJUST_H

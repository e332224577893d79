//===- Augment.h - the operations of RandAugment and TrivialAugment --------===//
#ifndef TCC_RUNTIME_DATA_TRANSFORMS_AUGMENT_H
#define TCC_RUNTIME_DATA_TRANSFORMS_AUGMENT_H

#include "runtime/data/transforms/Image.h"

namespace tcc::runtime {

/// In torchvision's order.
enum class Augmentation : uint32_t {
  Identity,
  ShearX,
  ShearY,
  TranslateX,
  TranslateY,
  Rotate,
  Brightness,
  Color,
  Contrast,
  Sharpness,
  Posterize,
  Solarize,
  AutoContrast,
  Equalize
};
inline constexpr uint32_t kAugmentations = 14;

/// The strength of an operation in one of `bins` bins, as torchvision computes it in f32: for TrivialAugment (wide) if
/// `trivial`, else for RandAugment on an image of this size.
double magnitudeOf(Augmentation operation, bool trivial, uint32_t bin, uint32_t bins, uint32_t height, uint32_t width);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_TRANSFORMS_AUGMENT_H

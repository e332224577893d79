//===- Transform.h - a transform of one sample -----------------------------===//
//
// `makeTransform` turns a checked table of the recipe (support/recipe/Transforms) into the object that carries it out.
// Each family has a file: Geometry, Colour, Erase, Values. What a family computes for given parameters is in functions
// of its own (Resample, Warp, Adjust), which the tests compare with torchvision's.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_TRANSFORMS_TRANSFORM_H
#define TCC_RUNTIME_DATA_TRANSFORMS_TRANSFORM_H

#include "runtime/data/transforms/Image.h"
#include "runtime/data/transforms/Random.h"
#include "runtime/data/transforms/Resample.h"
#include "support/Status.h"
#include "support/recipe/Transforms.h"

#include <memory>

namespace tcc::runtime {

class Transform {
public:
  virtual ~Transform() = default;
  /// The shape after it. Error: it cannot be applied, and why.
  virtual Expected<ImageShape> shapeAfter(const ImageShape &shape) const = 0;
  /// Changes `image`; `spare` is memory. Error: this image cannot be transformed (it is smaller than a crop).
  virtual Status apply(Image &image, Image &spare, Random &random) const = 0;
  /// The same for pixels that are not read yet, where the transform only chooses and scales some: then `cut` is what it
  /// makes of `cut`. False: it is another transform, or `cut` cannot describe what it makes, and nothing is changed.
  virtual bool narrow(Cut & /*cut*/, Random & /*random*/) const { return false; }
};

using TransformPointer = std::unique_ptr<Transform>;

/// Null where `spec` is of another family.
TransformPointer makeGeometry(const recipe::TransformSpec &spec);
TransformPointer makeColour(const recipe::TransformSpec &spec);
TransformPointer makeErase(const recipe::TransformSpec &spec);
TransformPointer makeValues(const recipe::TransformSpec &spec);

/// The transform of a table whose kind works on images.
inline TransformPointer makeTransform(const recipe::TransformSpec &spec) {
  for (auto make : {makeGeometry, makeColour, makeErase, makeValues})
    if (TransformPointer made = make(spec))
      return made;
  return nullptr;
}

/// Checks that shapeAfter of a transform of pixels makes. Error: the column holds no images; it holds f32 where the
/// transform works on bytes.
inline Status needsPlanes(const ImageShape &shape) {
  return shape.planes ? Status() : error("it needs images: [samples, channels, height, width]");
}
inline Status needsBytes(const ImageShape &shape) {
  if (Status status = needsPlanes(shape); !status.ok())
    return status;
  return shape.floats ? error("it works on bytes, and the column is f32 here; put it before `normalise`, `to_float`, "
                              "`scale` and `random_erasing`, or store the data as bytes (u8)")
                      : Status();
}
/// Error: a list that is neither of one number nor of one for each channel.
inline Status perChannel(const char *what, size_t count, const ImageShape &shape) {
  return count == 1 || count == shape.channels
             ? Status()
             : error("{} has {} numbers; give one, or one for each of the {} channels", what, count, shape.channels);
}

/// The bytes of an image become value ÷ divisor.
void toFloat(Image &image, float divisor);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_TRANSFORMS_TRANSFORM_H

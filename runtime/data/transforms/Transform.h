//===- Transform.h - a transform of one sample -----------------------------===//
//
// `makeTransform` turns a checked table of the recipe (support/recipe/Transforms) into an object that applies it. Each
// family has a file: Geometry, Colour, Erase, Values. The computations for given parameters are separate functions
// (Resample, Warp, Adjust), which the tests compare with torchvision's.
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
  /// The shape after the transform, which is the same for all random numbers. Error: why it cannot be applied.
  virtual Expected<ImageShape> shapeAfter(const ImageShape &shape) const = 0;
  /// True if every image has the same size afterwards.
  virtual bool fixesSize() const { return false; }
  /// Changes `image`; `spare` is scratch memory. Error: this image cannot be transformed (it is smaller than a crop).
  virtual Status apply(Image &image, Image &spare, Random &random) const = 0;
  /// For a transform that only crops and scales: applies it to `cut`, before any pixel is read. False, and nothing is
  /// changed: it is another transform, or `cut` cannot express the result.
  virtual bool narrow(Cut & /*cut*/, Random & /*random*/) const { return false; }
};

using TransformPointer = std::unique_ptr<Transform>;

/// Null if `spec` is of another family.
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

/// Checks for shapeAfter of a transform of pixels. Error: the column holds no images, or f32 although the transform
/// works on bytes.
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
/// Error: a list has neither one number nor one for each channel.
inline Status perChannel(const char *what, size_t count, const ImageShape &shape) {
  return count == 1 || count == shape.channels
             ? Status()
             : error("{} has {} numbers; give one, or one for each of the {} channels", what, count, shape.channels);
}

/// Converts the bytes of an image to f32: byte ÷ divisor.
void toFloat(Image &image, float divisor);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_TRANSFORMS_TRANSFORM_H

//===- Image.h - one sample in a pipeline of transforms -------------------===//
#ifndef TCC_RUNTIME_DATA_TRANSFORMS_IMAGE_H
#define TCC_RUNTIME_DATA_TRANSFORMS_IMAGE_H

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tcc::runtime {

/// Planes of height × width, one for each channel, as bytes or as f32. Its memory is kept when the shape changes, so
/// that a thread that reuses an image soon allocates nothing.
struct Image {
  uint32_t channels = 0, height = 0, width = 0;
  bool floats = false;
  std::vector<uint8_t> bytes;
  std::vector<float> values;

  uint64_t plane() const { return uint64_t(height) * width; }
  uint64_t elements() const { return channels * plane(); }

  /// Gives it this shape; the elements are undefined.
  void reshape(uint32_t newChannels, uint32_t newHeight, uint32_t newWidth, bool newFloats) {
    channels = newChannels;
    height = newHeight;
    width = newWidth;
    floats = newFloats;
    if (floats)
      values.resize(elements());
    else
      bytes.resize(elements());
  }
  template <typename T> T *data() {
    if constexpr (sizeof(T) == 1)
      return bytes.data();
    else
      return values.data();
  }
  template <typename T> const T *data() const { return const_cast<Image *>(this)->data<T>(); }
};

/// Calls `use(T())` with the element type of an image.
template <typename Use> auto withElement(const Image &image, Use use) {
  return image.floats ? use(float()) : use(uint8_t());
}

/// A part of an image, in pixels.
struct Box {
  uint32_t top = 0, left = 0, height = 0, width = 0;
  bool operator==(const Box &) const = default;
};

/// The shape of a column's images; of the first one if sizes differ.
struct ImageShape {
  uint32_t channels = 0, height = 0, width = 0;
  bool floats = false;
  bool planes = true; ///< false: a vector or matrix, with no height and width
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_TRANSFORMS_IMAGE_H

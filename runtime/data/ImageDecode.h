//===- ImageDecode.h - JPEG and PNG to pixels ----------------------------===//
#ifndef TCC_RUNTIME_DATA_IMAGEDECODE_H
#define TCC_RUNTIME_DATA_IMAGEDECODE_H

#include "runtime/data/transforms/Image.h"
#include "support/Status.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tcc::runtime {

struct ImageSize {
  uint32_t width = 0, height = 0;
  bool operator==(const ImageSize &) const = default;
};

/// The size that the header states; no pixel is decoded. Error: neither JPEG nor PNG, a damaged header, more pixels
/// than limits::kMostImagePixels. `where` names the image.
Expected<ImageSize> imageSize(const std::string &where, std::string_view bytes);

/// Decodes a part of an image, which must have exactly `size`, to `planes`: red, green and blue, 3 · part.width ·
/// part.height bytes. The result is bit for bit that part of the whole image. All of a JPEG's data is read, so that
/// damage is found anywhere, but the inverse transform and the conversion to RGB run only around the part.
Status decodeImage(const std::string &where, std::string_view bytes, ImageSize size, const Box &part,
                   std::span<unsigned char> planes);

/// The size that the header of a mask states: a PNG of one number a pixel, grey or with a palette, of up to 8 bits.
/// Error: as imageSize, or another PNG.
Expected<ImageSize> maskSize(const std::string &where, std::string_view bytes);

/// Decodes a mask, which must have exactly `size`, to `numbers`: the grey level or the place in the palette of each
/// pixel, as the file stores it, without gamma and scaling.
Status decodeMask(const std::string &where, std::string_view bytes, ImageSize size, std::span<unsigned char> numbers);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_IMAGEDECODE_H

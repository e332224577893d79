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

/// Decodes a part of an image, which must have exactly `size`: `planes` becomes red, green and blue, of 3 · part.width
/// · part.height bytes. A part has the bytes that it has in the whole image. All of a JPEG's data is read, so that
/// damage is found wherever it is, but transformed, and converted to RGB, only about the part.
Status decodeImage(const std::string &where, std::string_view bytes, ImageSize size, const Box &part,
                   std::span<unsigned char> planes);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_IMAGEDECODE_H

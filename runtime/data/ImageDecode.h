//===- ImageDecode.h - JPEG and PNG to pixels ----------------------------===//
#ifndef TCC_RUNTIME_DATA_IMAGEDECODE_H
#define TCC_RUNTIME_DATA_IMAGEDECODE_H

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

/// Decodes to interleaved RGB. The image must have exactly `size`, for which `rgb` has room: 3 · width · height bytes.
Status decodeImage(const std::string &where, std::string_view bytes, ImageSize size,
                         std::span<unsigned char> rgb);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_IMAGEDECODE_H

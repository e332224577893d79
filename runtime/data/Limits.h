//===- Limits.h - limits on data files ------------------------------------===//
//
// Headers are not trusted. The memory that a header asks for is first compared with the size of the file, with the most
// that a compressed file can inflate to, and with the memory that the caller allows. Messages name the limit.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_LIMITS_H
#define TCC_RUNTIME_DATA_LIMITS_H

#include "support/BytesText.h"
#include "support/Status.h"

#include <cstddef>
#include <cstdint>
#include <limits>

namespace tcc::runtime::limits {

/// Pixels of one image: the limit beyond which Pillow refuses images, too (twice its MAX_IMAGE_PIXELS).
constexpr uint64_t kMostImagePixels = 178'956'970;
/// Bytes of one compressed image.
constexpr uint64_t kMostImageFileBytes = uint64_t(256) << 20;
/// Scans of one progressive JPEG, each of which passes over all pixels.
constexpr int kMostJpegScans = 100;
/// Deflate stores at most 258 bytes in two bits: no honest gzip or zip file inflates to more.
constexpr uint64_t kMostInflation = 1032;
/// Bytes of the text before an .npy array.
constexpr uint64_t kMostNpyHeaderBytes = uint64_t(1) << 20;
constexpr size_t kMostNpyDims = 64;
/// Columns of a table, and nesting depth of lists in a column.
constexpr size_t kMostCsvColumns = size_t(1) << 20;
constexpr size_t kMostTableDims = 8;

/// The most bytes to which `fileBytes` may inflate, plus a little for the headers of empty archives.
inline uint64_t mostInflatedBytes(uint64_t fileBytes) {
  constexpr uint64_t kSlack = uint64_t(1) << 16;
  return fileBytes > (std::numeric_limits<uint64_t>::max() - kSlack) / kMostInflation
             ? std::numeric_limits<uint64_t>::max()
             : fileBytes * kMostInflation + kSlack;
}

/// The memory that one data set may take: checked before each allocation whose size depends on a file's content.
class MemoryAllowance {
public:
  explicit MemoryAllowance(uint64_t bytes) : left(bytes), whole(bytes) {}

  /// Error: not that much is left. `where` names the file and its part.
  Status take(const std::string &where, uint64_t bytes) {
    if (bytes > left)
      return error(
          "{}: it takes {} in memory beside {} that are taken, {} are free; free memory, or store the data "
          "as .npy or .safetensors, which are read from the file as they are",
          where, bytesText(bytes), bytesText(whole - left), bytesText(left));
    left -= bytes;
    return Status();
  }

private:
  uint64_t left, whole;
};

} // namespace tcc::runtime::limits

#endif // TCC_RUNTIME_DATA_LIMITS_H

//===- ImageCache.h - decoded images in a file ------------------------------===//
//
// Images after decoding and the transforms before the first random one, written once and mapped afterwards. The file's
// name is a hash of all compressed bytes, of those transforms and of the decoder. Each sample has a checksum; a sample
// that does not match is decoded from its source, so that no cache ever changes a bit of a batch.
//
//   | bytes of sample 0 | 1 | … | table: offset, checksum, size of each | footer |
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_IMAGECACHE_H
#define TCC_RUNTIME_DATA_IMAGECACHE_H

#include "runtime/data/Dataset.h"
#include "runtime/data/transforms/Transform.h"

namespace tcc::runtime {

/// The contents of a cache: a column of compressed images, after transforms that are not random and return bytes.
struct CachedPart {
  std::unique_ptr<Column> base;
  std::vector<TransformPointer> transforms;
  std::string text; ///< the transforms with all their arguments
  ImageShape shape; ///< of the first sample after them
};

/// A column of `part` that reads from a file in `folder`, which is written if it is missing or damaged. If the file
/// cannot be written, or the base has no content hash, a note reports it, and the column decodes. Error: a source
/// cannot be read.
Expected<std::unique_ptr<Column>> cacheImages(CachedPart part, const std::string &folder,
                                              const DatasetOptions &options);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_IMAGECACHE_H

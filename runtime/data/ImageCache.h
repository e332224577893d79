//===- ImageCache.h - decoded images in a file ------------------------------===//
//
// Images after decoding and the transforms before the first random one, written once and mapped afterwards. The file is
// found by content: its name is a hash of all compressed bytes, of those transforms and of the decoder. Each sample has
// a checksum; one that does not match is decoded from its source, so that no cache ever changes a bit of a batch.
//
//   | bytes of sample 0 | 1 | … | table: offset, checksum, size of each | footer |
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_IMAGECACHE_H
#define TCC_RUNTIME_DATA_IMAGECACHE_H

#include "runtime/data/Dataset.h"
#include "runtime/data/transforms/Transform.h"

namespace tcc::runtime {

/// What a cache stands for: a column of compressed images, and transforms that draw nothing and leave bytes.
struct CachedPart {
  std::unique_ptr<Column> base;
  std::vector<TransformPointer> transforms;
  std::string text; ///< the transforms with all their arguments
  ImageShape shape; ///< of the first sample after them
};

/// A column of `part` that reads from a file in the folder `folder`, which is written if it is not there or is damaged.
/// A file that cannot be written is a note, and the column decodes; so is a base without a content hash. Error: a source cannot be read.
Expected<std::unique_ptr<Column>> cacheImages(CachedPart part, const std::string &folder,
                                              const DatasetOptions &options);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_IMAGECACHE_H

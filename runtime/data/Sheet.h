//===- Sheet.h - a picture of samples --------------------------------------===//
#ifndef TCC_RUNTIME_DATA_SHEET_H
#define TCC_RUNTIME_DATA_SHEET_H

#include "runtime/data/Dataset.h"

namespace tcc::runtime {

struct SheetOptions {
  std::string column = "image";
  uint64_t rows = 8, columns = 8;
  uint64_t seed = 0;
};

/// Writes samples that are spread over the data set at `path` as a PNG to `png`: each row shows one sample as
/// evaluation sees it, then as training sees it in epochs 0, 1, …; without random transforms, each cell shows another
/// sample. `normalise`, `standardise` and `scale` are skipped, so that colours are those of the images. Error: the
/// column holds no images of 1 or 3 channels, a sample cannot be read, or the file cannot be written.
Status writeSheet(const std::string &path, const DatasetOptions &dataset, const SheetOptions &options,
                  const std::string &png);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_SHEET_H

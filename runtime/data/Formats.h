//===- Formats.h - the readers of single formats -------------------------===//
//
// Internal to runtime/data: one function a format. All give whole data sets; Dataset.cpp chooses and slices.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_FORMATS_H
#define TCC_RUNTIME_DATA_FORMATS_H

#include "runtime/data/Dataset.h"
#include "support/MappedFile.h"

namespace tcc::runtime::formats {

using File = std::shared_ptr<const MappedFile>;

Expected<Dataset> openSafetensors(File file);
Expected<Dataset> openNpz(File file, const DatasetOptions &options);
Expected<Dataset> openNpy(File file);
Expected<Dataset> openNpyFolder(const std::string &folder, const std::vector<std::string> &files);

/// Token windows; slices by tokens, so that no window of one part looks into the other.
Expected<Dataset> openTokens(File file, const DatasetOptions &options);
Expected<Dataset> openText(File file, const DatasetOptions &options);

Expected<Dataset> openIdx(File images, File labels, const DatasetOptions &options);
/// CIFAR-10 (one label byte) or CIFAR-100 (two) records of 32×32 RGB.
Expected<Dataset> openCifar(const std::vector<File> &files, bool hundred);

Expected<Dataset> openCsv(File file, const DatasetOptions &options);

Expected<Dataset> openImageFolder(const std::string &folder, const DatasetOptions &options);
Expected<Dataset> openImageTar(File file, const DatasetOptions &options);

/// Wraps columns as `data.transform` says, with what belongs to training or to evaluation.
Status applyTransforms(Dataset &dataset, const std::string &transforms, bool training);

} // namespace tcc::runtime::formats

#endif // TCC_RUNTIME_DATA_FORMATS_H

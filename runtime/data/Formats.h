//===- Formats.h - the readers of single formats -------------------------===//
//
// Internal to runtime/data: one function a format. All give whole data sets; Dataset.cpp chooses and slices.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_FORMATS_H
#define TCC_RUNTIME_DATA_FORMATS_H

#include "runtime/data/Dataset.h"
#include "runtime/state/MappedFile.h"

namespace tcc::runtime::formats {

using File = std::shared_ptr<const MappedFile>;

plan::Expected<Dataset> openSafetensors(File file);
plan::Expected<Dataset> openNpz(File file, const DatasetOptions &options);
plan::Expected<Dataset> openNpy(File file);
plan::Expected<Dataset> openNpyFolder(const std::string &folder, const std::vector<std::string> &files);

/// Token windows; slices by tokens, so that no window of one part looks into the other.
plan::Expected<Dataset> openTokens(File file, const DatasetOptions &options);
plan::Expected<Dataset> openText(File file, const DatasetOptions &options);

plan::Expected<Dataset> openIdx(File images, File labels, const DatasetOptions &options);
/// CIFAR-10 (one label byte) or CIFAR-100 (two) records of 32×32 RGB.
plan::Expected<Dataset> openCifar(const std::vector<File> &files, bool hundred);

plan::Expected<Dataset> openCsv(File file, const DatasetOptions &options);

plan::Expected<Dataset> openImageFolder(const std::string &folder, const DatasetOptions &options);
plan::Expected<Dataset> openImageTar(File file, const DatasetOptions &options);

/// Wraps columns as `data.transform` (JSON text) says.
plan::Status applyTransforms(Dataset &dataset, const std::string &transforms);

} // namespace tcc::runtime::formats

#endif // TCC_RUNTIME_DATA_FORMATS_H

//===- Formats.h - the readers of single formats -------------------------===//
//
// Internal to runtime/data: one function a format. All give whole data sets; Dataset.cpp chooses and slices.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_DATA_FORMATS_H
#define TCC_RUNTIME_DATA_FORMATS_H

#include "runtime/data/Dataset.h"

namespace tcc::runtime::formats {

plan::Expected<Dataset> openSafetensors(const std::string &path);
plan::Expected<Dataset> openNpz(const std::string &path);
plan::Expected<Dataset> openNpy(const std::string &path);
plan::Expected<Dataset> openNpyFolder(const std::string &folder, const std::vector<std::string> &files);

/// Token windows; slices by tokens, so that no window of one part looks into the other.
plan::Expected<Dataset> openTokens(const std::string &path, const DatasetOptions &options);
plan::Expected<Dataset> openText(const std::string &path, const DatasetOptions &options);

/// The two files of an IDX data set.
struct IdxFiles {
  std::string images, labels;
};
plan::Expected<Dataset> openIdx(const IdxFiles &files);
/// CIFAR-10 (one label byte) or CIFAR-100 (two) records of 32×32 RGB.
plan::Expected<Dataset> openCifar(const std::vector<std::string> &files, bool hundred);

plan::Expected<Dataset> openCsv(const std::string &path);

plan::Expected<Dataset> openImageFolder(const std::string &folder);
plan::Expected<Dataset> openImageTar(const std::string &path);

/// Wraps columns as `data.transform` (JSON text) says.
plan::Status applyTransforms(Dataset &dataset, const std::string &transforms);

} // namespace tcc::runtime::formats

#endif // TCC_RUNTIME_DATA_FORMATS_H

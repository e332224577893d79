//===- Formats.h - the readers of single formats -------------------------===//
//
// Internal to runtime/data: one function per format. All return whole data sets; Dataset.cpp selects the format and the
// part.
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

/// Token windows. The data is split by tokens, so that no window of one part reaches into the other.
Expected<Dataset> openTokens(File file, const DatasetOptions &options);
Expected<Dataset> openText(File file, const DatasetOptions &options);

Expected<Dataset> openIdx(File images, File labels, const DatasetOptions &options);
/// CIFAR-10 (one label byte) or CIFAR-100 (two) records of 32×32 RGB.
Expected<Dataset> openCifar(const std::vector<File> &files, bool hundred);

Expected<Dataset> openCsv(File file, const DatasetOptions &options);
/// One object per line, or one list of objects.
Expected<Dataset> openJsonLines(File file, const DatasetOptions &options);

/// A Parquet file, an Arrow file or an Arrow stream, through the plug-in. Error: there is none.
Expected<Dataset> openArrow(File file, const DatasetOptions &options);

bool isImageName(const std::string &name);
/// Images without labels, in this order.
Expected<Dataset> openImages(const std::string &path, const std::vector<std::string> &files,
                             const DatasetOptions &options);
Expected<Dataset> openImageFolder(const std::string &folder, const DatasetOptions &options);
/// One data set of all images; `path` names it in messages.
Expected<Dataset> openImageTars(const std::string &path, const std::vector<File> &files, const DatasetOptions &options);

/// The files that a pattern names, sorted: globs (* ? [...]) and ranges of WebDataset's names ({000..146}, {a,b}).
/// Error: the pattern names no file, or a file of a range is missing.
Expected<std::vector<std::string>> expandPattern(const std::string &pattern);
bool isPattern(const std::string &path);
/// The samples of all, one after the other. Error: their columns differ.
Expected<Dataset> joinDatasets(const std::string &path, std::vector<Dataset> parts);

/// (x − mean) ÷ standard deviation. The constants are a fact of the column: known, or computed here. `number` counts
/// the column's `standardise` transforms from 1. Error: the column holds no numbers, or the constants are not known.
Status standardise(std::unique_ptr<Column> &column, const recipe::TransformSpec &spec, int number, Dataset &dataset,
                   const DatasetOptions &options);

/// Wraps columns in the transforms of `data.transform` that apply to training or to evaluation.
/// `data.cache` keeps decoded images, with the transforms before the first random one.
Status applyTransforms(Dataset &dataset, const std::string &transforms, const DatasetOptions &options);

} // namespace tcc::runtime::formats

namespace tcc::runtime {

/// Length of the data set's windows for a model input of `length`: another one if a transform changes the length
/// (span_corruption), else `length` itself.
uint64_t windowLengthOf(const DatasetOptions &options, uint64_t length);

/// True if a transform derives targets from the window itself.
bool makesOwnTargets(const DatasetOptions &options);

/// Replaces `tokens` and `targets` by those of the transform; span_corruption adds `decoder_tokens`. Error: no column
/// of windows, or a number that does not fit its type.
Status transformTokens(Dataset &dataset, const recipe::TransformSpec &spec);

/// Adds `document`, `position` and `document_mask`: documents end with the token `end`. Error: no windows.
Status addDocuments(Dataset &dataset, int64_t end);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_FORMATS_H

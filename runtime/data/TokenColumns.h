//===- TokenColumns.h - columns that follow from a window of tokens ----------===//
#ifndef TCC_RUNTIME_DATA_TOKENCOLUMNS_H
#define TCC_RUNTIME_DATA_TOKENCOLUMNS_H

#include "runtime/data/Dataset.h"

namespace tcc::runtime {

/// The window of the data set where a transform changes its length (span_corruption): `length` is that of the model's
/// input. Otherwise `length` itself.
uint64_t windowLengthOf(const DatasetOptions &options, uint64_t length);

/// True where a transform makes targets of the window itself.
bool makesOwnTargets(const DatasetOptions &options);

/// Replaces `tokens` and `targets` as the transform says; span_corruption adds `decoder_tokens`. Error: no column of
/// windows, or a number that does not fit its type.
Status transformTokens(Dataset &dataset, const recipe::TransformSpec &spec);

/// Adds `document`, `position` and `document_mask`: documents end with the token `end`. Error: no windows.
Status addDocuments(Dataset &dataset, int64_t end);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_DATA_TOKENCOLUMNS_H

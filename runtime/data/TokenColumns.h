//===- TokenColumns.h - columns derived from a window of tokens -----------===//
#ifndef TCC_RUNTIME_DATA_TOKENCOLUMNS_H
#define TCC_RUNTIME_DATA_TOKENCOLUMNS_H

#include "runtime/data/Dataset.h"

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

#endif // TCC_RUNTIME_DATA_TOKENCOLUMNS_H

//===- FactsFile.h - a run's columns.json ----------------------------------===//
//
// Facts derived from the run's training data: categories of columns, means that replace missing values, constants of
// `standardise`. Numbers are written so that they read back as the same bits.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_FACTSFILE_H
#define TCC_RUNTIME_TRAIN_FACTSFILE_H

#include "runtime/data/Dataset.h"

namespace tcc::runtime {

std::string factsText(const ColumnFacts &facts);
/// The inverse of factsText. Error: malformed; the message lacks the file's name.
Expected<ColumnFacts> parseFacts(const std::string &text);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_FACTSFILE_H

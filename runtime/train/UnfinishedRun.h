//===- UnfinishedRun.h - remove a run that has no checkpoint ------*- C++ -*-===//
#ifndef TCC_RUNTIME_TRAIN_UNFINISHEDRUN_H
#define TCC_RUNTIME_TRAIN_UNFINISHEDRUN_H

#include "support/Status.h"

#include <string>
#include <vector>

namespace tcc::runtime {

/// Removes the folder of a run that ended before its first checkpoint, if it contains only files that trun wrote.
/// Error, and nothing is removed: the folder contains other files or one of the command's `inputs`, or a process trains
/// in it.
Status removeUnfinishedRun(const std::string &run, const std::vector<std::string> &inputs);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_UNFINISHEDRUN_H

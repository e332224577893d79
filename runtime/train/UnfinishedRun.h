//===- UnfinishedRun.h - remove a run that has no checkpoint ------*- C++ -*-===//
#ifndef TCC_RUNTIME_TRAIN_UNFINISHEDRUN_H
#define TCC_RUNTIME_TRAIN_UNFINISHEDRUN_H

#include "support/Status.h"

#include <string>
#include <vector>

namespace tcc::runtime {

/// Removes the folder of a run that ended before its first checkpoint. Only files that trun wrote; error: the folder holds
/// others or one of the command's `inputs`, and stays whole; or a process trains in it.
Status removeUnfinishedRun(const std::string &run, const std::vector<std::string> &inputs);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_UNFINISHEDRUN_H

//===- OnRanks.h - a command that several ranks carry out ----------------===//
#ifndef TCC_TOOLS_TRUN_ONRANKS_H
#define TCC_TOOLS_TRUN_ONRANKS_H

#include "runtime/parallel/Communicator.h"
#include "runtime/train/Train.h"

#include <functional>

namespace tcc::tools {

/// Calls `body` in every rank of the job: the processes that --nproc starts, or the job whose launcher started this
/// process; with null if there is one rank. Ranks other than 0 print nothing, and have one thread each if there are
/// fewer processors than ranks. Returns once in every process; an error without a message was printed by another
/// process.
Status onRanks(runtime::TrainOptions &options, const std::function<Status(runtime::Communicator *)> &body);

} // namespace tcc::tools

#endif // TCC_TOOLS_TRUN_ONRANKS_H

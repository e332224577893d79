//===- OnRanks.h - a command that several ranks carry out ----------------===//
#ifndef TCC_TOOLS_TRUN_ONRANKS_H
#define TCC_TOOLS_TRUN_ONRANKS_H

#include "runtime/parallel/Communicator.h"
#include "runtime/train/Train.h"

#include <functional>

namespace tcc::tools {

/// Calls `body` in every rank of the job: the processes that --nproc asks for, or the job that this process was started
/// for (torchrun's variables); null for a rank alone. Ranks other than 0 print nothing, and have one thread each where
/// there are fewer processors than ranks. Returns once in every process; an error without a message was told elsewhere.
Status onRanks(runtime::TrainOptions &options, const std::function<Status(runtime::Communicator *)> &body);

} // namespace tcc::tools

#endif // TCC_TOOLS_TRUN_ONRANKS_H

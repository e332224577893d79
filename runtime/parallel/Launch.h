//===- Launch.h - how the processes of a job come to be ------------------===//
#ifndef TCC_RUNTIME_PARALLEL_LAUNCH_H
#define TCC_RUNTIME_PARALLEL_LAUNCH_H

#include "runtime/parallel/Tcp.h"

#include <optional>

namespace tcc::runtime {

/// The place that torchrun's variables give this process: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, and where they
/// are there LOCAL_RANK and LOCAL_WORLD_SIZE; and the job's secret (secretFromEnvironment). Nothing where RANK or
/// WORLD_SIZE is not set. Error: a variable is missing, no number, or contradicts another.
Expected<std::optional<RankPlace>> placeFromEnvironment();

/// What a call of startRanks became.
struct Started {
  std::optional<RankPlace> place; ///< of a rank; none: the process that was there before, and its job is over
  int exitCode = 0;               ///< then: rank 0's, or else that of another rank
  std::string problem;            ///< a rank was ended by a signal, in words; else empty
};

/// Makes `count` ranks of this process, on this machine. Every one returns from here as a process of its own, with its
/// part of the processors where there are as many. The process that called passes signals on, and returns when all
/// ranks have ended: after one that failed, the others have a few seconds, and a stopped one none. No rank outlives it.
/// Call it before threads are started. Error: the system makes no more processes.
Expected<Started> startRanks(uint32_t count);

/// The part of `processors` of rank `rank` of `count`; all of them where there are fewer than ranks.
std::vector<int> shareOf(const std::vector<int> &processors, uint32_t rank, uint32_t count);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_LAUNCH_H

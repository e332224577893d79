//===- RankProcesses.h - start the processes of a job ----------------------===//
#ifndef TCC_TOOLS_TRUN_RANKPROCESSES_H
#define TCC_TOOLS_TRUN_RANKPROCESSES_H

#include "runtime/parallel/Tcp.h"

#include <optional>

namespace tcc::tools {

/// The result of startRanks, in a rank or in the process that called it.
struct Started {
  std::optional<runtime::RankPlace> place; ///< in a rank; none: this is the calling process, and the job is over
  int exitStatus = 0;                      ///< in the calling process: rank 0's, or that of another rank if rank 0's is 0
  std::string problem;            ///< in words: a rank was ended by a signal; else empty
};

/// Forks this process into `count` ranks on this machine. Each returns from here as a process of its own, bound to its
/// share of the processors (shareOf). The calling process forwards signals and returns when all ranks have ended. After
/// a rank fails, the others get a few seconds before they are killed; a stopped rank is killed at once. No rank
/// outlives the calling process. Call it before threads are started. Error: the system cannot create more processes.
Expected<Started> startRanks(uint32_t count);

/// The share of `processors` of rank `rank` of `count`. With fewer processors than ranks it is a single one, which
/// other ranks share.
std::vector<int> shareOf(const std::vector<int> &processors, uint32_t rank, uint32_t count);

} // namespace tcc::tools

#endif // TCC_TOOLS_TRUN_RANKPROCESSES_H

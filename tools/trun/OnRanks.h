//===- OnRanks.h - a command that several ranks carry out ----------------===//
#ifndef TCC_TOOLS_TRUN_ONRANKS_H
#define TCC_TOOLS_TRUN_ONRANKS_H

#include "runtime/parallel/Communicator.h"
#include "runtime/parallel/Tcp.h"
#include "runtime/train/Session.h"

#include <functional>
#include <optional>
#include <string>

namespace tcc::tools {

/// How a command runs on several processes.
struct JobOptions {
  unsigned processes = 0;     ///< --nproc; 0: one
  bool insecureRanks = false; ///< --insecure-ranks: ranks of other machines need no secret
  bool quiet = false;         ///< print only warnings
  std::string device;         ///< --device
  std::string run;            ///< the run folder, which all ranks of a job share; empty: none is given
};

/// This process among those that carry out a command.
struct OwnRank {
  runtime::Communicator *ranks = nullptr; ///< null: there is one
  uint32_t localRank = 0;                 ///< its number among the job's on this machine
  uint32_t sharers = 1;                   ///< ranks that may use the same processors, this one among them

  /// True for the rank that prints messages.
  bool speaks() const { return !ranks || ranks->rank() == 0; }
  void applyTo(runtime::SessionOptions &session) const {
    session.ranks = ranks;
    session.localRank = localRank;
    session.sharers = sharers;
  }
};

/// Calls `body` in every rank of the job: the processes that --nproc starts, or the job whose launcher started this
/// process. Returns once in every process; an error without a message was printed by another process.
Status onRanks(const JobOptions &options, const std::function<Status(const OwnRank &)> &body);

/// The result of startRanks, in a rank or in the process that called it.
struct Started {
  std::optional<runtime::RankPlace> place; ///< in a rank; none: this is the calling process, and the job is over
  int exitStatus = 0; ///< in the calling process: the status of rank 0, or of another rank if rank 0 returned 0
  std::string problem;            ///< a message if a signal ended a rank; else empty
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

#endif // TCC_TOOLS_TRUN_ONRANKS_H

//===- OnRanks.h - a command that several ranks carry out ----------------===//
#ifndef TCC_TOOLS_TRUN_ONRANKS_H
#define TCC_TOOLS_TRUN_ONRANKS_H

#include "runtime/parallel/Communicator.h"
#include "runtime/train/Session.h"

#include <functional>
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

} // namespace tcc::tools

#endif // TCC_TOOLS_TRUN_ONRANKS_H

//===- Train.h - the training loop ---------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_TRAIN_H
#define TCC_RUNTIME_TRAIN_TRAIN_H

#include "runtime/train/RunOptions.h"
#include "runtime/train/Session.h"

#include <cstdio>
#include <functional>

namespace tcc::runtime {

/// Steps and epochs are totals, including the part before a resume; without either a run takes one epoch. Without
/// evalEvery (updates, or each epoch), the run evaluates only at its end; without logEvery, Progress chooses.
/// checkpointEvery applies in addition to the clock; 0: neither by updates nor by the clock. After maxSeconds training
/// ends as if by a signal.
struct TrainOptions : RunOptions {
  std::string out, resume, init;
  bool initPartial = false;    ///< --init may lack weights, or have additional ones
  std::optional<bool> shuffle; ///< default: yes, or as the resumed run
  std::optional<uint64_t> seed;
  std::vector<std::string> settings; ///< already applied to the session; kept in the checkpoints
  std::string trace; ///< file for a trace of the process; empty: none
  bool insecureRanks = false;              ///< --insecure-ranks: ranks of other machines need no secret
  uint32_t localRank = 0;                  ///< this process's number among the job's on this machine
  uint32_t sharers = 1;                    ///< ranks that may use the same processors, this one among them
  bool terminal = false;                   ///< messages go to a terminal
  bool quiet = false;                      ///< print only warnings
  std::FILE *messages = stderr;
  /// The command that resumes RUN[@STEP], for messages.
  std::function<std::string(const std::string &)> resumeCommand = [](const std::string &run) {
    return "trun … --resume " + run;
  };
};

/// Trains until the steps or epochs are done, a signal (Signals.h), an error or a non-finite loss (exit status 4) ends it.
/// In every case the run folder then holds a checkpoint of the last whole update whose state is finite, and the message
/// says how to go on. After the first update a step allocates nothing.
/// `complete`, if given, is set to true if the run reached its planned end.
Status train(Session &session, const TrainOptions &options, bool *complete = nullptr);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_TRAIN_H

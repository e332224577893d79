//===- Train.h - the training loop ---------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_TRAIN_H
#define TCC_RUNTIME_TRAIN_TRAIN_H

#include "runtime/train/RunControl.h"
#include "runtime/train/RunEvents.h"
#include "runtime/train/RunOptions.h"
#include "runtime/train/Session.h"
#include "runtime/train/WeightAverages.h"
#include "support/Advice.h"

namespace tcc::runtime {

/// Steps and epochs are totals, including the part before a resume; without either a run takes one epoch. Without
/// evalEvery (updates, or each epoch), the run evaluates only at its end; without logEvery, the log has about twenty
/// lines of progress. checkpointEvery applies in addition to the clock; 0: neither by updates nor by the clock. After
/// maxSeconds training ends as if RunControl::stop had been called.
struct TrainOptions : RunOptions {
  std::string out, resume, init;
  /// False: no run folder: no checkpoints, logs or model, and the trained values are the device's.
  bool keepsFiles = true;
  bool initPartial = false;    ///< `init` may lack weights, or have additional ones
  std::optional<bool> shuffle; ///< default: yes, or as the resumed run
  std::optional<uint64_t> seed;
  std::vector<std::string> settings; ///< already applied to the session; kept in the checkpoints
  std::string trace;                 ///< file for a trace of the process; empty: none
  DatasetSource dataSource, evalDataSource; ///< instead of the paths `data`, `evalData`, which then are names
  std::optional<TrainingPosition> from;     ///< the device's state is that after its update; default: a new run
  /// Of the device's state; null: the run makes its own, if the plan has some.
  std::shared_ptr<WeightAverages> averages;
  RunEvents *events = nullptr;              ///< gets the run's events; null: nobody
  RunControl *control = nullptr;            ///< by which the program stops the run; null: it does not
  const Wording *wording = nullptr;         ///< words for advice in the run's files; null: neutral ones
};

struct RunResult {
  bool complete = false; ///< the run reached its planned end
  TrainingPosition position;
};

/// Trains until the steps or epochs are done, RunControl::stop, an error or a loss that is not finite
/// (StatusCode::NonFinite) ends it. In every case the run folder then holds a checkpoint of the last whole update whose
/// state is finite, and the message says how to go on. After the first update a step allocates nothing.
/// Different sessions may train at the same time on different threads.
Status train(Session &session, const TrainOptions &options, RunResult *result = nullptr);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_TRAIN_H

//===- Checkpointer.h - the checkpoints of one run -----------------------===//
//
// Writes a checkpoint if the state is finite, then removes those that the rules no longer keep: the new one is durable
// before an old one is removed. With staging memory (checkpoint.staging_bytes) training goes on while it is written.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_CHECKPOINTER_H
#define TCC_RUNTIME_TRAIN_CHECKPOINTER_H

#include "runtime/state/Checkpoint.h"
#include "runtime/train/CheckpointWriter.h"
#include "runtime/train/FiniteState.h"
#include "runtime/train/RunControl.h"
#include "runtime/train/WeightAverages.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace tcc::runtime {

struct CheckpointRules {
  double everyMinutes = 0; ///< 0: not by the clock
  uint64_t everySteps = 0; ///< 0: not by the number of updates
  uint64_t keep = 0;       ///< number of the newest that are kept; 0: all
  bool keepBest = false;   ///< also keep the best by evaluate.best
  uint64_t stagingBytes = 0; ///< memory for copies of the state that are written while training goes on
};

/// Decides when a checkpoint is due, by the clock or by the number of updates, and again some time after one could not
/// be written; and which checkpoints are kept: the newest ones and the best. Time and steps are arguments: the policy
/// reads no clock and no disk.
class CheckpointPolicy {
public:
  /// `now`: seconds of a monotonic clock, here and below.
  CheckpointPolicy(const CheckpointRules &rules, double now) : rules(rules), last(now) {}

  /// True if the state after update `step` should be written.
  bool isDue(uint64_t step, double now) const;
  /// A checkpoint has begun: restarts the clock.
  void begun(double now) { last = now; }
  void written() { failure.reset(); }
  void failed(double now) { failure = now; }

  /// The checkpoints on the disk to remove now that `newest` is durable. Checkpoints of later updates belong to a run
  /// from which `newest` branched off: they are neither counted nor removed.
  std::vector<uint64_t> expired(std::vector<uint64_t> steps, uint64_t newest, std::optional<uint64_t> best) const;

private:
  CheckpointRules rules;
  double last; ///< when the clock was last restarted
  std::optional<double> failure;
};

/// Callbacks about checkpoints.
struct CheckpointHearers {
  std::function<void(const std::string &)> warn;                 ///< an old one cannot be removed
  std::function<void(const Status &)> failed;                    ///< an earlier one could not be written
  std::function<void(const CheckpointWriter::Result &)> written; ///< one is durable
};

class Checkpointer {
public:
  /// `averages`: of train.ema, or null. `replaced`: Session::replaced. `ranks`: of a job whose ranks each write a part
  /// of every checkpoint, and call the same functions after the same updates; else null.
  Checkpointer(std::string run, const RunRecord &record, const plan::Plan &plan, Device &device,
               const WeightAverages *averages, std::vector<int> replaced, RunControl &control, Communicator *ranks,
               const CheckpointRules &rules, double now, CheckpointHearers hearers);

  bool isDue(uint64_t step, double now) const { return policy.isDue(step, now); }

  /// Begins the checkpoint of the state after update `position.step`, unless it exists or is under way; returns when
  /// training may go on. Waits for an earlier one that is under way. `sums`: checksums by variable of the state that
  /// the ranks have compared; if the files would differ from them, no checkpoint is made. Error, here and below: the
  /// state is not finite (exit status 4), or a checkpoint cannot be written; the earlier ones remain.
  Status begin(const TrainingPosition &position, const VariableSums &sums = {});
  /// Called before the host's averages change: a checkpoint that is under way has copied them when this returns.
  void beforeHostChanges() { writer.beforeHostChanges(); }
  /// Handles the result of a checkpoint that was completed meanwhile.
  Status poll();
  /// Waits for the one that is under way.
  Status finish();
  Status write(const TrainingPosition &position, const VariableSums &sums = {}) {
    Status status = begin(position, sums);
    return status.ok() ? finish() : status;
  }

  /// As CheckpointWriter::traceTo.
  void traceTo(Trace::Track *own, Trace::Track *thread) { writer.traceTo(own, thread); }

  /// Makes the checkpoint of position.bestStep, which is written, the best.
  Status markBest(const TrainingPosition &position);

  /// The newest checkpoint that is durable: the last one written, or the one that the run was resumed from.
  std::optional<uint64_t> last() const { return newest; }
  void resumedFrom(uint64_t step);
  std::string pathOf(uint64_t step) const;

private:
  uint32_t rank() const { return ranks ? ranks->rank() : 0; }
  Status collect(const std::optional<CheckpointWriter::Result> &result);
  void prune(uint64_t step);

  std::string run;
  RunRecord record;
  const plan::Plan &plan;
  Device &device;
  const WeightAverages *averages;
  std::vector<int> replaced;
  RunControl &control;
  Communicator *ranks;
  std::optional<uint64_t> attempted; ///< with ranks: step of the last attempt, which no rank repeats alone
  Status attempt;                    ///< its result
  CheckpointPolicy policy;
  FiniteState finite;
  CheckpointHearers hearers;
  std::optional<uint64_t> newest, best;
  CheckpointWriter writer; ///< last: its thread uses the members above
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_CHECKPOINTER_H

//===- Checkpointer.h - the checkpoints of one run -----------------------===//
//
// Writes a checkpoint where the state is finite, then removes those that the rules no longer keep: the new one is
// durable before an old one goes. With staging memory (checkpoint.staging_bytes) training goes on while it is written.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_CHECKPOINTER_H
#define TCC_RUNTIME_TRAIN_CHECKPOINTER_H

#include "runtime/state/Checkpoint.h"
#include "runtime/train/CheckpointPolicy.h"
#include "runtime/train/CheckpointWriter.h"
#include "runtime/train/FiniteState.h"
#include "runtime/train/Signals.h"
#include "runtime/train/WeightAverages.h"

#include <functional>

namespace tcc::runtime {

/// Who hears of what happens to checkpoints.
struct CheckpointHearers {
  std::function<void(const std::string &)> warn;                 ///< an old one cannot be removed
  std::function<void(const Status &)> failed;                    ///< an earlier one could not be written
  std::function<void(const CheckpointWriter::Result &)> written; ///< one is durable
};

class Checkpointer {
public:
  /// `averages`: of train.ema, or null. `replaced`: Session::replaced. `ranks`: of a job whose ranks each write a part
  /// of every checkpoint, or null; these then call the same functions after the same updates.
  Checkpointer(std::string run, const RunRecord &record, const plan::Plan &plan, Device &device,
               const WeightAverages *averages, std::vector<int> replaced, SignalWatch &signals, Communicator *ranks,
               const CheckpointRules &rules, double now, CheckpointHearers hearers);

  bool isDue(uint64_t step, double now) const { return policy.isDue(step, now); }

  /// Begins the checkpoint of the state after update `position.step`, unless it is there or under way; returns when
  /// training may go on. Waits for one that is under way. Error, here and below: a state is not finite (exit status 4),
  /// or a checkpoint cannot be written; then the earlier ones stand. `sums`: of the state as the ranks have compared
  /// it, by variable; the files hold the same, or there is no checkpoint.
  Status begin(const TrainingPosition &position, const VariableSums &sums = {});
  /// Before the averages of the host change: one that is under way has its copy of them afterwards.
  void beforeHostChanges() { writer.beforeHostChanges(); }
  /// Takes note of one that was completed meanwhile.
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
  std::string wordsOf(uint64_t step) const;

  std::string run;
  RunRecord record;
  const plan::Plan &plan;
  Device &device;
  const WeightAverages *averages;
  std::vector<int> replaced;
  SignalWatch &signals;
  Communicator *ranks;
  std::optional<uint64_t> attempted; ///< with ranks: the last step that one was begun of; none is tried again alone
  Status attempt;                    ///< and what became of it
  CheckpointPolicy policy;
  FiniteState finite;
  CheckpointHearers hearers;
  std::optional<uint64_t> newest, best;
  CheckpointWriter writer; ///< last: its thread uses the members above
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_CHECKPOINTER_H

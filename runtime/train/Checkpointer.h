//===- Checkpointer.h - the checkpoints of one run -----------------------===//
//
// Writes a checkpoint where the state is finite, then removes those that the rules no longer keep: the new one is durable
// before an old one goes.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_CHECKPOINTER_H
#define TCC_RUNTIME_TRAIN_CHECKPOINTER_H

#include "runtime/state/Checkpoint.h"
#include "runtime/train/CheckpointPolicy.h"
#include "runtime/train/FiniteState.h"
#include "runtime/train/Signals.h"

#include <functional>

namespace tcc::runtime {

class Checkpointer {
public:
  /// `warn` hears of old checkpoints that cannot be removed.
  Checkpointer(std::string run, const RunRecord &record, const plan::Plan &plan, Device &device, SignalWatch &signals,
               const CheckpointRules &rules, double now, std::function<void(const std::string &)> warn);

  bool isDue(uint64_t step, double now) const { return policy.isDue(step, now); }

  /// Writes the state after update `position.step`, if its checkpoint is not there yet. Error: it is not finite (exit
  /// status 4), or cannot be written; then the earlier checkpoints stand.
  plan::Status write(const TrainingPosition &position);

  /// Makes the checkpoint of position.bestStep, which is written, the best.
  plan::Status markBest(const TrainingPosition &position);

  /// The newest checkpoint: the last one written, or the one that the run was resumed from.
  std::optional<uint64_t> last() const { return newest; }
  void resumedFrom(uint64_t step);
  std::string pathOf(uint64_t step) const;

private:
  void prune(const TrainingPosition &position);

  std::string run;
  RunRecord record;
  const plan::Plan &plan;
  Device &device;
  SignalWatch &signals;
  CheckpointPolicy policy;
  FiniteState finite;
  std::function<void(const std::string &)> warn;
  std::optional<uint64_t> newest;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_CHECKPOINTER_H

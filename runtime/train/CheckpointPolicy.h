//===- CheckpointPolicy.h - when to checkpoint, and what to keep ---------===//
//
// A checkpoint is due by the clock or by the number of updates, and again a while after one could not be written. The
// newest ones and the best are kept. Time and steps are arguments: the policy reads no clock and no disk.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_CHECKPOINTPOLICY_H
#define TCC_RUNTIME_TRAIN_CHECKPOINTPOLICY_H

#include <cstdint>
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

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_CHECKPOINTPOLICY_H

//===- PhasedRunner.h - one step of several alternating optimizers -------===//
//
// A step of a plan with phases ([[phase]] of the recipe) is one round: each phase that is due updates its parameters,
// in order, on the same micro-batches. A phase is an UpdateRunner over entries of its own; all share the state.
//
// All phases share one loss scale, like several optimizers with one GradScaler: a phase whose gradients are not finite
// skips only its own update. The factor changes once per round; it shrinks if any phase skipped its update.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_PHASEDRUNNER_H
#define TCC_RUNTIME_TRAIN_PHASEDRUNNER_H

#include "runtime/train/UpdateRunner.h"

namespace tcc::runtime {

class PhasedRunner : public UpdateRunner {
public:
  /// Error: the plan lacks an entry of a phase.
  static Expected<std::unique_ptr<UpdateRunner>> create(const Session &session);

  const plan::Entry &dataEntry() const override { return inputs; }
  uint64_t window() const override { return main().window(); }
  uint64_t taken() const override { return main().taken(); }
  const LearningSchedule &schedule() const override { return main().schedule(); }
  void setSeed(uint64_t seed) override;
  void traceTo(Trace::Track *track) override;
  Status setSchedule(LearningSchedule schedule) override;
  Status run(TrainingPosition &position, Batches &batches, UpdateMetrics &metrics, bool &finite) override;
  bool settle() override;
  bool keepsState(const UpdateMetrics &metrics) const override;
  Cause findNonFinite(TrainingPosition &position, Batches &batches) override;

private:
  explicit PhasedRunner(const Session &session) : UpdateRunner(session, session.training) {}
  /// Computes the next round's loss scale. False: training should end. `metrics` are those of the round; `overflow` is
  /// the first phase that was skipped, or the number of phases.
  bool scaleAfterRound(TrainingPosition &position, UpdateMetrics &metrics, size_t overflow);
  /// The first phase that runs at every step: `loss`, `lr` and `grad_norm` of a step are its numbers.
  const UpdateRunner &main() const { return *phases[mainPhase]; }

  std::vector<std::unique_ptr<UpdateRunner>> phases;
  size_t mainPhase = 0, failed = 0; ///< failed: the phase that failed or was not finite
  bool updated = false;             ///< an earlier phase of the round has updated its parameters
  plan::Entry inputs;               ///< the inputs of all entries, for the data
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_PHASEDRUNNER_H

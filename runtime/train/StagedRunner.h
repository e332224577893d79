//===- StagedRunner.h - updates of a run in stages -----------------------===//
//
// A plan with stages ([[stage]] of the recipe) has the entries of an update for each stage: they update the parameters
// that the stage trains, and only read the others. The update's number determines the stage, so a resumed run continues
// in the right one. All stages share the optimizer's state.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_STAGEDRUNNER_H
#define TCC_RUNTIME_TRAIN_STAGEDRUNNER_H

#include "runtime/train/UpdateRunner.h"

namespace tcc::runtime {

class StagedRunner : public UpdateRunner {
public:
  /// Error: the plan lacks an entry of a stage.
  static Expected<std::unique_ptr<UpdateRunner>> create(const Session &session);

  const plan::Entry &dataEntry() const override { return stages.front()->dataEntry(); }
  uint64_t window() const override { return stages.front()->window(); }
  uint64_t taken() const override { return stages[current]->taken(); }
  const LearningSchedule &schedule() const override { return stages.front()->schedule(); }
  void setSeed(uint64_t seed) override;
  void traceTo(Trace::Track *track) override;
  Status setSchedule(LearningSchedule schedule) override;
  Status run(TrainingPosition &position, Batches &batches, UpdateMetrics &metrics, bool &finite) override;
  bool settle() override { return stages[current]->settle(); }
  bool keepsState(const UpdateMetrics &metrics) const override { return stages[current]->keepsState(metrics); }
  Cause findNonFinite(TrainingPosition &position, Batches &batches) override {
    return stages[current]->findNonFinite(position, batches);
  }

private:
  explicit StagedRunner(const Session &session) : UpdateRunner(session, session.training) {}

  std::vector<plan::Training> trainings; ///< by stage; the stage's runner refers to it
  std::vector<std::unique_ptr<UpdateRunner>> stages;
  size_t current = 0; ///< of the last update
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_STAGEDRUNNER_H

//===- TrainSetup.h - preparation of a training run ----------------------===//
#ifndef TCC_RUNTIME_TRAIN_TRAINSETUP_H
#define TCC_RUNTIME_TRAIN_TRAINSETUP_H

#include "runtime/state/Checkpoint.h"
#include "runtime/state/RunLock.h"
#include "runtime/train/Goal.h"
#include "runtime/train/Train.h"
#include "runtime/train/TrainingBatches.h"
#include "runtime/train/UpdateRunner.h"
#include "runtime/train/WeightAverages.h"

namespace tcc::runtime {

/// The checkpoint that is resumed.
struct ResumedRun {
  RunReference reference;               ///< run and step
  bool goesOn = false;                  ///< training continues in the same folder
  std::optional<Checkpoint> checkpoint; ///< until the run's folder is open
};

/// The data that a run is evaluated on.
struct EvaluationSet {
  EntryData data;
  std::vector<EntryRunner> runners; ///< by shape, as data.readers
};

struct PreparedRun {
  std::unique_ptr<UpdateRunner> updates;
  std::unique_ptr<TrainingBatches> batches;
  std::shared_ptr<WeightAverages> averages; ///< null without train.ema, and on a device that computes nothing
  std::optional<EvaluationSet> evaluation;
  MetricGoal best;               ///< evaluate.best
  std::optional<EarlyStop> stop; ///< evaluate.stop
  std::optional<Plateau> plateau; ///< schedule.kind = "plateau"
  std::optional<ResumedRun> resumed;
  std::optional<RunLock> lock;
  std::string folder;
  RunRecord record;
  TrainingPosition position;
  uint64_t totalSteps = 0;
  std::vector<Message> notes; ///< for the listener and the log, once that is open

  bool goesOn() const { return resumed && resumed->goesOn; }
};

/// Finds the plan's entries, opens checkpoint and data, sets the device's state. Writes nothing but the lock of a
/// resumed run, so an error leaves no new folder.
Expected<PreparedRun> prepareRun(Session &session, const TrainOptions &options);

/// Makes the run's folder or reuses that of a resumed run, and writes data notes and plan to it. Calls
/// RunEvents::opening before.
Status openRunFolder(const Session &session, const TrainOptions &options, PreparedRun &run);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_TRAINSETUP_H

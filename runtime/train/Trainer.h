//===- Trainer.h - the stages of a training run --------------------------===//
//
// Train.cpp is the loop, TrainSetup.cpp all before its first update, TrainEnds.cpp how it ends and what it leaves.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_TRAINER_H
#define TCC_RUNTIME_TRAIN_TRAINER_H

#include "runtime/data/Sampler.h"
#include "runtime/state/RunLock.h"
#include "runtime/train/Checkpointer.h"
#include "runtime/train/Recorder.h"
#include "runtime/train/Scalars.h"
#include "runtime/train/Train.h"
#include "runtime/train/WindowState.h"

#include <memory>
#include <optional>

namespace tcc::runtime {

/// An entry that gives loss_sum and loss_weight.
struct LossRunner {
  EntryRunner runner;
  int sum, weight, norm;

  LossRunner(Device &device, const plan::Entry &entry)
      : runner(device, entry), sum(runner.outputIndex("loss_sum")), weight(runner.outputIndex("loss_weight")),
        norm(runner.outputIndex("grad_norm")) {}
};

class Trainer {
public:
  Trainer(Session &session, const TrainOptions &options) : session(session), options(options) {}
  plan::Status run();

private:
  plan::Status findEntries();
  plan::Status openCheckpoint();
  plan::Status openData();
  plan::Status initialize();
  plan::Status planRun();
  plan::Status continueRun();
  void noteScheduleTotal(std::optional<uint64_t> total);
  plan::Status openRun();
  CheckpointRules rules() const;
  Progress &progress() { return recorder->progress(); }
  void report();
  plan::Status loop();
  plan::Status steps();
  /// One update; `finite` says whether it was applied.
  plan::Status update(UpdateMetrics &metrics, bool &finite);
  /// Micro-batch `number` of the epoch, which is micro-batch `inWindow` of its update.
  plan::Status microBatch(LossRunner &entry, uint64_t number, uint64_t inWindow, UpdateMetrics &metrics, double &sum,
                          double &weight);
  plan::Status fillBatch(LossRunner &entry);
  plan::Status evaluateNow();
  /// A checkpoint between updates. One that cannot be written is told, and training goes on; state that is not finite
  /// ends it.
  plan::Status checkpointOrWarn();
  /// The checkpoint that an end needs. Error: it could not be written.
  plan::Status checkpointAtEnd();
  /// What an error or a signal leaves, and how to go on.
  std::string kept() const;
  /// Undoes what a window that came to no update left.
  void settleWindow();
  plan::Status stopNonFinite(const UpdateMetrics &metrics);
  /// Where numbers first go bad in the window that `metrics` is of: a NaN or an infinity of the data, a node.
  struct Diagnosis {
    std::string node, input, infinite;
  };
  Diagnosis findNonFinite(const UpdateMetrics &metrics);
  /// After an error between or in updates: keeps the last whole update, if its state can still be had.
  plan::Status stopOnError(const plan::Status &problem);
  plan::Status release();
  plan::Status finish();
  plan::Status stopOnSignal();

  Session &session;
  const TrainOptions &options;
  std::unique_ptr<LossRunner> step, first, next;
  std::unique_ptr<EntryRunner> updateEntry, evaluateEntry;
  EntryData data, evalData;
  std::optional<Sampler> sampler;
  std::optional<ScalarBlock> scalars;
  std::optional<LearningSchedule> schedule;
  std::optional<Recorder> recorder;
  std::optional<SignalWatch> signals;
  std::optional<Checkpointer> checkpoints;
  std::optional<WindowState> window; ///< with accumulation
  std::vector<uint64_t> indices;
  TrainingPosition position;
  RunReference resumed; ///< the checkpoint that is resumed
  std::optional<Checkpoint> checkpoint_;
  std::optional<RunLock> lock;
  RunRecord record_;
  std::vector<std::string> notes; ///< for the log, once it is open
  std::string run_;
  uint64_t totalSteps = 0, accumulate = 1, lastWindow = 0;
  std::optional<uint64_t> evaluated;
  bool resuming = false, sameRun = false;
  bool warned = false; ///< the last checkpoint could not be written, which was told
  /// Whole: the variables are those of `position`. Window: the forward passes of its next window have advanced running
  /// statistics, no more. Partial: an update was interrupted.
  enum class State { Whole, Window, Partial } state = State::Whole;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_TRAINER_H

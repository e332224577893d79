//===- UpdateRunner.h - one update of the weights ------------------------===//
//
// An update takes a window of `accumulate` micro-batches (fewer at an epoch's end) and is one run of `step`, or runs of
// `accumulate_first`, `accumulate_next`…, `update`. Its loss is the sum of losses over the sum of weights.
//
// With several virtual ranks, their windows run one after the other, each from the state before the update, and their
// sums are added in a tree (passes/training/RankSums.h). State that forward passes write (running statistics) is kept
// from the first virtual rank only.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_UPDATERUNNER_H
#define TCC_RUNTIME_TRAIN_UPDATERUNNER_H

#include "runtime/Device.h"
#include "runtime/train/Batches.h"
#include "runtime/train/Metrics.h"
#include "runtime/train/Session.h"
#include "support/Trace.h"

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace tcc::runtime {

/// State that micro-batches change before the update: with accumulation, the forward passes of a window advance running
/// statistics before the update runs. If a window ends early, by bad data or a loss that is not finite, these partial
/// changes must not get into a checkpoint.
class WindowState {
public:
  WindowState(const plan::Plan &plan, Device &device);

  /// Saves the values at the start of a window. Allocates nothing. Error, here and below: the device's.
  Status save();
  /// Restores them.
  Status restore();

private:
  struct Kept {
    Place place;
    std::vector<std::byte> copy;
  };
  Device &device;
  std::vector<Kept> kept;
};

/// One of several alternating optimizers ([[phase]]), or of several stages. Its entries have its name as a suffix.
struct UpdatePhase {
  std::string name;
  uint64_t every = 1;  ///< steps from one of its updates to the next
  uint64_t number = 0; ///< its position in the step, which makes the random numbers of phases differ
};

class UpdateRunner {
public:
  virtual ~UpdateRunner() = default;

  /// Error: the plan lacks an entry of training.
  static Expected<std::unique_ptr<UpdateRunner>> create(const Session &session);
  /// The updates of one phase, or of a plan without any. `training` is the session's, or a phase's.
  static Expected<std::unique_ptr<UpdateRunner>> create(const Session &session, const plan::Training &training,
                                                        UpdatePhase phase);

  /// An entry that reads the training data, in each of the plan's shapes.
  virtual std::vector<const plan::Entry *> dataEntries() const;
  /// The same in the first shape.
  const plan::Entry &dataEntry() const { return *dataEntries().front(); }
  /// Micro-batches of a whole window.
  virtual uint64_t window() const { return accumulate; }
  /// Micro-batches of the last update's window.
  virtual uint64_t taken() const { return lastWindow; }
  virtual const LearningSchedule &schedule() const { return *rates; }

  virtual void setSeed(uint64_t seed);
  /// Each run of an entry becomes a span.
  virtual void traceTo(Trace::Track *track) { trace = track; }
  /// Error: a scalar of the plan that this program does not know.
  virtual Status setSchedule(LearningSchedule schedule);

  /// Called after each micro-batch, `number` in its update, with the entry that computed it; its outputs are valid
  /// during the call. An error ends the update. A plan with phases has no such outputs, and makes no calls.
  using MicroBatchObserver = std::function<Status(const EntryRunner &runner, uint64_t number)>;
  virtual void observe(MicroBatchObserver made) { observer = std::move(made); }

  /// Runs the update after `position`; `finite` says whether training may go on after it: the update was applied, or
  /// metrics.skipped says that the loss scale made a gradient infinite. Allocates nothing. If the next update does not
  /// depend on the gradients' norm, a device that keeps numbers may return before the norm is known
  /// (metrics.normOfRun): then complete() must be called before the second run() after this one.
  virtual Status run(TrainingPosition &position, Batches &batches, UpdateMetrics &metrics, bool &finite);
  /// Waits for the norm if run() did not; `finite` says whether training may go on.
  Status complete(UpdateMetrics &metrics, bool &finite) const;

  /// After a run that failed or was not finite: restores the state that the window's forward passes changed. True if
  /// the variables then have the values of the last whole update.
  virtual bool settle();

  /// True if the plan does not change the state for such numbers: the loss is not finite, or the norm is not finite and
  /// the update waits for it (clipping, accumulation, loss scaling).
  virtual bool keepsState(const UpdateMetrics &metrics) const;

  /// The cause of an update after `position` that is not finite: a NaN in the data, else the first node that computes
  /// one. An infinity in the data is also reported, but may be intended (a mask). Runs the window again.
  struct Cause {
    std::string node, nanInput, infiniteInput;
    uint64_t place = 0; ///< position of the node in the update; sums carry a NaN to other ranks, where it appears later
  };
  virtual Cause findNonFinite(TrainingPosition &position, Batches &batches);

protected:
  UpdateRunner(const Session &session, const plan::Training &training, UpdatePhase phase = {})
      : session(session), training(training), phase(std::move(phase)) {}

  const Session &session;

private:
  /// An entry that outputs loss_sum and loss_weight, and the indices of its outputs.
  struct LossEntry {
    EntryRunner runner;
    int sum, weight, norm;
    std::vector<std::pair<int, int>> terms; ///< numerators and denominators of several losses
  };
  struct Sums {
    double loss = 0, weight = 0;
  };
  /// Error: the entry lacks an output.
  Expected<LossEntry> lossEntryOf(const plan::Entry &entry) const;
  /// The outputs of an entry that hold the numbers of several losses. Error: it lacks one.
  Expected<std::vector<std::pair<int, int>>> termsOf(const EntryRunner &runner) const;
  /// Adds the numbers of several losses to the update's. `terms`: of the runner.
  static Status addTerms(const EntryRunner &runner, const std::vector<std::pair<int, int>> &terms,
                         UpdateMetrics &metrics);
  Expected<const plan::Entry *> require(const std::string &name) const;
  /// The entry of the window's micro-batch `inWindow` in a shape: first, next, next…
  LossEntry &entryOf(size_t shape, uint64_t inWindow) {
    std::vector<LossEntry> &own = losses[shape];
    return own[std::min<size_t>(inWindow, own.size() - 1)];
  }
  /// The entry of this name in all shapes of the plan. Error: the plan lacks it.
  Expected<std::vector<const plan::Entry *>> requireShapes(const std::string &name) const;
  Status microBatch(uint64_t virtualRank, uint64_t inWindow, TrainingPosition &position, Batches &batches,
                    UpdateMetrics &metrics, Sums &sums);
  /// All micro-batches of the update.
  Status runWindows(TrainingPosition &position, Batches &batches, UpdateMetrics &metrics, Sums &sums);
  /// Adds the sums of a virtual rank's window to the tree over this rank's virtual ranks.
  Status addToTree(uint64_t virtualRank);
  /// True if `update` adds the losses of all ranks; before it, they are those of this rank.
  bool sumsInUpdate() const { return session.worldSize() > 1 || session.training.parallel().virtual_ranks() != 0; }
  uint64_t readOf(const TrainingPosition &position, uint64_t virtualRank, uint64_t inWindow) const {
    return position.batch * own.count + virtualRank * lastWindow + inWindow;
  }
  /// True if the update waits for the norm, so that a norm that is not finite changes no state.
  bool normGuards() const { return training.has_clip_norm() || session.training.has_loss_scale() || closing; }
  /// The scalars of the update after `position`.
  Status giveScalars(EntryRunner &runner, const TrainingPosition &position);
  /// Updates the loss scale by the gradients' norm; for a phase, only records whether its update was skipped. False:
  /// training should end.
  bool scaleAfter(TrainingPosition &position, UpdateMetrics &metrics, bool finiteNorm);
  SchedulePoint pointOf(const TrainingPosition &position) const {
    return {rates->perEpoch() ? position.epoch : updateOf(position) - 1,
            position.plateau ? position.plateau->reductions : 0};
  }
  /// The number, from 1, of the update after `position` among those of the phase.
  uint64_t updateOf(const TrainingPosition &position) const { return (position.step + 1) / phase.every; }
  /// The counter of a micro-batch's random numbers.
  uint64_t counterOf(uint64_t virtualRank, uint64_t inWindow) const {
    return (phase.number * accumulate + inWindow) * own.all + own.first + virtualRank;
  }

  const plan::Training &training;
  const UpdatePhase phase;
  uint64_t accumulate = 1, lastWindow = 0;
  plan::VirtualRanks own;
  /// By shape: `step`; or `accumulate_first` and `accumulate_next`.
  std::vector<std::vector<LossEntry>> losses;
  size_t latest = 0; ///< shape of the latest micro-batch
  std::vector<EntryRunner> holds, joins; ///< by level
  std::optional<EntryRunner> closing;    ///< `update`, with accumulation
  std::vector<std::pair<int, int>> closingTerms; ///< of `closing`, if it sums them over ranks
  std::optional<WindowState> before;     ///< with accumulation: the state before the window
  std::optional<WindowState> ofFirst;    ///< with several virtual ranks: the state after the first one's forward passes
  std::optional<LearningSchedule> rates;
  std::optional<ScalarBlock> scalars;
  Trace::Track *trace = nullptr;
  MicroBatchObserver observer;
  /// Whole: the variables are those of the position. Window: only the forward passes of the next window have run, and
  /// advanced running statistics. Partial: an update was interrupted.
  enum class State { Whole, Window, Partial } state = State::Whole;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_UPDATERUNNER_H

//===- UpdateRunner.h - one update of the weights ------------------------===//
//
// An update takes a window of `accumulate` micro-batches (fewer at an epoch's end) and is one run of `step`, or runs of
// `accumulate_first`, `accumulate_next`…, `update`. Its loss is the sum of losses over the sum of weights.
//
// With virtual ranks the windows of this rank's follow one another, each from the state before the update, and the sums
// of each join a tree (passes/training/RankSums.h). What forward passes write is that of the first.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_UPDATERUNNER_H
#define TCC_RUNTIME_TRAIN_UPDATERUNNER_H

#include "runtime/train/Metrics.h"
#include "runtime/train/TrainingBatches.h"
#include "runtime/train/WindowState.h"

#include <memory>
#include <optional>

namespace tcc::runtime {

/// One of several alternating optimizers ([[phase]]), or of several stages: its entries have its name behind theirs.
struct UpdatePhase {
  std::string name;
  uint64_t every = 1;  ///< steps from one of its updates to the next
  uint64_t number = 0; ///< its place in the step; random numbers of phases differ by it
};

class UpdateRunner {
public:
  virtual ~UpdateRunner() = default;

  /// Error: the plan lacks an entry of training.
  static Expected<std::unique_ptr<UpdateRunner>> create(const Session &session);
  /// The updates of one phase, or of a plan without any. `training` is the session's, or a phase's.
  static Expected<std::unique_ptr<UpdateRunner>> create(const Session &session, const plan::Training &training,
                                                        UpdatePhase phase);

  /// An entry that reads the training data.
  virtual const plan::Entry &dataEntry() const { return losses.front().runner.entry(); }
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

  /// Runs the update after `position`; `finite` says whether training may go on after it: the update was applied, or
  /// metrics.skipped says that the loss scale made a gradient infinite. Allocates nothing.
  /// Where the gradients' norm decides nothing about the next update, the norm may be left out on a device that keeps
  /// numbers (metrics.normOfRun): complete() brings it, before the second run() after this one.
  virtual Status run(TrainingPosition &position, TrainingBatches &batches, UpdateMetrics &metrics, bool &finite);
  /// Waits for what run() left out; `finite` says whether training may go on.
  Status complete(UpdateMetrics &metrics, bool &finite) const;

  /// After a run that failed or was not finite: undoes what the window's forward passes changed. True if the variables
  /// are those of the last whole update.
  virtual bool settle();

  /// True if the plan leaves the state alone for such numbers: where the loss is not finite, or the norm and the update
  /// waits for it (clipping, accumulation, loss scaling).
  virtual bool keepsState(const UpdateMetrics &metrics) const;

  /// What makes the update after `position` not finite: a NaN in the data, else the first node that computes one, with
  /// an infinity of the data beside it, which may be meant (a mask). Runs the window again.
  struct Cause {
    std::string node, nanInput, infiniteInput;
    uint64_t place = 0; ///< of the node among all instructions of the update: sums carry a NaN to other ranks, later
  };
  virtual Cause findNonFinite(TrainingPosition &position, TrainingBatches &batches);

protected:
  UpdateRunner(const Session &session, const plan::Training &training, UpdatePhase phase = {})
      : session(session), training(training), phase(std::move(phase)) {}

  const Session &session;

private:
  /// An entry that gives loss_sum and loss_weight, and the indices of its outputs.
  struct LossEntry {
    EntryRunner runner;
    int sum, weight, norm;
    std::vector<std::pair<int, int>> terms; ///< numerators and denominators of several losses
  };
  struct Sums {
    double loss = 0, weight = 0;
  };
  /// The outputs of an entry that hold the numbers of several losses. Error: it lacks one.
  Expected<std::vector<std::pair<int, int>>> termsOf(const EntryRunner &runner) const;
  /// Adds the numbers of several losses to the update's. `terms`: of the runner.
  static Status addTerms(const EntryRunner &runner, const std::vector<std::pair<int, int>> &terms,
                         UpdateMetrics &metrics);
  Expected<const plan::Entry *> require(const std::string &name) const;
  /// The entry of the window's micro-batch `inWindow`: first, next, next…
  LossEntry &entryOf(uint64_t inWindow) { return losses[std::min<size_t>(inWindow, losses.size() - 1)]; }
  Status microBatch(uint64_t virtualRank, uint64_t inWindow, TrainingPosition &position, TrainingBatches &batches,
                    UpdateMetrics &metrics, Sums &sums);
  /// All micro-batches of the update.
  Status runWindows(TrainingPosition &position, TrainingBatches &batches, UpdateMetrics &metrics, Sums &sums);
  /// The sums of the window of a virtual rank join the tree over this rank's.
  Status addToTree(uint64_t virtualRank);
  /// Losses are those of all ranks once `update` has added them.
  bool sumsInUpdate() const { return session.worldSize() > 1 || session.training.parallel().virtual_ranks() != 0; }
  uint64_t readOf(const TrainingPosition &position, uint64_t virtualRank, uint64_t inWindow) const {
    return position.batch * own.count + virtualRank * lastWindow + inWindow;
  }
  /// The update waits for the norm, so that one which is not finite changes no state.
  bool normGuards() const { return training.has_clip_norm() || session.training.has_loss_scale() || closing; }
  /// The scalars of the update after `position`.
  Status giveScalars(EntryRunner &runner, const TrainingPosition &position);
  /// What the gradients' norm means for the loss scale. False: training should end. Of a phase it only says whether the
  /// update was skipped.
  bool scaleAfter(TrainingPosition &position, UpdateMetrics &metrics, bool finiteNorm);
  SchedulePoint pointOf(const TrainingPosition &position) const {
    return {rates->perEpoch() ? position.epoch : updateOf(position) - 1,
            position.plateau ? position.plateau->reductions : 0};
  }
  /// The number, from 1, of the update after `position` among those of the phase.
  uint64_t updateOf(const TrainingPosition &position) const { return (position.step + 1) / phase.every; }
  /// The number by which a micro-batch's random numbers are drawn.
  uint64_t counterOf(uint64_t virtualRank, uint64_t inWindow) const {
    return (phase.number * accumulate + inWindow) * own.all + own.first + virtualRank;
  }

  const plan::Training &training;
  const UpdatePhase phase;
  uint64_t accumulate = 1, lastWindow = 0;
  plan::VirtualRanks own;
  std::vector<LossEntry> losses;         ///< `step`; or `accumulate_first` and `accumulate_next`
  std::vector<EntryRunner> holds, joins; ///< by level
  std::optional<EntryRunner> closing;    ///< `update`, with accumulation
  std::vector<std::pair<int, int>> closingTerms; ///< of `closing`, where it sums them over ranks
  std::optional<WindowState> before;     ///< with accumulation
  std::optional<WindowState> ofFirst;    ///< with several virtual ranks: what the first one's forward passes left
  std::optional<LearningSchedule> rates;
  std::optional<ScalarBlock> scalars;
  Trace::Track *trace = nullptr;
  /// Whole: the variables are those of the position. Window: the forward passes of the next window have advanced
  /// running statistics, no more. Partial: an update was interrupted.
  enum class State { Whole, Window, Partial } state = State::Whole;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_UPDATERUNNER_H

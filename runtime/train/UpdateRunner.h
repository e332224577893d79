//===- UpdateRunner.h - one update of the weights ------------------------===//
//
// An update takes a window of `accumulate` micro-batches (fewer at an epoch's end) and is one run of `step`, or runs of
// `accumulate_first`, `accumulate_next`…, `update`. Its loss is the sum of losses over the sum of weights.
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

class UpdateRunner {
public:
  /// Error: the plan lacks an entry of training.
  static Expected<std::unique_ptr<UpdateRunner>> create(const Session &session);

  /// An entry that reads the training data.
  const plan::Entry &dataEntry() const { return losses.front().runner.entry(); }
  /// Micro-batches of a whole window.
  uint64_t window() const { return accumulate; }
  /// Micro-batches of the last update's window.
  uint64_t taken() const { return lastWindow; }
  const LearningSchedule &schedule() const { return *rates; }

  void setSeed(uint64_t seed);
  /// Each run of an entry becomes a span.
  void traceTo(Trace::Track *track) { trace = track; }
  /// Error: a scalar of the plan that this program does not know.
  Status setSchedule(LearningSchedule schedule);

  /// Runs the update after `position`; `finite` says whether training may go on after it: the update was applied, or
  /// metrics.skipped says that the loss scale made a gradient infinite. Allocates nothing.
  Status run(TrainingPosition &position, TrainingBatches &batches, UpdateMetrics &metrics, bool &finite);

  /// After a run that failed or was not finite: undoes what the window's forward passes changed. True if the variables
  /// are those of the last whole update.
  bool settle();

  /// True if the plan leaves the state alone for such numbers: where the loss is not finite, or the norm and the update
  /// waits for it (clipping, accumulation, loss scaling).
  bool keepsState(const UpdateMetrics &metrics) const;

  /// What makes the update after `position` not finite: a NaN in the data, else the first node that computes one, with
  /// an infinity of the data beside it, which may be meant (a mask). Runs the window again.
  struct Cause {
    std::string node, nanInput, infiniteInput;
  };
  Cause findNonFinite(TrainingPosition &position, TrainingBatches &batches);

private:
  /// An entry that gives loss_sum and loss_weight, and the indices of its outputs.
  struct LossEntry {
    EntryRunner runner;
    int sum, weight, norm;
  };
  struct Sums {
    double loss = 0, weight = 0;
  };
  explicit UpdateRunner(const Session &session) : session(session) {}
  Expected<const plan::Entry *> require(const char *name) const;
  /// The entry of the window's micro-batch `inWindow`: first, next, next…
  LossEntry &entryOf(uint64_t inWindow) { return losses[std::min<size_t>(inWindow, losses.size() - 1)]; }
  Status microBatch(uint64_t inWindow, TrainingPosition &position, TrainingBatches &batches, UpdateMetrics &metrics,
                    Sums &sums);
  /// The scalars of the update after `position`.
  Status giveScalars(EntryRunner &runner, const TrainingPosition &position);
  /// What the gradients' norm means for the loss scale. False: training should end.
  bool scaleAfter(TrainingPosition &position, UpdateMetrics &metrics, bool finiteNorm);
  uint64_t countOf(const TrainingPosition &position) const {
    return rates->perEpoch() ? position.epoch : position.step;
  }

  const Session &session;
  uint64_t accumulate = 1, lastWindow = 0;
  std::vector<LossEntry> losses;      ///< `step`; or `accumulate_first` and `accumulate_next`
  std::optional<EntryRunner> closing; ///< `update`, with accumulation
  std::optional<WindowState> before;  ///< with accumulation
  std::optional<LearningSchedule> rates;
  std::optional<ScalarBlock> scalars;
  Trace::Track *trace = nullptr;
  /// Whole: the variables are those of the position. Window: the forward passes of the next window have advanced
  /// running statistics, no more. Partial: an update was interrupted.
  enum class State { Whole, Window, Partial } state = State::Whole;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_UPDATERUNNER_H

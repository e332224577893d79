//===- Stepper.h - training in a loop of the caller's ----------------------===//
//
// Where Trainer has the loop, data and files of a run, a Stepper makes one update at a time from tensors that the
// caller gives, and keeps nothing but the state on the device.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_STEPPER_H
#define TCC_RUNTIME_TRAIN_STEPPER_H

#include "runtime/state/Export.h"
#include "runtime/train/Evaluate.h"
#include "runtime/train/GivenData.h"
#include "runtime/train/JoinedOutputs.h"
#include "runtime/train/Train.h"
#include "runtime/train/UpdateRunner.h"
#include "runtime/train/WeightAverages.h"

namespace tcc::runtime {

struct StepperOptions {
  std::optional<uint64_t> seed;      ///< of random numbers (dropout); default: the plan's
  std::optional<double> totalSteps;  ///< length of the schedule, in its unit; default: the schedule's own total_steps
};

class Stepper {
public:
  /// Error: the plan cannot train, or its schedule needs a length.
  static Expected<std::unique_ptr<Stepper>> create(Session session, const StepperOptions &options = {});

  /// One update from `accumulate` batches of rows, or fewer. Error: tensors that do not fit, which change nothing; or
  /// StatusCode::NonFinite, after which the state is that before the update if the plan could keep it, else the stepper
  /// refuses further updates until a state is loaded.
  Status step(std::span<const GivenTensor> tensors, UpdateMetrics &metrics);
  /// The graph outputs of train.outputs for the rows of the last update, valid until the next. Error: there are none.
  Expected<const JoinedOutputs *> lastOutputs() const;
  /// The first node of the last update that computed a NaN or an infinity, after a NonFinite error; else empty.
  const std::string &nonFiniteNode() const { return node; }

  /// The loss and metrics over all rows, in inference mode. `averages`: of the averaged weights.
  Expected<Evaluation> evaluate(std::span<const GivenTensor> tensors, bool averages = false);

  /// What an entry of the plan ("predict", "gradients") gives for the rows. Error: the plan has no such entry.
  Expected<JoinedOutputs> run(const std::string &entry, std::span<const GivenTensor> tensors);

  /// Changes a setting that needs no compilation, from the next update on. Error: as applySettings.
  Status set(const std::string &setting);
  /// The same for the learning rate alone, which costs less than an update of the smallest model.
  Status setRate(double rate);

  /// Copies a variable of the plan by name: a parameter, running statistics, or state of the optimizer, whose name is
  /// "PARAMETER/…". Error: there is none of that name, or `bytes` is not its size.
  Status read(const std::string &name, std::span<std::byte> bytes);
  Status write(const std::string &name, std::span<const std::byte> bytes);

  /// Makes `run` a run folder with the state as its checkpoint, which `trun --resume` and `trun export` read. An
  /// existing run of this plan gets one more checkpoint.
  Status save(const std::string &run);
  /// Takes the state of a checkpoint: RUN, RUN@STEP, RUN@best. The stepper goes on after its update.
  Status load(const std::string &reference);
  /// Writes the model with the trained values: .onnx or .safetensors.
  Status exportTo(const std::string &path, ExportOptions options = {});

  /// Trains as train() does, from this state, and takes up the state at its end. Steps and epochs count from here,
  /// except that those of a resumed run are totals.
  Status fit(TrainOptions options);

  Session &session() { return *opened; }
  const TrainingPosition &position() const { return at; }
  /// Begins the next epoch, for schedules that count epochs.
  void nextEpoch() { ++at.epoch; }
  /// Rows of an update in the plan's first shape: `accumulate` batches for each virtual rank.
  uint64_t rows() const { return rowsOf(static_cast<uint64_t>(updates->dataEntry().batch())); }

private:
  Stepper() = default;
  /// Rows of an update in a shape of this batch.
  uint64_t rowsOf(uint64_t batch) const { return updates->window() * batch * opened->virtualRanks().count; }
  Status schedule();
  /// The tensors, bound to the entry; bound again only if their types or shapes changed.
  struct Binding {
    std::vector<const plan::Entry *> shapes; ///< the entry in the plan's shapes
    bool trains = false;
    std::unique_ptr<GivenData> data;
    std::vector<EntryRunner> runners; ///< by shape, of entries that do not train

    const plan::Entry &entry() const { return *shapes[data ? data->shape() : 0]; }
  };
  Expected<GivenData *> bind(Binding &binding, std::span<const GivenTensor> tensors);
  Expected<Binding *> bindingOf(const std::string &entry);
  Expected<Place> placeOf(const std::string &name) const;

  std::unique_ptr<Session> opened;
  std::unique_ptr<UpdateRunner> updates;
  std::shared_ptr<WeightAverages> averages;
  GivenBatches batches;
  Binding training;
  std::map<std::string, Binding> others;
  TrainingPosition at;
  std::string node;
  std::optional<JoinedOutputs> joined; ///< of the last update
  bool returnsOutputs = false;         ///< the plan has outputs of train.outputs
  bool returned = false;               ///< `joined` is that of a whole update
  std::string savedTo;                 ///< the run folder of the last save
  bool spoiled = false; ///< the state holds values that are not finite
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_STEPPER_H

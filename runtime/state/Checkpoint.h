//===- Checkpoint.h - read and write the checkpoints of a run -------------===//
//
// A run folder holds `checkpoints/step-N/` with a manifest (Manifest.h) and the shards that it names. A checkpoint is
// written under another name and then renamed, so it exists as a whole or not at all. docs/guide/checkpoints.md
// describes the files.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_STATE_CHECKPOINT_H
#define TCC_RUNTIME_STATE_CHECKPOINT_H

#include "runtime/Device.h"
#include "runtime/state/Manifest.h"
#include "runtime/tensors/Safetensors.h"
#include "support/ShortText.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tcc::runtime {

/// "RUN", "RUN@120", "RUN@last", "RUN@best".
struct RunReference {
  std::string run, selector = "last";
};
RunReference parseRunReference(const std::string &text);

/// The folder of the checkpoint, e.g. "RUN/checkpoints/step-120". Error: no such run or checkpoint; the message lists
/// the existing ones.
Expected<std::string> findCheckpoint(const RunReference &reference);

/// Steps of the run's checkpoints, ascending.
std::vector<uint64_t> checkpointSteps(const std::string &run);

/// An open checkpoint, whose manifest and shards have been checked, including checksums.
class Checkpoint {
public:
  /// Error: missing, damaged, for another step than the folder's name says, or replaced while it was read.
  static Expected<Checkpoint> open(const std::string &folder);

  const std::string &folder() const { return place; }
  const Manifest &manifest() const { return contents; }
  const ManifestTensor *find(std::string_view name) const;

  /// The tensor's bytes, dense and row-major: a view of the mapped shard if one slice holds all of it. Valid as long as
  /// this object lives.
  std::span<const std::byte> bytes(const ManifestTensor &tensor);
  /// The same, copied to `destination`, which has the tensor's size.
  void copyTo(const ManifestTensor &tensor, std::byte *destination) const;
  /// Passes the tensor's bytes to `sink` in order, without assembling the shards of several ranks in memory.
  Status stream(const ManifestTensor &tensor, const ByteSink &sink);
  /// Copies `count` elements from number `begin` on, in row-major order.
  void copyTo(const ManifestTensor &tensor, uint64_t begin, uint64_t count, std::byte *destination);

private:
  Status openShards();
  Status takeTensorsOfHeader();
  Status checkSlices();

  std::string place;
  Manifest contents;
  std::vector<SafetensorsFile> shards;
  std::map<std::string, size_t, std::less<>> byName;
  std::map<std::string, std::vector<std::byte>, std::less<>> assembled;
};

/// Reads and checks only the manifest.
Expected<Manifest> readManifest(const std::string &folder);

/// State of a run on the host, in addition to the plan's variables.
struct HostState {
  std::string name;
  plan::TensorType type;
  TensorRole role;
  std::span<const std::byte> bytes;           ///< valid as long as the run
  std::optional<plan::TensorType> whole = {}; ///< of a rank's shard: the type of all shards together
};

/// A tensor to be written to a checkpoint.
struct CheckpointTensor : StreamedValue {
  TensorRole role;
  std::optional<plan::TensorType> whole = {}; ///< of a rank's shard (Shards.h): the type of all shards together
  uint64_t shards = 0;                        ///< number of shards
  std::optional<uint32_t> variable = {};      ///< index into Plan.variables; none: state on the host
  std::optional<uint64_t> hash = {};          ///< XXH3-64 of its bytes, if ranks have compared them
};
/// XXH3-64 of a plan's variables, by index, of shards without padding; none: no other rank holds the same values.
using VariableSums = std::vector<std::optional<uint64_t>>;

/// All state that `rank` writes, in the order of the file: rank 0 writes everything except the shards of other ranks,
/// which those write. `replaced`: frozen variables whose values differ from the plan's (WeightsFit).
std::vector<CheckpointTensor> checkpointTensors(const plan::Plan &plan, Device &device,
                                                std::span<const HostState> hostState = {},
                                                std::span<const int> replaced = {}, uint32_t rank = 0);

/// Writes RUN/checkpoints/step-N and makes it the run's last; atomically replaces one of the same step. Returns the
/// bytes of its files. Error: a tensor's stream failed (with its exit status), or a tensor's bytes do not match its
/// hash. With `ranks`, all of them call it and write a file each; rank 0 writes the manifest once all files are
/// durable, and every rank gets the same result.
Expected<uint64_t> writeCheckpoint(const std::string &run, const RunRecord &record, const TrainingPosition &position,
                                   std::vector<CheckpointTensor> tensors, Communicator *ranks = nullptr);

/// RUN@best, which markBest sets and readBest reads back. Error: missing or damaged.
struct BestCheckpoint {
  uint64_t step = 0;
  double value = 0;
  std::string metric = "eval_loss"; ///< a key of metrics.jsonl
};
Status markBest(const std::string &run, const BestCheckpoint &best);
Expected<BestCheckpoint> readBest(const std::string &run);

/// Removes a checkpoint, if it exists; a reader sees all of it or nothing.
Status removeCheckpoint(const std::string &run, uint64_t step);

/// Removes temporary files of dead processes from the run's checkpoints. Only for the holder of the run's lock.
void removeUnfinished(const std::string &run);

/// The tensors of a checkpoint of the plan, and their roles: those that training changes and a resumed run needs.
/// Gradient accumulators are not among them, because each window resets them.
struct CheckpointedVariable {
  int variable; ///< index into Plan.variables
  TensorRole role;
};
std::vector<CheckpointedVariable> checkpointedVariables(const plan::Plan &plan);

/// Copies all state except averages (WeightAverages.h) into the device's variables; of sharded ones the part of `rank`,
/// whatever number of ranks wrote the checkpoint. `replaced` gets the frozen variables that the checkpoint has values
/// for. Error: the checkpoint lacks a tensor of the plan, has one that the plan lacks, or one has another type or role;
/// the message lists all of them, and nothing is copied.
Status loadState(Checkpoint &checkpoint, const plan::Plan &plan, Device &device, std::vector<int> *replaced = nullptr,
                 uint32_t rank = 0);

/// Error: loadState would refuse the checkpoint.
Status checkState(const Checkpoint &checkpoint, const plan::Plan &plan);

/// The values of trained parameters: those after the last update, or their averages.
enum class WeightSet { Last, Averages };

/// The set that a reference denotes: RUN@best denotes the averages if the best checkpoint was chosen by a metric of
/// them. Error: the run's note of its best checkpoint is damaged.
Expected<WeightSet> weightSetOf(const RunReference &reference);

/// The tensor with a value in that set; only parameters differ between the sets. Null if there is none.
const ManifestTensor *findValue(const Checkpoint &checkpoint, const std::string &name, WeightSet set);

/// The tensor's bytes, its elements rounded to `dtype`.
std::vector<std::byte> roundedBytes(const Checkpoint &checkpoint, const ManifestTensor &tensor, plan::DType dtype);

/// Error: the checkpoint holds no averages.
Status requireAverages(const Checkpoint &checkpoint);

/// Copies the model's values (parameters, running statistics) into variables of the same names. `unused` gets the
/// values for which the plan has no variable. Error: a parameter of the plan is missing or has another type; there are
/// no averages although `set` asks for them.
Status loadModelValues(Checkpoint &checkpoint, const plan::Plan &plan, Device &device, NameList &unused,
                       WeightSet set = WeightSet::Last);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_CHECKPOINT_H

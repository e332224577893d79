//===- Checkpoint.h - read and write the checkpoints of a run -------------===//
//
// A run folder holds `checkpoints/step-N/` with a manifest (Manifest.h) and the shards that it names. A checkpoint is
// written beside its place and renamed: it is there whole, or not at all. docs/guide/checkpoints.md describes the
// files.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_STATE_CHECKPOINT_H
#define TCC_RUNTIME_STATE_CHECKPOINT_H

#include "runtime/Device.h"
#include "runtime/state/Manifest.h"
#include "runtime/state/NameList.h"
#include "runtime/state/Safetensors.h"

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

/// The folder of the checkpoint, e.g. "RUN/checkpoints/step-120". Error: no such run or checkpoint; those that are
/// there are listed.
Expected<std::string> findCheckpoint(const RunReference &reference);

/// Steps of the run's checkpoints, ascending.
std::vector<uint64_t> checkpointSteps(const std::string &run);

/// An open checkpoint: its manifest and shards are checked, checksums included.
class Checkpoint {
public:
  /// Error: missing, damaged, of another step than its folder's name says, or replaced while it was read.
  static Expected<Checkpoint> open(const std::string &folder);

  const std::string &folder() const { return place; }
  const Manifest &manifest() const { return contents; }
  const ManifestTensor *find(std::string_view name) const;

  /// The tensor's bytes, dense and row-major; in the mapped shard where one slice holds all of it. Valid as long as
  /// this object lives.
  std::span<const std::byte> bytes(const ManifestTensor &tensor);
  /// The same, copied to `destination`, which holds the tensor.
  void copyTo(const ManifestTensor &tensor, std::byte *destination) const;
  /// Hands them to `sink` in order. Of shards of ranks no copy is made.
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

/// Reads and checks the manifest alone.
Expected<Manifest> readManifest(const std::string &folder);

/// State of a run that the host keeps beside the plan's variables.
struct HostState {
  std::string name;
  plan::TensorType type;
  TensorRole role;
  std::span<const std::byte> bytes;           ///< valid as long as the run's
  std::optional<plan::TensorType> whole = {}; ///< of a rank's shard: the type of all shards together
};

/// A tensor of a checkpoint that is to be written.
struct CheckpointTensor : StreamedValue {
  TensorRole role;
  std::optional<plan::TensorType> whole = {}; ///< of a rank's shard (Shards.h): the type of all shards together
  uint64_t shards = 0;                        ///< how many these are
  std::optional<uint32_t> variable = {};      ///< of the plan; none: the host has it
  std::optional<uint64_t> hash = {};          ///< XXH3-64 of its bytes, where ranks have compared them
};
/// XXH3-64 of a plan's variables, by index; none: no other rank holds the same. Of a shard without its padding.
using VariableSums = std::vector<std::optional<uint64_t>>;

/// All state that `rank` writes, in the order of the file: rank 0 all but the other ranks' shards, which these write.
/// `replaced`: frozen variables whose values are not the plan's (WeightsFit).
std::vector<CheckpointTensor> checkpointTensors(const plan::Plan &plan, Device &device,
                                                std::span<const HostState> hostState = {},
                                                std::span<const int> replaced = {}, uint32_t rank = 0);

/// Writes RUN/checkpoints/step-N and makes it the run's last; one of the same step gives way in one step. Returns the
/// bytes of its files. Error: with the exit status of the tensor whose stream failed; a tensor's bytes are not those of
/// its hash. With `ranks`, all of these call
/// it and write a file each; rank 0's manifest names them once all are durable, and every rank has the same result.
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

/// Removes a checkpoint; a reader sees all of it or nothing. Does nothing where there is none.
Status removeCheckpoint(const std::string &run, uint64_t step);

/// Removes temporary files of dead processes from the run's checkpoints. Only for the holder of the run's lock.
void removeUnfinished(const std::string &run);

/// The tensors of a checkpoint of the plan, and their roles: those that training changes and a resumed run needs.
/// Gradient accumulators start anew with each window.
struct CheckpointedVariable {
  int variable; ///< index into Plan.variables
  TensorRole role;
};
std::vector<CheckpointedVariable> checkpointedVariables(const plan::Plan &plan);

/// Copies all state but averages (WeightAverages.h) into the device's variables. Error: the checkpoint lacks a tensor
/// of the plan, has one that the plan lacks, or one has another type or role; all of them are listed, and nothing is
/// copied. `replaced` gets the frozen variables that the checkpoint has values for. `rank` takes its shards, however
/// many ranks wrote the checkpoint.
Status loadState(Checkpoint &checkpoint, const plan::Plan &plan, Device &device, std::vector<int> *replaced = nullptr,
                 uint32_t rank = 0);

/// The values of trained parameters: as the last update left them, or their averages.
enum class WeightSet { Last, Averages };

/// The set that a reference means: RUN@best is the averages where a metric of them decided which one is best. Error: the
/// run's note of its best checkpoint is damaged.
Expected<WeightSet> weightSetOf(const RunReference &reference);

/// The tensor with a parameter's value in that set; the others' value is the same in both. Null where there is none.
const ManifestTensor *findValue(const Checkpoint &checkpoint, const std::string &name, WeightSet set);

/// The tensor's bytes, its elements rounded to `dtype`.
std::vector<std::byte> roundedBytes(const Checkpoint &checkpoint, const ManifestTensor &tensor, plan::DType dtype);

/// Error: the checkpoint holds no averages.
Status requireAverages(const Checkpoint &checkpoint);

/// Copies the model's values (parameters, running statistics) into variables of the same names. Error: a parameter of
/// the plan is missing, another type; no averages where they are asked for. `unused` gets the values that the plan has
/// no variable for.
Status loadModelValues(Checkpoint &checkpoint, const plan::Plan &plan, Device &device, NameList &unused,
                       WeightSet set = WeightSet::Last);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_CHECKPOINT_H

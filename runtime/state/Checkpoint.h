//===- Checkpoint.h - a run's state on the disk --------------------------===//
//
// A run folder holds `checkpoints/step-N/` with a manifest (Manifest.h) and the shards that it names. A checkpoint is
// written beside its place and renamed: it is there whole, or not at all. docs/checkpoints.md describes the files.
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
plan::Expected<std::string> findCheckpoint(const RunReference &reference);

/// Steps of the run's checkpoints, ascending.
std::vector<uint64_t> checkpointSteps(const std::string &run);

/// An open checkpoint: its manifest and shards are checked, checksums included.
class Checkpoint {
public:
  /// Error: missing, damaged, of another step than its folder's name says, or replaced while it was read.
  static plan::Expected<Checkpoint> open(const std::string &folder);

  const std::string &folder() const { return place; }
  const Manifest &manifest() const { return contents; }
  const ManifestTensor *find(std::string_view name) const;

  /// The tensor's bytes, dense and row-major; in the mapped shard where one slice holds all of it. Valid as long as
  /// this object lives.
  std::span<const std::byte> bytes(const ManifestTensor &tensor);
  /// The same, copied to `destination`, which holds the tensor.
  void copyTo(const ManifestTensor &tensor, std::byte *destination) const;

private:
  plan::Status openShards();
  plan::Status takeTensorsOfHeader();
  plan::Status checkSlices();

  std::string place;
  Manifest contents;
  std::vector<SafetensorsFile> shards;
  std::map<std::string, size_t, std::less<>> byName;
  std::map<std::string, std::vector<std::byte>, std::less<>> assembled;
};

/// Reads and checks the manifest alone.
plan::Expected<Manifest> readManifest(const std::string &folder);

/// Writes RUN/checkpoints/step-N and makes it the run's last; one of the same step gives way in one step.
plan::Status writeCheckpoint(const std::string &run, const RunRecord &record, const plan::Plan &plan, Device &device,
                             const TrainingPosition &position);

/// Makes the checkpoint of `step` what RUN@best means, and reads it back. Error: missing or damaged.
plan::Status markBest(const std::string &run, uint64_t step, double loss);
struct BestCheckpoint {
  uint64_t step = 0;
  double loss = 0;
};
plan::Expected<BestCheckpoint> readBest(const std::string &run);

/// Removes a checkpoint; a reader sees all of it or nothing. Does nothing where there is none.
plan::Status removeCheckpoint(const std::string &run, uint64_t step);

/// Removes what processes that died left in the run's checkpoints. Only for the holder of the run's lock.
void removeUnfinished(const std::string &run);

/// The tensors that a checkpoint of the plan holds, and their roles: what training changes and a resumed run needs.
/// Gradient accumulators start anew with each window.
struct CheckpointedVariable {
  int variable; ///< index into Plan.variables
  TensorRole role;
};
std::vector<CheckpointedVariable> checkpointedVariables(const plan::Plan &plan);

/// Copies all state into the device's variables. Error: the checkpoint lacks a tensor of the plan, has one that the
/// plan lacks, or one has another type or role; all of them are listed, and nothing is copied.
plan::Status loadState(Checkpoint &checkpoint, const plan::Plan &plan, Device &device);

/// Copies the model's values (parameters, running statistics) into variables of the same names. Error: a parameter of
/// the plan is missing, another type. `unused` gets the values that the plan has no variable for.
plan::Status loadModelValues(Checkpoint &checkpoint, const plan::Plan &plan, Device &device, NameList &unused);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_CHECKPOINT_H

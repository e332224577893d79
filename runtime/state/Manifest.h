//===- Manifest.h - the manifest of a checkpoint --------------------------===//
//
// `manifest.json` names the logical tensors of a checkpoint, the shard files that hold slices of them, where training
// stood, and the settings that the run was made with. docs/guide/checkpoints.md describes every member. Readers ignore
// members that they do not know, unless "requires" lists them: so a later version adds what it needs without a new
// version number, and an earlier one never reads a checkpoint wrongly.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_STATE_MANIFEST_H
#define TCC_RUNTIME_STATE_MANIFEST_H

#include "runtime/plan/DType.h"
#include "support/Status.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tcc::runtime {

constexpr int kManifestVersion = 2;

/// The factor of the loss in mixed precision, and what decides the next one.
struct LossScaleState {
  double scale = 1;
  uint64_t growthTracker = 0; ///< updates applied since it last changed or an update was skipped
  uint64_t skipped = 0;       ///< steps so far that changed no weight, since a gradient was not finite
  uint64_t hopeless = 0;      ///< updates skipped in a row at a factor that can be made no smaller with effect
  std::map<std::string, uint64_t, std::less<>> skippedOf; ///< of several alternating optimizers: each one's skipped updates
};

/// What decides when a learning rate on a plateau is reduced next, and how often it was.
struct PlateauState {
  std::string metric;         ///< the key of metrics.jsonl that `best` is of
  std::optional<double> best; ///< none: no evaluation yet, or none whose metric was a number
  uint64_t waited = 0;        ///< evaluations without a better value, those in a cooldown left out
  uint64_t cooldown = 0;      ///< evaluations until waiting begins again
  uint64_t reductions = 0;
  uint64_t heard = 0;         ///< the update of the last evaluation that counts in the members above
};

/// The position of training between two updates.
struct TrainingPosition {
  uint64_t step = 0;  ///< updates done, those included that were skipped
  uint64_t epoch = 0; ///< the epoch that the next batch belongs to, from 0
  uint64_t batch = 0; ///< micro-batches of that epoch that are done
  uint64_t seed = 0;
  bool shuffle = true;
  double scheduleTotal = 0;          ///< the schedule's total_steps, fixed when the run started (in its own unit)
  std::vector<std::string> settings; ///< --set KEY=VALUE of the run
  uint64_t bestStep = 0;             ///< 0: no evaluation yet
  double bestValue = 0;
  std::string bestMetric = "eval_loss"; ///< the key of metrics.jsonl that bestValue is of
  std::vector<uint64_t> damagedSamples; ///< of the training data, left out by data.max_bad
  std::optional<LossScaleState> lossScale; ///< of a run that scales its loss, or did
  std::optional<PlateauState> plateau;     ///< of a run with schedule.kind = "plateau"
};

/// The training data, as far as the order of samples depends on it, and a sample of its content.
struct DataRecord {
  uint64_t samples = 0, epochSamples = 0;
  uint64_t batch = 0;                         ///< samples of a micro-batch, on all ranks together
  uint64_t epochBatches = 0;                  ///< micro-batches of an epoch
  std::map<std::string, std::string> columns; ///< input → type of its column, "f32[32x10]"
  uint64_t fingerprint = 0;                   ///< of a few samples
  uint64_t ranks = 1;                         ///< that share a micro-batch
};

/// The part that all checkpoints of a run share.
struct RunRecord {
  std::string producer;                        ///< "trun 0.1.0"
  std::string model;                           ///< file name without folder
  std::optional<uint64_t> plan;                ///< PlanReader::checksum of the plan
  std::string target;                          ///< of the plan, that computed the state; empty: not recorded
  std::map<std::string, uint64_t> files;       ///< XXH3-64 of files of the run folder: vocabulary.json, classes.json
  std::map<std::string, std::string> training; ///< setting → value as compact JSON: "optimizer.lr" → "0.001"
  std::map<std::string, uint64_t> frozen;      ///< initializer that training does not change → identity of its value
  std::optional<DataRecord> data;
};

/// Which part a tensor has in training. Parameter, Buffer and Ema hold values of the model.
enum class TensorRole {
  Parameter,
  Buffer, ///< written by training without a gradient: running statistics
  Optimizer,
  Ema,       ///< the average of a parameter
  LossScale, ///< of mixed precision
  Counter    ///< an integer that training counts up
};
std::string_view roleName(TensorRole role);

/// A box of a tensor: elements [start, start + shape) of each axis, stored in a shard under `key`; with one number
/// each, where the tensor has another number of axes, a range of its elements in row-major order.
struct TensorSlice {
  size_t shard = 0;
  std::string key;
  std::vector<uint64_t> start, shape;
};

struct ManifestTensor {
  std::string name;
  plan::TensorType type;
  std::optional<TensorRole> role; ///< absent in version 1
  std::vector<TensorSlice> slices;
};

struct ManifestShard {
  std::string file; ///< a safetensors file of the checkpoint's folder
  uint64_t bytes = 0;
  uint64_t hash = 0; ///< XXH3-64 of the file
};

struct Manifest {
  int version = kManifestVersion;
  RunRecord run;
  TrainingPosition position;
  std::vector<ManifestShard> shards;
  std::vector<ManifestTensor> tensors; ///< version 1: empty, the shard's own header says
};

/// Parses and checks a manifest: seal, version, every member's type and range, unique names, shard files inside the
/// folder, slices that cover each tensor exactly once. `name` starts every message. Never allocates more than a small
/// multiple of the text. Version 1, which has no seal, is read as far as it goes.
Expected<Manifest> parseManifest(std::string_view text, const std::string &name);

/// The same for a text whose seal was checked, or does not matter: fuzzers cannot guess checksums.
Expected<Manifest> parseManifestBody(std::string_view text, const std::string &name);

/// The text of a manifest, which parseManifest gives back.
std::string manifestText(const Manifest &manifest);

/// Do the slices cover every element of a tensor of that shape exactly once? Error: says how not.
Status checkCoverage(const std::vector<uint64_t> &shape, const std::vector<TensorSlice> &slices);

/// True if the run had this initializer frozen at the value of that identity, which its checkpoints do not hold then.
bool wasFrozenAs(const Manifest &manifest, const std::string &name, uint64_t identity);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_MANIFEST_H

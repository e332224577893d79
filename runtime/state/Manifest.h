//===- Manifest.h - the manifest of a checkpoint --------------------------===//
//
// `manifest.json` names the logical tensors of a checkpoint, the shard files that hold slices of them, the position of
// training, and the settings of the run. docs/guide/checkpoints.md describes every member. Readers ignore members that
// they do not know, unless "requires" lists them. So a later version can add members without a new version number, and
// an earlier one never misreads a checkpoint.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_STATE_MANIFEST_H
#define TCC_RUNTIME_STATE_MANIFEST_H

#include "runtime/plan/DType.h"
#include "support/Status.h"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tcc::runtime {

constexpr int kManifestVersion = 2;

/// The factor of the loss in mixed precision, and the state that determines the next one.
struct LossScaleState {
  double scale = 1;
  uint64_t growthTracker = 0; ///< updates applied since it last changed or an update was skipped
  uint64_t skipped = 0;       ///< steps so far that changed no weight because a gradient was not finite
  uint64_t hopeless = 0;      ///< updates skipped in a row although a smaller factor could not have helped
  /// Of several alternating optimizers: each one's skipped updates.
  std::map<std::string, uint64_t, std::less<>> skippedOf;
};

/// The state that determines when a learning rate on a plateau is reduced next, and how often it was.
struct PlateauState {
  std::string metric;         ///< the key in metrics.jsonl of `best`
  std::optional<double> best; ///< none: no evaluation yet, or none whose metric was a number
  uint64_t waited = 0;        ///< evaluations without a better value, not counting those in a cooldown
  uint64_t cooldown = 0;      ///< evaluations until counting begins again
  uint64_t reductions = 0;
  uint64_t heard = 0;         ///< the update of the last evaluation that is included in the members above
};

/// The position of training between two updates.
struct TrainingPosition {
  uint64_t step = 0;  ///< updates done, including skipped ones
  uint64_t epoch = 0; ///< the epoch that the next batch belongs to, from 0
  uint64_t batch = 0; ///< micro-batches of that epoch that are done
  uint64_t seed = 0;
  bool shuffle = true;
  double scheduleTotal = 0;          ///< the schedule's total_steps, fixed when the run started (in its own unit)
  std::vector<std::string> settings; ///< --set KEY=VALUE of the run
  uint64_t bestStep = 0;             ///< 0: no evaluation yet
  double bestValue = 0;
  std::string bestMetric = "eval_loss"; ///< the key in metrics.jsonl of bestValue
  std::vector<uint64_t> damagedSamples; ///< of the training data, left out by data.max_bad
  std::optional<LossScaleState> lossScale; ///< of a run that scales its loss, or did
  std::optional<PlateauState> plateau;     ///< of a run with schedule.kind = "plateau"
};

/// The properties of the training data on which the order of samples depends, and a fingerprint of its content.
struct DataRecord {
  uint64_t samples = 0, epochSamples = 0;
  uint64_t batch = 0;                         ///< samples of a micro-batch, on all ranks together
  uint64_t epochBatches = 0;                  ///< micro-batches of an epoch
  std::map<std::string, std::string> columns; ///< input → type of its column, "f32[32x10]"
  uint64_t fingerprint = 0;                   ///< of a few samples
  uint64_t ranks = 1;                         ///< number of ranks that share a micro-batch
  std::string shapes;                         ///< of a plan of several: "ids i64[8x16], …; ids i64[4x32], …"
};

/// The part that all checkpoints of a run share.
struct RunRecord {
  std::string producer;                        ///< "trun 0.1.0"
  std::string model;                           ///< file name without folder
  std::optional<uint64_t> plan;                ///< PlanReader::checksum of the plan
  std::string target;                          ///< the plan's target that computed the state; empty: not recorded
  std::map<std::string, uint64_t> files;       ///< XXH3-64 of files of the run folder: vocabulary.json, classes.json
  std::map<std::string, std::string> training; ///< setting → value as compact JSON: "optimizer.lr" → "0.001"
  std::map<std::string, uint64_t> frozen;      ///< initializers that training does not change → identity of the value
  std::optional<DataRecord> data;
};

/// The role of a tensor in training. Parameter, Buffer and Ema hold values of the model.
enum class TensorRole {
  Parameter,
  Buffer, ///< written by training without a gradient: running statistics
  Optimizer,
  Ema,       ///< the average of a parameter
  LossScale, ///< of mixed precision
  Counter    ///< an integer that training counts up
};
std::string_view roleName(TensorRole role);

/// A box of a tensor, elements [start, start + shape) of each axis, stored in a shard under `key`. If start and shape
/// have one number but the tensor does not have one axis, it is a range of its elements in row-major order.
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
  std::vector<ManifestTensor> tensors; ///< version 1: empty, the shard's own header lists them
};

/// Parses and checks a manifest: seal, version, every member's type and range, unique names, shard files inside the
/// folder, slices that cover each tensor exactly once. `name` starts every message. Never allocates more than a small
/// multiple of the text. Version 1, which has no seal, is read as far as it goes.
Expected<Manifest> parseManifest(std::string_view text, const std::string &name);

/// The same for a text whose seal was checked, or is ignored: fuzzers cannot guess checksums.
Expected<Manifest> parseManifestBody(std::string_view text, const std::string &name);

/// The text of a manifest, the inverse of parseManifest.
std::string manifestText(const Manifest &manifest);

/// Checks that the slices cover every element of a tensor of that shape exactly once. Error: why they do not.
Status checkCoverage(const std::vector<uint64_t> &shape, const std::vector<TensorSlice> &slices);

/// True if the run had this initializer frozen at the value of that identity; then its checkpoints do not hold it.
bool wasFrozenAs(const Manifest &manifest, const std::string &name, uint64_t identity);

/// True if a slice is a range of the elements of a tensor of `shape` in row-major order, instead of a box of its axes.
bool isFlat(const TensorSlice &slice, const std::vector<uint64_t> &shape);

/// Copies a slice's elements, dense and row-major in `from`, to their positions in a tensor of `shape`.
void copySlice(const TensorSlice &slice, std::span<const std::byte> from, const std::vector<uint64_t> &shape,
               uint64_t elementBytes, std::byte *to);

/// The type of a slice of a tensor.
plan::TensorType sliceType(const plan::TensorType &whole, const TensorSlice &slice);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_MANIFEST_H

//===- HostMemory.h - memory that a training run takes on the host -------===//
//
// Computed from the plan, so that the report of a plan and the run state the same number of bytes.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_STATE_HOSTMEMORY_H
#define TCC_RUNTIME_STATE_HOSTMEMORY_H

#include "runtime/plan/plan.pb.h"

#include <optional>
#include <string>
#include <vector>

namespace tcc::runtime {

/// A parameter that train.ema averages.
struct AveragedParameter {
  uint32_t parameter;             ///< index into Plan.variables
  std::optional<uint32_t> device; ///< the variable of its average; none: the average is on the host
  plan::TensorType type;          ///< of the average: f32, or f64 for a parameter of f64
  std::string name;               ///< of the average: "<parameter>/ema"
  std::optional<plan::TensorType> whole = {}; ///< type of all ranks' shards together, if each rank averages its shard
};

/// The averaged parameters under these settings; empty without train.ema. `training` may differ from the plan's own by
/// --set.
std::vector<AveragedParameter> averagedParameters(const plan::Plan &plan, const plan::Training &training);

/// Bytes on the host that a run allocates because of the plan's settings.
struct HostMemory {
  uint64_t averages = 0; ///< of train.ema, unless the device keeps them
  uint64_t staging = 0;  ///< of checkpoint.staging_bytes, at most the size of the state
  uint64_t loader = 0;   ///< batches that the loader reads ahead, if the settings show that there is a loader
  uint64_t kept = 0;     ///< what the plan keeps on the host for its card
  uint64_t total() const { return averages + staging + loader + kept; }
};
/// `training` and `data` may differ from the plan's own by --set. Training data that must be decoded has a loader even
/// without a setting, which the plan does not show.
HostMemory hostMemoryOf(const plan::Plan &plan, const plan::Training &training, const plan::DataSettings &data);

/// Batches in the loader: one is being taken, the next finished, and the one after that begun.
constexpr uint64_t kLoaderBatches = 3;

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_HOSTMEMORY_H

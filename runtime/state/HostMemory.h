//===- HostMemory.h - memory that a training run takes on the host -------===//
//
// It follows from the plan, so that the report of a plan and the run say the same bytes.
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
  std::optional<uint32_t> device; ///< the variable of its average; none: the host keeps it
  plan::TensorType type;          ///< of the average: f32, or f64 for a parameter of f64
  std::string name;               ///< of the average: "<parameter>/ema"
  std::optional<plan::TensorType> whole = {}; ///< of all ranks' shards, where a rank averages one
};

/// The averaged parameters under these settings; empty without train.ema. `training` may differ from the plan's own by
/// --set.
std::vector<AveragedParameter> averagedParameters(const plan::Plan &plan, const plan::Training &training);

/// Bytes that a run of the plan allocates on the host beside what any plan takes.
struct HostMemory {
  uint64_t averages = 0; ///< of train.ema, unless the device keeps them
  uint64_t staging = 0;  ///< of checkpoint.staging_bytes, as far as the state takes it
  uint64_t loader = 0;   ///< batches that the loader reads ahead, where the settings alone say that there is one
  uint64_t total() const { return averages + staging + loader; }
};
/// `training` and `data` may differ from the plan's own by --set. Training data that must be decoded have a loader
/// without a setting: the plan does not show that.
HostMemory hostMemoryOf(const plan::Plan &plan, const plan::Training &training, const plan::DataSettings &data);

/// Batches that the loader holds: one is taken while the next is finished and the one after begun.
constexpr uint64_t kLoaderBatches = 3;

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_HOSTMEMORY_H

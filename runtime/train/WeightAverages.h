//===- WeightAverages.h - moving averages of the trained parameters ------===//
//
// train.ema: e ← d·e + (1 − d)·w after an update, in f32 (f64 for parameters of f64), one rounding for each of the two
// products and for the sum. The averages are kept on the host, in one block that is allocated with the run, or on the
// device: then the plan's update computes them (passes/training/BuildUpdate.cpp), and this class only starts them and
// hands them out.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_WEIGHTAVERAGES_H
#define TCC_RUNTIME_TRAIN_WEIGHTAVERAGES_H

#include "runtime/state/Checkpoint.h"
#include "runtime/state/HostMemory.h"
#include "runtime/train/AverageRule.h"

namespace tcc::runtime {

class WeightAverages {
public:
  /// `training` has the settings of train.ema. The host's memory is allocated here.
  WeightAverages(const plan::Plan &plan, const plan::Training &training, Device &device);

  /// The averages become the present weights. Error, here and below: the device's.
  Status start();
  /// Takes them from a checkpoint. False: it holds none. Error: some are missing, or of another type.
  /// `rank` takes its shards.
  Expected<bool> load(Checkpoint &checkpoint, uint32_t rank = 0);

  /// After the update of that number, from 1, was applied. Allocates nothing.
  Status update(uint64_t update);

  /// Exchanges averages and weights, so that an entry computes with the averages; a second call changes them back. The
  /// running statistics stay as they are.
  Status exchange();

  /// The part of a checkpoint that no variable of the plan holds.
  const std::vector<HostState> &hostState() const { return state; }

private:
  struct Average : AveragedParameter {
    std::span<std::byte> host;    ///< in `memory`; empty where the device keeps it
    std::vector<std::byte> aside; ///< of a 16-bit parameter: the weights, while they are exchanged
    Place weight() const { return Place::variable(parameter); }
    bool sameType = true; ///< as the parameter
  };
  Status write(const Average &average, uint64_t offset, std::span<const std::byte> bytes);
  Status read(const Average &average, uint64_t offset, std::span<std::byte> bytes);
  Status exchangeWide(Average &average);
  Status exchangeNarrow(Average &average);
  /// Calls `then` with pieces of the parameter, in the average's type, and their offset there.
  Status forWeights(const Average &average, const std::function<Status(uint64_t, std::span<const std::byte>)> &then);

  const plan::Plan &plan;
  Device &device;
  AverageRule rule;
  std::vector<std::byte> memory;
  std::vector<Average> averages;
  std::vector<HostState> state;
  std::vector<std::byte> piece, other; ///< of kPieceBytes
  bool exchanged = false;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_WEIGHTAVERAGES_H

//===- WeightAverages.h - moving averages of the trained parameters ------===//
//
// train.ema: e ← d·e + (1 − d)·w after an update, in f32 (f64 for f64 parameters), with one rounding for each of the
// two products and for the sum. The averages are on the host, in one block that is allocated with the run, or on the
// device. There the plan's update computes them (passes/training/BuildUpdate.cpp), and this class only initialises them
// and gives access to them.
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

  /// Sets the averages to the current weights. Error, here and below: the device's.
  Status start();
  /// Reads the averages from a checkpoint; of sharded ones, the part of `rank`. False: it has none. Error: some are
  /// missing, or have another type.
  Expected<bool> load(Checkpoint &checkpoint, uint32_t rank = 0);

  /// Updates the averages after update `update`, counted from 1, was applied. Allocates nothing.
  Status update(uint64_t update);

  /// Swaps averages and weights, so that an entry computes with the averages; a second call swaps them back. The
  /// running statistics are not affected.
  Status exchange();

  /// The averages on the host, which a checkpoint stores besides the plan's variables.
  const std::vector<HostState> &hostState() const { return state; }

private:
  struct Average : AveragedParameter {
    std::span<std::byte> host;    ///< in `memory`; empty if the device keeps it
    std::vector<std::byte> aside; ///< of a 16-bit parameter: the weights, while they are swapped
    Place weight() const { return Place::variable(parameter); }
    bool sameType = true; ///< as the parameter
  };
  Status write(const Average &average, uint64_t offset, std::span<const std::byte> bytes);
  Status read(const Average &average, uint64_t offset, std::span<std::byte> bytes);
  Status exchangeWide(Average &average);
  Status exchangeNarrow(Average &average);
  /// Calls `then` with pieces of the parameter, converted to the average's type, and their offset in the average.
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

//===- WindowState.h - state that micro-batches change before the update --===//
//
// With accumulation, the forward passes of a window advance running statistics before the update runs. If a window ends
// early, by bad data or a loss that is not finite, these partial changes must not get into a checkpoint.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_TRAIN_WINDOWSTATE_H
#define TCC_RUNTIME_TRAIN_WINDOWSTATE_H

#include "runtime/Device.h"

#include <vector>

namespace tcc::runtime {

class WindowState {
public:
  WindowState(const plan::Plan &plan, Device &device);

  /// Saves the values at the start of a window. Allocates nothing. Error, here and below: the device's.
  Status save();
  /// Restores them.
  Status restore();

private:
  struct Kept {
    Place place;
    std::vector<std::byte> copy;
  };
  Device &device;
  std::vector<Kept> kept;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_WINDOWSTATE_H

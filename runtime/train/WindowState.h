//===- WindowState.h - state that micro-batches change before the update --===//
//
// With accumulation the forward passes of a window advance running statistics before the update happens. A window that
// ends early, by bad data or a loss that is not finite, must not leave half of that in a checkpoint.
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

  /// Keeps the values at the start of a window. Allocates nothing. Error, here and below: the device's.
  Status save();
  /// Puts them back.
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

//===- FiniteState.h - check that all state is finite ---------------------===//
#ifndef TCC_RUNTIME_TRAIN_FINITESTATE_H
#define TCC_RUNTIME_TRAIN_FINITESTATE_H

#include "runtime/state/Checkpoint.h"

#include <set>
#include <string>

namespace tcc::runtime {

/// Finds variables that training made infinite or NaN. A parameter that was not finite at the start (a mask of −∞) is
/// not checked.
class FiniteState {
public:
  FiniteState(const plan::Plan &plan, Device &device);

  /// Makes the stream of each checked variable fail (exit status 4) at a piece that is not finite. `step` is for the
  /// message.
  void guard(std::vector<CheckpointTensor> &tensors, uint64_t step) const;

private:
  Expected<bool> isFinite(int variable) const;
  const plan::Plan &plan;
  Device &device;
  std::set<std::string> checked; ///< trained variables that were finite at the start
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_FINITESTATE_H

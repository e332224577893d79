//===- FiniteState.h - is what a checkpoint would hold worth keeping? ----===//
#ifndef TCC_RUNTIME_TRAIN_FINITESTATE_H
#define TCC_RUNTIME_TRAIN_FINITESTATE_H

#include "runtime/Device.h"

#include <optional>
#include <string>
#include <vector>

namespace tcc::runtime {

/// Looks for variables that training made infinite or NaN. A parameter that was not finite at the start (a mask of −∞) may
/// stay so.
class FiniteState {
public:
  FiniteState(const plan::Plan &plan, Device &device);

  /// The name of the first such variable, or nothing. Reads all state once.
  std::optional<std::string> firstBad() const;

private:
  bool isFinite(int variable) const;
  const plan::Plan &plan;
  Device &device;
  std::vector<int> checked; ///< trained variables that were finite at the start
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_TRAIN_FINITESTATE_H

//===- ExitStatus.h - exit statuses of the commands --------------*- C++ -*-===//
#ifndef TCC_TOOLS_COMMON_EXITSTATUS_H
#define TCC_TOOLS_COMMON_EXITSTATUS_H

#include "support/Status.h"

#include <string_view>

namespace tcc::tools {

enum ExitStatus : int {
  kExitDone = 0,
  kExitFault = 1,
  kExitUsage = 2,
  kExitOverBudget = 3,
  kExitNonFinite = 4,
};

/// What each status means, in their order.
inline constexpr std::string_view kExitMeanings[] = {
    "done", "the input, the data or the machine is at fault", "wrong usage", "no plan fits the memory budget",
    "training ended with a loss or gradient that is not finite"};

/// The exit status of a command that ends with `status`.
inline int exitStatusOf(const Status &status) {
  switch (status.code()) {
  case StatusCode::Ok:
    return kExitDone;
  case StatusCode::Usage:
    return kExitUsage;
  case StatusCode::OverBudget:
    return kExitOverBudget;
  case StatusCode::NonFinite:
    return kExitNonFinite;
  case StatusCode::Fault:
    break;
  }
  return kExitFault;
}

/// The kind of error of a process that ended with `exitStatus`, which is not kExitDone.
inline StatusCode statusCodeOf(int exitStatus) {
  switch (exitStatus) {
  case kExitUsage:
    return StatusCode::Usage;
  case kExitOverBudget:
    return StatusCode::OverBudget;
  case kExitNonFinite:
    return StatusCode::NonFinite;
  default:
    return StatusCode::Fault;
  }
}

} // namespace tcc::tools

#endif // TCC_TOOLS_COMMON_EXITSTATUS_H

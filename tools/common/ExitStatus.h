//===- ExitStatus.h - exit statuses of the commands --------------*- C++ -*-===//
#ifndef TCC_TOOLS_COMMON_EXITSTATUS_H
#define TCC_TOOLS_COMMON_EXITSTATUS_H

#include "support/Status.h"

namespace tcc::tools {

enum ExitStatus : int {
  kExitDone = 0,
  kExitFault = 1,
  kExitUsage = 2,
  kExitOverBudget = 3,
  kExitNonFinite = 4,
};

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

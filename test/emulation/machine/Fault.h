//===- Fault.h - what the emulation finds, by name -----------------------===//
#ifndef TCC_TEST_EMULATION_MACHINE_FAULT_H
#define TCC_TEST_EMULATION_MACHINE_FAULT_H

#include <string>
#include <string_view>

namespace tcc::emulation {

/// Each kind of mistake has one name. Messages begin with it, and the tests of planted mistakes expect it.
enum class FaultKind {
  // mistakes of kernels
  OutOfBounds,
  UninitialisedRead,
  Misaligned,
  Race,
  StaleRead,
  WrongSpace,
  DivergentBarrier,
  DivergentShuffle,
  AbsentLane,
  Deadlock,
  DivisionByZero,
  Trap,
  LaunchLimits,
  // mistakes of the host
  UnorderedWork,
  HostTouchesDevice,
  PinnedOverwritten,
  UseAfterFree,
  NotAHandle,
  Misuse,
  Capture,
  Leak,
};

inline std::string_view faultName(FaultKind kind) {
  switch (kind) {
  case FaultKind::OutOfBounds:
    return "out-of-bounds";
  case FaultKind::UninitialisedRead:
    return "uninitialised-read";
  case FaultKind::Misaligned:
    return "misaligned";
  case FaultKind::Race:
    return "race";
  case FaultKind::StaleRead:
    return "stale-read";
  case FaultKind::WrongSpace:
    return "wrong-space";
  case FaultKind::DivergentBarrier:
    return "divergent-barrier";
  case FaultKind::DivergentShuffle:
    return "divergent-shuffle";
  case FaultKind::AbsentLane:
    return "absent-lane";
  case FaultKind::Deadlock:
    return "deadlock";
  case FaultKind::DivisionByZero:
    return "division-by-zero";
  case FaultKind::Trap:
    return "trap";
  case FaultKind::LaunchLimits:
    return "launch-limits";
  case FaultKind::UnorderedWork:
    return "unordered-work";
  case FaultKind::HostTouchesDevice:
    return "host-touches-device";
  case FaultKind::PinnedOverwritten:
    return "pinned-overwritten";
  case FaultKind::UseAfterFree:
    return "use-after-free";
  case FaultKind::NotAHandle:
    return "not-a-handle";
  case FaultKind::Misuse:
    return "misuse";
  case FaultKind::Capture:
    return "capture";
  case FaultKind::Leak:
    return "leak";
  }
  return "";
}

struct Fault {
  FaultKind kind;
  std::string text;

  /// "race: kernel 'sum', PTX line 12, ...".
  std::string message() const { return std::string(faultName(kind)) + ": " + text; }
};

} // namespace tcc::emulation

#endif // TCC_TEST_EMULATION_MACHINE_FAULT_H

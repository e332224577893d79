//===- RunLock.h - one process writes a run ------------------------------===//
//
// RUN/lock is held with flock(2) while the training process lives: the system releases it however the process ends, so
// a crash leaves no lock behind. The file names the holder for messages, and remains when the run ends.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_STATE_RUNLOCK_H
#define TCC_RUNTIME_STATE_RUNLOCK_H

#include "support/Status.h"

#include <string>

namespace tcc::runtime {

class RunLock {
public:
  /// Takes the lock of a run folder, which must exist. Error: another process holds it (named with host and process
  /// number), or the lock file cannot be made. On a file system without locks it succeeds, and `held` is false.
  static Expected<RunLock> acquire(const std::string &run);

  RunLock(RunLock &&other) noexcept;
  RunLock &operator=(RunLock &&other) noexcept;
  ~RunLock();

  bool held() const { return locked; }

  /// True if a process is training in the run. False if the file system has no locks.
  static bool isHeld(const std::string &run);

private:
  RunLock() = default;
  int descriptor = -1;
  bool locked = false;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_STATE_RUNLOCK_H

//===- DriverLibrary.h - CUDA's driver, opened at run time --------------===//
#ifndef TCC_RUNTIME_CUDA_DRIVERLIBRARY_H
#define TCC_RUNTIME_CUDA_DRIVERLIBRARY_H

#include "runtime/cuda/api/Driver.h"
#include "support/Status.h"

#include <string>

namespace tcc::cuda {

/// libcuda.so.1 with every entry point that we call, initialised. The program does not link it, so it also runs without
/// a driver.
class DriverLibrary {
public:
  /// Error: no library, a missing entry point, a driver that refuses to start. The library stays open as long as the
  /// process: drivers do not unload.
  static Expected<DriverLibrary> open();

  const api::Driver *operator->() const { return &entryPoints; }

  /// 12080: CUDA 12.8.
  int version() const { return driverVersion; }

  /// An error with the failed call and the driver's name and text for the result; success for success.
  Status check(api::CUresult result, const char *what) const;

  /// An event without a time, for wait().
  Status makeEvent(api::CUevent &event) const;
  /// Returns when the card has passed the event, which makeEvent() made: polls for the time of a short step, then
  /// sleeps, so that a waiting rank keeps no processor busy.
  Status wait(api::CUevent event, const char *what) const;

  /// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
  std::string textOf(api::CUresult result) const;

private:
  api::Driver entryPoints;
  int driverVersion = 0;
};

/// "12.8" of 12080.
std::string versionText(int version);

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_DRIVERLIBRARY_H

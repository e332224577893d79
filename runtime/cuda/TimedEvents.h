//===- TimedEvents.h - time stamps by the card's clock ----------*- C++ -*-===//
#ifndef TCC_RUNTIME_CUDA_TIMEDEVENTS_H
#define TCC_RUNTIME_CUDA_TIMEDEVENTS_H

#include "runtime/cuda/DriverLibrary.h"

#include <vector>

namespace tcc::cuda {

/// Points of a stream, in order. The card records its time when it reaches a point, with a resolution of about half a
/// microsecond (CUDA Driver API, event management).
class TimedEvents {
public:
  explicit TimedEvents(const DriverLibrary &driver) : driver(driver) {}
  TimedEvents(const TimedEvents &) = delete;
  TimedEvents &operator=(const TimedEvents &) = delete;
  ~TimedEvents();

  Status record(api::CUstream stream);

  /// The time between two recorded points that the card has passed.
  Expected<double> secondsBetween(size_t first, size_t second) const;

private:
  const DriverLibrary &driver;
  std::vector<api::CUevent> events;
};

} // namespace tcc::cuda

#endif // TCC_RUNTIME_CUDA_TIMEDEVENTS_H

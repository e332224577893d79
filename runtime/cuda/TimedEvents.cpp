//===- TimedEvents.cpp - time stamps by the card's clock -----------------===//
#include "runtime/cuda/TimedEvents.h"

namespace tcc::cuda {

TimedEvents::~TimedEvents() {
  for (api::CUevent event : events)
    (void)driver->eventDestroy(event);
}

Status TimedEvents::record(api::CUstream stream) {
  api::CUevent event = nullptr;
  if (Status status = driver.check(driver->eventCreate(&event, api::CU_EVENT_DEFAULT), "making an event"); !status.ok())
    return status;
  events.push_back(event);
  return driver.check(driver->eventRecord(event, stream), "recording an event");
}

Expected<double> TimedEvents::secondsBetween(size_t first, size_t second) const {
  float milliseconds = 0;
  Status status =
      driver.check(driver->eventElapsedTime(&milliseconds, events[first], events[second]), "reading the card's clock");
  return status.ok() ? Expected<double>(milliseconds * 1e-3) : status;
}

} // namespace tcc::cuda

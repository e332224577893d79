//===- StateCopyStream.cpp - copies of the state beside training ---------===//
#include "runtime/cuda/StateCopyStream.h"

#include <algorithm>
#include <cstring>

namespace tcc::cuda {

Expected<std::unique_ptr<StateCopyStream>> StateCopyStream::open(const DriverLibrary &driver, size_t variables) {
  std::unique_ptr<StateCopyStream> made(new StateCopyStream(driver));
  made->copyOf.assign(variables, -1);
  Status status = driver.check(driver->streamCreate(&made->own, api::CU_STREAM_NON_BLOCKING), "making a stream");
  if (status.ok())
    status = made->addEvent();
  return status.ok() ? Expected<std::unique_ptr<StateCopyStream>>(std::move(made)) : status;
}

StateCopyStream::~StateCopyStream() {
  if (own)
    (void)finish();
  for (api::CUevent event : events)
    (void)driver->eventDestroy(event);
  if (own)
    (void)driver->streamDestroy(own);
}

Status StateCopyStream::addEvent() {
  api::CUevent event = nullptr;
  Status status = driver.makeEvent(event);
  if (status.ok())
    events.push_back(event);
  return status;
}

Status StateCopyStream::begin(api::CUstream stream, std::span<const Item> items) {
  // Copies whose end nobody awaited, since writing an earlier checkpoint failed, still write to its memory.
  if (Status status = finish(); !status.ok())
    return status;
  std::fill(copyOf.begin(), copyOf.end(), -1);
  submitted = ordered = 0;
  hostCopies.clear();
  hostCopies.reserve(items.size()); // the stream reads them later
  while (events.size() < items.size() + 1)
    if (Status status = addEvent(); !status.ok())
      return status;
  Status status = driver.check(driver->eventRecord(events[0], stream), "recording an event");
  if (status.ok())
    status = driver.check(driver->streamWaitEvent(own, events[0], 0), "ordering two streams");
  for (size_t i = 0; i < items.size() && status.ok(); ++i) {
    const Item &item = items[i];
    if (!item.to.empty() && item.isOnHost) {
      hostCopies.push_back({reinterpret_cast<const std::byte *>(item.from), item.to});
      auto copy = [](void *data) {
        const auto &one = *static_cast<const HostCopy *>(data);
        std::memcpy(one.to.data(), one.from, one.to.size());
      };
      status = driver.check(driver->launchHostFunc(own, copy, &hostCopies.back()), "copying on the host");
    } else if (!item.to.empty())
      status = driver.check(driver->memcpyDtoHAsync(item.to.data(), item.from, item.to.size(), own),
                            "copying from the card");
    if (status.ok())
      status = driver.check(driver->eventRecord(events[i + 1], own), "recording an event");
    if (status.ok())
      copyOf[item.variable] = submitted++;
  }
  if (!status.ok()) // the caller's memory goes
    (void)finish();
  return status;
}

Status StateCopyStream::finish() const {
  return driver.check(driver->streamSynchronize(own), "waiting for copies of the state");
}

Status StateCopyStream::orderBefore(api::CUstream stream, std::span<const uint32_t> variables) {
  if (ordered == submitted)
    return Status();
  int64_t last = -1;
  for (uint32_t variable : variables)
    last = std::max(last, copyOf[variable]);
  if (last < ordered)
    return Status();
  // Copies complete in order, so waiting for one includes those before it.
  ordered = last + 1;
  return driver.check(driver->streamWaitEvent(stream, events[static_cast<size_t>(ordered)], 0),
                      "waiting for a copy of the state");
}

Status StateCopyStream::wait(size_t index) const {
  if (static_cast<int64_t>(index) >= submitted)
    return error("internal error: the state has {} copies, number {} is asked for", submitted, index);
  return driver.wait(events[index + 1], "waiting for a copy of the state");
}

} // namespace tcc::cuda

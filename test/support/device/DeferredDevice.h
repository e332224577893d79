//===- DeferredDevice.h - a device that is late, with memory of its own --===//
//
// Behaves like an accelerator, on the CPU: submitted work stays in a queue until the host waits for it, and the host
// accesses its memory only by copies. A caller that reads too early, or reuses memory that a copy still reads, gets
// wrong numbers. Staging is overwritten with garbage when its copy is done.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_TEST_SUPPORT_DEVICE_DEFERREDDEVICE_H
#define TCC_TEST_SUPPORT_DEVICE_DEFERREDDEVICE_H

#include "runtime/cpu/CpuDevice.h"

#include <algorithm>
#include <map>
#include <vector>

namespace tcc::test {

class DeferredDevice final : public runtime::Device {
public:
  static Expected<std::unique_ptr<runtime::Device>> create(const plan::PlanReader &reader,
                                                           const runtime::DeviceOptions &options) {
    auto inner = runtime::createCpuDevice(reader, options);
    if (!inner)
      return inner.status();
    return std::unique_ptr<runtime::Device>(new DeferredDevice(reader.sharedPlan(), inner.take()));
  }

  const runtime::DeviceCapabilities &capabilities() const override { return abilities; }
  uint64_t residentBytes() const override { return inner->residentBytes(); }
  uint64_t transientBytes() const override { return inner->transientBytes(); }

protected:
  Status readBytes(runtime::Place place, uint64_t offset, std::span<std::byte> to) override {
    Status status = finish(submitted);
    return status.ok() ? inner->read(place, offset, to) : status;
  }

  Status writeBytes(runtime::Place place, uint64_t offset, std::span<const std::byte> from) override {
    submit([this, place, offset, copy = std::vector(from.begin(), from.end())] {
      return inner->write(place, offset, copy);
    });
    return Status();
  }

  Expected<std::span<std::byte>> stageBytes(runtime::Place place, uint64_t bytes) override {
    Pinned &pinned = staging[{place.entry.value_or(UINT32_MAX), place.index}];
    if (Status status = finish(pinned.lastCopy); !status.ok())
      return status;
    pinned.bytes.resize(bytes);
    return std::span(pinned.bytes);
  }

  Status commitBytes(const runtime::Staging &given) override {
    Pinned &pinned = staging[{given.place.entry.value_or(UINT32_MAX), given.place.index}];
    submit([this, &pinned, place = given.place] {
      Status status = inner->write(place, 0, pinned.bytes);
      std::fill(pinned.bytes.begin(), pinned.bytes.end(), std::byte(0xee));
      return status;
    });
    pinned.lastCopy = submitted;
    return Status();
  }

  Status fillBytes(runtime::Place place, uint64_t, std::byte value) override {
    submit([this, place, value] { return inner->fill(place, value); });
    return Status();
  }

  Status copyBytes(runtime::Place from, runtime::Place to, uint64_t) override {
    submit([this, from, to] { return inner->copy(from, to); });
    return Status();
  }

  void recordEvent(uint64_t number) override { events[number] = submitted; }
  Status waitForEvent(uint64_t number) override { return finish(events[number]); }

  Status runEntry(uint32_t entry) override {
    submit([this, entry] { return inner->run(entry); });
    return Status();
  }

  Status observeEntry(uint32_t entry, const runtime::InstructionObserver &after) override {
    Status status = finish(submitted);
    return status.ok() ? inner->runObserved(entry, after) : status;
  }

private:
  DeferredDevice(std::shared_ptr<const plan::Plan> plan, std::unique_ptr<runtime::Device> cpu)
      : Device(std::move(plan)), inner(std::move(cpu)) {
    abilities.name = "deferred";
    abilities.memory = runtime::DeviceMemory::Separate;
    abilities.asynchronous = true;
    abilities.threads = inner->capabilities().threads;
  }

  void submit(std::function<Status()> work) {
    queue.push_back(std::move(work));
    ++submitted;
  }

  /// Does all work up to number `last`.
  Status finish(uint64_t last) {
    for (; done < last; ++done) {
      Status status = queue.front()();
      queue.erase(queue.begin());
      if (!status.ok()) {
        ++done;
        return status;
      }
    }
    return Status();
  }

  struct Pinned {
    std::vector<std::byte> bytes;
    uint64_t lastCopy = 0;
  };
  runtime::DeviceCapabilities abilities;
  std::unique_ptr<runtime::Device> inner;
  std::vector<std::function<Status()>> queue;
  uint64_t submitted = 0, done = 0;
  std::map<std::pair<uint32_t, uint32_t>, Pinned> staging;
  std::map<uint64_t, uint64_t> events;
};

/// The device "deferred". No part of the runtime knows it: a program adds it to the devices that it passes on.
inline runtime::DeviceKind deferredDevice() { return {.name = "deferred", .create = DeferredDevice::create}; }

} // namespace tcc::test

#endif // TCC_TEST_SUPPORT_DEVICE_DEFERREDDEVICE_H

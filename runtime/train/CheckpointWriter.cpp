//===- CheckpointWriter.cpp - write a checkpoint while training goes on --===//
#include "runtime/train/CheckpointWriter.h"
#include "runtime/plan/StateWrites.h"
#include "runtime/train/Metrics.h"
#include "support/Processors.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;

/// The system's page size, which is also the largest alignment that file systems require of direct I/O.
static constexpr uint64_t kPageBytes = 4096;

/// Priority of the thread while it writes: it gets a quarter of a core when training keeps all of them busy. Not lower,
/// because the end of a run and the next checkpoint wait for it, and it cannot be raised again.
static constexpr int kNice = 5;

/// Share of the machine's processor time that the thread takes while no other waits for it. Training loses about twice
/// that: its threads wait for each other, so one that loses its core delays all.
static constexpr double kShare = 0.01;

/// Bytes of one write.
static constexpr size_t kPieceBytes = size_t(8) << 20;

CheckpointWriter::CheckpointWriter(uint64_t stagingBytes, Device &device)
    : device(device), capacity(stagingBytes), pace(kShare * usableProcessors()) {
  if (stagingBytes == 0)
    return;
  rankOf.resize(static_cast<size_t>(device.plan().variables_size()));
  const std::vector<uint32_t> order = plan::inOrderOfChange(device.plan());
  for (size_t i = 0; i < order.size(); ++i)
    rankOf[order[i]] = i;
  if (copiesState()) {
    Expected<std::shared_ptr<std::byte>> pinned = device.hostMemory(stagingBytes + kPageBytes);
    if (!pinned)
      throw std::bad_alloc();
    memory = pinned.take();
    return;
  }
  // Use huge pages if at least one fits: direct I/O pins every page, so few large ones cost less.
  constexpr uint64_t kHugePageBytes = uint64_t(2) << 20;
  const uint64_t bytes = (stagingBytes + 2 * kPageBytes - 1) / kPageBytes * kPageBytes;
  const uint64_t alignment = bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes;
  memory.reset(static_cast<std::byte *>(std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)),
               std::free);
  if (!memory)
    throw std::bad_alloc();
  if (alignment == kHugePageBytes)
    (void)::madvise(memory.get(), bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
  std::memset(memory.get(), 0, bytes); // populate the pages now
}

CheckpointWriter::~CheckpointWriter() {
  pace.hurry();
  if (thread.joinable())
    thread.join();
  device.setGuard(nullptr);
}

size_t CheckpointWriter::stage(std::vector<CheckpointTensor> &tensors) {
  size_t first = tensors.size();
  uint64_t bytes = 0;
  for (; first != 0; --first) {
    uint64_t more = plan::tensorBytes(tensors[first - 1].type).value_or(0);
    if (more > capacity - bytes)
      break;
    bytes += more;
  }
  // A copy has the same offset within its page as in the file, so direct I/O can write it without another copy.
  std::vector<StreamedValue> header;
  for (const CheckpointTensor &tensor : tensors)
    header.push_back({tensor.name, tensor.type, {}});
  uint64_t at = safetensorsDataOffset(header);
  for (size_t i = 0; i < first; ++i)
    at += plan::tensorBytes(tensors[i].type).value_or(0);
  at %= kPageBytes;
  std::vector<StateCopies::Item> items;
  deviceCopies.clear();
  for (size_t i = first; i < tensors.size(); ++i) {
    CheckpointTensor &tensor = tensors[i];
    std::span<std::byte> copy(memory.get() + at, plan::tensorBytes(tensor.type).value_or(0));
    at += copy.size();
    if (copiesState() && tensor.variable)
      deviceCopies.push_back({*tensor.variable, copy});
    else
      items.push_back({tensor.variable, std::move(tensor.stream), copy});
    tensor.stream = [this, copy](const ByteSink &sink) {
      Status status;
      for (auto left = copy; !left.empty() && status.ok(); pace.rest()) {
        // Pieces end at page boundaries, in memory and in the file.
        const size_t inPage = reinterpret_cast<uintptr_t>(left.data()) % kPageBytes;
        const size_t bytes = std::min(left.size(), kPieceBytes - inPage);
        status = sink(left.first(bytes));
        left = left.subspan(bytes);
      }
      return status;
    };
  }
  auto rank = [&](const StateCopies::Item &item) { return item.variable ? rankOf[*item.variable] : rankOf.size(); };
  std::stable_sort(items.begin(), items.end(), [&](const auto &a, const auto &b) { return rank(a) < rank(b); });
  copies = std::make_unique<StateCopies>(std::move(items), rankOf.size(), ownTrack);
  std::stable_sort(deviceCopies.begin(), deviceCopies.end(),
                   [&](const StateCopy &a, const StateCopy &b) { return rankOf[a.variable] < rankOf[b.variable]; });
  std::vector<size_t> numberOf(rankOf.size(), SIZE_MAX);
  for (size_t i = 0; i < deviceCopies.size(); ++i)
    numberOf[deviceCopies[i].variable] = i;
  for (size_t i = first; i < tensors.size() && !deviceCopies.empty(); ++i)
    if (tensors[i].variable)
      tensors[i].stream = [this, number = numberOf[*tensors[i].variable],
                           copied = std::move(tensors[i].stream)](const ByteSink &sink) {
        Status status = device.waitForCopy(number);
        return status.ok() ? copied(sink) : status;
      };
  return first;
}

Status CheckpointWriter::waitForCopies() const {
  return deviceCopies.empty() ? Status() : device.waitForCopy(deviceCopies.size() - 1);
}

void CheckpointWriter::finish(const Expected<uint64_t> &written, double begun) {
  std::lock_guard lock(mutex);
  result.status = written.status();
  result.bytes = written.ok() ? *written : 0;
  result.writingSeconds = monotonicSeconds() - begun;
  released = done = true;
  changed.notify_all();
}

void CheckpointWriter::start(uint64_t step, std::vector<CheckpointTensor> tensors, Write write) {
  double begun = monotonicSeconds();
  underWay = true;
  released = done = false;
  pace.reset();
  result = {};
  result.step = step;
  size_t first = tensors.size();
  if (capacity != 0)
    first = stage(tensors);
  if (first == tensors.size()) {
    TraceScope span(ownTrack, "write checkpoint", "update", step);
    finish(write(std::move(tensors)), begun);
    result.blockedSeconds = monotonicSeconds() - begun;
    return;
  }
  const bool beside = first == 0 && (device.capabilities().guardsState || copiesState());
  if (Status status = deviceCopies.empty() ? Status() : device.copyOut(deviceCopies); !status.ok()) {
    deviceCopies.clear();
    finish(status, begun);
    result.blockedSeconds = monotonicSeconds() - begun;
    return;
  }
  if (beside) {
    device.setGuard(copies.get());
  } else {
    TraceScope span(ownTrack, "copy state", "update", step);
    copies->copyAll();
    if (Status status = copies->status(); !status.ok()) {
      finish(status, begun);
      result.blockedSeconds = monotonicSeconds() - begun;
      return;
    }
  }
  released = first == 0;
  // The thread alone uses the device until it reaches the first tensor in staging memory; then training goes on.
  tensors[first].stream = [this, beside, inner = std::move(tensors[first].stream)](const ByteSink &sink) {
    if (!beside)
      pace.begin(); // training has waited until now
    {
      std::lock_guard lock(mutex);
      released = true;
    }
    changed.notify_all();
    (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice); // from here on training does not wait
    return inner(sink);
  };
  // The new thread blocks all signals: the training thread handles them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  auto work = [this, step, begun, beside, write = std::move(write), tensors = std::move(tensors)]() mutable {
    pace.begin();
    if (beside) {
      TraceScope span(threadTrack, "copy state", "update", step);
      copies->copyAll();
      if (Status status = copies->status(); !status.ok())
        return finish(status, begun);
    }
    TraceScope span(threadTrack, "write checkpoint", "update", step);
    Expected<uint64_t> written = error("out of memory");
    try {
      written = write(std::move(tensors));
    } catch (const std::bad_alloc &) {
    }
    // Wait even if the file could not be written: the next checkpoint uses the same memory.
    if (Status copied = waitForCopies(); written && !copied.ok())
      written = copied;
    finish(written, begun);
  };
  try {
    thread = std::thread(std::move(work));
  } catch (const std::system_error &problem) {
    Status status = error("cannot start a thread: {}", std::strerror(problem.code().value()));
    copies->abandon(status);
    (void)waitForCopies();
    finish(status, begun);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return released; });
  result.blockedSeconds = monotonicSeconds() - begun;
}

std::optional<CheckpointWriter::Result> CheckpointWriter::take() {
  if (thread.joinable())
    thread.join();
  underWay = false;
  device.setGuard(nullptr);
  if (copies)
    result.blockedSeconds += copies->waitedSeconds();
  copies.reset();
  return result;
}

std::optional<CheckpointWriter::Result> CheckpointWriter::poll() {
  if (!underWay)
    return std::nullopt;
  {
    std::lock_guard lock(mutex);
    if (!done)
      return std::nullopt;
  }
  return take();
}

std::optional<CheckpointWriter::Result> CheckpointWriter::wait() {
  if (!underWay)
    return std::nullopt;
  double begun = monotonicSeconds();
  {
    std::unique_lock lock(mutex);
    if (!done)
      pace.hurry();
    changed.wait(lock, [&] { return done; });
    result.blockedSeconds += monotonicSeconds() - begun;
  }
  return take();
}

/// Processor time of the calling thread.
static double processorSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

void Pace::reset() {
  std::lock_guard lock(mutex);
  hurried = false;
}

void Pace::begin() {
  begun = monotonicSeconds();
  processorBegun = processorSeconds();
}

void Pace::rest() {
  std::unique_lock lock(mutex);
  if (share >= 1)
    return;
  const double until = begun + (processorSeconds() - processorBegun) / share;
  changed.wait_for(lock, std::chrono::duration<double>(until - monotonicSeconds()), [&] { return hurried; });
}

void Pace::hurry() {
  {
    std::lock_guard lock(mutex);
    hurried = true;
    share *= 2;
  }
  changed.notify_all();
}

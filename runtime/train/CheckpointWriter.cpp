//===- CheckpointWriter.cpp - write a checkpoint while training goes on --===//
#include "runtime/train/CheckpointWriter.h"
#include "runtime/train/Metrics.h"

#include <csignal>
#include <cstring>

using namespace tcc;
using namespace tcc::runtime;

CheckpointWriter::CheckpointWriter(uint64_t stagingBytes) : memory(stagingBytes) {}

CheckpointWriter::~CheckpointWriter() {
  if (thread.joinable())
    thread.join();
}

Expected<size_t> CheckpointWriter::stage(std::vector<CheckpointTensor> &tensors) {
  size_t first = tensors.size();
  for (uint64_t used = 0; first != 0; --first) {
    CheckpointTensor &tensor = tensors[first - 1];
    uint64_t bytes = plan::tensorBytes(tensor.type).value_or(0);
    if (bytes > memory.size() - used)
      break;
    std::span<std::byte> copy = std::span(memory).subspan(used, bytes);
    uint64_t filled = 0;
    Status status = tensor.stream([&](std::span<const std::byte> piece) {
      std::memcpy(copy.data() + filled, piece.data(), piece.size());
      filled += piece.size();
      return Status();
    });
    if (!status.ok())
      return status;
    tensor.stream = [copy](const ByteSink &sink) { return sink(copy); };
    used += bytes;
  }
  return first;
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
  result = {};
  result.step = step;
  Expected<size_t> first = tensors.size();
  if (!memory.empty()) {
    TraceScope span(ownTrack, "copy state", "update", step);
    first = stage(tensors);
  }
  if (!first || *first == tensors.size()) {
    TraceScope span(ownTrack, "write checkpoint", "update", step);
    finish(first ? write(std::move(tensors)) : Expected<uint64_t>(first.status()), begun);
    result.blockedSeconds = monotonicSeconds() - begun;
    return;
  }
  released = *first == 0;
  // The device belongs to the thread until it asks for the first copy.
  tensors[*first].stream = [this, inner = std::move(tensors[*first].stream)](const ByteSink &sink) {
    {
      std::lock_guard lock(mutex);
      released = true;
    }
    changed.notify_all();
    return inner(sink);
  };
  // Signals are the training thread's.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  auto work = [this, step, begun, write = std::move(write), tensors = std::move(tensors)]() mutable {
    TraceScope span(threadTrack, "write checkpoint", "update", step);
    try {
      finish(write(std::move(tensors)), begun);
    } catch (const std::bad_alloc &) {
      finish(error("out of memory"), begun);
    }
  };
  try {
    thread = std::thread(std::move(work));
  } catch (const std::system_error &problem) {
    finish(error("cannot start a thread: {}", problem.what()), begun);
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
    changed.wait(lock, [&] { return done; });
    result.blockedSeconds += monotonicSeconds() - begun;
  }
  return take();
}

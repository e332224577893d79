//===- StateCopies.cpp - copy the state while the next update computes ---===//
#include "runtime/train/StateCopies.h"
#include "runtime/train/Metrics.h"
#include "support/StreamCopy.h"

#include <algorithm>

using namespace tcc;
using namespace tcc::runtime;

StateCopies::StateCopies(std::vector<Item> given, size_t variables, Trace::Track *track)
    : items(std::move(given)), states(items.size()), itemOf(variables, -1), track(track) {
  for (size_t i = 0; i < items.size(); ++i) {
    states[i].store(State::Pending, std::memory_order_relaxed);
    if (items[i].variable)
      itemOf[*items[i].variable] = static_cast<int32_t>(i);
  }
}

void StateCopies::copy(size_t item) {
  size_t filled = 0;
  Status status = items[item].stream([&](std::span<const std::byte> piece) {
    copyPastCaches(items[item].to.data() + filled, piece.data(), piece.size());
    filled += piece.size();
    return Status();
  });
  std::lock_guard lock(mutex);
  if (problem.ok())
    problem = status;
  states[item].store(State::Done, std::memory_order_release);
  changed.notify_all();
}

void StateCopies::settle(size_t item, std::unique_lock<std::mutex> &lock) {
  if (states[item].load(std::memory_order_relaxed) == State::Pending) {
    states[item].store(State::Copying, std::memory_order_relaxed);
    lock.unlock();
    copy(item);
    lock.lock();
  }
  changed.wait(lock, [&] { return states[item].load(std::memory_order_relaxed) == State::Done; });
}

void StateCopies::copyAll() {
  std::unique_lock lock(mutex);
  // Copy all pending items before waiting for copies that are under way elsewhere.
  for (size_t i = 0; i < items.size() && problem.ok(); ++i)
    if (states[i].load(std::memory_order_relaxed) == State::Pending)
      settle(i, lock);
  for (size_t i = 0; i < items.size() && problem.ok(); ++i)
    settle(i, lock);
}

void StateCopies::beforeWrite(uint32_t variable) {
  const int32_t item = itemOf[variable];
  if (item < 0 || states[static_cast<size_t>(item)].load(std::memory_order_acquire) == State::Done)
    return;
  TraceScope span(track, "wait for copies");
  const double begun = monotonicSeconds();
  {
    std::unique_lock lock(mutex);
    settle(static_cast<size_t>(item), lock);
  }
  waited += monotonicSeconds() - begun;
}

void StateCopies::beforeHostChanges() {
  const double begun = monotonicSeconds();
  {
    std::unique_lock lock(mutex);
    for (size_t i = 0; i < items.size(); ++i)
      if (!items[i].variable)
        settle(i, lock);
  }
  waited += monotonicSeconds() - begun;
}

void StateCopies::abandon(const Status &why) {
  std::lock_guard lock(mutex);
  if (problem.ok())
    problem = why;
  for (std::atomic<State> &state : states)
    if (state.load(std::memory_order_relaxed) == State::Pending)
      state.store(State::Done, std::memory_order_release);
  changed.notify_all();
}

Status StateCopies::status() const {
  std::lock_guard lock(mutex);
  return problem;
}

//===- StateCopies.cpp - copy the state while the next update computes ---===//
#include "runtime/train/StateCopies.h"
#include "runtime/train/Metrics.h"

#include <algorithm>
#include <cstring>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

using namespace tcc;
using namespace tcc::runtime;

/// Copies bytes that are read only much later, with non-temporal stores, to leave the caches to training.
static void copyPastCaches(std::byte *to, std::span<const std::byte> from) {
#ifdef __SSE2__
  const size_t head = std::min(from.size(), -reinterpret_cast<uintptr_t>(to) % 16);
  std::memcpy(to, from.data(), head);
  to += head;
  from = from.subspan(head);
  const size_t whole = from.size() & ~size_t(63);
  for (size_t i = 0; i < whole; i += 64) {
    __m128i words[4];
    for (size_t k = 0; k < 4; ++k)
      words[k] = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from.data() + i + 16 * k));
    for (size_t k = 0; k < 4; ++k)
      _mm_stream_si128(reinterpret_cast<__m128i *>(to + i + 16 * k), words[k]);
  }
  _mm_sfence();
  to += whole;
  from = from.subspan(whole);
#endif
  std::memcpy(to, from.data(), from.size());
}

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
    copyPastCaches(items[item].to.data() + filled, piece);
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

//===- Pace.cpp - work beside training, without slowing it much ----------===//
#include "runtime/train/Pace.h"
#include "runtime/train/Metrics.h"

#include <chrono>
#include <ctime>

using namespace tcc::runtime;

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

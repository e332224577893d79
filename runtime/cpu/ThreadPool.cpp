//===- ThreadPool.cpp - fixed tiles on persistent threads ----------------===//
#include "runtime/cpu/ThreadPool.h"
#include "support/Pause.h"

#include <algorithm>
#include <omp.h>

namespace tcc::runtime {

namespace {
constexpr int kSpins = 4000; // about 50 µs of pauses

/// The first tile of a worker's range.
int64_t firstOf(unsigned worker, unsigned workers, int64_t tiles) { return tiles * worker / workers; }

/// Generations count in 32 bits; 0 is none.
uint64_t jobAfter(uint64_t job) { return job == 0xffffffff ? 1 : job + 1; }
} // namespace

WorkerScope::WorkerScope() : savedThreads(omp_get_max_threads()) {
  std::fegetenv(&saved);
  std::fesetenv(FE_DFL_ENV); // exceptions masked, round to nearest, subnormals kept
  omp_set_num_threads(1);
}

WorkerScope::~WorkerScope() {
  std::fesetenv(&saved);
  omp_set_num_threads(savedThreads);
}

ThreadPool::ThreadPool(unsigned count) : ranges(std::max(count, 1U)) {
  try {
    for (unsigned worker = 1; worker < count; ++worker)
      threads.emplace_back([this, worker] { work(worker); });
  } catch (...) {
    stopAll();
    throw;
  }
  // Wait until all threads have started, so that their own allocations happen now, not during the first steps.
  for (uint32_t ready = started.load(); ready + 1 < count; ready = started.load())
    started.wait(ready);
}

ThreadPool::~ThreadPool() { stopAll(); }

void ThreadPool::stopAll() {
  stop.store(true);
  generation.fetch_add(1);
  generation.notify_all();
  for (std::thread &thread : threads)
    thread.join();
}

/// Runs the remaining tiles of a range. False once `job` is over; a `job` of 0 is set to that of the range.
bool ThreadPool::takeTilesOf(unsigned owner, unsigned worker, uint64_t &job) {
  std::atomic<uint64_t> &next = ranges[owner].next;
  uint64_t word = next.load(std::memory_order_acquire);
  if (job == 0)
    job = word >> 32;
  for (;;) {
    if (word >> 32 != job)
      return false;
    // Read before the exchange: if that succeeds, the job was not over, so these fields are its own.
    Function f = function.load(std::memory_order_relaxed);
    void *c = context.load(std::memory_order_relaxed);
    int64_t rangeEnd = firstOf(owner + 1, size(), tileCount.load(std::memory_order_relaxed));
    int64_t begin = static_cast<int64_t>(word & 0xffffffff);
    if (begin >= rangeEnd)
      return true;
    int64_t end = begin + std::max<int64_t>(1, (rangeEnd - begin) / 4);
    if (!next.compare_exchange_weak(word, job << 32 | static_cast<uint64_t>(end), std::memory_order_acq_rel))
      continue;
    f(c, worker, begin, end);
    if (remaining.fetch_sub(end - begin, std::memory_order_seq_cst) == end - begin) {
      finished.fetch_add(1, std::memory_order_seq_cst);
      if (callerSleeps.load(std::memory_order_seq_cst))
        finished.notify_one();
      return false;
    }
    word = next.load(std::memory_order_acquire);
  }
}

void ThreadPool::takeTiles(unsigned worker) {
  uint64_t job = 0;
  for (unsigned i = 0; i < size(); ++i)
    if (!takeTilesOf((worker + i) % size(), worker, job))
      return;
}

void ThreadPool::work(unsigned worker) {
  WorkerScope scope;
  started.fetch_add(1);
  started.notify_all();
  uint32_t seen = 0;
  for (;;) {
    uint32_t now = generation.load(std::memory_order_acquire);
    for (int i = 0; now == seen && i < kSpins; ++i) {
      pauseInSpin();
      now = generation.load(std::memory_order_acquire);
    }
    if (now == seen) {
      sleepers.fetch_add(1, std::memory_order_seq_cst);
      generation.wait(seen, std::memory_order_seq_cst);
      sleepers.fetch_sub(1, std::memory_order_seq_cst);
      now = generation.load(std::memory_order_acquire);
    }
    seen = now;
    if (stop.load())
      return;
    takeTiles(worker);
  }
}

void ThreadPool::launch(int64_t tiles, Function f, void *c) {
  if (tiles <= 0)
    return;
  if (tiles == 1 || threads.empty()) {
    f(c, 0, 0, tiles);
    return;
  }
  uint32_t before = finished.load(std::memory_order_relaxed);
  uint64_t job = jobAfter(ranges[0].next.load(std::memory_order_relaxed) >> 32);
  // Close the old generation first, so that no worker takes a tile of it with the new job's fields.
  for (Range &range : ranges)
    range.next.store(job << 32 | 0xffffffff, std::memory_order_seq_cst);
  function.store(f, std::memory_order_relaxed);
  context.store(c, std::memory_order_relaxed);
  tileCount.store(tiles, std::memory_order_relaxed);
  remaining.store(tiles, std::memory_order_relaxed);
  for (unsigned worker = 0; worker < size(); ++worker)
    ranges[worker].next.store(job << 32 | static_cast<uint64_t>(firstOf(worker, size(), tiles)),
                              std::memory_order_release);
  generation.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) > 0)
    generation.notify_all();
  takeTiles(0);
  for (int i = 0; remaining.load(std::memory_order_acquire) > 0 && i < kSpins; ++i)
    pauseInSpin();
  if (finished.load(std::memory_order_acquire) == before) {
    callerSleeps.store(true, std::memory_order_seq_cst);
    while (finished.load(std::memory_order_seq_cst) == before)
      finished.wait(before, std::memory_order_seq_cst);
    callerSleeps.store(false, std::memory_order_relaxed);
  }
}

} // namespace tcc::runtime

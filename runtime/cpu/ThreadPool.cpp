//===- ThreadPool.cpp - fixed tiles on persistent threads ----------------===//
#include "runtime/cpu/ThreadPool.h"

#include <algorithm>
#include <immintrin.h>
#include <omp.h>

namespace tcc::runtime {

namespace {
constexpr unsigned kDefaultControl = 0x1f80; // MXCSR: exceptions masked, round to nearest, subnormals kept
constexpr int kSpins = 4000;                 // about 50 µs of pauses
} // namespace

WorkerScope::WorkerScope() : savedControl(_mm_getcsr()), savedThreads(omp_get_max_threads()) {
  _mm_setcsr(kDefaultControl);
  omp_set_num_threads(1);
}

WorkerScope::~WorkerScope() {
  _mm_setcsr(savedControl);
  omp_set_num_threads(savedThreads);
}

ThreadPool::ThreadPool(unsigned count) {
  for (unsigned worker = 1; worker < count; ++worker)
    threads.emplace_back([this, worker] { work(worker); });
  // What a thread allocates for itself it allocates now, not during the first steps.
  for (uint32_t ready = started.load(); ready + 1 < count; ready = started.load())
    started.wait(ready);
}

ThreadPool::~ThreadPool() {
  stop.store(true);
  generation.fetch_add(1);
  generation.notify_all();
  for (std::thread &thread : threads)
    thread.join();
}

void ThreadPool::takeTiles(unsigned worker) {
  uint64_t word = next.load(std::memory_order_acquire);
  uint64_t mine = word >> 32;
  for (;;) {
    if (word >> 32 != mine)
      return; // that job is over
    // Read before the exchange: if it succeeds the job was not over, so these are its own.
    Function f = function.load(std::memory_order_relaxed);
    void *c = context.load(std::memory_order_relaxed);
    int64_t tiles = tileCount.load(std::memory_order_relaxed);
    int64_t begin = static_cast<int64_t>(word & 0xffffffff);
    if (begin >= tiles)
      return;
    int64_t share = std::max<int64_t>(1, (tiles - begin) / (4 * size()));
    int64_t end = std::min(begin + share, tiles);
    if (!next.compare_exchange_weak(word, mine << 32 | static_cast<uint64_t>(end), std::memory_order_acq_rel))
      continue;
    f(c, worker, begin, end);
    if (remaining.fetch_sub(end - begin, std::memory_order_seq_cst) == end - begin) {
      finished.fetch_add(1, std::memory_order_seq_cst);
      if (callerSleeps.load(std::memory_order_seq_cst))
        finished.notify_one();
      return;
    }
    word = next.load(std::memory_order_acquire);
  }
}

void ThreadPool::work(unsigned worker) {
  WorkerScope scope;
  started.fetch_add(1);
  started.notify_all();
  uint32_t seen = 0;
  for (;;) {
    uint32_t now = generation.load(std::memory_order_acquire);
    for (int i = 0; now == seen && i < kSpins; ++i) {
      _mm_pause();
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
  uint64_t job = (next.load(std::memory_order_relaxed) >> 32) + 1;
  // Close the old generation first, so that nobody takes a tile of it with the new job's fields.
  next.store(job << 32 | 0xffffffff, std::memory_order_seq_cst);
  function.store(f, std::memory_order_relaxed);
  context.store(c, std::memory_order_relaxed);
  tileCount.store(tiles, std::memory_order_relaxed);
  remaining.store(tiles, std::memory_order_relaxed);
  next.store((job & 0xffffffff) << 32, std::memory_order_release);
  generation.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) > 0)
    generation.notify_all();
  takeTiles(0);
  for (int i = 0; remaining.load(std::memory_order_acquire) > 0 && i < kSpins; ++i)
    _mm_pause();
  if (finished.load(std::memory_order_acquire) == before) {
    callerSleeps.store(true, std::memory_order_seq_cst);
    while (finished.load(std::memory_order_seq_cst) == before)
      finished.wait(before, std::memory_order_seq_cst);
    callerSleeps.store(false, std::memory_order_relaxed);
  }
}

} // namespace tcc::runtime

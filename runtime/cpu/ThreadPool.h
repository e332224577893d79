//===- ThreadPool.h - fixed tiles on persistent threads ------------------===//
//
// A launch cuts tiles 0 … tiles-1 into one range for each worker, the first for worker 0, so that tiles at the same
// position of two launches run on the same core and share its cache. A worker that has finished its range continues
// with the others' (work stealing). A range is one atomic word, generation and next tile together: a worker that wakes
// late sees another generation and takes nothing, so the caller waits for tiles, never for threads. Workers spin
// briefly, then sleep on a futex. A launch allocates nothing and takes no lock. Any worker may run any tile, so tiles
// must be independent; then the number of threads changes no result.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_CPU_THREADPOOL_H
#define TCC_RUNTIME_CPU_THREADPOOL_H

#include <atomic>
#include <cfenv>
#include <cstdint>
#include <thread>
#include <vector>

namespace tcc::runtime {

/// Sets this thread's state to that of every worker: round to nearest, subnormals kept, no exceptions; one OpenMP
/// thread. Restores the old state at the end of the scope.
class WorkerScope {
public:
  WorkerScope();
  ~WorkerScope();
  WorkerScope(const WorkerScope &) = delete;
  WorkerScope &operator=(const WorkerScope &) = delete;

private:
  std::fenv_t saved;
  int savedThreads;
};

class ThreadPool {
public:
  /// Runs tiles [begin, end) on behalf of worker `worker`, 0 ≤ worker < size().
  using Function = void (*)(void *context, unsigned worker, int64_t begin, int64_t end);

  /// `threads` workers, at least 1, including the caller of run(). Throws std::system_error if the system cannot start
  /// a thread.
  explicit ThreadPool(unsigned threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  unsigned size() const { return static_cast<unsigned>(threads.size()) + 1; }

  /// Runs all tiles, at most 2^31 - 1, and returns when the last is done. One caller at a time, not from within a tile.
  /// A single tile runs on the caller, without waking a worker.
  void launch(int64_t tiles, Function function, void *context);

  /// The same for a callable fn(worker, begin, end), which must not throw.
  template <typename Callable> void run(int64_t tiles, Callable &&callable) {
    launch(
        tiles,
        [](void *context, unsigned worker, int64_t begin, int64_t end) {
          (*static_cast<std::remove_reference_t<Callable> *>(context))(worker, begin, end);
        },
        const_cast<void *>(static_cast<const void *>(&callable)));
  }

private:
  void stopAll();
  /// The tiles of one worker's range that are not taken yet.
  struct alignas(64) Range {
    std::atomic<uint64_t> next{0}; ///< generation << 32 | next tile
  };

  void work(unsigned worker);
  void takeTiles(unsigned worker);
  bool takeTilesOf(unsigned owner, unsigned worker, uint64_t &job);

  std::vector<std::thread> threads;
  // The job: written by the caller between generations, valid for any thread that takes a tile of its generation.
  std::atomic<Function> function{nullptr};
  std::atomic<void *> context{nullptr};
  std::atomic<int64_t> tileCount{0};
  std::vector<Range> ranges;
  alignas(64) std::atomic<int64_t> remaining{0};   // tiles not finished yet
  alignas(64) std::atomic<uint32_t> generation{0}; // sleepers wait on it
  std::atomic<uint32_t> sleepers{0};
  std::atomic<uint32_t> finished{0}; // the caller waits on it once it stops spinning
  std::atomic<bool> callerSleeps{false};
  std::atomic<bool> stop{false};
  std::atomic<uint32_t> started{0};
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_CPU_THREADPOOL_H

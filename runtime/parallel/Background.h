//===- Background.h - run collectives concurrently with other work -------===//
//
// A thread that carries out jobs one after the other, in the order of submission: collectives keep the plan's order,
// whatever runs concurrently.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_BACKGROUND_H
#define TCC_RUNTIME_PARALLEL_BACKGROUND_H

#include "support/Status.h"

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tcc::runtime {

class Background {
public:
  /// After an error, later jobs are skipped and report the same error.
  explicit Background(std::function<Status(size_t)> carryOut);
  ~Background();
  Background(const Background &) = delete;
  Background &operator=(const Background &) = delete;

  /// Queues a job. Allocates only if more jobs are queued than ever before between two calls of finishAll.
  void submit(size_t job);
  /// Waits until the first `count` jobs since the last finishAll are done. Error: that of a job.
  Status finish(uint64_t count);
  /// Waits for all jobs, and resets the count.
  Status finishAll();

private:
  void run();

  const std::function<Status(size_t)> carryOut;
  std::mutex mutex;
  std::condition_variable mayRun, mayGoOn;
  std::vector<size_t> jobs; ///< since the last finishAll
  uint64_t done = 0;        ///< of them
  Status problem;           ///< of the first that failed
  bool stopping = false;
  std::thread thread; ///< last: it uses the members above
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_BACKGROUND_H

//===- Background.h - collectives beside other work ----------------------===//
//
// A thread that carries out one job after the other, in the order in which they were submitted: the order of
// collectives is that of the plan, whatever runs beside them.
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
  /// After an error later jobs are not carried out, and have the same error.
  explicit Background(std::function<Status(size_t)> carryOut);
  ~Background();
  Background(const Background &) = delete;
  Background &operator=(const Background &) = delete;

  /// Hands over a job. Allocates nothing once as many were handed over between two calls of finishAll.
  void submit(size_t job);
  /// Waits until the first `count` jobs since the last finishAll are done. Error: that of a job.
  Status finish(uint64_t count);
  /// Waits for all, and begins anew.
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

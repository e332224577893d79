//===- Watch.h - which ranks of a job are alive --------------------------===//
//
// A thread beside all compute and collectives sends a sign of life to rank 0 twice a second; rank 0 sends its own to
// each rank. If a connection closes or is silent for kSilenceSeconds, that rank has ended or stopped, and rank 0 tells
// all others its name. A slow rank still sends signs of life, so it is not ended.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_WATCH_H
#define TCC_RUNTIME_PARALLEL_WATCH_H

#include "runtime/parallel/Socket.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tcc::runtime {

constexpr double kBeatSeconds = 0.5, kSilenceSeconds = 6;

class Watch {
public:
  /// `links`, by rank: on rank 0 a connection to every other rank, else only the one to rank 0. `names` describe the
  /// ranks.
  Watch(uint32_t rank, std::vector<std::string> names, std::vector<Descriptor> links);
  /// Says goodbye, so that the end of this rank does not count as a failure.
  ~Watch();
  Watch(const Watch &) = delete;
  Watch &operator=(const Watch &) = delete;

  void setStep(uint64_t value) { step.store(value, std::memory_order_relaxed); }

  /// Becomes readable when the job has failed.
  int wakes() const { return failed.get(); }
  /// The failure of the job, once it is known; waits up to `waitSeconds` for it.
  std::optional<std::string> failure(double waitSeconds = 0);

  /// Reports a failure of this rank to the others. Returns when they have been told, after a second at most.
  void abort(const std::string &text);

private:
  struct Peer {
    Descriptor link;
    std::vector<std::byte> heard; ///< the received bytes of an incomplete message
    Deadline lastSign;
    uint64_t step = 0;
    bool left = false; ///< it said goodbye
  };

  void run();
  void send(Peer &peer, uint8_t kind, const std::string &text);
  /// Reads the bytes that have arrived. False: the connection is closed.
  bool hear(uint32_t rank, Peer &peer);
  void handle(uint32_t rank, Peer &peer, uint8_t kind, uint64_t step, const std::string &text);
  /// The message that a rank is lost.
  std::string lost(uint32_t rank, const Peer &peer, const char *how) const;
  /// The first failure counts; rank 0 tells the others.
  void fail(const std::string &text);
  void tellAll(uint8_t kind, const std::string &text);

  const uint32_t rank;
  const std::vector<std::string> names;
  std::vector<Peer> peers; ///< by rank; without a link: not watched from here
  double pausedSeconds = 0; ///< length of the latest pause in which this process did not run
  Descriptor failed, woken;
  std::atomic<uint64_t> step{0};
  std::mutex mutex;
  std::condition_variable told;
  std::optional<std::string> problem; ///< of the job
  std::optional<std::string> own;     ///< this rank's failure, to be reported
  bool stopping = false, ownTold = false;
  std::thread thread; ///< last: it uses the members above
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_WATCH_H

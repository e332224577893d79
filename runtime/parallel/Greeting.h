//===- Greeting.h - accept only connections of the job --------------------===//
//
// The handshake on a new connection, before anything else is read or sent:
//
//   connecting end          accepting end
//   Opening: magic, nonce →
//                         ← Opening: magic, nonce
//   proof of the secret   →
//                         ← proof of the secret, or the reason of a refusal
//   its words             →
//
// The accepting end serves many connections at once, each for a few seconds: strangers that send nothing, or anything
// else, delay nobody.
//
//===----------------------------------------------------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_GREETING_H
#define TCC_RUNTIME_PARALLEL_GREETING_H

#include "runtime/parallel/Secret.h"
#include "runtime/parallel/Socket.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

struct pollfd;

namespace tcc::runtime {

/// A connection whose other end has proved that it belongs to the job.
struct Guest {
  Descriptor link;
  std::string words;   ///< the text that it sent
  std::string address; ///< numeric
  bool isNear = false; ///< on this machine
};

/// Connects, proves the secret, and sends `words`. Retries until the deadline if nobody listens, or if the connection
/// is closed before the other end has sent anything. Error: no try succeeded; a program of another job or version
/// listens there; the job has failed (`wakes`).
Expected<Descriptor> visit(const std::string &address, uint16_t port, const Trust &trust, const std::string &words,
                           Deadline deadline, int wakes = -1, const Tried &tried = nullptr);
/// How long a program that listens there may be silent.
constexpr double kSilentSeconds = 20;

class Door {
public:
  /// `most`: connections that are served at once; the oldest is dropped for a new one.
  Door(Descriptor listener, const Trust &trust, size_t most);
  ~Door();
  Door(const Door &) = delete;
  Door &operator=(const Door &) = delete;

  /// The next guest. Nothing: the deadline has passed, or one of `others` is readable. Error: the system accepts no
  /// more connections.
  Expected<std::optional<Guest>> next(Deadline deadline, std::span<const int> others);
  /// Why the latest connection was turned away, with its address; once.
  std::optional<std::string> refused() { return std::exchange(latestRefusal, std::nullopt); }

private:
  struct Pending;
  Status acceptAll();
  /// Reads the bytes that have arrived. False: the connection is finished; if it became a guest, that is in `ready`.
  bool hear(Pending &one);
  bool refuse(Pending &one, const std::string &reason);

  const Descriptor listener;
  const Trust trust;
  const size_t most;
  std::vector<Pending> pending; ///< the oldest first
  std::vector<Guest> ready;
  std::vector<pollfd> entries;
  std::optional<std::string> latestRefusal;
};

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_GREETING_H

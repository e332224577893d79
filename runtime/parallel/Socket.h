//===- Socket.h - TCP connections with deadlines -------------------------===//
#ifndef TCC_RUNTIME_PARALLEL_SOCKET_H
#define TCC_RUNTIME_PARALLEL_SOCKET_H

#include "support/Status.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace tcc::runtime {

using Deadline = std::chrono::steady_clock::time_point;

inline Deadline deadlineIn(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

/// Milliseconds until then, for poll: at least 0.
int millisecondsUntil(Deadline deadline);

/// A file descriptor, closed with the object.
class Descriptor {
public:
  explicit Descriptor(int number = -1) : number(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor &&other) noexcept : number(std::exchange(other.number, -1)) {}
  Descriptor &operator=(Descriptor &&other) noexcept {
    std::swap(number, other.number);
    return *this;
  }
  int get() const { return number; }
  explicit operator bool() const { return number >= 0; }
  void close();

private:
  int number;
};

/// A socket that listens on `port` (0: a free one) of `address` (empty: every address of this machine, of IPv4 and
/// IPv6).
Expected<Descriptor> listenOn(const std::string &address, uint16_t port);
/// The port of a socket.
Expected<uint16_t> portOf(const Descriptor &socket);
/// The numeric address of the other end. An IPv4 address is written as IPv4, even if the socket is IPv6.
Expected<std::string> peerAddress(const Descriptor &socket);
/// True if both ends are on this machine: they have the same address, or the other end has a loopback address.
bool isWithinMachine(const Descriptor &socket);

/// In the functions below, waiting ends when the descriptor `wakes` becomes readable (−1: none): the job has failed.

/// Called with the reason after each failed try to connect.
using Tried = std::function<void(const std::string &reason)>;
/// Connects; retries while nobody listens there. Error: the deadline has passed, with the last reason; or the name has
/// been unknown for kNameSeconds.
Expected<Descriptor> connectTo(const std::string &address, uint16_t port, Deadline deadline, int wakes = -1,
                               const Tried &tried = nullptr);
constexpr double kNameSeconds = 30;
/// A try to connect takes at most this long where nothing answers at all.
constexpr double kTrySeconds = 5;
/// Accepts a pending connection. If there is none, the descriptor is empty and `problem` is the system's error number.
Descriptor acceptNow(const Descriptor &listener, int &problem);
/// Error: the connection is closed, or the deadline has passed.
Status sendAll(const Descriptor &socket, std::span<const std::byte> bytes, Deadline deadline, int wakes = -1);
Status receiveAll(const Descriptor &socket, std::span<std::byte> bytes, Deadline deadline, int wakes = -1);
/// The bytes of a value in memory (of a text, its characters), to send or to receive into.
template <typename T>
requires std::is_trivially_copyable_v<T> std::span<const std::byte> bytesOf(const T &value) {
  return std::as_bytes(std::span(&value, 1));
}
template <typename T>
requires std::is_trivially_copyable_v<T> std::span<std::byte> bytesOf(T &value) {
  return std::as_writable_bytes(std::span(&value, 1));
}
inline std::span<const std::byte> bytesOf(const std::string &text) { return std::as_bytes(std::span(text)); }
/// Waits a moment before another try. False: the job has failed.
bool pauseFor(double seconds, int wakes);

/// "Connection refused".
std::string systemError(int number);

} // namespace tcc::runtime

#endif // TCC_RUNTIME_PARALLEL_SOCKET_H

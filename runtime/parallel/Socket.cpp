//===- Socket.cpp - TCP connections with deadlines -----------------------===//
//
// Every socket is non-blocking (waiting is by poll), sends small messages without delay, and is closed on exec.
//
//===----------------------------------------------------------------------===//
#include "runtime/parallel/Socket.h"
#include "runtime/parallel/Host.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo *)>;

Expected<Addresses> resolve(const std::string &address, uint16_t port, bool passive) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo *found = nullptr;
  if (int failed =
          getaddrinfo(address.empty() ? nullptr : address.c_str(), std::to_string(port).c_str(), &hints, &found))
    return error("{}: {}", address, gai_strerror(failed));
  return Addresses(found, freeaddrinfo);
}

Descriptor makeSocket(const addrinfo &address) {
  return Descriptor(
      ::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, address.ai_protocol));
}

void sendAtOnce(const Descriptor &socket) {
  int on = 1;
  (void)::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

enum class Waited { Ready, Late, Woken };

Waited waitFor(int socket, short events, Deadline deadline, int wakes) {
  for (;;) {
    pollfd entries[] = {{socket, events, 0}, {wakes, POLLIN, 0}}; // poll ignores what is below 0
    int ready = ::poll(entries, 2, millisecondsUntil(deadline));
    if (ready > 0)
      return entries[1].revents ? Waited::Woken : Waited::Ready;
    if (ready == 0 || errno != EINTR)
      return Waited::Late;
  }
}

int connectOnce(const addrinfo &address, Deadline deadline, int wakes, Descriptor &socket) {
  socket = makeSocket(address);
  if (!socket)
    return errno;
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0)
    return 0;
  if (errno != EINPROGRESS)
    return errno;
  if (waitFor(socket.get(), POLLOUT, deadline, wakes) != Waited::Ready)
    return ETIMEDOUT;
  int problem = 0;
  socklen_t size = sizeof(problem);
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &problem, &size) == 0 ? problem : errno;
}

template <typename Call>
Status moveAll(const Descriptor &socket, short events, uint64_t bytes, Deadline deadline, int wakes, Call &&call) {
  for (uint64_t done = 0; done < bytes;) {
    ssize_t moved = call(done);
    if (moved > 0) {
      done += static_cast<uint64_t>(moved);
      continue;
    }
    if (moved == 0)
      return Status("the connection was closed");
    if (errno == EINTR)
      continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK)
      return Status(systemError(errno));
    const Waited waited = waitFor(socket.get(), events, deadline, wakes);
    if (waited != Waited::Ready)
      return Status(waited == Waited::Late ? "no answer in time" : "the job has failed");
  }
  return Status();
}

/// Accepts IPv4 connections, too. If the machine has no IPv6, the descriptor is empty and errno has the reason.
Descriptor listenOnAll(uint16_t port) {
  Descriptor socket(::socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1, off = 0;
  sockaddr_in6 every{};
  every.sin6_family = AF_INET6;
  every.sin6_addr = in6addr_any;
  every.sin6_port = htons(port);
  if (!socket || ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) != 0 ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr *>(&every), sizeof(every)) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0)
    return Descriptor();
  return socket;
}

/// Converts an IPv4 address that an IPv6 socket reports (mapped) to IPv4.
sockaddr_storage plain(const sockaddr_storage &address) {
  const auto &six = reinterpret_cast<const sockaddr_in6 &>(address);
  if (address.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six.sin6_addr))
    return address;
  sockaddr_storage result{};
  auto &four = reinterpret_cast<sockaddr_in &>(result);
  four.sin_family = AF_INET;
  four.sin_port = six.sin6_port;
  std::memcpy(&four.sin_addr, six.sin6_addr.s6_addr + 12, sizeof(four.sin_addr));
  return result;
}

/// The address without its port.
std::string numeric(const sockaddr_storage &address) {
  char text[NI_MAXHOST] = "";
  const socklen_t size = address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return ::getnameinfo(reinterpret_cast<const sockaddr *>(&address), size, text, sizeof(text), nullptr, 0,
                       NI_NUMERICHOST) == 0
             ? text
             : "";
}
} // namespace

std::string tcc::runtime::systemError(int number) { return std::error_code(number, std::generic_category()).message(); }

int tcc::runtime::millisecondsUntil(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

void Descriptor::close() {
  if (number >= 0)
    ::close(number);
  number = -1;
}

Expected<Descriptor> tcc::runtime::listenOn(const std::string &address, uint16_t port) {
  if (address.empty()) {
    if (Descriptor socket = listenOnAll(port))
      return socket;
    if (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL)
      return error("cannot listen on port {}: {}", port, systemError(errno));
  }
  auto found = resolve(address, port, /*passive=*/true);
  if (!found)
    return found.status();
  std::string reason = "it has no address";
  for (const addrinfo *one = found->get(); one; one = one->ai_next) {
    Descriptor socket = makeSocket(*one);
    int on = 1;
    if (socket && ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        ::bind(socket.get(), one->ai_addr, one->ai_addrlen) == 0 && ::listen(socket.get(), SOMAXCONN) == 0)
      return socket;
    reason = systemError(errno);
  }
  return error("cannot listen on port {}{}: {}", port, address.empty() ? "" : " of " + address, reason);
}

Expected<uint16_t> tcc::runtime::portOf(const Descriptor &socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr *>(&address), &size) != 0)
    return Status(systemError(errno));
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6 &>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in &>(address).sin_port);
}

Expected<std::string> tcc::runtime::peerAddress(const Descriptor &socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr *>(&address), &size) != 0)
    return Status(systemError(errno));
  std::string text = numeric(plain(address));
  return text.empty() ? Expected<std::string>(Status("it has no numeric address")) : text;
}

bool tcc::runtime::isWithinMachine(const Descriptor &socket) {
  sockaddr_storage own{}, peer{};
  socklen_t ownSize = sizeof(own), peerSize = sizeof(peer);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr *>(&own), &ownSize) != 0 ||
      ::getpeername(socket.get(), reinterpret_cast<sockaddr *>(&peer), &peerSize) != 0)
    return false;
  const std::string here = numeric(plain(own)), there = numeric(plain(peer));
  return !there.empty() && (here == there || isLoopback(there));
}

Expected<Descriptor> tcc::runtime::connectTo(const std::string &address, uint16_t port, Deadline deadline, int wakes,
                                             const Tried &tried) {
  std::string reason;
  const Deadline named = std::min(deadline, deadlineIn(kNameSeconds));
  for (;;) {
    auto found = resolve(address, port, /*passive=*/false);
    if (!found)
      reason = fmt::format("cannot connect to port {} of {}", port, found.message());
    for (const addrinfo *one = found ? found->get() : nullptr; one; one = one->ai_next) {
      Descriptor socket;
      int problem = connectOnce(*one, std::min(deadline, deadlineIn(kTrySeconds)), wakes, socket);
      if (problem == 0) {
        sendAtOnce(socket);
        return socket;
      }
      reason = fmt::format("{} {}, port {} ({})", problem == ECONNREFUSED ? "nothing listens at" : "cannot connect to",
                           address, port, systemError(problem));
    }
    if (std::chrono::steady_clock::now() >= (found ? deadline : named) || !pauseFor(0.02, wakes))
      return Status(reason);
    if (tried)
      tried(reason);
  }
}

Descriptor tcc::runtime::acceptNow(const Descriptor &listener, int &problem) {
  for (;;) {
    Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket)
      sendAtOnce(socket);
    problem = socket ? 0 : errno;
    if (problem == EINTR || problem == ECONNABORTED)
      continue;
    if (problem == EAGAIN || problem == EWOULDBLOCK)
      problem = 0;
    return socket;
  }
}

bool tcc::runtime::pauseFor(double seconds, int wakes) {
  return waitFor(-1, 0, deadlineIn(seconds), wakes) != Waited::Woken;
}

Status tcc::runtime::sendAll(const Descriptor &socket, std::span<const std::byte> bytes, Deadline deadline, int wakes) {
  return moveAll(socket, POLLOUT, bytes.size(), deadline, wakes, [&](uint64_t done) {
    return ::send(socket.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
  });
}

Status tcc::runtime::receiveAll(const Descriptor &socket, std::span<std::byte> bytes, Deadline deadline, int wakes) {
  return moveAll(socket, POLLIN, bytes.size(), deadline, wakes,
                 [&](uint64_t done) { return ::recv(socket.get(), bytes.data() + done, bytes.size() - done, 0); });
}

//===- Socket.cpp - TCP connections with deadlines -----------------------===//
//
// Every socket is non-blocking; waiting is poll's. It gets no delay for small messages and is closed on exec.
//
//===----------------------------------------------------------------------===//
#include "runtime/parallel/Socket.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <system_error>
#include <thread>
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

/// False: the deadline has passed.
bool waitFor(const Descriptor &socket, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{socket.get(), events, 0};
    int ready = ::poll(&entry, 1, millisecondsUntil(deadline));
    if (ready > 0)
      return true;
    if (ready == 0 || errno != EINTR)
      return false;
  }
}

int connectOnce(const addrinfo &address, Deadline deadline, Descriptor &socket) {
  socket = makeSocket(address);
  if (!socket)
    return errno;
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0)
    return 0;
  if (errno != EINPROGRESS)
    return errno;
  if (!waitFor(socket, POLLOUT, deadline))
    return ETIMEDOUT;
  int problem = 0;
  socklen_t size = sizeof(problem);
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &problem, &size) == 0 ? problem : errno;
}

template <typename Call>
Status moveAll(const Descriptor &socket, short events, uint64_t bytes, Deadline deadline, Call &&call) {
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
    if (!waitFor(socket, events, deadline))
      return Status("no answer in time");
  }
  return Status();
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
  char text[NI_MAXHOST];
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr *>(&address), &size) != 0)
    return Status(systemError(errno));
  if (int failed =
          getnameinfo(reinterpret_cast<sockaddr *>(&address), size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST))
    return Status(gai_strerror(failed));
  return std::string(text);
}

Expected<Descriptor> tcc::runtime::connectTo(const std::string &address, uint16_t port, Deadline deadline) {
  std::string reason = "no answer in time";
  for (;;) {
    auto found = resolve(address, port, /*passive=*/false);
    if (!found)
      reason = found.message();
    for (const addrinfo *one = found ? found->get() : nullptr; one; one = one->ai_next) {
      Descriptor socket;
      int problem = connectOnce(*one, deadline, socket);
      if (problem == 0) {
        sendAtOnce(socket);
        return socket;
      }
      reason = systemError(problem);
    }
    if (std::chrono::steady_clock::now() >= deadline)
      return error("cannot connect to {}:{}: {}", address, port, reason);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Expected<Descriptor> tcc::runtime::acceptFrom(const Descriptor &listener, Deadline deadline) {
  for (;;) {
    Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      sendAtOnce(socket);
      return socket;
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ECONNABORTED)
      return Status(systemError(errno));
    if (!waitFor(listener, POLLIN, deadline))
      return Status("nobody connected in time");
  }
}

Status tcc::runtime::sendAll(const Descriptor &socket, std::span<const std::byte> bytes, Deadline deadline) {
  return moveAll(socket, POLLOUT, bytes.size(), deadline, [&](uint64_t done) {
    return ::send(socket.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
  });
}

Status tcc::runtime::receiveAll(const Descriptor &socket, std::span<std::byte> bytes, Deadline deadline) {
  return moveAll(socket, POLLIN, bytes.size(), deadline,
                 [&](uint64_t done) { return ::recv(socket.get(), bytes.data() + done, bytes.size() - done, 0); });
}

//===- Host.cpp - the machine that a rank is on --------------------------===//
#include "runtime/parallel/Host.h"
#include "runtime/parallel/Socket.h"

#include <algorithm>
#include <arpa/inet.h>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <dirent.h>
#include <fstream>
#include <netinet/in.h>
#include <optional>
#include <sstream>
#include <string_view>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

using namespace tcc;
using namespace tcc::runtime;

std::string tcc::runtime::hostName() {
  char host[256] = "";
  (void)::gethostname(host, sizeof(host) - 1);
  return host;
}

std::string tcc::runtime::machineName() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, boot);
  char space[64] = "";
  (void)!::readlink("/proc/self/ns/net", space, sizeof(space) - 1);
  return fmt::format("{} {} {}", hostName(), boot, space);
}

bool tcc::runtime::isLoopback(const std::string &address) {
  in_addr four{};
  in6_addr six{};
  if (::inet_pton(AF_INET, address.c_str(), &four) == 1)
    return (ntohl(four.s_addr) >> 24) == 127;
  if (::inet_pton(AF_INET6, address.c_str(), &six) == 1)
    return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
  return address == "localhost" || address.ends_with(".localhost");
}

namespace {
/// One end of a connection as /proc/net/tcp (`four`) and tcp6 (`six`) write it: words of the address in this machine's
/// byte order, then the port.
struct EndText {
  std::string four, six;
};

EndText textOf(const sockaddr_storage &address) {
  in6_addr bytes{};
  uint16_t port = 0;
  if (address.ss_family == AF_INET) {
    const auto &own = reinterpret_cast<const sockaddr_in &>(address);
    bytes.s6_addr[10] = bytes.s6_addr[11] = 0xff;
    std::memcpy(bytes.s6_addr + 12, &own.sin_addr, 4);
    port = ntohs(own.sin_port);
  } else {
    const auto &own = reinterpret_cast<const sockaddr_in6 &>(address);
    bytes = own.sin6_addr;
    port = ntohs(own.sin6_port);
  }
  uint32_t words[4];
  std::memcpy(words, &bytes, sizeof(words));
  EndText text{"", fmt::format("{:08X}{:08X}{:08X}{:08X}:{:04X}", words[0], words[1], words[2], words[3], port)};
  if (IN6_IS_ADDR_V4MAPPED(&bytes))
    text.four = fmt::format("{:08X}:{:04X}", words[3], port);
  return text;
}

/// The user of the socket with these ends. Columns: number, local and remote address, state, queues, timer,
/// retransmits, user.
std::optional<uint64_t> userOf(const char *path, const std::string &local, const std::string &remote) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.find(local) == std::string::npos || line.find(remote) == std::string::npos)
      continue;
    std::istringstream columns(line);
    std::string number, one, other, state, queues, timer, retransmits;
    uint64_t user = 0;
    if (columns >> number >> one >> other >> state >> queues >> timer >> retransmits >> user && one == local &&
        other == remote)
      return user;
  }
  return std::nullopt;
}
} // namespace

Status tcc::runtime::requireOwnUser(const Descriptor &socket) {
  sockaddr_storage own{}, peer{};
  socklen_t ownSize = sizeof(own), peerSize = sizeof(peer);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr *>(&own), &ownSize) != 0 ||
      ::getpeername(socket.get(), reinterpret_cast<sockaddr *>(&peer), &peerSize) != 0)
    return Status("the connection was closed");
  const EndText here = textOf(own), there = textOf(peer);
  std::optional<uint64_t> user;
  if (!here.four.empty())
    user = userOf("/proc/net/tcp", there.four, here.four);
  if (!user)
    user = userOf("/proc/net/tcp6", there.six, here.six);
  if (!user)
    return Status("the process at the other end is not found");
  if (*user != ::geteuid())
    return error("the process at the other end is user {}'s, this one user {}'s", *user, ::geteuid());
  return Status();
}

Status tcc::runtime::makeRoomForConnections(uint32_t size) {
  // Connections for messages and for signs of life, those of strangers that are served, and files that are opened
  // later.
  constexpr uint64_t kOthers = 24;
  uint64_t used = 0;
  if (DIR *folder = ::opendir("/proc/self/fd")) {
    while (::readdir(folder))
      ++used;
    ::closedir(folder);
  }
  const rlim_t needed = used + 2 * uint64_t(size) + kOthers;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed)
    return Status();
  if (limit.rlim_max < needed)
    return error("a rank of {} needs {} open files, the system allows this process {}: raise the limit (ulimit -n {})",
                 size, needed, limit.rlim_max, needed);
  limit.rlim_cur = needed;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0
             ? Status()
             : error("a rank of {} needs {} open files: {}", size, needed, systemError(errno));
}

//===- Tcp.cpp - ranks that are processes on any machines ----------------===//
#include "runtime/parallel/Tcp.h"
#include "runtime/parallel/Meeting.h"
#include "runtime/parallel/WiredLinks.h"

#include <cerrno>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
class Sockets final : public Wire {
public:
  explicit Sockets(std::vector<Descriptor> byPeer) : sockets(std::move(byPeer)) {}

  Moved move(Progress &progress) override {
    const Transfer &transfer = *progress.transfer;
    Moved result = Moved::Nothing;
    while (!progress.done()) {
      iovec vectors[16];
      int count = 0;
      for (size_t i = progress.part; i < transfer.parts.size() && count < 16; ++i) {
        const uint64_t skip = i == progress.part ? progress.offset : 0;
        vectors[count++] = {transfer.parts[i].data + skip, transfer.parts[i].bytes - skip};
      }
      msghdr message{};
      message.msg_iov = vectors;
      message.msg_iovlen = static_cast<size_t>(count);
      const int socket = sockets[transfer.peer].get();
      const ssize_t moved = transfer.send ? ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT)
                                          : ::recvmsg(socket, &message, MSG_DONTWAIT);
      if (moved < 0 && errno == EINTR)
        continue;
      if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        break;
      if (moved < 0 || (moved == 0 && !transfer.send)) {
        reason = moved < 0 ? systemError(errno) : "the connection was closed";
        return Moved::Broken;
      }
      const bool introduces = progress.part == 0;
      progress.advance(static_cast<uint64_t>(moved));
      result = Moved::Some;
      if (introduces && progress.part > 0 && transfer.onFirst)
        break; // the rest is read once onFirst has accepted the first part
    }
    return result;
  }

  void wait(std::span<const Progress> open, int wakes, int milliseconds) override {
    entries.assign(1, {wakes, POLLIN, 0});
    for (const Progress &progress : open) // poll ignores peers without a socket
      entries.push_back(
          {sockets[progress.transfer->peer].get(), static_cast<short>(progress.transfer->send ? POLLOUT : POLLIN), 0});
    (void)::poll(entries.data(), entries.size(), milliseconds);
  }

private:
  const std::vector<Descriptor> sockets;
  std::vector<pollfd> entries;
};

/// Opens the memory of this machine's ranks; true for each rank where both sides succeeded.
Expected<std::vector<bool>> openShared(SharedMemory *shared, const Meeting &meeting, uint32_t rank, Deadline deadline,
                                       Watch &watch) {
  const uint32_t size = static_cast<uint32_t>(meeting.data.size());
  std::vector<bool> both(size, false);
  auto failed = [&](uint32_t peer, const Status &status) {
    if (auto failure = watch.failure(2))
      return Status(*failure);
    const Status told = status.withContext(meeting.names()[peer]);
    watch.abort(told.message());
    return told;
  };
  for (uint32_t peer = 0; peer < size; ++peer) {
    if (peer == rank)
      continue;
    const RankEntry &entry = meeting.table[peer];
    both[peer] =
        shared && entry.machine == meeting.table[rank].machine && shared->open(peer, entry.process, entry.memory);
    const std::byte mine{static_cast<uint8_t>(both[peer])};
    if (Status status = sendAll(meeting.data[peer], {&mine, 1}, deadline, watch.wakes()); !status.ok())
      return failed(peer, status);
  }
  for (uint32_t peer = 0; peer < size; ++peer) {
    if (peer == rank)
      continue;
    std::byte theirs{0};
    if (Status status = receiveAll(meeting.data[peer], {&theirs, 1}, deadline, watch.wakes()); !status.ok())
      return failed(peer, status);
    both[peer] = both[peer] && theirs == std::byte{1};
  }
  return both;
}
} // namespace

Expected<std::unique_ptr<Links>> tcc::runtime::connectRanks(const RankPlace &place, double seconds, bool *told) {
  auto shared = place.localSize > 1 ? SharedMemory::make(place.rank, place.size, place.localSize) : nullptr;
  Meeting meeting(place, seconds);
  auto tell = [&](bool isTold) {
    if (told)
      *told = isTold;
  };
  if (Status status = meeting.meet(shared.get()); !status.ok()) {
    tell(meeting.told);
    return status;
  }
  auto watch = std::make_unique<Watch>(place.rank, meeting.names(), std::move(meeting.watch));
  if (Status status = meeting.connect(*watch); !status.ok()) {
    tell(meeting.told);
    return status;
  }
  auto both = openShared(shared.get(), meeting, place.rank, deadlineIn(seconds), *watch);
  if (!both) {
    tell(isTold(*watch, place, meeting.names()[0]));
    return both.status();
  }
  std::vector<std::unique_ptr<Wire>> wires;
  auto add = [&](std::unique_ptr<Wire> wire) { return wires.emplace_back(std::move(wire)).get(); };
  Wire *const near = shared ? add(std::move(shared)) : nullptr;
  for (uint32_t peer = 0; peer < place.size; ++peer)
    if ((*both)[peer] || peer == place.rank)
      meeting.data[peer].close();
  const std::vector<bool> isNear = both.take();
  Wire *const far = add(std::make_unique<Sockets>(std::move(meeting.data)));
  std::vector<Wire *> routes(place.size);
  for (uint32_t peer = 0; peer < place.size; ++peer)
    routes[peer] = peer == place.rank ? nullptr : isNear[peer] ? near : far;
  return std::unique_ptr<Links>(
      std::make_unique<WiredLinks>(place.rank, meeting.names(), std::move(wires), std::move(routes), std::move(watch)));
}

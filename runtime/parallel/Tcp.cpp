//===- Tcp.cpp - ranks that are processes on any machines ----------------===//
#include "runtime/parallel/Tcp.h"
#include "runtime/parallel/Watch.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr uint64_t kMagic = 0x31736b6e61726374; // "tcranks1": changes with the messages below
constexpr double kSlowSeconds = 30;

enum class Use : uint32_t { Watch, Data };

/// The first message on every connection.
struct Hello {
  uint64_t magic, token;
  Use use;
  uint32_t rank, size, process;
  uint32_t port; ///< where this rank listens
  char host[64];
};

/// What rank 0 tells the others about each rank.
struct Entry {
  uint32_t port, process;
  char host[64], address[64];
};

template <typename T> std::span<const std::byte> bytesOf(const T &value) { return std::as_bytes(std::span(&value, 1)); }
template <typename T> std::span<std::byte> bytesOf(T &value) { return std::as_writable_bytes(std::span(&value, 1)); }

void copyText(char (&to)[64], const std::string &from) {
  std::memset(to, 0, sizeof(to));
  std::memcpy(to, from.data(), std::min(from.size(), sizeof(to) - 1));
}

/// A connection and who is at the other end.
struct Guest {
  Hello hello;
  Descriptor link;
};

class Meeting {
public:
  Meeting(const RankPlace &place, double seconds) : place(place), deadline(deadlineIn(seconds)), table(place.size) {
    char host[64] = "";
    (void)::gethostname(host, sizeof(host) - 1);
    own = {kMagic, place.token, Use::Watch, place.rank, place.size, static_cast<uint32_t>(::getpid()), 0, {}};
    copyText(own.host, host);
    data.resize(place.size);
    watch.resize(place.size);
  }

  Status run() {
    auto made = place.listener >= 0
                    ? Expected<Descriptor>(Descriptor(place.listener))
                    : listenOn(place.launched ? place.address : "", place.rank == 0 ? place.port : uint16_t(0));
    if (!made)
      return made.status();
    listener = made.take();
    auto port = portOf(listener);
    if (!port)
      return port.status();
    own.port = *port;
    Status status = place.rank == 0 ? gather() : join();
    return status.ok() ? connectData() : status;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> list;
    for (uint32_t r = 0; r < place.size; ++r)
      list.push_back(fmt::format("rank {} (host {}, process {})", r, table[r].host, table[r].process));
    return list;
  }

  std::vector<Descriptor> data, watch; ///< by rank

private:
  /// The next connection of this job. Others are closed without a word.
  Expected<Guest> accept() {
    for (;;) {
      auto link = acceptFrom(listener, deadline);
      if (!link)
        return link.status();
      Guest guest{{}, link.take()};
      // Who says nothing does not hold up the job for long.
      if (receiveAll(guest.link, bytesOf(guest.hello), std::min(deadline, deadlineIn(5))).ok() &&
          guest.hello.magic == kMagic && guest.hello.token == place.token) {
        guest.hello.host[sizeof(guest.hello.host) - 1] = 0;
        return guest;
      }
    }
  }

  /// Rank 0: hears of all others, then tells each about all.
  Status gather() {
    fill(0, own, "");
    for (uint32_t missing = place.size - 1; missing > 0;) {
      auto guest = accept();
      if (!guest)
        return error("{} of {} ranks are missing: {}", missing, place.size, guest.message());
      const Hello &hello = guest->hello;
      if (hello.size != place.size)
        return error("rank {} on host {} says that the job has {} ranks, rank 0 that it has {}; start all of them with "
                     "the same WORLD_SIZE",
                     hello.rank, hello.host, hello.size, place.size);
      if (hello.use == Use::Data) { // a rank that is quick
        early.push_back(guest.take());
        continue;
      }
      if (hello.rank == 0 || hello.rank >= place.size || watch[hello.rank])
        return error("two ranks have the number {}; the second is on host {}. Give each its own RANK", hello.rank,
                     hello.host);
      auto address = peerAddress(guest->link);
      if (!address)
        return address.status();
      fill(hello.rank, hello, *address);
      watch[hello.rank] = std::move(guest->link);
      --missing;
    }
    for (uint32_t r = 1; r < place.size; ++r)
      if (Status status = sendAll(watch[r], std::as_bytes(std::span(table)), deadline); !status.ok())
        return status.withContext(names()[r]);
    return Status();
  }

  void fill(uint32_t rank, const Hello &hello, const std::string &address) {
    table[rank] = {hello.port, hello.process, {}, {}};
    copyText(table[rank].host, hello.host);
    copyText(table[rank].address, address);
  }

  Status join() {
    auto link = connectTo(place.address, place.port, deadline);
    Status status = link.status();
    if (status.ok())
      status = sendAll(*link, bytesOf(own), deadline);
    if (status.ok())
      status = receiveAll(*link, std::as_writable_bytes(std::span(table)), deadline);
    if (!status.ok())
      return status.withContext(
          fmt::format("rank {} of {} waits for rank 0 at {}:{}", place.rank, place.size, place.address, place.port));
    watch[0] = link.take();
    for (Entry &entry : table)
      entry.host[sizeof(entry.host) - 1] = entry.address[sizeof(entry.address) - 1] = 0;
    copyText(table[0].address, place.address);
    return Status();
  }

  /// Every rank connects to those below it.
  Status connectData() {
    own.use = Use::Data;
    for (uint32_t r = 0; r < place.rank; ++r) {
      auto link = connectTo(table[r].address, static_cast<uint16_t>(r == 0 ? place.port : table[r].port), deadline);
      Status status = link.status();
      if (status.ok())
        status = sendAll(*link, bytesOf(own), deadline);
      if (!status.ok())
        return status.withContext(names()[r]);
      data[r] = link.take();
    }
    for (uint32_t missing = place.size - 1 - place.rank; missing > 0; --missing) {
      Expected<Guest> guest = Status("nobody");
      if (!early.empty()) {
        guest = std::move(early.back());
        early.pop_back();
      } else {
        guest = accept();
      }
      if (!guest)
        return error("{} connections are missing: {}", missing, guest.message());
      const uint32_t from = guest->hello.rank;
      if (guest->hello.use != Use::Data || from <= place.rank || from >= place.size || data[from])
        return error("an unexpected connection of rank {} on host {}", from, guest->hello.host);
      data[from] = std::move(guest->link);
    }
    return Status();
  }

  const RankPlace &place;
  const Deadline deadline;
  Hello own{};
  Descriptor listener;
  std::vector<Entry> table; ///< by rank
  std::vector<Guest> early;
};

class TcpLinks final : public Links {
public:
  TcpLinks(const RankPlace &place, std::vector<std::string> given, std::vector<Descriptor> data,
           std::vector<Descriptor> watched)
      : own(place.rank), names(std::move(given)), sockets(std::move(data)), watch(own, names, std::move(watched)) {}

  uint32_t rank() const override { return own; }
  uint32_t size() const override { return static_cast<uint32_t>(names.size()); }
  std::string describe(uint32_t other) const override { return names[other]; }
  void abort(const std::string &text) override { watch.abort(text); }
  std::optional<std::string> failure() override { return watch.failure(); }
  void setStep(uint64_t step) override { watch.setStep(step); }
  void onSlow(std::function<void(const std::string &)> hearer) override { slow = std::move(hearer); }

  Status exchange(std::span<Transfer> transfers) override {
    if (std::optional<std::string> failed = watch.failure())
      return Status(*failed);
    std::vector<Progress> open;
    for (const Transfer &transfer : transfers)
      open.push_back({&transfer, 0, 0});
    Deadline told = deadlineIn(kSlowSeconds);
    for (;;) {
      for (Progress &progress : open)
        if (Status status = move(progress); !status.ok())
          return status;
      std::erase_if(open, [](const Progress &progress) { return progress.done(); });
      if (open.empty())
        return Status();
      if (Status status = wait(open, told); !status.ok())
        return status;
    }
  }

private:
  struct Progress {
    const Transfer *transfer;
    size_t part;
    uint64_t offset; ///< of the part
    bool done() const { return part == transfer->parts.size(); }
  };

  /// Moves as many bytes as go without waiting.
  Status move(Progress &progress) {
    const Transfer &transfer = *progress.transfer;
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
        return Status();
      if (moved < 0 || (moved == 0 && !transfer.send))
        return broken(transfer.peer, moved < 0 ? systemError(errno) : "the connection was closed");
      uint64_t left = static_cast<uint64_t>(moved);
      const bool first = progress.part == 0;
      while (!progress.done() && left >= transfer.parts[progress.part].bytes - progress.offset) {
        left -= transfer.parts[progress.part].bytes - progress.offset;
        ++progress.part;
        progress.offset = 0;
      }
      progress.offset += left;
      if (first && progress.part > 0 && transfer.onFirst)
        if (Status status = transfer.onFirst(); !status.ok())
          return status;
    }
    return Status();
  }

  /// The cause may be another rank than the one whose connection broke: the watch knows a moment later.
  Status broken(uint32_t peer, const std::string &reason) {
    if (std::optional<std::string> failed = watch.failure(2))
      return Status(*failed);
    std::string text = fmt::format("{}: {}", names[peer], reason);
    watch.abort(text);
    return Status(text);
  }

  Status wait(const std::vector<Progress> &open, Deadline &told) {
    entries.assign(1, {watch.wakes(), POLLIN, 0});
    for (const Progress &progress : open)
      entries.push_back(
          {sockets[progress.transfer->peer].get(), static_cast<short>(progress.transfer->send ? POLLOUT : POLLIN), 0});
    const int ready = ::poll(entries.data(), entries.size(), millisecondsUntil(told));
    if (entries[0].revents != 0)
      if (std::optional<std::string> failed = watch.failure())
        return Status(*failed);
    if (ready == 0 && slow) {
      slow(fmt::format("{} has kept {} waiting for {:g} s; it is alive", names[open.front().transfer->peer], names[own],
                       kSlowSeconds));
      told = deadlineIn(10 * kSlowSeconds);
    } else if (ready == 0) {
      told = deadlineIn(kSlowSeconds);
    }
    return Status();
  }

  const uint32_t own;
  const std::vector<std::string> names;
  std::vector<Descriptor> sockets;
  std::function<void(const std::string &)> slow;
  std::vector<pollfd> entries;
  Watch watch; ///< last: its thread says goodbye before the connections close
};
} // namespace

Expected<std::unique_ptr<Links>> tcc::runtime::connectRanks(const RankPlace &place, double seconds) {
  Meeting meeting(place, seconds);
  if (Status status = meeting.run(); !status.ok())
    return status;
  return std::unique_ptr<Links>(
      std::make_unique<TcpLinks>(place, meeting.names(), std::move(meeting.data), std::move(meeting.watch)));
}

//===- Meeting.cpp - how the ranks of a job find each other --------------===//
#include "runtime/parallel/Meeting.h"

#include <algorithm>
#include <cstring>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr uint64_t kMagic = 0x32736b6e61726374; // "tcranks2": changes with the messages

enum Use : uint32_t { kWatch, kData };

template <typename T> std::span<const std::byte> bytesOf(const T &value) { return std::as_bytes(std::span(&value, 1)); }
template <typename T> std::span<std::byte> bytesOf(T &value) { return std::as_writable_bytes(std::span(&value, 1)); }

void copyText(char (&to)[64], const std::string &from) {
  std::memset(to, 0, sizeof(to));
  std::memcpy(to, from.data(), std::min(from.size(), sizeof(to) - 1));
}
} // namespace

Meeting::Meeting(const RankPlace &place, double seconds)
    : table(place.size), place(place), deadline(deadlineIn(seconds)) {
  char host[64] = "";
  (void)::gethostname(host, sizeof(host) - 1);
  own = {kMagic, place.token, kWatch, place.rank, place.size, static_cast<uint32_t>(::getpid()), 0, {}, {}};
  copyText(own.host, host);
  data.resize(place.size);
  watch.resize(place.size);
}

Status Meeting::run(bool messages, const SharedMemory *shared) {
  if (shared)
    own.memory = shared->offer();
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
  return status.ok() && messages ? connectData() : status;
}

std::vector<std::string> Meeting::names() const {
  std::vector<std::string> list;
  for (uint32_t r = 0; r < place.size; ++r)
    list.push_back(fmt::format("rank {} (host {}, process {})", r, table[r].host, table[r].process));
  return list;
}

/// The next connection of this job. Others are closed without a word.
Expected<Meeting::Guest> Meeting::accept() {
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
Status Meeting::gather() {
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
    if (hello.use == kData) { // a rank that is quick
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

void Meeting::fill(uint32_t rank, const Hello &hello, const std::string &address) {
  table[rank] = {hello.port, hello.process, hello.memory, {}, {}};
  copyText(table[rank].host, hello.host);
  copyText(table[rank].address, address);
}

Status Meeting::join() {
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
  for (RankEntry &entry : table)
    entry.host[sizeof(entry.host) - 1] = entry.address[sizeof(entry.address) - 1] = 0;
  copyText(table[0].address, place.address);
  return Status();
}

/// Every rank connects to those below it.
Status Meeting::connectData() {
  own.use = kData;
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
    if (guest->hello.use != kData || from <= place.rank || from >= place.size || data[from])
      return error("an unexpected connection of rank {} on host {}", from, guest->hello.host);
    data[from] = std::move(guest->link);
  }
  return Status();
}

//===- Watch.cpp - which ranks of a job are alive ------------------------===//
#include "runtime/parallel/Watch.h"

#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
enum Kind : uint8_t { kBeat, kAbort, kGoodbye };

/// Begins a message; its text follows.
struct Header {
  uint8_t kind;
  uint8_t unused[3];
  uint32_t textBytes;
  uint64_t step;
};

constexpr uint32_t kMostText = 1 << 16;

void notify(const Descriptor &event) {
  const uint64_t one = 1;
  (void)!::write(event.get(), &one, sizeof(one));
}
} // namespace

Watch::Watch(uint32_t rank, std::vector<std::string> names, std::vector<Descriptor> links)
    : rank(rank), names(std::move(names)), failed(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      woken(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  for (Descriptor &link : links) {
    Peer &peer = peers.emplace_back();
    peer.link = std::move(link);
    peer.lastSign = std::chrono::steady_clock::now();
  }
  thread = std::thread([this] { run(); });
}

Watch::~Watch() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  notify(woken);
  thread.join();
}

std::optional<std::string> Watch::failure(double waitSeconds) {
  std::unique_lock lock(mutex);
  if (waitSeconds > 0)
    told.wait_until(lock, deadlineIn(waitSeconds), [&] { return problem.has_value(); });
  return problem;
}

void Watch::abort(const std::string &text) {
  std::unique_lock lock(mutex);
  if (problem || own)
    return;
  own = text;
  notify(woken);
  told.wait_until(lock, deadlineIn(1), [&] { return ownTold; });
}

void Watch::send(Peer &peer, uint8_t kind, const std::string &text) {
  Header header{kind, {}, static_cast<uint32_t>(std::min<size_t>(text.size(), kMostText)), step.load()};
  std::vector<char> bytes(sizeof(header) + header.textBytes);
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::memcpy(bytes.data() + sizeof(header), text.data(), header.textBytes);
  // The connection of a stopped rank may be full, and waiting for it would delay the others. Messages are far smaller
  // than a socket's buffer, so each is sent as a whole or not at all.
  (void)::send(peer.link.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Watch::tellAll(uint8_t kind, const std::string &text) {
  for (Peer &peer : peers)
    if (peer.link)
      send(peer, kind, text);
}

void Watch::fail(const std::string &text) {
  {
    std::lock_guard lock(mutex);
    if (problem)
      return;
    problem = text;
  }
  if (rank == 0)
    tellAll(kAbort, text);
  notify(failed);
  told.notify_all();
}

std::string Watch::lost(uint32_t other, const Peer &peer, const char *how) const {
  const std::string text = fmt::format("{} {}; its last sign of life was in step {}", names[other], how, peer.step);
  return pausedSeconds > kSilenceSeconds // so long that the others have reported this rank as lost
             ? fmt::format("{}; rank {} itself had been stopped for {:.0f} s", text, rank, pausedSeconds)
             : text;
}

void Watch::handle(uint32_t from, Peer &peer, uint8_t kind, uint64_t theirStep, const std::string &text) {
  peer.step = std::max(peer.step, theirStep);
  if (kind == kGoodbye)
    peer.left = true;
  else if (kind == kAbort)
    // A message of rank 0 already names the rank that failed.
    fail(from == 0 && rank != 0 ? text : fmt::format("{}: {}", names[from], text));
}

bool Watch::hear(uint32_t from, Peer &peer) {
  std::byte buffer[4096];
  bool open = true;
  while (open) {
    ssize_t got = ::recv(peer.link.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
      break;
    // Messages that arrived before the end still count: a goodbye, or the reason of the failure.
    open = got > 0;
    if (!open)
      break;
    peer.lastSign = std::chrono::steady_clock::now();
    peer.heard.insert(peer.heard.end(), buffer, buffer + got);
  }
  Header header;
  while (peer.heard.size() >= sizeof(header)) {
    std::memcpy(&header, peer.heard.data(), sizeof(header));
    if (header.textBytes > kMostText)
      return false;
    if (peer.heard.size() < sizeof(header) + header.textBytes)
      break;
    const auto *text = reinterpret_cast<const char *>(peer.heard.data()) + sizeof(header);
    handle(from, peer, header.kind, header.step, std::string(text, header.textBytes));
    peer.heard.erase(peer.heard.begin(),
                     peer.heard.begin() + static_cast<std::ptrdiff_t>(sizeof(header) + header.textBytes));
  }
  return open;
}

void Watch::run() {
  Deadline nextBeat = std::chrono::steady_clock::now(), awake = nextBeat;
  for (;;) {
    std::vector<pollfd> entries{{woken.get(), POLLIN, 0}};
    for (Peer &peer : peers)
      if (peer.link)
        entries.push_back({peer.link.get(), POLLIN, 0});
    (void)::poll(entries.data(), entries.size(), millisecondsUntil(nextBeat));
    // A pause of this process (the job or the machine was suspended) does not count as silence of the others.
    const Deadline now = std::chrono::steady_clock::now();
    if (now - awake > std::chrono::duration<double>(2 * kBeatSeconds)) {
      pausedSeconds = std::chrono::duration<double>(now - awake).count();
      for (Peer &peer : peers)
        peer.lastSign += now - awake;
    }
    awake = now;
    uint64_t count = 0;
    (void)!::read(woken.get(), &count, sizeof(count));
    std::optional<std::string> toTell;
    bool ending = false;
    {
      std::lock_guard lock(mutex);
      if (own && !ownTold)
        toTell = own;
      ending = stopping;
    }
    for (uint32_t other = 0; other < peers.size(); ++other) {
      Peer &peer = peers[other];
      if (!peer.link)
        continue;
      const bool open = hear(other, peer);
      if (open && peer.lastSign + std::chrono::duration<double>(kSilenceSeconds) > std::chrono::steady_clock::now())
        continue;
      if (!peer.left)
        fail(lost(other, peer,
                  open ? fmt::format("has been silent for {:g} s: it was stopped, or its machine "
                                     "cannot be reached",
                                     kSilenceSeconds)
                             .c_str()
                       : "has ended"));
      peer.link.close();
    }
    if (toTell) {
      if (rank != 0)
        tellAll(kAbort, *toTell);
      fail(fmt::format("{}: {}", names[rank], *toTell));
      std::lock_guard lock(mutex);
      ownTold = true;
      told.notify_all();
    }
    if (ending) {
      tellAll(kGoodbye, "");
      return;
    }
    if (std::chrono::steady_clock::now() >= nextBeat) {
      tellAll(kBeat, "");
      nextBeat = deadlineIn(kBeatSeconds);
    }
  }
}

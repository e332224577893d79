//===- Greeting.cpp - accept only connections of the job ------------------===//
#include "runtime/parallel/Greeting.h"
#include "runtime/parallel/Host.h"
#include "support/Advice.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// "tcranks4": changes with the messages. A machine of another byte order, or another layout, has another number.
constexpr uint64_t kMagic = 0x34736b6e61726374, kAnyVersion = 0x00ffffffffffffff;
/// How long the other end may take for its part of the handshake.
constexpr double kGreetingSeconds = 5;
constexpr uint32_t kMostWords = 4096;

struct Opening {
  uint64_t magic = kMagic;
  uint32_t hasSecret = 0, unused = 0;
  Nonce nonce{};
};

/// A refusal is followed by `textBytes` bytes of text, a welcome by a proof.
struct Answer {
  uint32_t welcome = 0, textBytes = 0;
};

constexpr const char *kAdvice = "give all ranks of a job the same secret (TRUN_JOB_SECRET_FILE or TRUN_JOB_SECRET)";

/// Why two ends that do not share a secret refuse each other.
std::string differenceOf(bool connecting, bool accepting) {
  return connecting == accepting
             ? fmt::format("the other rank has another secret: it is of another job, or {}", kAdvice)
             : fmt::format("{} has a secret and {} none; {}",
                           connecting ? "the rank that connects" : "the rank that listens",
                           connecting ? "the one that listens" : "the one that connects", kAdvice);
}

/// Without a secret, checks by its location whether the other end is allowed. Error: it is not.
Status admits(const Trust &trust, const Descriptor &link, bool isNear) {
  if (!trust.secret.empty() || trust.insecure)
    return Status();
  return isNear ? requireOwnUser(link)
                : error("the job has no secret, so its ranks are those of one machine; {}, or start all with {} "
                        "on a network that you trust",
                        kAdvice, advice::flag("insecure-ranks"));
}

/// The connecting end's handshake. `unheard`: the other end closed the connection or was silent.
Status greet(const Descriptor &link, const Trust &trust, Deadline deadline, int wakes, bool &unheard) {
  const bool isNear = isWithinMachine(link);
  if (!isNear && trust.secret.empty() && !trust.insecure)
    return admits(trust, link, isNear);
  auto nonce = drawNonce();
  if (!nonce)
    return nonce.status();
  const Opening own{kMagic, trust.secret.empty() ? 0u : 1u, 0, *nonce};
  Opening theirs;
  Status status = sendAll(link, bytesOf(own), deadline, wakes);
  if (status.ok())
    status = receiveAll(link, bytesOf(theirs), deadline, wakes);
  if (!status.ok()) {
    unheard = true;
    return status;
  }
  if (theirs.magic != kMagic)
    return Status((theirs.magic & kAnyVersion) == (kMagic & kAnyVersion)
                      ? "a trun of another version listens there; start the same trun on every machine"
                      : "another program than trun listens there; give the job another MASTER_PORT");
  if (status = admits(trust, link, isNear); !status.ok())
    return status;
  Answer answer;
  Proof proof{};
  status = sendAll(link, bytesOf(proofOf(trust.secret, End::Connecting, own.nonce, theirs.nonce)), deadline, wakes);
  if (status.ok())
    status = receiveAll(link, bytesOf(answer), deadline, wakes);
  if (!status.ok()) {
    unheard = true;
    return status;
  }
  if (!answer.welcome) {
    std::string text(std::min(answer.textBytes, kMostWords), '\0');
    status = receiveAll(link, std::as_writable_bytes(std::span(text)), deadline, wakes);
    return status.ok() ? Status(text) : status;
  }
  status = receiveAll(link, bytesOf(proof), deadline, wakes);
  if (status.ok() && !isSame(proof, proofOf(trust.secret, End::Accepting, own.nonce, theirs.nonce)))
    status = Status(differenceOf(!trust.secret.empty(), theirs.hasSecret != 0));
  return status;
}
} // namespace

Expected<Descriptor> tcc::runtime::visit(const std::string &address, uint16_t port, const Trust &trust,
                                         const std::string &words, Deadline deadline, int wakes, const Tried &tried) {
  for (;;) {
    auto link = connectTo(address, port, deadline, wakes, tried);
    if (!link && wakes >= 0) // the watch knows why
      return link.status();
    if (!link)
      return error("{}; see that rank 0 listens there, and start all ranks again if it has ended", link.message());
    const Deadline until = std::min(deadline, deadlineIn(kSilentSeconds));
    bool unheard = false;
    Status status = greet(*link, trust, until, wakes, unheard);
    if (status.ok()) {
      const auto length = static_cast<uint32_t>(words.size());
      status = sendAll(*link, bytesOf(length), deadline, wakes);
      if (status.ok())
        status = sendAll(*link, bytesOf(words), deadline, wakes);
      if (status.ok())
        return link;
    }
    if (!unheard)
      return status.withContext(fmt::format("{}, port {}", address, port));
    // Closed early: the listening end had no room, or had only just begun to listen.
    if (std::chrono::steady_clock::now() >= until || !pauseFor(0.05, wakes))
      return error(
          "{}, port {}: the program that listens there does not answer ({}); if it is not of this job, give the job "
          "another MASTER_PORT",
          address, port, status.message());
  }
}

struct Door::Pending {
  Guest guest;
  Deadline until;
  enum { Opens, Proves, Begins, Speaks, Leaves } stage = Opens;
  Opening own, theirs;
  std::string heard;
};

Door::Door(Descriptor given, const Trust &trust, size_t most) : listener(std::move(given)), trust(trust), most(most) {}
Door::~Door() = default;

Status Door::acceptAll() {
  for (;;) {
    int problem = 0;
    Descriptor link = acceptNow(listener, problem);
    if ((problem == EMFILE || problem == ENFILE) && !pending.empty()) {
      pending.erase(pending.begin());
      continue;
    }
    if (problem != 0)
      return Status(systemError(problem));
    if (!link)
      return Status();
    auto address = peerAddress(link);
    auto nonce = drawNonce();
    if (!nonce)
      return nonce.status();
    if (!address) // it has gone
      continue;
    if (pending.size() >= most)
      pending.erase(pending.begin());
    Pending &one = pending.emplace_back();
    one.guest.isNear = isWithinMachine(link);
    one.guest.address = address.take();
    one.guest.link = std::move(link);
    one.until = deadlineIn(kGreetingSeconds);
    one.own.hasSecret = trust.secret.empty() ? 0 : 1;
    one.own.nonce = *nonce;
  }
}

bool Door::refuse(Pending &one, const std::string &reason) {
  latestRefusal = fmt::format("a connection from {}: {}", one.guest.address, reason);
  const Answer answer{0, static_cast<uint32_t>(reason.size())};
  const Deadline now = deadlineIn(0);
  if (!sendAll(one.guest.link, bytesOf(answer), now).ok() || !sendAll(one.guest.link, bytesOf(reason), now).ok())
    return false;
  // Its remaining bytes are still read: closing earlier could discard the reason before the other end has received it.
  (void)::shutdown(one.guest.link.get(), SHUT_WR);
  one.stage = Pending::Leaves;
  return true;
}

bool Door::hear(Pending &one) {
  char buffer[512];
  for (;;) {
    size_t wanted = sizeof(Opening);
    switch (one.stage) {
    case Pending::Opens:
      break;
    case Pending::Proves:
      wanted = sizeof(Proof);
      break;
    case Pending::Begins:
      wanted = sizeof(uint32_t);
      break;
    case Pending::Speaks:
      wanted = one.guest.words.size();
      break;
    case Pending::Leaves:
      wanted = sizeof(buffer);
      one.heard.clear();
      break;
    }
    while (one.heard.size() < wanted) {
      const ssize_t got = ::recv(one.guest.link.get(), buffer, std::min(sizeof(buffer), wanted - one.heard.size()), 0);
      if (got < 0 && errno == EINTR)
        continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return true;
      if (got <= 0)
        return false;
      one.heard.append(buffer, static_cast<size_t>(got));
    }
    const std::string heard = std::exchange(one.heard, {});
    const Deadline now = deadlineIn(0); // a few bytes on a new connection are sent without waiting
    switch (one.stage) {
    case Pending::Opens: {
      std::memcpy(static_cast<void *>(&one.theirs), heard.data(), sizeof(Opening));
      if (one.theirs.magic != kMagic) { // a stranger gets no answer
        if ((one.theirs.magic & kAnyVersion) == (kMagic & kAnyVersion)) {
          latestRefusal = fmt::format("a connection from {}: a trun of another version", one.guest.address);
          (void)sendAll(one.guest.link, bytesOf(one.own), now);
        }
        return false;
      }
      if (!sendAll(one.guest.link, bytesOf(one.own), now).ok())
        return false;
      if (Status status = admits(trust, one.guest.link, one.guest.isNear); !status.ok()) {
        if (!refuse(one, status.message()))
          return false;
        continue;
      }
      one.stage = Pending::Proves;
      continue;
    }
    case Pending::Proves: {
      Proof proof;
      std::memcpy(proof.data(), heard.data(), proof.size());
      if (!isSame(proof, proofOf(trust.secret, End::Connecting, one.theirs.nonce, one.own.nonce))) {
        if (!refuse(one, differenceOf(one.theirs.hasSecret != 0, !trust.secret.empty())))
          return false;
        continue;
      }
      const Answer answer{1, 0};
      if (!sendAll(one.guest.link, bytesOf(answer), now).ok() ||
          !sendAll(one.guest.link, bytesOf(proofOf(trust.secret, End::Accepting, one.theirs.nonce, one.own.nonce)), now)
               .ok())
        return false;
      one.stage = Pending::Begins;
      continue;
    }
    case Pending::Begins: {
      uint32_t length = 0;
      std::memcpy(&length, heard.data(), sizeof(length));
      if (length == 0 || length > kMostWords)
        return false;
      one.guest.words.resize(length);
      one.stage = Pending::Speaks;
      continue;
    }
    case Pending::Speaks:
      one.guest.words = heard;
      ready.push_back(std::move(one.guest));
      return false;
    case Pending::Leaves:
      continue;
    }
  }
}

Expected<std::optional<Guest>> Door::next(Deadline deadline, std::span<const int> others) {
  for (;;) {
    if (!ready.empty()) {
      Guest guest = std::move(ready.front());
      ready.erase(ready.begin());
      return std::optional<Guest>(std::move(guest));
    }
    const Deadline now = deadlineIn(0);
    std::erase_if(pending, [&](const Pending &one) { return one.until <= now; });
    Deadline until = deadline;
    entries.assign(1, {listener.get(), POLLIN, 0});
    for (const Pending &one : pending) {
      until = std::min(until, one.until);
      entries.push_back({one.guest.link.get(), POLLIN, 0});
    }
    for (int other : others)
      entries.push_back({other, POLLIN, 0});
    if (::poll(entries.data(), entries.size(), millisecondsUntil(until)) < 0 && errno != EINTR)
      return Status(systemError(errno));
    for (size_t i = 0; i < others.size(); ++i)
      if (entries[1 + pending.size() + i].revents)
        return std::optional<Guest>();
    size_t number = 0;
    std::erase_if(pending, [&](Pending &one) { return entries[++number].revents && !hear(one); });
    if (entries[0].revents)
      if (Status status = acceptAll(); !status.ok())
        return status;
    if (ready.empty() && (latestRefusal || std::chrono::steady_clock::now() >= deadline))
      return std::optional<Guest>();
  }
}

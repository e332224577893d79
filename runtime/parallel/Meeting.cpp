//===- Meeting.cpp - how the ranks of a job find each other --------------===//
#include "runtime/parallel/Meeting.h"
#include "runtime/parallel/Host.h"
#include "runtime/parallel/Watch.h"
#include "support/Advice.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <type_traits>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
enum Use : uint32_t { kWatch, kData };
/// Rank 0's answer: the new rank is refused, or belongs to the job, or the job cannot begin.
enum class Verdict : uint32_t { Refused, Accepted, Failed };
/// Begins rank 0's answer on a watch connection; its text follows.
struct Decision {
  Verdict verdict = Verdict::Refused;
  uint32_t bytes = 0;
};
constexpr uint32_t kMostAnswer = 1 << 28;
constexpr size_t kMostStrangers = 64; ///< that are served at once, besides the ranks
constexpr int kMostNotes = 20;

/// Writes numbers as they are in memory, and texts preceded by their lengths.
struct Packer {
  std::string bytes;
  template <typename T> void operator()(const T &value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes.append(reinterpret_cast<const char *>(&value), sizeof(value));
  }
  void operator()(const std::string &text) {
    (*this)(static_cast<uint32_t>(text.size()));
    bytes += text;
  }
};

/// Reads them back. `good` becomes false if the bytes end too early.
struct Unpacker {
  std::string_view bytes;
  bool good = true;
  template <typename T> void operator()(T &value) {
    static_assert(std::is_trivially_copyable_v<T>);
    good = good && bytes.size() >= sizeof(value);
    if (!good)
      return;
    std::memcpy(&value, bytes.data(), sizeof(value));
    bytes.remove_prefix(sizeof(value));
  }
  void operator()(std::string &text) {
    uint32_t length = 0;
    (*this)(length);
    good = good && bytes.size() >= length;
    if (!good)
      return;
    text = bytes.substr(0, length);
    bytes.remove_prefix(length);
  }
};

template <typename Pack> void packEntry(Pack &&pack, auto &entry) {
  pack(entry.process);
  pack(entry.port);
  pack(entry.memory);
  pack(entry.host);
  pack(entry.machine);
  pack(entry.address);
}

/// True if the other end has closed a connection on which no data is due yet.
bool hasEnded(const Descriptor &link) {
  char byte = 0;
  return ::recv(link.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 ||
         (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/// Answers a watch connection.
void answer(const Descriptor &link, Verdict verdict, const std::string &text, Deadline deadline) {
  const Decision begin{verdict, static_cast<uint32_t>(text.size())};
  if (sendAll(link, bytesOf(begin), deadline).ok())
    (void)sendAll(link, bytesOf(text), deadline);
}
} // namespace

/// The words (Greeting.h) that a rank sends on each connection that it opens.
struct Meeting::Hello {
  uint32_t use = kWatch, rank = 0, size = 0;
  uint64_t job = 0;
  std::string name; ///< RankPlace::job
  RankEntry entry;

  static void pack(auto &&with, auto &&hello) {
    with(hello.use);
    with(hello.rank);
    with(hello.size);
    with(hello.job);
    with(hello.name);
    packEntry(with, hello.entry);
  }
};

Meeting::Meeting(const RankPlace &place, double seconds)
    : data(place.size), watch(place.size), table(place.size), place(place), seconds(seconds) {
  RankEntry &own = table[place.rank];
  own.process = static_cast<uint32_t>(::getpid());
  own.host = hostName();
  own.machine = place.machine.empty() ? machineName() : place.machine;
}

void Meeting::note(const std::string &text) const {
  if (place.note && notes++ < kMostNotes)
    place.note(text);
}

Status Meeting::meet(const SharedMemory *shared) {
  if (Status status = makeRoomForConnections(place.size); !status.ok())
    return status;
  const bool alone = place.trust.secret.empty() && !place.trust.insecure && place.localSize < place.size;
  if (alone && !isLoopback(place.address))
    return error(
        "rank {}: {} of the {} ranks are on this machine (LOCAL_WORLD_SIZE), and the job has no secret by which "
        "ranks of other machines prove that they belong to it; set TRUN_JOB_SECRET_FILE for all ranks to a file "
        "with one (openssl rand -hex 32), or start all with {} on a network that you trust. If all are on this "
        "machine, set LOCAL_WORLD_SIZE to {}",
        place.rank, place.localSize, place.size, advice::flag("insecure-ranks"), place.size);
  RankEntry &own = table[place.rank];
  if (shared)
    own.memory = shared->offer();
  const uint16_t wanted = place.rank == 0 ? place.port : uint16_t(0);
  auto made = place.listener >= 0 ? Expected<Descriptor>(Descriptor(place.listener))
                                  : listenOn(place.launched ? place.address : "", wanted);
  if (!made)
    return place.rank == 0 && wanted
               ? error(
                     "rank 0 {}{}; is another job's rank 0 there? Give each job of a machine a MASTER_PORT of its own",
                     made.message(), place.portName.empty() ? "" : fmt::format(" ({})", place.portName))
               : made.status();
  auto port = portOf(*made);
  if (!port)
    return port.status();
  own.port = *port;
  door.emplace(made.take(), place.trust, place.size + kMostStrangers);
  if (place.rank != 0)
    return join();
  Status status = gather(*door);
  // The other ranks wait for an answer.
  for (uint32_t r = 1; r < place.size && !status.ok(); ++r)
    if (watch[r])
      answer(watch[r], Verdict::Failed, fmt::format("{}: {}", names()[0], status.message()), deadlineIn(1));
  return status;
}

std::vector<std::string> Meeting::names() const {
  std::vector<std::string> list;
  for (uint32_t r = 0; r < place.size; ++r)
    list.push_back(fmt::format("rank {} (host {}, process {})", r, table[r].host, table[r].process));
  return list;
}

std::string Meeting::missing(const std::vector<Descriptor> &links, uint32_t first) const {
  std::vector<std::string> list;
  for (uint32_t r = first; r < place.size; ++r)
    if (!links[r])
      list.push_back(std::to_string(r));
  constexpr size_t kMostNamed = 8;
  const size_t more = list.size() > kMostNamed ? list.size() - kMostNamed : 0;
  std::string text = list.size() == 1 ? "rank " : "ranks ";
  list.resize(list.size() - more);
  text += fmt::format("{}", fmt::join(list, ", "));
  return more ? text + fmt::format(" and {} more", more) : text;
}

/// Rank 0: collects the entries of all other ranks, then sends each the whole table.
Status Meeting::gather(Door &open) {
  auto drawn = drawNonce();
  if (!drawn)
    return drawn.status();
  std::memcpy(&job, drawn->data(), sizeof(job));
  const Deadline deadline = deadlineIn(seconds);
  Deadline nextNote = deadlineIn(place.noteSeconds);
  std::string refusal;
  auto count = [&] {
    return std::count_if(watch.begin(), watch.end(), [](const Descriptor &link) { return bool(link); });
  };
  while (static_cast<uint32_t>(count()) + 1 < place.size) {
    std::vector<int> others; // a waiting rank sends nothing, so a readable connection has been closed
    for (const Descriptor &link : watch)
      if (link)
        others.push_back(link.get());
    auto guest = open.next(std::min(deadline, nextNote), others);
    if (!guest)
      return error("rank 0 accepts no more connections while {} of {} {} missing: {}", missing(watch, 1), place.size,
                   missing(watch, 1).starts_with("ranks") ? "are" : "is", guest.message());
    if (auto refused = open.refused()) {
      refusal = "; refused was " + *refused;
      note("refused " + *refused);
    }
    for (uint32_t r = 1; r < place.size; ++r) {
      if (!watch[r] || !hasEnded(watch[r]))
        continue;
      const std::string others = missing(watch, 1);
      watch[r].close();
      return error("{} has ended while ranks were still to come: missing {}", names()[r], others);
    }
    if (*guest) {
      if (Status status = receive(std::move(**guest)); !status.ok())
        return status;
      continue;
    }
    const Deadline now = deadlineIn(0);
    if (now >= deadline)
      return error("{} of {} {} not come in time{}", missing(watch, 1), place.size,
                   missing(watch, 1).starts_with("ranks") ? "have" : "has", refusal);
    if (now >= nextNote) {
      note(fmt::format("rank 0 waits for {} of {} at port {}", missing(watch, 1), place.size, table[0].port));
      nextNote = deadlineIn(place.noteSeconds);
    }
  }
  Packer told;
  told(job);
  for (const RankEntry &entry : table)
    packEntry(told, entry);
  for (uint32_t r = 1; r < place.size; ++r)
    answer(watch[r], Verdict::Accepted, told.bytes, deadlineIn(seconds));
  return Status();
}

Status Meeting::receive(Guest guest) {
  Hello hello;
  Unpacker words{guest.words};
  Hello::pack(words, hello);
  auto refuse = [&](const std::string &text) {
    answer(guest.link, Verdict::Refused, text, deadlineIn(1));
    note(fmt::format("refused a rank {} (host {}, process {}): {}", hello.rank, hello.entry.host, hello.entry.process,
                     text));
    return Status();
  };
  if (!words.good || hello.use != kWatch)
    return refuse("it is not at the start of a job");
  const std::string noRun = fmt::format("no {}", advice::option("out"));
  if (hello.name != place.job)
    return refuse(
        fmt::format("it is of another job: rank 0 has {}, it has {}; give each job of a machine a MASTER_PORT of "
                    "its own, and all ranks of a job the same command",
                    place.job.empty() ? noRun : place.job, hello.name.empty() ? noRun : hello.name));
  if (hello.size != place.size) {
    const std::string text =
        fmt::format("rank {} (host {}, process {}) says that the job has {} ranks, rank 0 that it has {}; start all of "
                    "them with the same WORLD_SIZE",
                    hello.rank, hello.entry.host, hello.entry.process, hello.size, place.size);
    answer(guest.link, Verdict::Refused, text, deadlineIn(1));
    return Status(text);
  }
  if (hello.rank == 0 || hello.rank >= place.size || watch[hello.rank])
    return refuse(
        fmt::format("{} is in this job already: give each rank a RANK of its own, and each job of a machine a "
                    "MASTER_PORT of its own",
                    hello.rank < place.size ? names()[hello.rank] : fmt::format("no rank {}", hello.rank)));
  table[hello.rank] = hello.entry;
  table[hello.rank].address = guest.isNear ? "" : guest.address;
  watch[hello.rank] = std::move(guest.link);
  return Status();
}

Status Meeting::join() {
  const std::string context =
      fmt::format("rank {} of {} waits for rank 0 at {}:{}", place.rank, place.size, place.address, place.port);
  Packer words;
  Hello::pack(words, Hello{kWatch, place.rank, place.size, 0, place.job, table[place.rank]});
  Deadline nextNote = deadlineIn(place.noteSeconds);
  auto link = visit(place.address, place.port, place.trust, words.bytes, deadlineIn(seconds), /*wakes=*/-1,
                    [&](const std::string &reason) {
                      if (deadlineIn(0) < nextNote)
                        return;
                      note(fmt::format("{}: {}", context, reason));
                      nextNote = deadlineIn(place.noteSeconds);
                    });
  if (!link)
    return link.status().withContext(context);
  // Rank 0 began to wait before this rank found it, so it answers or ends within `seconds`.
  const Deadline deadline = deadlineIn(seconds + 1);
  Decision begin;
  Status status = receiveAll(*link, bytesOf(begin), deadline);
  std::string text;
  if (status.ok()) {
    text.resize(std::min(begin.bytes, kMostAnswer));
    status = receiveAll(*link, std::as_writable_bytes(std::span(text)), deadline);
  }
  if (!status.ok()) {
    told = place.launched;
    return status.withContext(context + ", which has ended or is silent");
  }
  told = begin.verdict == Verdict::Failed;
  if (begin.verdict != Verdict::Accepted)
    return Status(
        fmt::format("rank {} was not taken into the job at {}:{}: {}", place.rank, place.address, place.port, text));
  auto address = peerAddress(*link);
  if (!address)
    return address.status().withContext(context);
  Unpacker told{text};
  told(job);
  for (RankEntry &entry : table) {
    packEntry(told, entry);
    if (entry.address.empty())
      entry.address = *address;
  }
  watch[0] = link.take();
  table[0].port = place.port; // at which this rank reaches it
  return told.good ? Status() : error("{}: its answer is damaged", context);
}

bool tcc::runtime::isTold(Watch &alive, const RankPlace &place, const std::string &first) {
  const std::optional<std::string> failure = alive.failure();
  // A message from rank 0 itself begins with its name and a colon. Its death is reported by startRanks.
  return place.rank != 0 && failure &&
         (place.launched || !failure->starts_with(first) || failure->starts_with(first + ": "));
}

/// Every rank connects to the ranks of lower number.
Status Meeting::connect(Watch &alive) {
  Packer words;
  Hello::pack(words, Hello{kData, place.rank, place.size, job, place.job, table[place.rank]});
  const Deadline deadline = deadlineIn(seconds);
  Status status;
  for (uint32_t r = 0; r < place.rank && status.ok(); ++r) {
    auto link = visit(table[r].address, static_cast<uint16_t>(table[r].port), place.trust, words.bytes, deadline,
                      alive.wakes());
    if (link)
      data[r] = link.take();
    else
      status = link.status().withContext(names()[r]);
  }
  const int failed[] = {alive.wakes()};
  for (uint32_t awaited = place.size - 1 - place.rank; awaited > 0 && status.ok();) {
    auto guest = door->next(deadline, failed);
    if (!guest)
      status = guest.status();
    else if (!*guest && (alive.failure() || std::chrono::steady_clock::now() >= deadline))
      status = error("{} of {} {} not connected to rank {} in time", missing(data, place.rank + 1), place.size,
                     awaited == 1 ? "has" : "have", place.rank);
    if (!status.ok() || !*guest)
      continue;
    Hello hello;
    Unpacker heard{(*guest)->words};
    Hello::pack(heard, hello);
    const bool isOurs = heard.good && hello.job == job && hello.rank > place.rank && hello.rank < place.size;
    if (!isOurs || hello.use != kData || data[hello.rank]) {
      answer((*guest)->link, Verdict::Refused,
             "all ranks of the job that listens there have come: give each job a MASTER_PORT of its own",
             deadlineIn(1));
      continue;
    }
    data[hello.rank] = std::move((*guest)->link);
    --awaited;
  }
  door.reset();
  if (status.ok())
    return status;
  if (!alive.failure(2)) // no rank has ended: the broken connection itself is the failure
    alive.abort(status.message());
  told = isTold(alive, place, names()[0]);
  return Status(alive.failure().value_or(status.message()));
}

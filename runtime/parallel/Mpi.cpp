//===- Mpi.cpp - ranks that MPI started ----------------------------------===//
#include "runtime/parallel/Mpi.h"
#include "runtime/parallel/Host.h"
#include "runtime/parallel/Meeting.h"
#include "runtime/parallel/WiredLinks.h"
#include "runtime/parallel/mpi/Plugin.h"
#include "runtime/plan/PlanFile.h"
#include "support/Advice.h"
#include "support/Plugins.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
constexpr const char *kPlugin = "trun-mpi.so";
constexpr int kHeaderTag = 1, kBodyTag = 2;
constexpr uint64_t kInvitation = 0x3169706d6e757274; // "trunmpi1": changes with Invitation

/// This process's part of the job: one for as long as it runs.
struct Session {
  const TrunMpi *mpi = nullptr;
  bool first = false; ///< rank 0, which reports failures
  int status = 0;
} session;

/// The symbols are made global: the MPI libraries open parts of their own, which look for the symbols of the others.
Expected<const TrunMpi *> openPlugin(const MpiStart &start) {
  const std::string path = pluginPath(kPlugin);
  const std::string wayOut = fmt::format(
      "or start the ranks with {}, or with torchrun's variables, which need no MPI", advice::option("nproc"));
  if (::access(path.c_str(), R_OK) != 0)
    return error("MPI started this process ({}), but {} is missing: this trun was built without MPI. Install "
                 "libopenmpi-dev and openmpi-bin and build again, {}",
                 start.variable, path, wayOut);
  void *handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!handle)
    return error("MPI started this process ({}), but {}; install libopenmpi3 and openmpi-bin, {}", start.variable,
                 ::dlerror(), wayOut);
  auto find = reinterpret_cast<const TrunMpi *(*)()>(::dlsym(handle, "trunMpi"));
  const TrunMpi *mpi = find ? find() : nullptr;
  if (!mpi || mpi->version != TRUN_MPI_VERSION)
    return error("{} was built for another version of trun; build both again", path);
  return mpi;
}

class Messages final : public Wire {
public:
  explicit Messages(const TrunMpi &mpi) : mpi(mpi) {}

  Moved move(Progress &progress) override {
    const Transfer &transfer = *progress.transfer;
    // The header is a message of its own: it gives the size of the message that follows.
    const size_t end = transfer.introduces && progress.part == 0 ? 1 : transfer.parts.size();
    const char *failed = nullptr;
    if (progress.request < 0) {
      parts.clear();
      for (size_t i = progress.part; i < end; ++i)
        if (transfer.parts[i].bytes > 0)
          parts.push_back({transfer.parts[i].data, transfer.parts[i].bytes});
      if (parts.empty()) {
        progress.part = end;
        return Moved::Some;
      }
      failed = mpi.post(transfer.peer, transfer.send, end == 1 && transfer.introduces ? kHeaderTag : kBodyTag,
                        parts.data(), parts.size(), &progress.request);
    }
    int done = 0;
    if (!failed)
      failed = mpi.test(progress.request, &done);
    if (failed) {
      progress.request = -1;
      reason = failed;
      return Moved::Broken;
    }
    if (!done)
      return Moved::Nothing;
    progress.request = -1;
    progress.part = end;
    idle = 0;
    return Moved::Some;
  }

  /// MPI makes progress only in calls: yields for a moment, then sleeps ever longer between them.
  void wait(std::span<const Progress>, int, int) override {
    constexpr int kYields = 200, kLongest = 10;
    if (++idle < kYields) {
      (void)::sched_yield();
      return;
    }
    const timespec time{0, 20'000L * std::min(idle - kYields + 1, kLongest)};
    (void)::nanosleep(&time, nullptr);
  }

private:
  const TrunMpi &mpi;
  std::vector<TrunMpiPart> parts;
  int idle = 0; ///< calls of wait since something moved
};

/// The data that every rank sends to the others. Secret, port and addresses are those at which rank 0 listens for the
/// watch.
struct Invitation {
  char secret[sizeof(Nonce)]; ///< of the job; only ranks that MPI started receive it
  uint32_t port;
  uint64_t machine; ///< a checksum of machineName
  cpu_set_t processors;
  char addresses[8][64]; ///< numeric
};

void copyText(char (&to)[64], std::string_view from) {
  std::memset(to, 0, sizeof(to));
  std::memcpy(to, from.data(), std::min(from.size(), sizeof(to) - 1));
}

/// The addresses of this machine that others may reach, those of its name first.
std::vector<std::string> ownAddresses() {
  std::vector<std::string> list;
  ifaddrs *all = nullptr;
  if (::getifaddrs(&all) != 0)
    return list;
  for (const ifaddrs *one = all; one; one = one->ifa_next) {
    const int family = one->ifa_addr ? one->ifa_addr->sa_family : AF_UNSPEC;
    char text[NI_MAXHOST];
    if (family != AF_INET && family != AF_INET6)
      continue;
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (::getnameinfo(one->ifa_addr, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0 &&
        !std::string_view(text).starts_with("127.") && std::string_view(text) != "::1" &&
        !std::string_view(text).starts_with("fe80"))
      list.insert(family == AF_INET ? list.begin() : list.end(), text);
  }
  ::freeifaddrs(all);
  return list;
}

/// Makes rank 0's address, port and secret known to all ranks.
Status invite(const TrunMpi &mpi, RankPlace &place, Descriptor &listener, double seconds) {
  // Exchanged first, because the invitation of another version may have another size.
  const uint64_t version = kInvitation;
  std::vector<uint64_t> versions(place.size);
  if (const char *failed = mpi.gather(&version, sizeof(version), versions.data()))
    return error("rank {} of {}: {}", place.rank, place.size, failed);
  for (uint32_t other = 0; other < place.size; ++other)
    if (versions[other] != version)
      return error("rank {} is of another version of trun than rank {}; start the same trun on every machine", other,
                   place.rank);
  Invitation own{};
  const std::string machine = machineName();
  own.machine = plan::hashBytes(machine.data(), machine.size());
  (void)::sched_getaffinity(0, sizeof(own.processors), &own.processors);
  if (place.rank == 0) {
    auto made = listenOn("", 0);
    if (!made)
      return made.status();
    auto port = portOf(*made);
    if (!port)
      return port.status();
    listener = made.take();
    own.port = *port;
    auto secret = drawSecret();
    if (!secret)
      return secret.status();
    std::memcpy(own.secret, secret->data(), sizeof(own.secret));
    size_t count = 0;
    for (const std::string &address : ownAddresses())
      if (count < std::size(own.addresses))
        copyText(own.addresses[count++], address);
  }
  std::vector<Invitation> all(place.size);
  if (const char *failed = mpi.gather(&own, sizeof(own), all.data()))
    return error("rank {} of {}: {}", place.rank, place.size, failed);
  // Find out whether the launcher bound each rank to its own processors, or lets all share them.
  place.bound = true;
  for (uint32_t other = 0; other < place.size; ++other) {
    cpu_set_t common;
    CPU_AND(&common, &own.processors, &all[other].processors);
    if (other != place.rank && all[other].machine == own.machine && CPU_COUNT(&common) > 0)
      place.bound = false;
  }
  const Invitation &given = all[0];
  place.port = static_cast<uint16_t>(given.port);
  place.trust.secret.assign(given.secret, sizeof(given.secret));
  place.address = "127.0.0.1";
  if (place.rank == 0 || own.machine == given.machine)
    return Status();
  std::string reason = "it has no address";
  for (const Deadline deadline = deadlineIn(seconds); std::chrono::steady_clock::now() < deadline;)
    for (const char(&address)[64] : given.addresses) {
      if (!address[0])
        continue;
      auto reached = connectTo(address, place.port, deadlineIn(3)); // rank 0 drops connections that say nothing
      place.address = address;
      if (reached)
        return Status();
      reason = reached.message();
    }
  return error("rank {} cannot reach rank 0, port {}, for signs of life over TCP: {}", place.rank, place.port, reason);
}
} // namespace

void tcc::runtime::endMpi() {
  if (!session.mpi || session.status == 0)
    return;
  // Give rank 0 time to report the failure: the launcher ends it as soon as another rank has exited.
  if (!session.first) {
    const timespec time{2, 0};
    (void)::nanosleep(&time, nullptr);
  }
  session.mpi->end(session.status);
}

/// True for a Slurm step without a process manager interface (PMIx, PMI): MPI cannot find its ranks there, and would
/// end the process with a message of its own.
static bool isBareSlurm(const MpiStart &start) {
  return start.variable.starts_with("SLURM_") && !std::getenv("PMIX_RANK") && !std::getenv("PMI_FD");
}

std::optional<MpiStart> tcc::runtime::mpiFromEnvironment() {
  // Each is set only in ranks, unlike SLURM_PROCID, which sbatch scripts have, too.
  struct Sign {
    const char *set, *size;
  };
  for (auto [set, size] : {Sign{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"}, Sign{"PMI_RANK", "PMI_SIZE"},
                           Sign{"SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_TASKS"}, Sign{"PMIX_RANK", nullptr}}) {
    const char *value = std::getenv(set), *count = size ? std::getenv(size) : nullptr;
    if (!value)
      continue;
    MpiStart start{fmt::format("{}={}", set, value), std::nullopt};
    uint64_t number = 0;
    if (count && std::from_chars(count, count + std::strlen(count), number).ec == std::errc())
      start.size = number;
    if (isBareSlurm(start) && start.size == 1)
      continue; // a single process of `srun trun …`
    return start;
  }
  return std::nullopt;
}

Expected<MpiJob> tcc::runtime::joinMpi(const MpiStart &start, double seconds) {
  auto opened = openPlugin(start);
  if (!opened)
    return opened.status();
  const TrunMpi &mpi = **opened;
  if (isBareSlurm(start))
    return error("{}: srun started this rank without PMIx, by which ranks find each other: start with srun --mpi=pmix "
                 "(srun --mpi=list names what this Slurm has), or with mpirun",
                 start.variable);
  TrunMpiPlace given{0, 1, 0, 1};
  if (const char *failed = mpi.start(&given))
    return error("MPI does not start: {}", failed);
  session.mpi = &mpi;
  session.first = given.rank == 0;
  session.status = 1; // until it leaves in order
  if (start.size && *start.size != given.size)
    return error("{}, but MPI found {} rank{}: the launcher and trun's MPI do not know each other. Start with the "
                 "mpirun of the MPI that trun-mpi.so was built with, or with srun --mpi=pmix",
                 start.variable, given.size, given.size == 1 ? "" : "s");
  MpiJob job;
  job.place.rank = given.rank;
  job.place.size = given.size;
  job.place.localRank = given.localRank;
  job.place.localSize = given.localSize;
  if (given.size == 1)
    return job;
  Descriptor listener;
  if (Status status = invite(mpi, job.place, listener, seconds); !status.ok())
    return status;
  if (listener) {
    job.place.listener = ::fcntl(listener.get(), F_DUPFD_CLOEXEC, 0);
    listener.close();
  }
  Meeting meeting(job.place, seconds);
  if (Status status = meeting.meet(); !status.ok())
    return status;
  std::vector<std::unique_ptr<Wire>> wires;
  wires.push_back(std::make_unique<Messages>(mpi));
  std::vector<Wire *> routes(given.size, wires.front().get());
  routes[given.rank] = nullptr;
  job.links =
      std::make_unique<WiredLinks>(given.rank, meeting.names(), std::move(wires), std::move(routes),
                                   std::make_unique<Watch>(given.rank, meeting.names(), std::move(meeting.watch)));
  return job;
}

Status tcc::runtime::leaveMpi(int status) {
  session.status = status;
  if (!session.mpi || status != 0)
    return Status();
  const char *failed = session.mpi->finish();
  session.mpi = nullptr;
  return failed ? error("MPI: {}", failed) : Status();
}

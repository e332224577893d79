//===- OnRanks.cpp - a command that several ranks carry out --------------===//
#include "tools/trun/OnRanks.h"
#include "runtime/parallel/Collectives.h"
#include "runtime/parallel/EnvironmentPlace.h"
#include "runtime/parallel/Host.h"
#include "runtime/parallel/Mpi.h"
#include "runtime/parallel/NullGroup.h"
#include "tools/common/ExitStatus.h"
#include "tools/common/StandardStreams.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;
using namespace tcc::tools;

/// This process as one rank of its job.
static Status asRank(const RankPlace &place, std::unique_ptr<Links> links,
                     const std::function<Status(const OwnRank &)> &body) {
  auto made = makeCommunicator(std::move(links));
  if (!made)
    return made.status();
  const std::unique_ptr<Communicator> ranks = made.take();
  Status status = body({.ranks = ranks.get(),
                        .localRank = place.localRank,
                        .sharers = place.launched || place.bound ? 1 : std::max(place.localSize, 1u)});
  if (place.rank == 0)
    return status;
  if (status.ok())
    return status;
  // Rank 0 prints every failure except its own death, and failures that all ranks detect. An error that it sent to the
  // others begins with its name and a colon.
  const std::optional<std::string> failure = ranks->failure();
  const std::string first = ranks->describe(0);
  const bool told = place.launched || !failure || !failure->starts_with(first) || failure->starts_with(first + ": ") ||
                    status.message().find(*failure) == std::string::npos;
  return Status(told ? "" : fmt::format("rank {}: {}", place.rank, status.message()), status.code());
}

static Status connected(RankPlace place, const JobOptions &options,
                        const std::function<Status(const OwnRank &)> &body) {
  // Jobs with the same secret, or without one, are distinguished by their run folder, which all ranks of a job share.
  if (!options.run.empty())
    place.job += fmt::format("{}the run {}", place.job.empty() ? "" : ", ", options.run);
  place.trust.insecure = options.insecureRanks;
  if (!options.quiet)
    place.note = [](const std::string &text) { printMessage("trun: note: {}\n", text); };
  constexpr double kSeconds = 120;
  bool told = false;
  auto links = connectRanks(place, kSeconds, &told);
  if (!links && told)
    return Status("", links.status().code());
  return links ? asRank(place, links.take(), body) : links.status();
}

/// This process as one that MPI started.
static Status byMpi(const MpiStart &start, const std::function<Status(const OwnRank &)> &body) {
  std::atexit([] {
    std::fflush(nullptr);
    endMpi();
  });
  auto job = joinMpi(start);
  Status status = !job         ? job.status()
                  : job->links ? asRank(job->place, std::move(job->links), body)
                               : body({});
  if (Status left = leaveMpi(exitStatusOf(status)); !left.ok())
    printMessage("trun: warning: {}\n", left.message());
  return status;
}

Status tcc::tools::onRanks(const JobOptions &options, const std::function<Status(const OwnRank &)> &body) {
  auto given = placeFromEnvironment();
  if (!given)
    return given.status();
  const uint32_t processes = std::max(options.processes, 1u);
  if (*given && (*given)->size > 1 && options.processes > 1)
    return Status(
        fmt::format("--nproc {}: this process is rank {} of {} of a job already (RANK, WORLD_SIZE); leave --nproc "
                    "out",
                    processes, (*given)->rank, (*given)->size),
        StatusCode::Usage);
  if (*given && (*given)->size > 1 && options.device == "null")
    return Status("--device null: one process checks what every rank does; start it once, with --nproc",
                  StatusCode::Usage);
  if (*given && (*given)->size > 1)
    return connected(**given, options, body);
  // torchrun's variables take precedence: they may be set on purpose, whereas MPI's always come with its launcher.
  const std::optional<MpiStart> mpi = *given ? std::nullopt : mpiFromEnvironment();
  if (mpi && mpi->size.value_or(2) > 1) {
    if (processes > 1)
      return Status(
          fmt::format("--nproc {}: MPI started this process as a rank of a job already ({}); leave --nproc out",
                      processes, mpi->variable),
          StatusCode::Usage);
    if (options.device == "null")
      return Status("--device null: one process checks what every rank does; start it once, with --nproc",
                    StatusCode::Usage);
    return byMpi(*mpi, body);
  }
  if (processes == 1)
    return body({});
  if (options.device == "null") { // nothing is computed: one process checks what a rank does
    auto group = makeNullGroup(processes);
    return body({.ranks = group.front().get()});
  }
  auto started = startRanks(processes);
  if (!started)
    return started.status();
  if (started->place)
    return connected(*started->place, options, body);
  // Rank 0 reports the failures that it sees, but not its own death.
  const bool silent = started->problem.empty() || !started->problem.starts_with("rank 0 ");
  return started->exitStatus == kExitDone ? Status()
                                          : Status(silent ? "" : started->problem, statusCodeOf(started->exitStatus));
}

namespace {
/// How long ranks have to end by themselves after one has failed: rank 0 has longer, it may be writing a checkpoint.
constexpr double kGraceSeconds = 3, kFirstGraceSeconds = 60;

std::vector<int> usableList() {
  std::vector<int> list;
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set))
        list.push_back(i);
  return list;
}

struct Child {
  pid_t process = 0;
  bool running = false;
  int status = 0;
};

/// 'R', 'S', 'T' …: the state of a process; 0: it is gone.
char stateOf(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text);
  const size_t name = text.rfind(')'); // the process name before it may contain any character
  return name != std::string::npos && name + 2 < text.size() ? text[name + 2] : '\0';
}

/// The calling process while the ranks run: it forwards signals and ends the ranks that are left.
class Supervisor {
public:
  explicit Supervisor(std::vector<Child> started) : ranks(std::move(started)) {}

  Started run(const sigset_t &signals) {
    while (anyRuns()) {
      const timespec wait{0, 200'000'000};
      siginfo_t info;
      const int number = ::sigtimedwait(&signals, &info, &wait);
      if (number > 0 && number != SIGCHLD)
        for (const Child &child : ranks)
          if (child.running)
            ::kill(child.process, number);
      reap();
      if (ending)
        endRest();
    }
    Started result;
    for (const Child &child : ranks) {
      const int code = WIFEXITED(child.status) ? WEXITSTATUS(child.status) : kExitFault;
      if (result.exitStatus == 0)
        result.exitStatus = code;
    }
    result.problem = problem;
    return result;
  }

private:
  bool anyRuns() const {
    for (const Child &child : ranks)
      if (child.running)
        return true;
    return false;
  }

  void reap() {
    int status = 0;
    for (pid_t process; (process = ::waitpid(-1, &status, WNOHANG)) > 0;)
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        if (ranks[rank].process != process)
          continue;
        ranks[rank].running = false;
        ranks[rank].status = status;
        const bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
        if (WIFSIGNALED(status) && !killing && problem.empty())
          problem = fmt::format("rank {} (process {}) was ended by signal {} ({})", rank, process, WTERMSIG(status),
                                strsignal(WTERMSIG(status)));
        if (!ending && (failed || rank == 0)) {
          ending = true;
          begun = std::chrono::steady_clock::now();
        }
      }
  }

  /// Kills stopped ranks, which cannot end by themselves, and those whose time is up.
  void endRest() {
    const double waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (!ranks[rank].running)
        continue;
      const char state = stateOf(ranks[rank].process);
      if (state == 'T' || waited > (rank == 0 ? kFirstGraceSeconds : kGraceSeconds)) {
        killing = true;
        ::kill(ranks[rank].process, SIGKILL);
      }
    }
  }

  std::vector<Child> ranks;
  bool ending = false, killing = false;
  std::chrono::steady_clock::time_point begun;
  std::string problem;
};

/// Sets up a new rank: process group, end with the parent, standard input, processors.
void becomeRank(const RankPlace &place, pid_t parent, const std::vector<int> &processors) {
  // With a process group of its own, the rank gets the terminal's signals only once, through the parent. It is killed
  // when the parent ends, in whatever way.
  (void)::setpgid(0, 0);
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent)
    ::_exit(kExitFault);
  if (int none = ::open("/dev/null", O_RDONLY | O_CLOEXEC); none >= 0) {
    (void)::dup2(none, STDIN_FILENO);
    (void)::close(none);
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int processor : shareOf(processors, place.rank, place.size))
    CPU_SET(processor, &set);
  if (CPU_COUNT(&set) > 0)
    (void)::sched_setaffinity(0, sizeof(set), &set);
}
} // namespace

std::vector<int> tcc::tools::shareOf(const std::vector<int> &processors, uint32_t rank, uint32_t count) {
  const size_t all = processors.size();
  if (all < count)
    return all == 0 ? processors : std::vector<int>{processors[rank % all]};
  return {processors.begin() + static_cast<std::ptrdiff_t>(all * rank / count),
          processors.begin() + static_cast<std::ptrdiff_t>(all * (rank + 1) / count)};
}

Expected<Started> tcc::tools::startRanks(uint32_t count) {
  if (Status status = makeRoomForConnections(count); !status.ok()) // once, not from every rank
    return status;
  auto listener = listenOn("127.0.0.1", 0);
  if (!listener)
    return listener.status();
  auto port = portOf(*listener);
  if (!port)
    return port.status();
  RankPlace place;
  place.size = place.localSize = count;
  place.address = "127.0.0.1";
  place.launched = true;
  place.port = *port;
  auto secret = drawSecret();
  if (!secret)
    return secret.status();
  place.trust.secret = secret.take();
  const std::vector<int> processors = usableList();
  sigset_t watched, before;
  sigemptyset(&watched);
  for (int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU})
    sigaddset(&watched, number);
  ::sigprocmask(SIG_BLOCK, &watched, &before);
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  std::vector<Child> children;
  for (uint32_t rank = 0; rank < count; ++rank) {
    const pid_t process = ::fork();
    if (process == 0) {
      place.rank = place.localRank = rank;
      ::sigprocmask(SIG_SETMASK, &before, nullptr);
      becomeRank(place, parent, processors);
      if (rank == 0)
        place.listener = ::fcntl(listener->get(), F_DUPFD_CLOEXEC, 0);
      return Started{place, 0, ""};
    }
    if (process < 0) {
      Status status = error("cannot start rank {} of {}: {}; use fewer (--nproc), or raise the limit of processes "
                            "(ulimit -u)",
                            rank, count, systemError(errno));
      for (const Child &child : children)
        ::kill(child.process, SIGKILL);
      for (const Child &child : children)
        (void)::waitpid(child.process, nullptr, 0);
      ::sigprocmask(SIG_SETMASK, &before, nullptr);
      return status;
    }
    children.push_back({process, true, 0});
  }
  listener->close();
  Started result = Supervisor(std::move(children)).run(watched);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return result;
}

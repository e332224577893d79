//===- RankProcesses.cpp - start the processes of a job --------------------===//
#include "tools/trun/RankProcesses.h"
#include "runtime/parallel/Host.h"
#include "tools/common/ExitStatus.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
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

//===- Isolation.cpp - run a library call in a child process --------------===//
#include "frontend/Isolation.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <fmt/format.h>
#include <new>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tcc::frontend {
namespace {

/// The child's wall-clock limit is its CPU limit times this factor, since the machine may be busy.
constexpr unsigned kWallPerCpu = 20;
/// First byte of an answer; the message's size follows.
constexpr char kReturned = 'R', kThrew = 'T';

IsolatedResult callHere(const std::function<std::string()> &call) {
  try {
    return {IsolatedResult::Returned, call()};
  } catch (const std::bad_alloc &) {
    return {IsolatedResult::Ended, "runs out of memory"};
  } catch (const std::exception &exception) {
    return {IsolatedResult::Threw, exception.what()};
  } catch (...) {
    return {IsolatedResult::Threw, "no reason is given"};
  }
}

void lower(__rlimit_resource resource, rlim_t value) {
  rlimit limit = {};
  if (getrlimit(resource, &limit) != 0)
    return;
  limit.rlim_cur = limit.rlim_max = std::min(limit.rlim_max, value);
  setrlimit(resource, &limit);
}

uint64_t mappedBytes() {
  unsigned long long pages = 0;
  if (FILE *file = std::fopen("/proc/self/statm", "re")) {
    if (std::fscanf(file, "%llu", &pages) != 1)
      pages = 0;
    std::fclose(file);
  }
  return pages * uint64_t(sysconf(_SC_PAGESIZE));
}

bool writeAll(int descriptor, const char *data, size_t size) {
  while (size > 0) {
    ssize_t count = write(descriptor, data, size);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return false;
    data += count;
    size -= size_t(count);
  }
  return true;
}

[[noreturn]] void runChild(int out, pid_t parent, const IsolationLimits &limits,
                           const std::function<std::string()> &call) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent)
    _exit(1);
  for (int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGXCPU, SIGPIPE})
    std::signal(signal, SIG_DFL);
  lower(RLIMIT_CORE, 0);
  lower(RLIMIT_CPU, limits.cpuSeconds);
  if (uint64_t mapped = mappedBytes())
    lower(RLIMIT_AS, mapped + limits.memoryBytes);
  if (int null = open("/dev/null", O_RDWR | O_CLOEXEC); null >= 0)
    for (int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
      dup2(null, descriptor);
  IsolatedResult result = callHere(call);
  if (result.kind == IsolatedResult::Ended)
    _exit(2);
  const char kind = result.kind == IsolatedResult::Returned ? kReturned : kThrew;
  const uint64_t size = result.text.size();
  std::array<char, 9> head = {kind};
  std::memcpy(head.data() + 1, &size, sizeof size);
  _exit(writeAll(out, head.data(), head.size()) && writeAll(out, result.text.data(), result.text.size()) ? 0 : 1);
}

/// Reads the child's output until the child closes the pipe; false if the child writes nothing for too long.
bool readAll(int in, unsigned seconds, std::string &text) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  std::array<char, 65536> part;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    pollfd ready = {in, POLLIN, 0};
    const int count = poll(&ready, 1, int(std::max<long>(0, left)));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return false;
    const ssize_t bytes = read(in, part.data(), part.size());
    if (bytes < 0 && errno == EINTR)
      continue;
    if (bytes <= 0)
      return true;
    text.append(part.data(), size_t(bytes));
  }
}

std::string endText(bool inTime, int status, const IsolationLimits &limits) {
  const bool killed = WIFSIGNALED(status);
  if (!inTime || (killed && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL)))
    return fmt::format("does not end within {} seconds", limits.cpuSeconds);
  if (killed)
    return fmt::format("crashes ({})", strsignal(WTERMSIG(status)));
  return fmt::format("runs out of memory ({} GiB)", limits.memoryBytes >> 30);
}

} // namespace

IsolatedResult callIsolated(bool fork, const IsolationLimits &limits, const std::function<std::string()> &call) {
  int ends[2];
  if (!fork || pipe2(ends, O_CLOEXEC) != 0)
    return callHere(call);
  const pid_t parent = getpid(), child = ::fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    return callHere(call);
  }
  if (child == 0) {
    close(ends[0]);
    runChild(ends[1], parent, limits, call);
  }
  close(ends[1]);
  std::string text;
  const bool inTime = readAll(ends[0], limits.cpuSeconds * kWallPerCpu, text);
  close(ends[0]);
  if (!inTime)
    kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  // A complete answer counts, even if the child crashed afterwards.
  uint64_t size = 0;
  if (text.size() >= 9)
    std::memcpy(&size, text.data() + 1, sizeof size);
  if (text.size() >= 9 && text.size() - 9 == size)
    return {text[0] == kReturned ? IsolatedResult::Returned : IsolatedResult::Threw, text.substr(9)};
  return {IsolatedResult::Ended, endText(inTime, status, limits)};
}

} // namespace tcc::frontend

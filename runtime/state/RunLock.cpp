//===- RunLock.cpp - one process writes a run ----------------------------===//
#include "runtime/state/RunLock.h"
#include "support/Advice.h"
#include "support/OwnFiles.h"

#include <cerrno>
#include <cstring>
#include <sys/file.h>
#include <unistd.h>
#include <utility>

using namespace tcc;
using namespace tcc::runtime;

namespace {
/// "process 123 on host", as the holder wrote it. Any other content of the file is not repeated in messages.
std::string holderOf(int descriptor) {
  char text[256] = {};
  ssize_t count = ::pread(descriptor, text, sizeof(text) - 1, 0);
  std::string holder(text, static_cast<size_t>(count > 0 ? count : 0));
  holder = holder.substr(0, holder.find('\n'));
  for (char c : holder)
    if (c < ' ' || c > '~')
      return "another process";
  return holder.starts_with("process ") ? holder : "another process";
}

int lockNow(int descriptor, int kind) {
  int result = 0;
  do
    result = ::flock(descriptor, kind | LOCK_NB);
  while (result != 0 && errno == EINTR);
  return result;
}
} // namespace

bool tcc::runtime::RunLock::isHeld(const std::string &run) {
  auto descriptor = openLock(run + "/lock", /*make=*/false);
  if (!descriptor)
    return false;
  const bool held = lockNow(*descriptor, LOCK_SH) != 0 && errno == EWOULDBLOCK;
  ::close(*descriptor);
  return held;
}

Expected<RunLock> tcc::runtime::RunLock::acquire(const std::string &run) {
  std::string path = run + "/lock";
  RunLock lock;
  auto opened = openLock(path);
  if (!opened)
    return opened.status();
  lock.descriptor = *opened;
  int result = lockNow(lock.descriptor, LOCK_EX);
  for (int i = 0; i < 5 && result != 0 && errno == EWOULDBLOCK; ++i) { // isHeld() elsewhere holds it for microseconds
    ::usleep(2000);
    result = lockNow(lock.descriptor, LOCK_EX);
  }
  if (result != 0 && errno == EWOULDBLOCK)
    return error("{}: {} is training in this run; wait for its end, or write another run with {}", run,
                 holderOf(lock.descriptor), advice::option("out"));
  if (result != 0 && errno != ENOLCK && errno != ENOSYS && errno != EOPNOTSUPP && errno != EINVAL)
    return error("{}: cannot lock: {}", path, std::strerror(errno));
  lock.locked = result == 0;
  char host[256] = {};
  if (::gethostname(host, sizeof(host) - 1) != 0)
    std::strcpy(host, "unknown");
  std::string holder = fmt::format("process {} on {}\n", ::getpid(), host);
  // The text is only for messages: a full disk must not prevent a run.
  if (::ftruncate(lock.descriptor, 0) != 0 ||
      ::pwrite(lock.descriptor, holder.data(), holder.size(), 0) != static_cast<ssize_t>(holder.size()))
    (void)::ftruncate(lock.descriptor, 0);
  return lock;
}

tcc::runtime::RunLock::RunLock(RunLock &&other) noexcept
    : descriptor(std::exchange(other.descriptor, -1)), locked(std::exchange(other.locked, false)) {}

RunLock &tcc::runtime::RunLock::operator=(RunLock &&other) noexcept {
  std::swap(descriptor, other.descriptor);
  std::swap(locked, other.locked);
  return *this;
}

tcc::runtime::RunLock::~RunLock() {
  if (descriptor >= 0)
    ::close(descriptor);
}

//===- RegularFile.cpp - opening a file that can be read at any offset ----===//
//
// A FIFO blocks an ordinary open() until a writer opens it, and a terminal or device may block a read. O_NONBLOCK
// makes open() return; fstat() then tells what was opened, without a race against the file system.
//
//===----------------------------------------------------------------------===//
#include "support/RegularFile.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace tcc {

namespace {
const char *kindOf(mode_t mode) {
  if (S_ISDIR(mode))
    return "a folder";
  if (S_ISFIFO(mode))
    return "a FIFO (named pipe)";
  if (S_ISSOCK(mode))
    return "a socket";
  return "a device";
}
} // namespace

Expected<RegularFile> RegularFile::open(const std::string &path, Accept accept, const std::string &what) {
  struct stat status {};
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  int reason = errno;
  if (file < 0 && reason == ENXIO && ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    return error("{}: cannot read: it is not a regular file but {}", path, kindOf(status.st_mode)); // a socket
  if (file < 0)
    return error("{}: cannot open{}: {}", path, what.empty() ? "" : " " + what, std::strerror(reason));
  RegularFile opened(file, 0);
  if (::fstat(file, &status) != 0)
    return error("{}: cannot open: {}", path, std::strerror(errno));
  bool passedDown = path.starts_with("/dev/fd/") || path == "/dev/stdin" || path.starts_with("/proc/self/fd/");
  if (S_ISFIFO(status.st_mode) && passedDown && accept == Accept::PassedDownPipes &&
      ::fcntl(file, F_SETFL, O_RDONLY) == 0) // reads wait again
    return opened;
  if (!S_ISREG(status.st_mode))
    return error("{}: cannot read: it is not a regular file but {}{}", path, kindOf(status.st_mode),
                       S_ISFIFO(status.st_mode) ? "; write its output to a file first" : "");
  opened.size = static_cast<uint64_t>(status.st_size);
  return opened;
}

RegularFile::RegularFile(RegularFile &&other) noexcept : file(std::exchange(other.file, -1)), size(other.size) {}

RegularFile &RegularFile::operator=(RegularFile &&other) noexcept {
  std::swap(file, other.file);
  std::swap(size, other.size);
  return *this;
}

RegularFile::~RegularFile() {
  if (file >= 0)
    ::close(file);
}

Status RegularFile::readAt(uint64_t offset, void *to, uint64_t count) const {
  for (uint64_t done = 0; done < count;) {
    const ssize_t got = ::pread(file, static_cast<char *>(to) + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return error("{}", got == 0 ? fmt::format("it ends before byte {}", offset + count) : std::strerror(errno));
    done += static_cast<uint64_t>(got);
  }
  return Status();
}

int RegularFile::release() { return std::exchange(file, -1); }

} // namespace tcc

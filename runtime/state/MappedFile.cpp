//===- MappedFile.cpp - a file's bytes, read through a mapping -----------===//
#include "runtime/state/MappedFile.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace tcc;
using namespace tcc::runtime;

plan::Expected<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string &path) {
  // Without waiting: a FIFO that nobody writes to is refused below.
  int descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0)
    return plan::error("{}: cannot open: {}", path, std::strerror(errno));
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    std::string reason = S_ISDIR(status.st_mode) ? "it is a folder" : "it is no regular file";
    ::close(descriptor);
    return plan::error("{}: cannot read: {}", path, reason);
  }
  std::shared_ptr<MappedFile> file(new MappedFile());
  file->name = path;
  file->length = static_cast<size_t>(status.st_size);
  if (file->length != 0) {
    file->address = ::mmap(nullptr, file->length, PROT_READ, MAP_SHARED, descriptor, 0);
    if (file->address == MAP_FAILED) {
      file->address = nullptr;
      int reason = errno;
      ::close(descriptor);
      return plan::error("{}: cannot map {} bytes: {}", path, file->length, std::strerror(reason));
    }
  }
  ::close(descriptor);
  return std::shared_ptr<const MappedFile>(std::move(file));
}

MappedFile::~MappedFile() {
  if (address)
    ::munmap(address, length);
}

plan::Expected<std::string> tcc::runtime::readFile(const std::string &path) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0)
    return plan::error("{}: cannot open: {}", path, std::strerror(errno));
  struct stat status {};
  // A pipe that the caller passed down has a writer; a FIFO in the file system may wait for one for ever.
  bool passedDown = path.starts_with("/dev/fd/") || path == "/dev/stdin" || path.starts_with("/proc/self/fd/");
  if (::fstat(descriptor, &status) != 0 || (!S_ISREG(status.st_mode) && !(S_ISFIFO(status.st_mode) && passedDown)) ||
      (S_ISFIFO(status.st_mode) && ::fcntl(descriptor, F_SETFL, O_RDONLY) != 0)) {
    std::string reason = S_ISDIR(status.st_mode) ? "it is a folder" : "it is no regular file";
    ::close(descriptor);
    return plan::error("{}: cannot read: {}", path, reason);
  }
  std::string content;
  char block[65536];
  for (;;) {
    ssize_t count = ::read(descriptor, block, sizeof(block));
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0) {
      int reason = errno;
      ::close(descriptor);
      return plan::error("{}: cannot read: {}", path, std::strerror(reason));
    }
    if (count == 0)
      break;
    content.append(block, static_cast<size_t>(count));
  }
  ::close(descriptor);
  return content;
}

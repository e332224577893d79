//===- CopyFile.cpp - a file's copy that shares its blocks where it can --===//
#include "support/CopyFile.h"
#include "support/AtomicFile.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tcc {

namespace {
Status copyThroughMemory(int from, const std::string &path, AtomicFile &to) {
  std::string block(1 << 20, '\0');
  for (;;) {
    ssize_t count = ::read(from, block.data(), block.size());
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return error("{}: cannot read: {}", path, std::strerror(errno));
    if (count == 0)
      return Status();
    if (Status status = to.write(block.data(), static_cast<uint64_t>(count)); !status.ok())
      return status;
  }
}

Status copyOpenFile(int source, const std::string &from, const std::string &to) {
  struct stat information {};
  if (::fstat(source, &information) != 0 || !S_ISREG(information.st_mode))
    return error("{}: cannot copy: it is not a regular file", from);
  auto file = AtomicFile::create(to);
  if (!file)
    return file.status();
  if (!file->cloneFrom(source, static_cast<uint64_t>(information.st_size)))
    if (Status status = copyThroughMemory(source, from, *file); !status.ok())
      return status;
  return file->commit();
}
} // namespace

Status copyFile(const std::string &from, const std::string &to) {
  int source = ::open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (source < 0)
    return error("{}: cannot open: {}", from, std::strerror(errno));
  Status status = copyOpenFile(source, from, to);
  ::close(source);
  return status;
}

} // namespace tcc

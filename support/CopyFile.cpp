//===- CopyFile.cpp - a file's copy that shares its blocks where it can --===//
#include "support/CopyFile.h"
#include "support/AtomicFile.h"
#include "support/RegularFile.h"

#include <cerrno>
#include <cstring>
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

} // namespace

Status copyFile(const std::string &from, const std::string &to, OwnFile kind) {
  auto source = RegularFile::open(from);
  if (!source)
    return source.status();
  auto file = AtomicFile::create(to, kind);
  if (!file)
    return file.status();
  if (!file->cloneFrom(source->descriptor(), source->bytes()))
    if (Status status = copyThroughMemory(source->descriptor(), from, *file); !status.ok())
      return status;
  return file->commit();
}

} // namespace tcc

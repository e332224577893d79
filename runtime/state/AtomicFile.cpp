//===- AtomicFile.cpp - files that are there whole, or not at all --------===//
#include "runtime/state/AtomicFile.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

using namespace tcc;
using namespace tcc::runtime;

namespace {
std::string folderOf(const std::string &path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

plan::Status cannotWrite(const std::string &path, int reason) {
  return plan::error("{}: cannot write: {}{}", path, std::strerror(reason),
                     reason == ENOSPC || reason == EDQUOT ? "; free some space or write to another disk" : "");
}
} // namespace

plan::Expected<AtomicFile> AtomicFile::create(const std::string &path) {
  AtomicFile file;
  file.path = path;
  std::string name = std::filesystem::path(path).filename().string();
  if (name.empty() || name == "." || name == "..")
    return plan::error("{}: cannot write: it names a folder; give a file name", path);
  file.temporary = (std::filesystem::path(folderOf(path)) / fmt::format(".{}.{}.tmp", name, ::getpid())).string();
  file.descriptor = ::open(file.temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file.descriptor < 0) {
    int reason = errno;
    file.temporary.clear();
    return cannotWrite(path, reason);
  }
  file.state = XXH3_createState();
  if (!file.state)
    return cannotWrite(path, ENOMEM);
  XXH3_64bits_reset(file.state);
  return file;
}

AtomicFile::AtomicFile(AtomicFile &&other) noexcept
    : path(std::move(other.path)), temporary(std::move(other.temporary)), descriptor(other.descriptor),
      written(other.written), state(other.state) {
  other.descriptor = -1;
  other.state = nullptr;
  other.temporary.clear();
}

AtomicFile::~AtomicFile() {
  if (descriptor >= 0)
    ::close(descriptor);
  if (!temporary.empty())
    ::unlink(temporary.c_str());
  if (state)
    XXH3_freeState(state);
}

plan::Status AtomicFile::write(const void *data, uint64_t bytes) {
  const char *next = static_cast<const char *>(data);
  constexpr uint64_t kBlock = 64ull << 20;
  while (bytes != 0) {
    ssize_t count = ::write(descriptor, next, static_cast<size_t>(std::min(bytes, kBlock)));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return cannotWrite(path, count < 0 ? errno : ENOSPC);
    XXH3_64bits_update(state, next, static_cast<size_t>(count));
    next += count;
    bytes -= static_cast<uint64_t>(count);
    written += static_cast<uint64_t>(count);
  }
  return plan::Status();
}

plan::Status AtomicFile::commit() {
  if (::fsync(descriptor) != 0 && errno != EINVAL && errno != EROFS)
    return cannotWrite(path, errno);
  int closed = ::close(descriptor);
  descriptor = -1;
  if (closed != 0)
    return cannotWrite(path, errno);
  if (::rename(temporary.c_str(), path.c_str()) != 0)
    return cannotWrite(path, errno);
  temporary.clear();
  syncFolder(folderOf(path));
  return plan::Status();
}

uint64_t AtomicFile::hash() const { return XXH3_64bits_digest(state); }

plan::Status tcc::runtime::writeFileAtomically(const std::string &path, std::string_view content) {
  auto file = AtomicFile::create(path);
  if (!file)
    return file.status();
  if (plan::Status status = file->write(content); !status.ok())
    return status;
  return file->commit();
}

void tcc::runtime::syncFolder(const std::string &folder) {
  int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0)
    return;
  (void)::fsync(descriptor);
  ::close(descriptor);
}

plan::Status tcc::runtime::makeFolders(const std::string &folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code)
    return plan::error("{}: cannot create the folder: {}", folder, code.message());
  return plan::Status();
}
